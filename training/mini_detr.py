"""mini-detr: a stock DetrForObjectDetection that names and boxes the objects of Shapes World.

    PYTHONPATH=src python training/mini_detr.py --out DIR --minutes 9 --seed 0

Scenes are drawn as they are needed, so no data folder is read. The backbone learns with real batch norm, whose
statistics are put into the frozen norms of the stock class in the end. What makes DETR learn within minutes: its heads
are also asked at every encoder token what is seen there and begin at the mean answer, its queries begin spread over the
picture, and the rate is high.
"""

import argparse
import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import (
    AutoBackbone,
    AutoModelForObjectDetection,
    DetrConfig,
    DetrForObjectDetection,
    DetrImageProcessorPil,
    ResNetConfig,
)
from transformers.models.detr.modeling_detr import replace_batch_norm

import course
from whyformer.scenes import LABELS, SIDE, Scenes, cleared, pictures, sample
from whyformer.scenes.world import MOST

PIXELS = 128
GRID = PIXELS // 8  # encoder tokens a side
QUERIES = (4, 4)  # rows and columns in which the queries begin
NOTHING = len(LABELS)
NOTHING_WEIGHT = 0.4
WEIGHTS = (2.0, 5.0, 2.0)  # of the errors in label, distance and overlap
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
PROCESSOR = {
    "image_processor_type": "DetrImageProcessor",
    "format": "coco_detection",
    "do_resize": True,
    "size": {"height": PIXELS, "width": PIXELS},
    "resample": 2,
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": list(MEAN),
    "image_std": list(STD),
    "do_pad": False,  # every picture has the same size, so a mask would say nothing
}
FOUND = 0.5  # the score from which an object counts as found


class Lesson(NamedTuple):
    """Scenes as a detector learns them; boxes are centre and size, as shares of the side."""

    pixels: Tensor  # scene, rgb, 64, 64
    labels: Tensor  # scene, object: NOTHING where there are fewer
    boxes: Tensor  # scene, object, 4
    seen: Tensor  # scene, token: the label seen there, or NOTHING
    around: Tensor  # scene, token, 4: the box of the object seen there, or else the token's own


def lesson_of(scenes: Scenes) -> Lesson:
    drawn = pictures(scenes)
    left_top, right_bottom = (drawn.boxes / SIDE).split(2, dim=2)
    boxes = torch.cat([(left_top + right_bottom) / 2, right_bottom - left_top], dim=2)
    labels = torch.where(scenes.is_object, scenes.label, NOTHING)
    objects = scenes.is_object.long().argsort(dim=1, descending=True, stable=True)[:, :MOST]
    step = SIDE // GRID
    owner = drawn.owner[:, step // 2 :: step, step // 2 :: step].flatten(1).long()
    seen = torch.where(owner < 0, NOTHING, labels.gather(1, owner.clamp(min=0)))
    around = torch.where((seen < NOTHING)[:, :, None], picked(boxes, owner.clamp(min=0)), own_boxes(owner.device))
    return Lesson(drawn.pixels, labels.gather(1, objects), picked(boxes, objects), seen, around)


def own_boxes(device: torch.device) -> Tensor:
    """The box each token stands for."""
    place = (torch.arange(GRID, device=device) + 0.5) / GRID
    centres = torch.stack(torch.meshgrid(place, place, indexing="xy"), dim=2).flatten(0, 1)
    return torch.cat([centres, torch.full_like(centres, 1 / GRID)], dim=1)


def lessons(batch: int, rng: torch.Generator, *, at_once: int = 16) -> Iterator[Lesson]:
    """Batches without end, of scenes drawn many at once."""
    while True:
        many = lesson_of(sample(at_once * batch, "train", rng=rng))
        for part in zip(*(field.split(batch) for field in many), strict=True):
            yield Lesson(*part)


def picked(values: Tensor, index: Tensor) -> Tensor:
    """The rows of `values` (scene, row, channel) that `index` (scene, place) names."""
    return values.gather(1, index[:, :, None].expand(-1, -1, values.shape[2]))


def inputs_of(pixels: Tensor) -> Tensor:
    """What the image processor makes of these pixels, up to its rounding."""
    larger = F.interpolate(pixels.float(), size=(PIXELS, PIXELS), mode="bilinear").round()
    mean, std = (torch.tensor(values, device=pixels.device)[:, None, None] for values in (MEAN, STD))
    return ((larger / 255 - mean) / std).contiguous(memory_format=torch.channels_last)


def new_model() -> DetrForObjectDetection:
    """With a backbone whose batch norms are real, and queries spread over the picture."""
    backbone = ResNetConfig(
        embedding_size=32, hidden_sizes=[64, 112], depths=[2, 2], layer_type="basic", out_features=["stage2"]
    )
    config = DetrConfig(
        backbone_config=backbone,
        num_queries=QUERIES[0] * QUERIES[1],
        d_model=128,
        encoder_layers=3,
        decoder_layers=3,
        encoder_attention_heads=8,
        decoder_attention_heads=8,
        encoder_ffn_dim=384,
        decoder_ffn_dim=384,
        dropout=0.0,
        id2label=dict(enumerate(LABELS)),
        label2id={name: label for label, name in enumerate(LABELS)},
    )
    model = DetrForObjectDetection(config).eval()  # there is no dropout, and no check for infinities this way
    model.model.backbone.model = AutoBackbone.from_config(backbone).to(memory_format=torch.channels_last)
    for parameter in (*model.model.encoder.parameters(), *model.model.decoder.parameters()):
        if parameter.ndim > 1:
            nn.init.xavier_uniform_(parameter)
    spread_queries(model)
    begin_at_the_mean(model)
    return model.requires_grad_(True)


@torch.no_grad()
def spread_queries(model: DetrForObjectDetection, *, sharpness: float = 2.0) -> None:
    """Begin with each query at a place of its own, where its cross-attention looks.

    Every head compares the position channels that change fastest across the picture: the first of each axis.
    """
    rows, columns = (((torch.arange(count) + 0.5) / count * GRID).long() for count in QUERIES)
    places = positions_of(model).unflatten(0, (GRID, GRID))[rows][:, columns]
    model.model.query_position_embeddings.weight.copy_(places.flatten(0, 1))
    channels = model.config.d_model
    for layer in model.model.decoder.layers:
        attention = layer.encoder_attn
        half = attention.head_dim // 2
        fastest = torch.cat([torch.arange(half), channels // 2 + torch.arange(half)])
        for projection in (attention.q_proj, attention.k_proj):
            heads = projection.weight.view(-1, attention.head_dim, channels)
            heads[:, torch.arange(attention.head_dim), fastest] += sharpness


@torch.no_grad()
def begin_at_the_mean(model: DetrForObjectDetection) -> None:
    """The heads first answer "nothing", and a box of the usual size: what they would spend their first steps on."""
    model.class_labels_classifier.bias[NOTHING] = 3.0
    model.bbox_predictor.layers[-1].bias[2:] = -1.5  # a sigmoid of 0.18


def positions_of(model: DetrForObjectDetection) -> Tensor:
    """The position embedding of every token."""
    shape = torch.Size((1, model.config.d_model, GRID, GRID))
    return model.model.position_embedding(shape, device=model.device, dtype=torch.float32)[0].flatten(1).T


class Answers(NamedTuple):
    tokens: Tensor  # scene, token, channel: the encoder's output
    slots: Tensor  # decoder block, scene, query, channel


def answers(model: DetrForObjectDetection, inputs: Tensor, positions: Tensor) -> Answers:
    """What the stock model computes without a mask, after every decoder block and not only the last."""
    detr = model.model
    features = detr.backbone.model.embedder(inputs)
    for stage in detr.backbone.model.encoder.stages:
        features = stage(features)
    tokens = detr.input_projection(features).flatten(2).transpose(1, 2)
    positions = positions.expand(len(inputs), -1, -1)
    for layer in detr.encoder.layers:
        tokens = layer(tokens, None, spatial_position_embeddings=positions)
    queries = detr.query_position_embeddings.weight.expand(len(inputs), -1, -1)
    slots = torch.zeros_like(queries)
    found = []
    for layer in detr.decoder.layers:
        slots = layer(slots, None, positions, queries, tokens)
        found.append(detr.decoder.layernorm(slots))
    return Answers(tokens, torch.stack(found))


def losses(model: DetrForObjectDetection, lesson: Lesson, positions: Tensor) -> Tensor:
    """Errors in label, distance and overlap: a row for all decoder blocks and one for the encoder's tokens."""
    tokens, slots = answers(model, inputs_of(lesson.pixels), positions)
    blocks = len(slots)
    labels, boxes = lesson.labels.repeat(blocks, 1), lesson.boxes.repeat(blocks, 1, 1)
    logits = model.class_labels_classifier(slots).float().flatten(0, 1)
    guesses = model.bbox_predictor(slots).float().sigmoid().flatten(0, 1)
    query = assignment(costs(logits.detach(), guesses.detach(), labels, boxes))
    target = torch.full(logits.shape[:2], NOTHING, device=logits.device).scatter(1, query, labels)
    of_slots = errors(logits, target, picked(guesses, query), boxes, labels < NOTHING)
    of_tokens = errors(
        model.class_labels_classifier(tokens).float(),
        lesson.seen,
        model.bbox_predictor(tokens).float().sigmoid(),
        lesson.around,
        torch.ones_like(lesson.seen),
    )
    return torch.stack([torch.stack(of_slots), torch.stack(of_tokens)])


def errors(logits: Tensor, target: Tensor, guesses: Tensor, boxes: Tensor, real: Tensor) -> tuple[Tensor, ...]:
    """Of the labels, and of the boxes where they are real."""
    weight = torch.ones(NOTHING + 1, device=logits.device)
    weight[NOTHING] = NOTHING_WEIGHT
    share = real / real.sum()
    distance = (guesses - boxes).abs().sum(dim=-1)
    overlap = 1 - generalized_iou(guesses, boxes)
    return (
        F.cross_entropy(logits.flatten(0, 1), target.flatten(), weight),
        (distance * share).sum(),
        (overlap * share).sum(),
    )


def costs(logits: Tensor, guesses: Tensor, labels: Tensor, boxes: Tensor) -> Tensor:
    """Of giving each query (row) each object (column); an object that is not there costs nothing."""
    chance = logits.softmax(dim=2).gather(2, labels[:, None].expand(-1, logits.shape[1], -1))
    guesses, boxes = guesses[:, :, None], boxes[:, None]
    distance = (guesses - boxes).abs().sum(dim=3)
    cost = WEIGHTS[1] * distance - WEIGHTS[0] * chance - WEIGHTS[2] * generalized_iou(guesses, boxes)
    return cost * (labels < NOTHING)[:, None]


def assignment(cost: Tensor) -> Tensor:
    """The query of each object so that the total cost (scene, query, object) is least, exactly.

    Query by query, the least cost is kept for every set of objects that may have been given away by then.
    """
    scenes, queries, objects = cost.shape
    bits = 2 ** torch.arange(objects, device=cost.device)
    sets = torch.arange(2**objects, device=cost.device)
    within = (sets[:, None] & bits) > 0
    before = (sets[:, None] - bits).clamp(min=0)
    least = torch.where(sets == 0, 0.0, torch.inf).expand(scenes, -1)
    choices = []
    for query in range(queries):
        given = torch.where(within, least[:, before] + cost[:, query, None], torch.inf)
        least, choice = torch.cat([given, least[:, :, None]], dim=2).min(dim=2)
        choices.append(choice)  # the object given to this query, or `objects` for none
    left = torch.full((scenes, 1), 2**objects - 1, device=cost.device)
    query_of = torch.zeros(scenes, objects, dtype=torch.long, device=cost.device)
    for query in reversed(range(queries)):
        given = choices[query].gather(1, left) == torch.arange(objects, device=cost.device)
        query_of = torch.where(given, query, query_of)
        left = left - (given * bits).sum(dim=1, keepdim=True)
    return query_of


def corners(boxes: Tensor) -> tuple[Tensor, Tensor]:
    """Left and top, right and bottom, of boxes given as centre and size."""
    centre, size = boxes.split(2, dim=-1)
    return centre - size / 2, centre + size / 2


def generalized_iou(ours: Tensor, theirs: Tensor) -> Tensor:
    (start, end), (other_start, other_end) = corners(ours), corners(theirs)
    shared = (torch.minimum(end, other_end) - torch.maximum(start, other_start)).clamp(min=0).prod(dim=-1)
    hull = (torch.maximum(end, other_end) - torch.minimum(start, other_start)).prod(dim=-1)
    union = (end - start).prod(dim=-1) + (other_end - other_start).prod(dim=-1) - shared
    return shared / union - (hull - union) / hull


@torch.no_grad()
def frozen(model: DetrForObjectDetection, supply: Iterator[Lesson], *, batches: int = 20) -> DetrForObjectDetection:
    """A copy whose batch norms are frozen, as the stock class has them, at their statistics over fresh scenes."""
    model = copy.deepcopy(model)
    backbone, device = model.model.backbone.model.train(), model.device
    for module in backbone.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.reset_running_stats()
            module.momentum = None  # the mean over all batches
    for _ in range(batches):
        backbone(inputs_of(next(supply).pixels))
    replace_batch_norm(model.cpu())
    return model.to(device).eval()


class Detections(NamedTuple):
    """What each query finds; boxes are left, top, right, bottom, in pixels."""

    scores: Tensor  # scene, query
    labels: Tensor
    boxes: Tensor  # scene, query, 4


@torch.no_grad()
def detections(model: DetrForObjectDetection, processor: DetrImageProcessorPil, pixels: Tensor) -> Detections:
    """As a user would get them: pictures in, the processor's boxes out."""
    parts = []
    for part in pixels.split(250):
        inputs = processor(images_of(part), return_tensors="pt").to(model.device)
        sizes = [(SIDE, SIDE)] * len(part)
        found = processor.post_process_object_detection(model(**inputs), threshold=-1.0, target_sizes=sizes)
        parts += [(one["scores"], one["labels"], one["boxes"]) for one in found]
    return Detections(*(torch.stack(field) for field in zip(*parts, strict=True)))


def images_of(pixels: Tensor) -> list[Image.Image]:
    return [Image.fromarray(picture) for picture in pixels.permute(0, 2, 3, 1).cpu().numpy()]


def overlaps(found: Detections, scenes: Scenes, boxes: Tensor) -> Tensor:
    """The IoU of each detection with the object of its label, of which a scene has at most one; 0 if it has none."""
    truth = boxes.new_zeros(len(scenes), len(LABELS), 4)
    scene, thing = scenes.is_object.nonzero(as_tuple=True)
    truth[scene, scenes.label[scene, thing]] = boxes[scene, thing]
    theirs = picked(truth, found.labels)
    start, end = torch.maximum(found.boxes, theirs)[..., :2], torch.minimum(found.boxes, theirs)[..., 2:]
    shared = (end - start).clamp(min=0).prod(dim=2)
    areas = sum((part[..., 2:] - part[..., :2]).prod(dim=2) for part in (found.boxes, theirs))
    return shared / (areas - shared).clamp(min=1e-6)


def right_ones(found: Detections, overlap: Tensor, at_least: float) -> Tensor:
    """Which detections hit their object; of several that do, the one with the highest score."""
    hits = overlap >= at_least
    rivals = (found.labels[:, :, None] == found.labels[:, None, :]) & hits[:, None, :]
    better = found.scores[:, None, :] > found.scores[:, :, None]
    return hits & ~(rivals & better).any(dim=2)


def average_precision(found: Detections, right: Tensor, labels: Tensor) -> float:
    """The area under the precision that is reached at each recall or beyond, for each label shown; their mean."""
    areas = []
    for label in labels[labels >= 0].unique():
        chosen = found.labels == label
        order = found.scores[chosen].argsort(descending=True)
        correct = right[chosen][order].double()
        precision = correct.cumsum(0) / torch.arange(1, len(correct) + 1, device=correct.device)
        reached = precision.flip(0).cummax(0).values.flip(0) if len(correct) else precision
        areas.append(float((reached * correct).sum() / (labels == label).sum()))
    return sum(areas) / len(areas)


def scores_of(model: DetrForObjectDetection, processor: DetrImageProcessorPil, scenes: Scenes) -> dict[str, float]:
    drawn = pictures(scenes)
    found = detections(model, processor, drawn.pixels)
    overlap = overlaps(found, scenes, drawn.boxes)
    right = right_ones(found, overlap, 0.5)
    sure = found.scores >= FOUND
    return {
        "ap50": average_precision(found, right, scenes.label),
        "ap75": average_precision(found, right_ones(found, overlap, 0.75), scenes.label),
        "objects_found": float((right & sure).sum() / scenes.is_object.sum()),
        "detections_wrong": float((sure & ~right).sum() / sure.sum().clamp(min=1)),
    }


def removal(
    model: DetrForObjectDetection, processor: DetrImageProcessorPil, scenes: Scenes, rng: torch.Generator
) -> dict[str, float]:
    """How often a random object's label is found anywhere in its scene, and still is once the object is cleared."""
    thing = torch.multinomial(scenes.is_object.float(), 1, generator=rng)
    label = scenes.label.gather(1, thing)
    without = cleared(scenes, torch.zeros_like(scenes.is_object).scatter(1, thing, True))

    def named(shown: Scenes) -> float:
        found = detections(model, processor, pictures(shown).pixels)
        return float(((found.labels == label) & (found.scores >= FOUND)).any(dim=1).float().mean())

    return {"label_found": named(scenes), "label_found_when_cleared": named(without)}


def pixel_difference(processor: DetrImageProcessorPil, pixels: Tensor) -> float:
    """The most by which training's pixels depart from the processor's, in steps of 1/255."""
    theirs = processor(images_of(pixels), return_tensors="pt")["pixel_values"]
    steps = (inputs_of(pixels).cpu() - theirs).abs() * 255 * torch.tensor(STD)[:, None, None]
    return float(steps.max())


def options_of_the_call() -> argparse.Namespace:
    parser = course.options_of(__doc__)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rate", type=float, default=1.5e-3)
    parser.add_argument("--test-scenes", type=int, default=4000)
    parser.add_argument("--probe-scenes", type=int, default=500)
    return course.begin(parser)


def processor_in(folder: Path) -> DetrImageProcessorPil:
    """The image processor, whose file now lies in the model's folder and loads with or without torchvision."""
    folder.mkdir(exist_ok=True)
    (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSOR, indent=2) + "\n")
    return DetrImageProcessorPil.from_pretrained(folder)


class Run:
    """The model in training, its running average, and one step."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.device = options, torch.device(options.device)
        self.rng = torch.Generator(self.device).manual_seed(options.seed)
        self.supply = lessons(options.batch, self.rng)
        self.model = new_model().to(self.device)
        self.average = course.Average(self.model)
        self.model.model.backbone.train()
        self.trainer = course.Trainer(self.model, rate=options.rate)
        self.positions = positions_of(self.model)
        self.weights = torch.tensor(WEIGHTS, device=self.device)
        self.losses = course.compiled(losses, lambda faster: self.losses_of_a_batch(faster).sum().backward(), options)
        self.model.zero_grad(set_to_none=True)

    def losses_of_a_batch(self, losses: Callable[..., Tensor]) -> Tensor:
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.device.type == "cuda"):
            return losses(self.model, next(self.supply), self.positions)

    def step(self, progress: float) -> dict[str, Tensor]:
        """One update; the tokens' errors matter less and less."""
        errors = self.losses_of_a_batch(self.losses)
        of_slots, of_tokens = (errors * self.weights).sum(dim=1)
        self.trainer.step(of_slots + (1 - progress) * of_tokens, progress)
        self.average.update()
        names = ("label", "distance", "overlap", "token_label", "token_distance", "token_overlap")
        return dict(zip(names, errors.detach().flatten(), strict=True))

    def kept(self) -> DetrForObjectDetection:
        """The running average with its norms frozen, saved."""
        model = frozen(self.average.model, self.supply)
        course.save(model, self.options.out / "model")
        return model


def main() -> None:
    options = options_of_the_call()
    processor = processor_in(options.out / "model")
    run = Run(options)
    shown = sample(options.probe_scenes, "val", rng=run.rng)
    course.say({"event": "training starts"}, options.out)
    steps = course.follow(
        run.step,
        seconds=course.seconds_left(options, keep=45),
        options=options,
        probe=lambda: scores_of(run.kept(), processor, shown),
    )
    run.kept()
    model = course.reloaded(AutoModelForObjectDetection, options)
    test = sample(options.test_scenes, "test", rng=run.rng)
    scores = scores_of(model, processor, test) | removal(model, processor, test, run.rng)
    scores["pixel_difference"] = pixel_difference(processor, pictures(test[:200]).pixels)
    course.finish(scores, model, options, steps=steps, scenes_seen=steps * options.batch, test_scenes=len(test))


if __name__ == "__main__":
    main()

"""mini-detr: a stock DetrForObjectDetection that names and boxes the objects of Shapes World.

    PYTHONPATH=src python training/mini_detr.py --out DIR --minutes 9 --seed 0

Scenes are drawn as they are needed, so no data folder is read. The backbone is trained with real batch norm, whose
statistics are put into the frozen norms of the stock class in the end. What makes DETR learn within minutes: its heads
are also trained at every encoder token, on what is seen there, and start at the mean answer; its queries start spread
over the picture; and the learning rate is high.
"""

import argparse
import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from transformers import (
    AutoBackbone,
    AutoModelForObjectDetection,
    DetrConfig,
    DetrForObjectDetection,
    DetrImageProcessorPil,
    ResNetConfig,
)
from transformers.models.detr.modeling_detr import replace_batch_norm

from checkpoints import load_model, save_model
from detection_batches import GRID, MEAN, NOTHING, PIXELS, STD, DetectionBatch, gather_rows, inputs_of, training_batches
from detection_losses import WEIGHTS, assignment, costs, detection_losses
from detection_metrics import detection_scores, pixel_difference, removal_scores
from optimization import Trainer, WeightAverage
from training_loop import (
    compile_if_possible,
    log,
    mixed_precision,
    new_parser,
    seconds_left,
    start_run,
    train_for,
    write_metrics,
)
from whyformer.scenes import LABELS, pictures, sample

QUERIES = (4, 4)  # rows and columns in which the queries start
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
    start_at_the_mean(model)
    return model.requires_grad_(True)


@torch.no_grad()
def spread_queries(model: DetrForObjectDetection, *, sharpness: float = 2.0) -> None:
    """Start each query at a place of its own, which its cross-attention attends to.

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
def start_at_the_mean(model: DetrForObjectDetection) -> None:
    """The heads first answer "nothing", and a box of the usual size: what they would spend their first steps on."""
    model.class_labels_classifier.bias[NOTHING] = 3.0
    model.bbox_predictor.layers[-1].bias[2:] = -1.5  # a sigmoid of 0.18


def positions_of(model: DetrForObjectDetection) -> Tensor:
    """The position embedding of every token."""
    shape = torch.Size((1, model.config.d_model, GRID, GRID))
    return model.model.position_embedding(shape, device=model.device, dtype=torch.float32)[0].flatten(1).T


class HiddenStates(NamedTuple):
    tokens: Tensor  # scene, token, channel: the encoder's output
    queries: Tensor  # decoder block, scene, query, channel


def hidden_states(model: DetrForObjectDetection, inputs: Tensor, positions: Tensor) -> HiddenStates:
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
    states = torch.zeros_like(queries)
    outputs = []
    for layer in detr.decoder.layers:
        states = layer(states, None, positions, queries, tokens)
        outputs.append(detr.decoder.layernorm(states))
    return HiddenStates(tokens, torch.stack(outputs))


def losses(model: DetrForObjectDetection, batch: DetectionBatch, positions: Tensor) -> Tensor:
    """Losses of label, distance and overlap: a row for all decoder blocks and one for the encoder's tokens."""
    tokens, queries = hidden_states(model, inputs_of(batch.pixels), positions)
    blocks = len(queries)
    labels, boxes = batch.labels.repeat(blocks, 1), batch.boxes.repeat(blocks, 1, 1)
    logits = model.class_labels_classifier(queries).float().flatten(0, 1)
    boxes_of_queries = model.bbox_predictor(queries).float().sigmoid().flatten(0, 1)
    query = assignment(costs(logits.detach(), boxes_of_queries.detach(), labels, boxes))
    target = torch.full(logits.shape[:2], NOTHING, device=logits.device).scatter(1, query, labels)
    query_losses = detection_losses(logits, target, gather_rows(boxes_of_queries, query), boxes, labels < NOTHING)
    token_losses = detection_losses(
        model.class_labels_classifier(tokens).float(),
        batch.token_labels,
        model.bbox_predictor(tokens).float().sigmoid(),
        batch.token_boxes,
        torch.ones_like(batch.token_labels),
    )
    return torch.stack([torch.stack(query_losses), torch.stack(token_losses)])


@torch.no_grad()
def freeze_batch_norms(
    model: DetrForObjectDetection, batches: Iterator[DetectionBatch], *, count: int = 20
) -> DetrForObjectDetection:
    """A copy whose batch norms are frozen, as the stock class has them, at their statistics over fresh scenes."""
    model = copy.deepcopy(model)
    backbone, device = model.model.backbone.model.train(), model.device
    for module in backbone.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.reset_running_stats()
            module.momentum = None  # the mean over all batches
    for _ in range(count):
        backbone(inputs_of(next(batches).pixels))
    replace_batch_norm(model.cpu())
    return model.to(device).eval()


def read_options() -> argparse.Namespace:
    parser = new_parser(__doc__)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--rate", type=float, default=1.5e-3)
    parser.add_argument("--test-scenes", type=int, default=4000)
    parser.add_argument("--probe-scenes", type=int, default=500)
    return start_run(parser)


def write_processor(folder: Path) -> DetrImageProcessorPil:
    """Write the image processor's file into the model's folder and load it, with or without torchvision."""
    folder.mkdir(exist_ok=True)
    (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSOR, indent=2) + "\n")
    return DetrImageProcessorPil.from_pretrained(folder)


class DetectorTraining:
    """The model in training, its running average, and one step."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.device = options, torch.device(options.device)
        self.rng = torch.Generator(self.device).manual_seed(options.seed)
        self.batches = training_batches(options.batch, self.rng)
        self.model = new_model().to(self.device)
        self.average = WeightAverage(self.model)
        self.model.model.backbone.train()
        self.trainer = Trainer(self.model, rate=options.rate)
        self.positions = positions_of(self.model)
        self.weights = torch.tensor(WEIGHTS, device=self.device)
        self.losses = compile_if_possible(losses, lambda trial: self.losses_of_a_batch(trial).sum().backward(), options)
        self.model.zero_grad(set_to_none=True)

    def losses_of_a_batch(self, losses: Callable[..., Tensor]) -> Tensor:
        with mixed_precision(self.device):
            return losses(self.model, next(self.batches), self.positions)

    def step(self, progress: float) -> dict[str, Tensor]:
        """One update; the encoder tokens' losses weigh less and less."""
        losses = self.losses_of_a_batch(self.losses)
        query_loss, token_loss = (losses * self.weights).sum(dim=1)
        self.trainer.step(query_loss + (1 - progress) * token_loss, progress)
        self.average.update()
        names = ("label", "distance", "overlap", "token_label", "token_distance", "token_overlap")
        return dict(zip(names, losses.detach().flatten(), strict=True))

    def save(self) -> DetrForObjectDetection:
        """Save the averaged model with its batch norms frozen, and return it."""
        model = freeze_batch_norms(self.average.model, self.batches)
        save_model(model, self.options.out / "model")
        return model


def main() -> None:
    options = read_options()
    processor = write_processor(options.out / "model")
    training = DetectorTraining(options)
    validation = sample(options.probe_scenes, "val", rng=training.rng)
    log({"event": "training starts"}, options.out)
    steps = train_for(
        training.step,
        seconds=seconds_left(options, reserve=45),
        options=options,
        validate=lambda: detection_scores(training.save(), processor, validation),
    )
    training.save()
    model = load_model(AutoModelForObjectDetection, options)
    test = sample(options.test_scenes, "test", rng=training.rng)
    scores = detection_scores(model, processor, test) | removal_scores(model, processor, test, training.rng)
    scores["pixel_difference"] = pixel_difference(processor, pictures(test[:200]).pixels)
    write_metrics(scores, model, options, steps=steps, scenes_seen=steps * options.batch, test_scenes=len(test))


if __name__ == "__main__":
    main()

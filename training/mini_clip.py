"""mini-clip: a stock CLIPModel for photos and Shapes World, trained with captions that are almost true.

    PYTHONPATH=src python training/mini_clip.py --data DIR --init FOLDER --out DIR --minutes 8 --seed 0

Half of a batch are photos with templated captions, half are scenes. Scenes come with edited versions of themselves
and with captions whose colours, shapes or objects were replaced or swapped; which caption is true of which scene is
known exactly, so that no true pair is pushed apart. `--init` is a trained mini-vit-plain: the vision tower starts from
eight of its blocks, and its logits are distilled; without it, all is learned from the captions. For training only,
linear maps tell from [CLS] what lies in which row and column of a scene, and from patches what they show. Attention is
never supervised.
The schedule follows the clock, so a run ends on time on any machine and its length in steps may differ between runs.
"""

import argparse
import math
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F
from transformers import AutoTokenizer, CLIPConfig, CLIPModel, CLIPTokenizer, ViTForImageClassification

from augmentation import MEAN, STD, augment, no_augmentation
from backbones import clip_backbones, vit_backbone
from caption_batches import (
    NONE,
    CaptionEncoder,
    all_changes,
    cells_of,
    claims_of,
    edited_claims,
    false_claims,
    is_true,
    labels_of,
    new_tokenizer,
    scene_batches,
    versions_of,
)
from checkpoints import load_model
from optimization import Trainer, WeightAverage
from photo_batches import PhotoSampler, add_photo_options
from photo_classification import PIXELS, accuracies, distillation_loss, save_image_model
from photos import Photos
from training_loop import compile_if_possible, log, new_parser, seconds_left, start_run, train_for, write_metrics
from whyformer.scenes import LABELS, pictures, sample

BLOCKS = (1, 2, 3, 4, 5, 6, 11, 12)  # of the initial ViT; without the other four it still classifies
PLACES_WEIGHT = 20.0  # a mean over 288 places, most of them empty
PATCH_BLOCK = 6  # the block of the vision tower after which patches tell what they show
CANDIDATES = 32
RESERVE = 25.0  # seconds for saving and the evaluation


def new_model(tokenizer: CLIPTokenizer) -> CLIPModel:
    shared = {"hidden_act": "gelu", "layer_norm_eps": 1e-6, "projection_dim": 128}
    vision = {"image_size": PIXELS, "patch_size": 8, "hidden_size": 192, "intermediate_size": 768}
    vision |= {"num_hidden_layers": len(BLOCKS), "num_attention_heads": 6}
    text = {"vocab_size": len(tokenizer), "max_position_embeddings": tokenizer.model_max_length}
    text |= {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 3, "num_attention_heads": 4}
    text |= {f"{kind}_token_id": getattr(tokenizer, f"{kind}_token_id") for kind in ("bos", "eos", "pad")}
    return CLIPModel(CLIPConfig(text_config=text | shared, vision_config=vision | shared, projection_dim=128))


@torch.no_grad()
def initialise_from_vit(model: CLIPModel, vit: ViTForImageClassification, inputs: Tensor) -> None:
    """Give the vision tower the ViT's embeddings, BLOCKS and norm; its own first norm changes the inputs little."""
    vision, theirs = model.vision_model, vit.vit.embeddings
    embeddings, projection = vision.embeddings, theirs.patch_embeddings.projection
    embeddings.patch_embedding.weight.copy_(projection.weight)
    embeddings.class_embedding.copy_(theirs.cls_token[0, 0])
    embeddings.position_embedding.weight.copy_(theirs.position_embeddings[0])
    embeddings.position_embedding.weight[1:] += projection.bias
    vision.pre_layrnorm.weight.fill_(embeddings(inputs).std(dim=-1).mean())
    ours, backbone = clip_backbones(model)[0], vit_backbone(vit)
    for block, number in zip(ours.blocks, BLOCKS, strict=True):
        block.load_state_dict(backbone.blocks[number - 1].state_dict())
    ours.final_norm.load_state_dict(backbone.final_norm.state_dict())


class Student(nn.Module):
    """The model and, for training only, linear maps from [CLS] to what lies where, from patches to what they show."""

    def __init__(self, model: CLIPModel) -> None:
        super().__init__()
        self.model = model
        self.vision, self.text = clip_backbones(model)
        width = model.config.vision_config.hidden_size
        self.places, self.patches = nn.Linear(width, len(LABELS) * 6), nn.Linear(width, NONE + 1)

    def embeddings(self, inputs: Tensor, ids: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Of images and of texts, with length 1; what lies where; what patches show."""
        tokens = self.vision(inputs).tokens
        image_cls = tokens[-1][:, 0]
        ends = (ids == self.model.config.text_config.eos_token_id).int().argmax(dim=1)
        text_end = self.text(ids).tokens[-1].take_along_dim(ends[:, None, None], dim=1)[:, 0]
        projections = self.model.visual_projection(image_cls), self.model.text_projection(text_end)
        images, texts = (F.normalize(part.float(), dim=-1) for part in projections)
        return images, texts, self.places(image_cls).float(), self.patches(tokens[PATCH_BLOCK - 1][:, 1:]).float()


def photo_losses(logits: Tensor, labels: Tensor, log_prior: Tensor, vit_logits: Tensor | None) -> dict[str, Tensor]:
    """Of logits: image, text; the first images are the photos, the first texts their labels' prompts."""
    photos, names = labels.shape
    rows = logits[:photos] + F.pad(log_prior, (0, logits.shape[1] - names))
    of_images = F.cross_entropy(rows, F.pad(labels, (0, logits.shape[1] - names)))
    shares = labels / labels.sum(dim=0).clamp(min=1)  # all photos of one label match its prompt
    of_texts = F.cross_entropy(logits[:, :names].T, F.pad(shares.T, (0, len(logits) - photos)))
    losses = {"photo_to_text": of_images, "text_to_photo": of_texts}
    if vit_logits is not None:
        losses["distilled"] = distillation_loss(logits[:photos, :names], vit_logits)
    return losses


def scene_losses(logits: Tensor, truth: Tensor) -> dict[str, Tensor]:
    """Of logits: image, text; the last images are the scenes, the last texts their claims, the own ones first.

    What is true of a scene but not its own caption counts neither for it nor against it.
    """
    own = torch.arange(len(truth), device=logits.device)
    others = truth.scatter(1, own[:, None], False)
    photos, names = (whole - part for whole, part in zip(logits.shape, truth.shape, strict=True))
    is_ignored = F.pad(others, (names, 0, photos, 0))
    compared = logits.masked_fill(is_ignored, -math.inf)
    rows, columns = compared[photos:], compared[:, names : names + len(truth)]
    return {
        "scene_to_text": F.cross_entropy(rows, names + own),
        "text_to_scene": F.cross_entropy(columns.T, photos + own),
    }


def place_loss(logits: Tensor, cells: Tensor) -> Tensor:
    """Of what lies in which row and column: scene, label · 6."""
    place = torch.arange(3, device=cells.device)
    row, column = ((part[..., None] == place) & (cells > 0)[..., None] for part in ((cells - 1) // 3, (cells - 1) % 3))
    return F.binary_cross_entropy_with_logits(logits, torch.cat([row, column], dim=2).flatten(1).float())


def inputs_of(images: Tensor) -> Tensor:
    """Scenes as the image processor gives them."""
    enlarged = F.interpolate(images.float() / 255, size=PIXELS, mode="bicubic", antialias=True).clamp(0, 1)
    mean, std = (torch.tensor(stat, device=images.device)[:, None, None] for stat in (MEAN, STD))
    return (enlarged - mean) / std


class ClipTraining:
    """What a step needs: both kinds of images, the captions, the student and the ViT it starts from."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.photos = PhotoSampler(options)
        names = self.photos.train.names
        device, self.rng = self.photos.device, self.photos.rng
        self.scenes = scene_batches(options.batch, self.rng)
        self.tokenizer = new_tokenizer(names)
        self.encoder = CaptionEncoder(self.tokenizer, names, device)
        self.model = new_model(self.tokenizer).to(device)
        self.vit = None
        if options.init:
            self.vit = ViTForImageClassification.from_pretrained(options.init).to(device).eval().requires_grad_(False)
            images = self.photos.train.images[:64]
            initialise_from_vit(
                self.model, self.vit, augment(images, no_augmentation(len(images), device), size=PIXELS)
            )
        self.student = Student(self.model).to(device)
        self.average = WeightAverage(self.model, decay=options.ema)
        self.trainer = Trainer(self.student, rate=options.rate)
        self.embeddings = compile_if_possible(self.student.embeddings, self.trial, options)

    def trial(self, embeddings: Callable[..., tuple[Tensor, ...]]) -> None:
        self.embeddings = embeddings
        sum(self.losses(mixed=0.0).values()).backward()
        self.student.zero_grad()

    def losses(self, *, mixed: float) -> dict[str, Tensor]:
        images, augmentation, labels = self.photos.sample(mixed=mixed)
        inputs, scenes = augment(images, augmentation, size=PIXELS), next(self.scenes)
        false = scenes.claims[:, 1:].flatten(0, 1)
        claims = torch.cat([scenes.claims[:, 0], false])
        sentence = torch.cat([scenes.sentence, scenes.sentence.repeat_interleave(len(false) // len(scenes.images))])
        ids = torch.cat([self.encoder.random_prompts(self.rng), self.encoder.encode(claims, sentence)])
        with self.photos.mixed_precision():
            with torch.no_grad():
                vit_logits = self.vit(inputs).logits if self.vit else None
            images, texts, places, patches = self.embeddings(torch.cat([inputs, inputs_of(scenes.images)]), ids)
        logits = self.model.logit_scale.exp() * images @ texts.T
        first, second = (scenes.cells[:, label] for label in labels_of(claims))
        return {
            **photo_losses(logits, labels, self.photos.prior, vit_logits),
            **scene_losses(logits, is_true(first, second, sentence)),
            "places": PLACES_WEIGHT * place_loss(places[len(inputs) :], scenes.cells),
            "patches": F.cross_entropy(patches[len(inputs) :].transpose(1, 2), scenes.patches),
        }

    def step(self, progress: float) -> dict[str, Tensor]:
        """One update; the last photos are not mixed."""
        losses = self.losses(mixed=self.options.mixed if progress < 0.85 else 0.0)
        self.trainer.step(sum(losses.values()), progress)
        with torch.no_grad():
            self.model.logit_scale.clamp_(max=math.log(100))
        self.average.update()
        scale = self.model.logit_scale.exp()
        return {name: value.detach() for name, value in ({**losses, "scale": scale}).items()}

    def save(self) -> None:
        settings = {"image_processor_type": "CLIPImageProcessor", "do_center_crop": False}
        save_image_model(self.average.model, self.options.out / "model", [self.tokenizer], **settings)

    def validate(self) -> dict[str, float]:
        self.save()
        model = self.average.model
        scores = zero_shot(model, self.tokenizer, self.photos.val, count=1500)
        return scores | retrieval(model, self.encoder, "val", count=min(96, self.options.scenes))


@torch.no_grad()
def image_embeddings(model: CLIPModel, inputs: Tensor) -> Tensor:
    return F.normalize(model.get_image_features(pixel_values=inputs).pooler_output, dim=-1)


@torch.no_grad()
def text_embeddings(model: CLIPModel, ids: Tensor) -> Tensor:
    return F.normalize(model.get_text_features(input_ids=ids).pooler_output, dim=-1)


def zero_shot(model: CLIPModel, tokenizer: CLIPTokenizer, val: Photos, *, count: int) -> dict[str, float]:
    """Accuracies of photos that are given the label of the nearest prompt."""
    prompts = [f"a photo of a {name.replace('_', ' ')}" for name in val.names]
    texts = text_embeddings(model, tokenizer(prompts, padding=True, return_tensors="pt").input_ids.to(model.device))
    parts = (
        augment(part, no_augmentation(len(part), model.device), size=PIXELS) for part in val.images[:count].split(512)
    )
    nearest = [(image_embeddings(model, part) @ texts.T).argmax(dim=1) for part in parts]
    return {f"zero_shot_{name}": score for name, score in accuracies(torch.cat(nearest), val).items()}


def retrieval(model: CLIPModel, encoder: CaptionEncoder, split: str, *, count: int) -> dict[str, float]:
    """How often, in percent, a scene finds its caption and a caption its scene among 32 a word or two apart."""
    rng = Generator(model.device).manual_seed(1)
    changes = all_changes(rng.device)
    text_hits, scene_hits = [], []
    for _ in range(0, count, CANDIDATES):
        scenes = sample(CANDIDATES, split, rng=rng)
        (claims, sentence), cells = claims_of(scenes, rng), cells_of(scenes)
        false = false_claims(cells, claims, sentence, changes, CANDIDATES - 1, rng)
        ids = encoder.encode(torch.cat([claims[:, None], false], dim=1), sentence[:, None])
        texts = text_embeddings(model, ids.flatten(0, 1)).unflatten(0, ids.shape[:2])
        versions, _ = versions_of(scenes, claims, edited_claims(cells, claims, changes, CANDIDATES - 1, rng))
        images = image_embeddings(model, inputs_of(pictures(versions).pixels)).unflatten(0, ids.shape[:2])
        text_hits.append(is_first_highest((texts @ images[:, 0, :, None])[..., 0]))
        scene_hits.append(is_first_highest((images @ texts[:, 0, :, None])[..., 0]))
    scores = {"image_to_text": text_hits, "text_to_image": scene_hits}
    return {f"{name}_r1": 100 * float(torch.cat(hits).float().mean()) for name, hits in scores.items()}


def is_first_highest(scores: Tensor) -> Tensor:
    """Whether the first score of each row is higher than all others."""
    return scores[:, 0] > scores[:, 1:].max(dim=1).values


def read_options() -> argparse.Namespace:
    parser = new_parser(__doc__)
    add_photo_options(parser)
    parser.add_argument("--init", type=Path, help="folder of a trained mini-vit-plain to start from")
    parser.add_argument("--batch", type=int, default=256, help="photos a step, and as many scenes")
    parser.add_argument("--rate", type=float, default=7e-4)
    parser.add_argument("--ema", type=float, default=0.998)
    parser.add_argument("--mixed", type=float, default=0.3, help="share of views of photos blended with another")
    parser.add_argument("--scenes", type=int, default=1024, help="to evaluate on")
    return start_run(parser)


def main() -> None:
    options = read_options()
    training = ClipTraining(options)
    seconds = seconds_left(options, reserve=RESERVE)
    log({"event": "training starts", "planned_seconds": round(seconds)}, options.out)
    steps = train_for(training.step, seconds=seconds, options=options, validate=training.validate)
    training.save()
    model = load_model(CLIPModel, options)
    tokenizer = AutoTokenizer.from_pretrained(options.out / "model")
    scores = zero_shot(model, tokenizer, training.photos.val, count=len(training.photos.val))
    scores |= retrieval(
        model, CaptionEncoder(tokenizer, training.photos.val.names, model.device), "test", count=options.scenes
    )
    write_metrics(
        scores, model, options, training_seconds=round(seconds), steps=steps, begun_with_vit=bool(training.vit)
    )


if __name__ == "__main__":
    main()

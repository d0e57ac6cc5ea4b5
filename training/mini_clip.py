"""mini-clip: a stock CLIPModel for photographs and Shapes World, trained with captions that are almost true.

    PYTHONPATH=src python training/mini_clip.py --data DIR --init FOLDER --out DIR --minutes 8 --seed 0

Half of a batch are photographs with templated captions, half are scenes. Scenes come with edited versions of themselves
and with captions whose colours, shapes or objects were replaced or swapped; which caption is true of which scene is
known exactly, so that no true pair is pushed apart. `--init` is a trained mini-vit-plain: eight of its blocks begin the
vision tower, and its logits are distilled; without it, all is learnt from the captions. For training only, linear maps
tell from [CLS] what lies in which row and column of a scene, and from patches what they show. Attention is never
supervised.
The schedule follows the clock, so a run ends on time on any machine and its length in steps may differ between runs.
"""

import argparse
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import torch
from tokenizers.pre_tokenizers import ByteLevel
from torch import Generator, Tensor, nn
from torch.nn import functional as F
from transformers import AutoTokenizer, CLIPConfig, CLIPModel, CLIPTokenizer, ViTForImageClassification

import classroom
import course
from classroom import PIXELS, Album, accuracies, divergence
from photos import Photos
from streams import clip_streams, vit_stream
from views import GRID, MEAN, STD, pixels, plain_view
from whyformer.scenes import COLOURS, LABELS, SHAPES, SIDE, WORDS, Scenes, captions, edited, pictures, sample

BLOCKS = (1, 2, 3, 4, 5, 6, 11, 12)  # of the initial ViT; without the other four it still classifies
TEMPLATES = (
    "a photo of a {}",
    "a photo of the {}",
    "a picture of a {}",
    "an image of a {}",
    "a small photo of a {}",
    "a blurred photo of a {}",
    "this is a {}",
    "a {}",
    "the {}",
)
RELATIONS = ("left of", "right of", "above", "below")
SENTENCES = (*(f"a colour shape {relation} a colour2 shape2" for relation in RELATIONS), "a colour shape")
ALONE = len(RELATIONS)  # the last sentence, of one object
SLOTS = ("colour", "shape", "colour2", "shape2")
CHOICES = (len(COLOURS), len(SHAPES)) * 2  # words for each slot
START, END, LAST = "<|startoftext|>", "<|endoftext|>", "</w>"
LENGTH = 10  # tokens of a caption, with its start and end

VERSIONS = 4  # of a scene: itself, two edited ones, one whose named objects changed places
REPLACED = 12  # captions per scene with one or two words replaced
POOL = 16  # batches of scenes drawn at once
PLACES_WEIGHT = 20.0  # a mean over 288 places, most of them empty
NONE = len(LABELS)
SEEN = 6  # the block of the vision tower after which patches tell what they show
CANDIDATES = 32
KEPT_SECONDS = 25.0  # for saving and the evaluation


class SceneBatch(NamedTuple):
    """Captions are claims, a choice for each of SLOTS, in a sentence, an index into SENTENCES."""

    images: Tensor  # scene, rgb, row, column: uint8
    cells: Tensor  # scene, label: the cell where it lies, from 1; 0 if it does not
    patches: Tensor  # scene, patch: the label seen in its middle, NONE if none is
    claims: Tensor  # scene, claim, slot: the first is true of the scene
    sentence: Tensor  # scene


def labels_of(claims: Tensor) -> tuple[Tensor, Tensor]:
    """Of the first and the second object."""
    colour, shape, colour2, shape2 = claims.unbind(dim=-1)
    return colour * len(SHAPES) + shape, colour2 * len(SHAPES) + shape2


def cells_of(scenes: Scenes) -> Tensor:
    """scene, label: the cell where that object lies, from 1; 0 if it does not."""
    table = torch.zeros(len(scenes), len(LABELS) + 1, dtype=torch.long, device=scenes.cell.device)
    return table.scatter(1, scenes.label % (len(LABELS) + 1), scenes.cell + 1)[:, :-1]  # clutter falls off the end


def holds(first: Tensor, second: Tensor, sentence: Tensor) -> Tensor:
    """Whether a sentence is true, given the cells of the objects it names."""
    (row, column), (row2, column2) = (((cell - 1) // 3, (cell - 1) % 3) for cell in (first, second))
    across = torch.where(sentence == 0, column < column2, column > column2)
    down = torch.where(sentence == 2, row < row2, row > row2)
    return (first > 0) & ((sentence == ALONE) | (second > 0) & torch.where(sentence < 2, across, down))


def claims_of(scenes: Scenes, rng: Generator) -> tuple[Tensor, Tensor]:
    """A caption of each scene: its claim and its sentence."""
    written = captions(scenes, rng)
    naming = written.truth.long().argsort(dim=1, descending=True, stable=True)[:, : len(SLOTS)]
    first_choices = torch.tensor([WORDS.index(COLOURS[0]), WORDS.index(SHAPES[0])] * 2, device=naming.device)
    telling = torch.tensor([WORDS.index(relation.split()[0]) for relation in RELATIONS], device=naming.device)
    sentence = (written.words[:, :, None] == telling).any(dim=1).int().argmax(dim=1)
    return written.words.gather(1, naming) - first_choices, sentence


def all_changes(device: torch.device) -> Tensor:
    """Every way to replace one or two words of a claim: change, slot."""
    steps = torch.cartesian_prod(*(torch.arange(count, device=device) for count in CHOICES))
    replaced = (steps > 0).sum(dim=1)
    return steps[(replaced == 1) | (replaced == 2)]


def changed(claims: Tensor, changes: Tensor) -> Tensor:
    return (claims + changes) % torch.tensor(CHOICES, device=claims.device)


def picked(claims: Tensor, possible: Tensor, count: int, rng: Generator) -> Tensor:
    """scene, pick, slot: random ones of the possible claims of each scene."""
    chosen = torch.multinomial(possible.float(), count, generator=rng)
    return claims.take_along_dim(chosen[..., None], dim=1)


def edits(cells: Tensor, claims: Tensor, changes: Tensor, count: int, rng: Generator) -> Tensor:
    """scene, edit, slot: claims with one or two words replaced whose objects are no others of the scene."""
    others = (cells > 0).scatter(1, torch.stack(labels_of(claims), dim=1), False)
    new = changed(claims[:, None], changes)
    first, second = labels_of(new)
    return picked(new, ~others.gather(1, first) & ~others.gather(1, second) & (first != second), count, rng)


def untruths(cells: Tensor, claims: Tensor, sentence: Tensor, changes: Tensor, count: int, rng: Generator) -> Tensor:
    """scene, claim, slot: claims with one or two words replaced that are false of the scene."""
    new = changed(claims[:, None], changes)
    first, second = labels_of(new)
    true = holds(cells.gather(1, first), cells.gather(1, second), sentence[:, None])
    return picked(new, ~true & (first != second), count, rng)


def rewritten(scenes: Scenes, claims: Tensor, new: Tensor) -> Scenes:
    """The scenes with the objects that the claims name turned into those that the new claims name."""
    first, second = [(scenes.label == label[:, None]).int().argmax(dim=1) for label in labels_of(claims)]
    colour, shape, colour2, shape2 = new.unbind(dim=1)
    return edited(edited(scenes, first, colour=colour, shape=shape), second, colour=colour2, shape=shape2)


def versions_of(scenes: Scenes, claims: Tensor, new: Tensor) -> tuple[Scenes, Tensor]:
    """Each scene as it is and rewritten by each of its new claims, one after the other; and the claims of all."""
    every = torch.cat([claims[:, None], new], dim=1)
    place = torch.arange(len(scenes), device=claims.device).repeat_interleave(every.shape[1])
    return rewritten(scenes[place], claims[place], every.flatten(0, 1)), every.flatten(0, 1)


def almost_true(claims: Tensor, cells: Tensor, changes: Tensor, rng: Generator) -> Tensor:
    """scene, claim, slot: words replaced; colours, shapes or objects swapped; an object replaced by another present.

    Some may be true nevertheless.
    """
    which = torch.randint(len(changes), (len(claims), REPLACED), generator=rng, device=claims.device)
    swapped = claims[:, torch.tensor([[2, 1, 0, 3], [0, 3, 2, 1], [2, 3, 0, 1]], device=claims.device)]
    present = torch.multinomial((cells > 0).float(), 2, generator=rng)
    present = torch.stack([present // len(SHAPES), present % len(SHAPES)], dim=2)
    elsewhere = torch.stack(
        [torch.cat([present[:, 0], claims[:, 2:]], dim=1), torch.cat([claims[:, :2], present[:, 1]], dim=1)], dim=1
    )
    return torch.cat([changed(claims[:, None], changes[which]), swapped, elsewhere], dim=1)


def scene_batches(size: int, rng: Generator) -> Iterator[SceneBatch]:
    """Endless training scenes: `size` images a batch, among them the versions of one scene."""
    changes = all_changes(rng.device)
    while True:
        scenes = sample(POOL * size // VERSIONS, "train", rng=rng)
        claims, sentence = claims_of(scenes, rng)
        new = edits(cells_of(scenes), claims, changes, VERSIONS - 2, rng)
        scenes, claims = versions_of(scenes, claims, torch.cat([new, claims[:, None, [2, 3, 0, 1]]], dim=1))
        alone = torch.rand(len(scenes), generator=rng, device=rng.device) < 0.25
        sentence = torch.where(alone, ALONE, sentence.repeat_interleave(VERSIONS))
        cells = cells_of(scenes)
        told = torch.cat([claims[:, None], almost_true(claims, cells, changes, rng)], dim=1)
        drawn = pictures(scenes)
        whole = SceneBatch(drawn.pixels, cells, seen_in_patches(scenes, drawn.owner), told, sentence)
        yield from (SceneBatch(*parts) for parts in zip(*(part.split(size) for part in whole), strict=True))


def seen_in_patches(scenes: Scenes, owner: Tensor) -> Tensor:
    """scene, patch: the label seen in its middle."""
    step = SIDE // GRID
    middle = owner[:, step // 2 :: step, step // 2 :: step].flatten(1).long()
    label = F.pad(scenes.label, (0, 1), value=-1)  # of the background, which has the last number
    return label.gather(1, middle % label.shape[1]) % (NONE + 1)


class Wording:
    """Claims and prompts as token ids."""

    def __init__(self, tokenizer: CLIPTokenizer, names: tuple[str, ...], device: torch.device) -> None:
        def ids(words: tuple[str, ...]) -> Tensor:
            return torch.tensor(tokenizer.convert_tokens_to_ids([word + LAST for word in words]), device=device)

        def sentence(text: str) -> Tensor:
            start, end = ([token] for token in (tokenizer.bos_token_id, tokenizer.eos_token_id))
            words = [-1 - SLOTS.index(word) if word in SLOTS else int(ids((word,))) for word in text.split()]
            return torch.tensor(start + words + end * (LENGTH - 1 - len(words)), device=device)

        self.colours, self.shapes = ids(COLOURS), ids(SHAPES)
        self.sentences = torch.stack([sentence(text) for text in SENTENCES])
        texts = [template.format(name.replace("_", " ")) for template in TEMPLATES for name in names]
        padded = tokenizer(texts, padding="max_length", max_length=LENGTH, return_tensors="pt").input_ids
        self.prompts = padded.view(len(TEMPLATES), len(names), LENGTH).to(device)

    def said(self, claims: Tensor, sentence: Tensor) -> Tensor:
        """..., token: the claims in sentences."""
        template = self.sentences[sentence.expand(claims.shape[:-1])]
        colour, shape, colour2, shape2 = claims.unbind(dim=-1)
        slots = [self.colours[colour], self.shapes[shape], self.colours[colour2], self.shapes[shape2]]
        words = torch.stack(slots, dim=-1).gather(-1, (-1 - template).clamp(min=0))
        return torch.where(template < 0, words, template)

    def random_prompts(self, rng: Generator) -> Tensor:
        """label, token: each label in a random template."""
        templates, labels, _ = self.prompts.shape
        which = torch.randint(templates, (labels,), generator=rng, device=rng.device)
        return self.prompts[which, torch.arange(labels, device=rng.device)]


def new_tokenizer(names: tuple[str, ...]) -> CLIPTokenizer:
    """CLIP's byte-pair encoding, with merges that make one token of each word of our captions."""
    words = sorted(set(re.findall("[a-z]+", " ".join([*TEMPLATES, *names, *WORDS]))))
    spelled = [[*word[:-1], word[-1] + LAST] for word in words]
    merges: list[tuple[str, str]] = []
    while pairs := Counter(pair for parts in spelled for pair in pairwise(parts)):
        merges.append(pairs.most_common(1)[0][0])
        spelled = [merged(parts, merges[-1]) for parts in spelled]
    letters = sorted(ByteLevel.alphabet())
    joined = dict.fromkeys("".join(pair) for pair in merges)
    tokens = [*letters, *(letter + LAST for letter in letters), *joined, START, END]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    return CLIPTokenizer(vocab=vocabulary, merges=merges, model_max_length=24)


def merged(parts: list[str], pair: tuple[str, str]) -> list[str]:
    done: list[str] = []
    for part in parts:
        if done and (done[-1], part) == pair:
            done[-1] += part
        else:
            done.append(part)
    return done


def new_model(tokenizer: CLIPTokenizer) -> CLIPModel:
    shared = {"hidden_act": "gelu", "layer_norm_eps": 1e-6, "projection_dim": 128}
    vision = {"image_size": PIXELS, "patch_size": 8, "hidden_size": 192, "intermediate_size": 768}
    vision |= {"num_hidden_layers": len(BLOCKS), "num_attention_heads": 6}
    text = {"vocab_size": len(tokenizer), "max_position_embeddings": tokenizer.model_max_length}
    text |= {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 3, "num_attention_heads": 4}
    text |= {f"{kind}_token_id": getattr(tokenizer, f"{kind}_token_id") for kind in ("bos", "eos", "pad")}
    return CLIPModel(CLIPConfig(text_config=text | shared, vision_config=vision | shared, projection_dim=128))


@torch.no_grad()
def begin_with(model: CLIPModel, vit: ViTForImageClassification, inputs: Tensor) -> None:
    """Give the vision tower the ViT's embeddings, BLOCKS and norm; its own first norm changes the inputs little."""
    vision, theirs = model.vision_model, vit.vit.embeddings
    embeddings, projection = vision.embeddings, theirs.patch_embeddings.projection
    embeddings.patch_embedding.weight.copy_(projection.weight)
    embeddings.class_embedding.copy_(theirs.cls_token[0, 0])
    embeddings.position_embedding.weight.copy_(theirs.position_embeddings[0])
    embeddings.position_embedding.weight[1:] += projection.bias
    vision.pre_layrnorm.weight.fill_(embeddings(inputs).std(dim=-1).mean())
    ours, stream = clip_streams(model)[0], vit_stream(vit)
    for block, number in zip(ours.blocks, BLOCKS, strict=True):
        block.load_state_dict(stream.blocks[number - 1].state_dict())
    ours.final_norm.load_state_dict(stream.final_norm.state_dict())


class Student(nn.Module):
    """The model and, for training only, linear maps from [CLS] to what lies where, from patches to what they show."""

    def __init__(self, model: CLIPModel) -> None:
        super().__init__()
        self.model = model
        self.vision, self.text = clip_streams(model)
        width = model.config.vision_config.hidden_size
        self.places, self.patches = nn.Linear(width, len(LABELS) * 6), nn.Linear(width, NONE + 1)

    def embeddings(self, inputs: Tensor, ids: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Of images and of texts, with length 1; what lies where; what patches show."""
        tokens = self.vision(inputs).tokens
        seen = tokens[-1][:, 0]
        ends = (ids == self.model.config.text_config.eos_token_id).int().argmax(dim=1)
        read = self.text(ids).tokens[-1].take_along_dim(ends[:, None, None], dim=1)[:, 0]
        projected = self.model.visual_projection(seen), self.model.text_projection(read)
        images, texts = (F.normalize(part.float(), dim=-1) for part in projected)
        return images, texts, self.places(seen).float(), self.patches(tokens[SEEN - 1][:, 1:]).float()


def photo_errors(logits: Tensor, labels: Tensor, prior: Tensor, taught: Tensor | None) -> dict[str, Tensor]:
    """Of logits: image, text; the first images are the photographs, the first texts their labels' prompts."""
    photographs, names = labels.shape
    rows = logits[:photographs] + F.pad(prior, (0, logits.shape[1] - names))
    of_images = F.cross_entropy(rows, F.pad(labels, (0, logits.shape[1] - names)))
    shares = labels / labels.sum(dim=0).clamp(min=1)  # photographs of one label are all right for its prompt
    of_texts = F.cross_entropy(logits[:, :names].T, F.pad(shares.T, (0, len(logits) - photographs)))
    errors = {"photo_to_text": of_images, "text_to_photo": of_texts}
    if taught is not None:
        errors["distilled"] = divergence(logits[:photographs, :names], taught)
    return errors


def scene_errors(logits: Tensor, truth: Tensor) -> dict[str, Tensor]:
    """Of logits: image, text; the last images are the scenes, the last texts their claims, the own ones first.

    What is true of a scene but not its own caption counts neither for it nor against it.
    """
    own = torch.arange(len(truth), device=logits.device)
    others = truth.scatter(1, own[:, None], False)
    photographs, names = (whole - part for whole, part in zip(logits.shape, truth.shape, strict=True))
    blocked = F.pad(others, (names, 0, photographs, 0))
    allowed = logits.masked_fill(blocked, -math.inf)
    rows, columns = allowed[photographs:], allowed[:, names : names + len(truth)]
    return {
        "scene_to_text": F.cross_entropy(rows, names + own),
        "text_to_scene": F.cross_entropy(columns.T, photographs + own),
    }


def place_error(guessed: Tensor, cells: Tensor) -> Tensor:
    """Of what lies in which row and column: scene, label · 6."""
    place = torch.arange(3, device=cells.device)
    row, column = ((part[..., None] == place) & (cells > 0)[..., None] for part in ((cells - 1) // 3, (cells - 1) % 3))
    return F.binary_cross_entropy_with_logits(guessed, torch.cat([row, column], dim=2).flatten(1).float())


def inputs_of(images: Tensor) -> Tensor:
    """Scenes as the image processor gives them."""
    enlarged = F.interpolate(images.float() / 255, size=PIXELS, mode="bicubic", antialias=True).clamp(0, 1)
    mean, std = (torch.tensor(stat, device=images.device)[:, None, None] for stat in (MEAN, STD))
    return (enlarged - mean) / std


class Run:
    """What a step needs: both kinds of images, the words, the student and the ViT it begins with."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.album = Album(options)
        names = self.album.train.names
        device, self.rng = self.album.device, self.album.rng
        self.scenes = scene_batches(options.batch, self.rng)
        self.tokenizer = new_tokenizer(names)
        self.wording = Wording(self.tokenizer, names, device)
        self.model = new_model(self.tokenizer).to(device)
        self.vit = None
        if options.init:
            self.vit = ViTForImageClassification.from_pretrained(options.init).to(device).eval().requires_grad_(False)
            some = self.album.train.images[:64]
            begin_with(self.model, self.vit, pixels(some, plain_view(len(some), device), size=PIXELS))
        self.student = Student(self.model).to(device)
        self.average = course.Average(self.model, decay=options.ema)
        self.trainer = course.Trainer(self.student, rate=options.rate)
        self.embeddings = course.compiled(self.student.embeddings, self.trial, options)

    def trial(self, embeddings: Callable[..., tuple[Tensor, ...]]) -> None:
        self.embeddings = embeddings
        sum(self.errors(mixed=0.0).values()).backward()
        self.student.zero_grad()

    def errors(self, *, mixed: float) -> dict[str, Tensor]:
        photographs, view, labels = self.album.draw(mixed=mixed)
        inputs, scenes = pixels(photographs, view, size=PIXELS), next(self.scenes)
        false = scenes.claims[:, 1:].flatten(0, 1)
        claims = torch.cat([scenes.claims[:, 0], false])
        sentence = torch.cat([scenes.sentence, scenes.sentence.repeat_interleave(len(false) // len(scenes.images))])
        ids = torch.cat([self.wording.random_prompts(self.rng), self.wording.said(claims, sentence)])
        with self.album.half_precision():
            with torch.no_grad():
                taught = self.vit(inputs).logits if self.vit else None
            images, texts, places, patches = self.embeddings(torch.cat([inputs, inputs_of(scenes.images)]), ids)
        logits = self.model.logit_scale.exp() * images @ texts.T
        first, second = (scenes.cells[:, label] for label in labels_of(claims))
        return {
            **photo_errors(logits, labels, self.album.prior, taught),
            **scene_errors(logits, holds(first, second, sentence)),
            "places": PLACES_WEIGHT * place_error(places[len(inputs) :], scenes.cells),
            "patches": F.cross_entropy(patches[len(inputs) :].transpose(1, 2), scenes.patches),
        }

    def step(self, progress: float) -> dict[str, Tensor]:
        """The last photographs are not mixed."""
        errors = self.errors(mixed=self.options.mixed if progress < 0.85 else 0.0)
        self.trainer.step(sum(errors.values()), progress)
        with torch.no_grad():
            self.model.logit_scale.clamp_(max=math.log(100))
        self.average.update()
        scale = self.model.logit_scale.exp()
        return {name: error.detach() for name, error in ({**errors, "scale": scale}).items()}

    def save(self) -> None:
        settings = {"image_processor_type": "CLIPImageProcessor", "do_center_crop": False}
        classroom.save(self.average.model, self.options.out / "model", [self.tokenizer], **settings)

    def probe(self) -> dict[str, float]:
        self.save()
        model = self.average.model
        scores = zero_shot(model, self.tokenizer, self.album.val, count=1500)
        return scores | retrieval(model, self.wording, "val", count=min(96, self.options.scenes))


@torch.no_grad()
def image_embeddings(model: CLIPModel, inputs: Tensor) -> Tensor:
    return F.normalize(model.get_image_features(pixel_values=inputs).pooler_output, dim=-1)


@torch.no_grad()
def text_embeddings(model: CLIPModel, ids: Tensor) -> Tensor:
    return F.normalize(model.get_text_features(input_ids=ids).pooler_output, dim=-1)


def zero_shot(model: CLIPModel, tokenizer: CLIPTokenizer, val: Photos, *, count: int) -> dict[str, float]:
    """Accuracies of photographs that take the prompt nearest to them."""
    prompts = [f"a photo of a {name.replace('_', ' ')}" for name in val.names]
    texts = text_embeddings(model, tokenizer(prompts, padding=True, return_tensors="pt").input_ids.to(model.device))
    parts = (pixels(part, plain_view(len(part), model.device), size=PIXELS) for part in val.images[:count].split(512))
    nearest = [(image_embeddings(model, part) @ texts.T).argmax(dim=1) for part in parts]
    return {f"zero_shot_{name}": score for name, score in accuracies(torch.cat(nearest), val).items()}


def retrieval(model: CLIPModel, wording: Wording, split: str, *, count: int) -> dict[str, float]:
    """How often, in percent, a scene finds its caption and a caption its scene among 32 a word or two apart."""
    rng = Generator(model.device).manual_seed(1)
    changes = all_changes(rng.device)
    found_text, found_scene = [], []
    for _ in range(0, count, CANDIDATES):
        scenes = sample(CANDIDATES, split, rng=rng)
        (claims, sentence), cells = claims_of(scenes, rng), cells_of(scenes)
        false = untruths(cells, claims, sentence, changes, CANDIDATES - 1, rng)
        told = wording.said(torch.cat([claims[:, None], false], dim=1), sentence[:, None])
        texts = text_embeddings(model, told.flatten(0, 1)).unflatten(0, told.shape[:2])
        versions, _ = versions_of(scenes, claims, edits(cells, claims, changes, CANDIDATES - 1, rng))
        images = image_embeddings(model, inputs_of(pictures(versions).pixels)).unflatten(0, told.shape[:2])
        found_text.append(first_wins((texts @ images[:, 0, :, None])[..., 0]))
        found_scene.append(first_wins((images @ texts[:, 0, :, None])[..., 0]))
    scores = {"image_to_text": found_text, "text_to_image": found_scene}
    return {f"{name}_r1": 100 * float(torch.cat(found).float().mean()) for name, found in scores.items()}


def first_wins(scores: Tensor) -> Tensor:
    return scores[:, 0] > scores[:, 1:].max(dim=1).values


def options_of_the_call() -> argparse.Namespace:
    parser = course.options_of(__doc__)
    classroom.add_album_options(parser)
    parser.add_argument("--init", type=Path, help="folder of a trained mini-vit-plain to begin with")
    parser.add_argument("--batch", type=int, default=256, help="photographs a step, and as many scenes")
    parser.add_argument("--rate", type=float, default=7e-4)
    parser.add_argument("--ema", type=float, default=0.998)
    parser.add_argument("--mixed", type=float, default=0.3, help="share of views of photographs blended with another")
    parser.add_argument("--scenes", type=int, default=1024, help="to evaluate on")
    return course.begin(parser)


def main() -> None:
    options = options_of_the_call()
    run = Run(options)
    seconds = course.seconds_left(options, keep=KEPT_SECONDS)
    course.say({"event": "training starts", "planned_seconds": round(seconds)}, options.out)
    steps = course.follow(run.step, seconds=seconds, options=options, probe=run.probe)
    run.save()
    model = course.reloaded(CLIPModel, options)
    tokenizer = AutoTokenizer.from_pretrained(options.out / "model")
    scores = zero_shot(model, tokenizer, run.album.val, count=len(run.album.val))
    scores |= retrieval(model, Wording(tokenizer, run.album.val.names, model.device), "test", count=options.scenes)
    course.finish(scores, model, options, training_seconds=round(seconds), steps=steps, begun_with_vit=bool(run.vit))


if __name__ == "__main__":
    main()

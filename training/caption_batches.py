"""Captions of Shapes World for mini-clip: true ones, almost true ones, edited scenes, and their token ids.

A caption is a claim, that is a colour and a shape for one or two objects (a choice for each of SLOTS), in a sentence
(an index into SENTENCES). Which claim is true of which scene is known exactly.
"""

import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import torch
from tokenizers.pre_tokenizers import ByteLevel
from torch import Generator, Tensor
from torch.nn import functional as F
from transformers import CLIPTokenizer

from augmentation import GRID
from whyformer.scenes import COLOURS, LABELS, SHAPES, SIDE, WORDS, Scenes, captions, edit_things, pictures, sample

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
ONE_OBJECT = len(RELATIONS)  # the last sentence, of one object
SLOTS = ("colour", "shape", "colour2", "shape2")
CHOICES = (len(COLOURS), len(SHAPES)) * 2  # words for each slot
START, END, WORD_END = "<|startoftext|>", "<|endoftext|>", "</w>"
LENGTH = 10  # tokens of a caption, with its start and end

VERSIONS = 4  # of a scene: itself, two edited ones, one whose named objects changed places
REPLACEMENTS = 12  # captions per scene with one or two words replaced
BATCHES_PER_DRAW = 16  # the scenes of so many batches are drawn at once
NONE = len(LABELS)  # of a patch that shows no object


class SceneBatch(NamedTuple):
    """Scenes with what lies where in them, and claims about them."""

    images: Tensor  # scene, rgb, row, column: uint8
    cells: Tensor  # scene, label: the cell where it lies, from 1; 0 if it does not
    patches: Tensor  # scene, patch: the label seen in its middle, NONE if none is
    claims: Tensor  # scene, claim, slot: the first is true of the scene
    sentence: Tensor  # scene


def labels_of(claims: Tensor) -> tuple[Tensor, Tensor]:
    """The labels of the first and the second object that each claim names."""
    colour, shape, colour2, shape2 = claims.unbind(dim=-1)
    return colour * len(SHAPES) + shape, colour2 * len(SHAPES) + shape2


def cells_of(scenes: Scenes) -> Tensor:
    """scene, label: the cell where that object lies, from 1; 0 if it does not."""
    table = torch.zeros(len(scenes), len(LABELS) + 1, dtype=torch.long, device=scenes.cell.device)
    return table.scatter(1, scenes.label % (len(LABELS) + 1), scenes.cell + 1)[:, :-1]  # clutter falls off the end


def is_true(first: Tensor, second: Tensor, sentence: Tensor) -> Tensor:
    """Whether a sentence is true, given the cells of the objects it names."""
    (row, column), (row2, column2) = (((cell - 1) // 3, (cell - 1) % 3) for cell in (first, second))
    across = torch.where(sentence == 0, column < column2, column > column2)
    down = torch.where(sentence == 2, row < row2, row > row2)
    return (first > 0) & ((sentence == ONE_OBJECT) | (second > 0) & torch.where(sentence < 2, across, down))


def claims_of(scenes: Scenes, rng: Generator) -> tuple[Tensor, Tensor]:
    """A caption of each scene: its claim and its sentence."""
    sentences = captions(scenes, rng)
    naming = sentences.truth.long().argsort(dim=1, descending=True, stable=True)[:, : len(SLOTS)]
    first_choices = torch.tensor([WORDS.index(COLOURS[0]), WORDS.index(SHAPES[0])] * 2, device=naming.device)
    relation_words = torch.tensor([WORDS.index(relation.split()[0]) for relation in RELATIONS], device=naming.device)
    sentence = (sentences.words[:, :, None] == relation_words).any(dim=1).int().argmax(dim=1)
    return sentences.words.gather(1, naming) - first_choices, sentence


def all_changes(device: torch.device) -> Tensor:
    """Every way to replace one or two words of a claim: change, slot."""
    steps = torch.cartesian_prod(*(torch.arange(count, device=device) for count in CHOICES))
    replacements = (steps > 0).sum(dim=1)
    return steps[(replacements == 1) | (replacements == 2)]


def apply_changes(claims: Tensor, changes: Tensor) -> Tensor:
    """The claims with each slot moved on by so many words."""
    return (claims + changes) % torch.tensor(CHOICES, device=claims.device)


def sample_claims(claims: Tensor, possible: Tensor, count: int, rng: Generator) -> Tensor:
    """scene, claim, slot: random ones of the possible claims of each scene."""
    places = torch.multinomial(possible.float(), count, generator=rng)
    return claims.take_along_dim(places[..., None], dim=1)


def edited_claims(cells: Tensor, claims: Tensor, changes: Tensor, count: int, rng: Generator) -> Tensor:
    """scene, edit, slot: claims with one or two words replaced whose objects are no others of the scene."""
    others = (cells > 0).scatter(1, torch.stack(labels_of(claims), dim=1), False)
    new = apply_changes(claims[:, None], changes)
    first, second = labels_of(new)
    return sample_claims(new, ~others.gather(1, first) & ~others.gather(1, second) & (first != second), count, rng)


def false_claims(
    cells: Tensor, claims: Tensor, sentence: Tensor, changes: Tensor, count: int, rng: Generator
) -> Tensor:
    """scene, claim, slot: claims with one or two words replaced that are false of the scene."""
    new = apply_changes(claims[:, None], changes)
    first, second = labels_of(new)
    true = is_true(cells.gather(1, first), cells.gather(1, second), sentence[:, None])
    return sample_claims(new, ~true & (first != second), count, rng)


def edit_scenes(scenes: Scenes, claims: Tensor, new: Tensor) -> Scenes:
    """The scenes with the objects that the claims name turned into those that the new claims name."""
    first, second = [(scenes.label == label[:, None]).int().argmax(dim=1) for label in labels_of(claims)]
    colour, shape, colour2, shape2 = new.unbind(dim=1)
    return edit_things(edit_things(scenes, first, colour=colour, shape=shape), second, colour=colour2, shape=shape2)


def versions_of(scenes: Scenes, claims: Tensor, new: Tensor) -> tuple[Scenes, Tensor]:
    """Each scene as it is and edited to each of its new claims, one after the other; and the claims of all."""
    every = torch.cat([claims[:, None], new], dim=1)
    place = torch.arange(len(scenes), device=claims.device).repeat_interleave(every.shape[1])
    return edit_scenes(scenes[place], claims[place], every.flatten(0, 1)), every.flatten(0, 1)


def almost_true_claims(claims: Tensor, cells: Tensor, changes: Tensor, rng: Generator) -> Tensor:
    """scene, claim, slot: words replaced; colours, shapes or objects swapped; an object replaced by another present.

    Some may be true nevertheless.
    """
    which = torch.randint(len(changes), (len(claims), REPLACEMENTS), generator=rng, device=claims.device)
    swapped = claims[:, torch.tensor([[2, 1, 0, 3], [0, 3, 2, 1], [2, 3, 0, 1]], device=claims.device)]
    present = torch.multinomial((cells > 0).float(), 2, generator=rng)
    present = torch.stack([present // len(SHAPES), present % len(SHAPES)], dim=2)
    elsewhere = torch.stack(
        [torch.cat([present[:, 0], claims[:, 2:]], dim=1), torch.cat([claims[:, :2], present[:, 1]], dim=1)], dim=1
    )
    return torch.cat([apply_changes(claims[:, None], changes[which]), swapped, elsewhere], dim=1)


def scene_batches(size: int, rng: Generator) -> Iterator[SceneBatch]:
    """Endless training scenes: `size` images a batch, among them the versions of one scene."""
    changes = all_changes(rng.device)
    while True:
        scenes = sample(BATCHES_PER_DRAW * size // VERSIONS, "train", rng=rng)
        claims, sentence = claims_of(scenes, rng)
        new = edited_claims(cells_of(scenes), claims, changes, VERSIONS - 2, rng)
        scenes, claims = versions_of(scenes, claims, torch.cat([new, claims[:, None, [2, 3, 0, 1]]], dim=1))
        alone = torch.rand(len(scenes), generator=rng, device=rng.device) < 0.25
        sentence = torch.where(alone, ONE_OBJECT, sentence.repeat_interleave(VERSIONS))
        cells = cells_of(scenes)
        all_claims = torch.cat([claims[:, None], almost_true_claims(claims, cells, changes, rng)], dim=1)
        drawn = pictures(scenes)
        whole = SceneBatch(drawn.pixels, cells, patch_labels(scenes, drawn.owner), all_claims, sentence)
        yield from (SceneBatch(*parts) for parts in zip(*(part.split(size) for part in whole), strict=True))


def patch_labels(scenes: Scenes, owner: Tensor) -> Tensor:
    """scene, patch: the label seen in its middle, NONE where there is no object."""
    step = SIDE // GRID
    middle = owner[:, step // 2 :: step, step // 2 :: step].flatten(1).long()
    label = F.pad(scenes.label, (0, 1), value=-1)  # of the background, which has the last number
    return label.gather(1, middle % label.shape[1]) % (NONE + 1)


class CaptionEncoder:
    """Claims about scenes and prompts for photos as token ids."""

    def __init__(self, tokenizer: CLIPTokenizer, names: tuple[str, ...], device: torch.device) -> None:
        def ids(words: tuple[str, ...]) -> Tensor:
            return torch.tensor(tokenizer.convert_tokens_to_ids([word + WORD_END for word in words]), device=device)

        def sentence(text: str) -> Tensor:
            start, end = ([token] for token in (tokenizer.bos_token_id, tokenizer.eos_token_id))
            words = [-1 - SLOTS.index(word) if word in SLOTS else int(ids((word,))) for word in text.split()]
            return torch.tensor(start + words + end * (LENGTH - 1 - len(words)), device=device)

        self.colours, self.shapes = ids(COLOURS), ids(SHAPES)
        self.sentences = torch.stack([sentence(text) for text in SENTENCES])
        texts = [template.format(name.replace("_", " ")) for template in TEMPLATES for name in names]
        padded = tokenizer(texts, padding="max_length", max_length=LENGTH, return_tensors="pt").input_ids
        self.prompts = padded.view(len(TEMPLATES), len(names), LENGTH).to(device)

    def encode(self, claims: Tensor, sentence: Tensor) -> Tensor:
        """..., token: the claims written as these sentences."""
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
    spellings = [[*word[:-1], word[-1] + WORD_END] for word in words]
    merges: list[tuple[str, str]] = []
    while pairs := Counter(pair for parts in spellings for pair in pairwise(parts)):
        merges.append(pairs.most_common(1)[0][0])
        spellings = [merge_pair(parts, merges[-1]) for parts in spellings]
    letters = sorted(ByteLevel.alphabet())
    pieces = dict.fromkeys("".join(pair) for pair in merges)
    tokens = [*letters, *(letter + WORD_END for letter in letters), *pieces, START, END]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    return CLIPTokenizer(vocab=vocabulary, merges=merges, model_max_length=24)


def merge_pair(parts: list[str], pair: tuple[str, str]) -> list[str]:
    """The parts of a word with every occurrence of the pair joined, as byte-pair encoding does."""
    merged: list[str] = []
    for part in parts:
        if merged and (merged[-1], part) == pair:
            merged[-1] += part
        else:
            merged.append(part)
    return merged

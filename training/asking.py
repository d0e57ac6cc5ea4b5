"""Questions about Shapes World for models that see a scene as regions: tokenizer, batches, and what guessing gets.

Scenes are drawn on the device as training goes on; their words are indices, encoded as the tokenizer encodes strings.
"""

import argparse
import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor
from torch.nn import functional as F
from transformers import BertTokenizer

from whyformer.scenes import (
    ANSWERS,
    COLOURS,
    KINDS,
    SHAPES,
    SIZES,
    WORDS,
    Questions,
    RegionBatch,
    Scenes,
    askable,
    asked,
    pictures,
    questions,
    regions,
    sample,
    texts,
)

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LETTERS = "abcdefghijklmnopqrstuvwxyz"
POSITIONS = 32
BATCHES, ROUNDS = 8, 4  # the scenes of so many batches are drawn at once, and asked about so often
NAMES = (len(SHAPES) + 2, len(COLOURS) + 1, len(SIZES), 3, 3)  # of shape, colour, size, row and column; clutter too
CHOICES = (len(COLOURS), len(SHAPES), len(SIZES), 2, 2, 3, 3)  # answers to a question of each kind, all equally likely


class Batch(NamedTuple):
    """Questions as the tokenizer encodes them, the regions they are about, and the truth."""

    ids: Tensor
    mask: Tensor
    types: Tensor
    features: Tensor
    boxes: Tensor
    names: Tensor  # scene, region, one for each of NAMES
    kind: Tensor
    answer: Tensor

    def parted(self, size: int) -> Iterator["Batch"]:
        return (Batch(*part) for part in zip(*(field.split(size) for field in self), strict=True))


def new_tokenizer() -> BertTokenizer:
    """WordPiece with the words of Shapes World whole; any other word falls into letters."""
    pieces = dict.fromkeys((*SPECIAL, *WORDS[1:], *LETTERS, *(f"##{letter}" for letter in LETTERS)))
    return BertTokenizer(vocab={piece: number for number, piece in enumerate(pieces)}, model_max_length=POSITIONS)


class Asker:
    """Makes batches, on the device."""

    def __init__(self, tokenizer: BertTokenizer, options: argparse.Namespace) -> None:
        self.tokenizer, self.options = tokenizer, options
        ids = [tokenizer.pad_token_id, *tokenizer.convert_tokens_to_ids(list(WORDS[1:]))]
        self.id_of_word = torch.tensor(ids, device=options.device)

    def rng(self, seed: int) -> Generator:
        return Generator(self.options.device).manual_seed(seed)

    def lessons(self) -> Iterator[Batch]:
        """Batches of the training split, without end."""
        rng = self.rng(self.options.seed)
        while True:
            scenes = sample(BATCHES * self.options.batch, "train", rng=rng)
            seen = regions(pictures(scenes))
            for _ in range(ROUNDS):
                yield from self.batch(scenes, seen, questions(scenes, rng)).parted(self.options.batch)

    def batch(self, scenes: Scenes, seen: RegionBatch, about: Questions) -> Batch:
        names = torch.stack([scenes.shape, scenes.colour, scenes.size, scenes.row, scenes.column], dim=2)
        return Batch(*self.encoded(about.words), seen.features, seen.boxes, names, about.kind, about.answer)

    def encoded(self, words: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Ids, attention mask and token types of [CLS], the words, [SEP] and padding."""
        last = (words > 0).sum(dim=1, keepdim=True) + 1
        ids = F.pad(self.id_of_word[words], (1, 1), value=self.tokenizer.pad_token_id)
        ids[:, 0] = self.tokenizer.cls_token_id
        ids = ids.scatter(1, last, self.tokenizer.sep_token_id)
        mask = (torch.arange(ids.shape[1], device=ids.device) <= last).long()
        return ids, mask, torch.zeros_like(ids)

    def check(self, tokenizer: Any, words: Tensor) -> None:
        """A tokenizer must encode the strings as `encoded` does the indices."""
        told = tokenizer(texts(words), padding="max_length", max_length=words.shape[1] + 2, return_tensors="pt")
        names = ("input_ids", "attention_mask", "token_type_ids")
        for name, ours in zip(names, self.encoded(words), strict=True):
            if not torch.equal(told[name], ours.cpu()):
                raise ValueError(f"The tokenizer gives other {name} than the model is trained with.")

    def without_regions(self, batch: Batch) -> Batch:
        """Eight times the same region, in white: of nothing but zeros, LXMERT's LayerNorm would make huge gradients."""
        boxes = batch.boxes.new_tensor([0, 0, 1, 1]).expand_as(batch.boxes)
        return batch._replace(features=torch.ones_like(batch.features), boxes=boxes)

    def without_words(self, batch: Batch) -> Batch:
        """[CLS] [SEP] for a question."""
        ids, mask, types = self.encoded(torch.zeros_like(batch.ids[:, 2:]))
        return batch._replace(ids=ids, mask=mask, types=types)


def question_only_ceiling(scenes: Scenes) -> dict[str, float]:
    """The best guess from the question alone: of all questions, and of each kind."""
    guesses = torch.tensor([1 / choices for choices in CHOICES])
    kinds = chances(scenes).sum(dim=(2, 3)).mean(dim=0).cpu()
    return {
        "all": percent(kinds @ guesses),
        **{name: percent(guess) for name, guess in zip(KINDS, guesses, strict=True)},
    }


def image_only_ceiling(scenes: Scenes) -> dict[str, float]:
    """The best guess from the scene alone: the answer that questions about it have most often."""
    chance = chances(scenes)
    scene, kind, first, second = chance.nonzero().unbind(dim=1)
    bare = dataclasses.replace(scenes, grain=scenes.grain[:, :0])  # copied for every question, so without the noise
    answer = asked(bare[scene], kind, torch.stack([first, second], dim=1)).answer
    answers = chance.new_zeros(len(scenes), len(ANSWERS))
    answers.index_put_((scene, answer), chance[scene, kind, first, second], accumulate=True)
    return {"all": percent(answers.amax(dim=1).mean())}


def chances(scenes: Scenes) -> Tensor:
    """How likely `questions` is to ask each question: scene, kind, thing, other."""
    possible = askable(scenes).float()
    of_kind = possible.sum(dim=(2, 3), keepdim=True)
    kinds = (of_kind > 0).sum(dim=1, keepdim=True)
    return possible / of_kind.clamp(min=1) / kinds


def percent(share: Tensor) -> float:
    return round(100 * float(share), 2)

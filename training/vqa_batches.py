"""Batches of questions about Shapes World for models that see a scene as regions.

Scenes are drawn on the device as training goes on; their words are indices, encoded as the tokenizer encodes strings.
"""

import argparse
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor
from torch.nn import functional as F
from transformers import BertTokenizer

from whyformer.scenes import (
    COLOURS,
    SHAPES,
    SIZES,
    WORDS,
    Questions,
    RegionBatch,
    Scenes,
    pictures,
    questions,
    regions,
    sample,
    texts,
)

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LETTERS = "abcdefghijklmnopqrstuvwxyz"
POSITIONS = 32
BATCHES_PER_DRAW = 8  # the scenes of so many batches are drawn at once
QUESTIONS_PER_SCENE = 4
ATTRIBUTE_SIZES = (
    len(SHAPES) + 2,
    len(COLOURS) + 1,
    len(SIZES),
    3,
    3,
)  # shape, colour, size, row, column; with clutter


class VqaBatch(NamedTuple):
    """Questions as the tokenizer encodes them, the regions they are about, and the truth."""

    ids: Tensor
    mask: Tensor
    types: Tensor
    features: Tensor
    boxes: Tensor
    attributes: Tensor  # scene, region, one for each of ATTRIBUTE_SIZES
    kind: Tensor
    answer: Tensor

    def split(self, size: int) -> Iterator["VqaBatch"]:
        """The batch in parts of `size` questions."""
        return (VqaBatch(*part) for part in zip(*(field.split(size) for field in self), strict=True))


def new_tokenizer() -> BertTokenizer:
    """WordPiece with the words of Shapes World whole; any other word falls into letters."""
    pieces = dict.fromkeys((*SPECIAL, *WORDS[1:], *LETTERS, *(f"##{letter}" for letter in LETTERS)))
    return BertTokenizer(vocab={piece: number for number, piece in enumerate(pieces)}, model_max_length=POSITIONS)


class VqaEncoder:
    """Makes batches of scenes and questions, on the device."""

    def __init__(self, tokenizer: BertTokenizer, options: argparse.Namespace) -> None:
        self.tokenizer, self.options = tokenizer, options
        ids = [tokenizer.pad_token_id, *tokenizer.convert_tokens_to_ids(list(WORDS[1:]))]
        self.id_of_word = torch.tensor(ids, device=options.device)

    def rng(self, seed: int) -> Generator:
        return Generator(self.options.device).manual_seed(seed)

    def training_batches(self) -> Iterator[VqaBatch]:
        """Batches of the training split, without end."""
        rng = self.rng(self.options.seed)
        while True:
            scenes = sample(BATCHES_PER_DRAW * self.options.batch, "train", rng=rng)
            scene_regions = regions(pictures(scenes))
            for _ in range(QUESTIONS_PER_SCENE):
                yield from self.batch(scenes, scene_regions, questions(scenes, rng)).split(self.options.batch)

    def batch(self, scenes: Scenes, scene_regions: RegionBatch, about: Questions) -> VqaBatch:
        attributes = torch.stack([scenes.shape, scenes.colour, scenes.size, scenes.row, scenes.column], dim=2)
        ids, mask, types = self.encode(about.words)
        return VqaBatch(
            ids, mask, types, scene_regions.features, scene_regions.boxes, attributes, about.kind, about.answer
        )

    def encode(self, words: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Ids, attention mask and token types of [CLS], the words, [SEP] and padding."""
        last = (words > 0).sum(dim=1, keepdim=True) + 1
        ids = F.pad(self.id_of_word[words], (1, 1), value=self.tokenizer.pad_token_id)
        ids[:, 0] = self.tokenizer.cls_token_id
        ids = ids.scatter(1, last, self.tokenizer.sep_token_id)
        mask = (torch.arange(ids.shape[1], device=ids.device) <= last).long()
        return ids, mask, torch.zeros_like(ids)

    def check_tokenizer(self, tokenizer: Any, words: Tensor) -> None:
        """Refuse a tokenizer that encodes the strings otherwise than `encode` does the indices."""
        encoding = tokenizer(texts(words), padding="max_length", max_length=words.shape[1] + 2, return_tensors="pt")
        names = ("input_ids", "attention_mask", "token_type_ids")
        for name, ours in zip(names, self.encode(words), strict=True):
            if not torch.equal(encoding[name], ours.cpu()):
                raise ValueError(f"The tokenizer gives other {name} than the model is trained with.")

    def without_regions(self, batch: VqaBatch) -> VqaBatch:
        """Eight times the same region, in white: of nothing but zeros, LXMERT's LayerNorm would make huge gradients."""
        boxes = batch.boxes.new_tensor([0, 0, 1, 1]).expand_as(batch.boxes)
        return batch._replace(features=torch.ones_like(batch.features), boxes=boxes)

    def without_words(self, batch: VqaBatch) -> VqaBatch:
        """[CLS] [SEP] for a question."""
        ids, mask, types = self.encode(torch.zeros_like(batch.ids[:, 2:]))
        return batch._replace(ids=ids, mask=mask, types=types)

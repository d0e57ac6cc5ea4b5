"""Bridges: features of pictures put at the placeholder tokens of a decoder, and the way of scores back over them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from whyformer.axes import Inputs, TokenMask, TokenScores
from whyformer.errors import WhyformerError
from whyformer.models.joined import Leaving, MapTokens, Transfer
from whyformer.models.pictures import ImageTokenLayout, SeenPicture
from whyformer.models.structure import config_of

# What to know where scores get no further than the queries of a Q-Former.
AT_QUERIES = "Scores end at query tokens, which have no place in the picture: its patches have none."


@dataclass(frozen=True, eq=False)
class PlacedPicture:
    """A picture of a prompt, and what is seen of it.

    Attributes:
        seen: What the tower and the bridge make of it.
        example: Which prompt it is of.
        number: Which of that prompt's pictures it is.
        start: Its first token in the image stream.
        feature: Its first feature, among those of all prompts.
    """

    seen: SeenPicture
    example: int
    number: int
    start: int
    feature: int


@dataclass(frozen=True, eq=False)
class Bridge:
    """The pictures of a batch of prompts, and the placeholder tokens [feature, (example, position)] they are put at."""

    pictures: tuple[PlacedPicture, ...]
    placeholders: Tensor
    batch: int
    text_length: int

    @property
    def image_length(self) -> int:
        """How many tokens the image stream has: those of the prompt with the most."""
        return max(one.start + len(one.seen.order) for one in self.pictures)

    @property
    def most_pictures(self) -> int:
        """How many pictures the prompt with the most has."""
        return max(one.number + 1 for one in self.pictures)

    @property
    def has_one_each(self) -> bool:
        """Whether each prompt has one picture, which is seen as a whole."""
        is_whole = all(len(one.seen.views) == one.seen.tiles == 1 for one in self.pictures)
        return is_whole and [one.example for one in self.pictures] == list(range(self.batch))

    @property
    def is_queried(self) -> bool:
        """Whether features are queries of a Q-Former, which stand at no patches of their own."""
        return any(one.seen.sources.shape[1] == 0 for one in self.pictures)

    @property
    def is_placeholder(self) -> TokenMask:
        """Which positions of the text hold features of pictures."""
        mask = torch.zeros(self.batch, self.text_length, dtype=torch.bool, device=self.placeholders.device)
        mask[self.placeholders[:, 0], self.placeholders[:, 1]] = True
        return mask

    def tower_tokens(self) -> Tensor:
        """For each token that the tower runs, in its order, which one of the image stream it is."""
        parts = [one.example * self.image_length + one.start + one.seen.order for one in self.pictures]
        return torch.cat(parts).to(self.placeholders.device)

    def map_tokens(
        self, maps: int, sizes: tuple[int, int], streams: tuple[str, str], run: int, query_size: int
    ) -> MapTokens | None:
        """Which tokens the maps of a tower or a Q-Former mix; None where map b is that of example b.

        A tower has a map for each picture or tile, or for each part of a sequence of which `run` tokens have run. A
        Q-Former has one for each picture, of which it has `query_size` tokens.
        """
        queries, keys = (
            self._tokens(maps, size, stream, run, query_size) for size, stream in zip(sizes, streams, strict=True)
        )
        lengths = tuple(self.image_length if x == "image" else query_size * self.most_pictures for x in streams)
        is_plain = (maps, *lengths) == (self.batch, *sizes) and _is_counted(queries) and _is_counted(keys)
        return None if is_plain else MapTokens(queries, keys, (lengths[0], lengths[1]), self.batch)

    def _tokens(self, maps: int, size: int, stream: str, run: int, query_size: int) -> Tensor:
        if stream == "image":
            return self.tower_tokens()[run : run + maps * size].reshape(maps, size)
        length = query_size * self.most_pictures
        starts = torch.tensor([one.example * length + one.number * query_size for one in self.pictures])
        return (starts[:, None] + torch.arange(size)).to(self.placeholders.device)

    def to_image(self, later: str = "text", *, share: float = 1.0, leaving: Leaving = "carried") -> Transfer:
        """The way of scores from placeholder positions to the patches that the features there are made of."""
        rows, columns, shares = [], [], []
        for one in self.pictures:
            used = one.seen.weights > 0
            places = self._text_tokens()[one.feature : one.feature + len(used)]
            rows.append(places[:, None].expand_as(used)[used])
            columns.append(one.example * self.image_length + one.start + one.seen.sources[used])
            shares.append(one.seen.weights[used] * share)
        first, second, values = (torch.cat(x).to(self.placeholders.device) for x in (rows, columns, shares))
        return Transfer(
            later, "image", first, second, values, (self.text_length, self.image_length), self.batch, leaving
        )

    def to_queries(self, size: int) -> Transfer:
        """The way to the queries that the features are: the first of the `size` tokens that a Q-Former has of each."""
        length = size * self.most_pictures
        columns = [
            one.example * length + one.number * size + torch.arange(len(one.seen.sources)) for one in self.pictures
        ]
        rows = self._text_tokens()
        parts = (rows, torch.cat(columns), torch.ones(len(rows)))
        first, second, shares = (x.to(self.placeholders.device) for x in parts)
        return Transfer("text", "queries", first, second, shares, (self.text_length, length), self.batch, "carried")

    def held(self, stream: str) -> Transfer:
        """The placeholders' scores as a stream of their own, where features were added to what was there."""
        tokens = self._text_tokens().to(self.placeholders.device)
        lengths = (self.text_length, self.text_length)
        shares = torch.ones(len(tokens), device=tokens.device)
        return Transfer("text", stream, tokens, tokens, shares, lengths, self.batch, "none")

    def pixel_examples(self, inputs: Inputs) -> Tensor:
        """The example that each row of the pixels is of: a picture, a patch of one, or all that an example has."""
        examples = torch.tensor([one.example for one in self.pictures])
        if "image_grid_thw" in inputs:
            examples = examples.repeat_interleave(torch.tensor([len(one.seen.patches) for one in self.pictures]))
        rows = len(inputs["pixel_values"])
        return (examples if len(examples) == rows else torch.arange(rows)).to(self.placeholders.device)

    def row_examples(self) -> dict[int, Tensor]:
        """The example of each picture or tile, of each token of a tower, and of each feature, by how many they are."""
        tiles = [one.example for one in self.pictures for _ in range(one.seen.tiles)]
        device = self.placeholders.device
        parts = [torch.tensor(tiles, device=device), self.tower_tokens() // self.image_length, self.placeholders[:, 0]]
        return {len(part): part for part in reversed(parts) if len(part) != self.batch}

    def patch_scores(self, pixels: Tensor) -> TokenScores:
        """Sum the scores of pixels within each patch, at the patches of the image stream."""
        if pixels.dim() > 2:
            pixels = torch.cat(
                [self._by_patch(*tiles) for tiles in zip(self.pictures, self._tiles(pixels), strict=True)]
            )
        parts = [one.example * self.image_length + one.start + one.seen.patches for one in self.pictures]
        scores = pixels.new_zeros(self.batch * self.image_length)
        scores = scores.index_add(0, torch.cat(parts).to(pixels.device), pixels.flatten(1).sum(dim=1))
        return scores.reshape(self.batch, self.image_length)

    def _tiles(self, pixels: Tensor) -> list[Tensor]:
        """The tiles [tile, channel, height, width] of each picture."""
        if pixels.dim() == 4:
            return list(pixels[:, None])
        if len(pixels) == len(self.pictures):
            return list(pixels)
        return [pixels[one.example, one.number : one.number + 1] for one in self.pictures]

    @staticmethod
    def _by_patch(one: PlacedPicture, tiles: Tensor) -> Tensor:
        """The pixels of a picture by its patches [patch, pixel], in the order of its tiles."""
        view = one.seen.views[0]
        height, width = tiles.shape[-2] // view.rows, tiles.shape[-1] // view.columns
        patches = tiles.sum(dim=1).unfold(1, height, height).unfold(2, width, width)
        return patches[..., : view.rows, : view.columns, :, :].flatten(0, 2).flatten(1)[: len(one.seen.patches)]

    def _text_tokens(self) -> Tensor:
        """The token of the text stream that each feature is put at."""
        places = self.placeholders.cpu()
        return places[:, 0] * self.text_length + places[:, 1]


def bridge_of(model: nn.Module, inputs: Inputs, sight: ImageTokenLayout) -> Bridge:
    """The pictures of these inputs at their placeholders."""
    config, ids = config_of(model), inputs["input_ids"]
    placeholders = (ids == image_token(config)).nonzero()
    pictures: list[PlacedPicture] = []
    feature = 0
    counts: Counter[int] = Counter()
    lengths: Counter[int] = Counter()
    for seen in sight(config, inputs, _tokens_of_its_own(model)):
        if feature >= len(placeholders):
            raise unequal_features(len(placeholders))
        example = int(placeholders[feature, 0])
        pictures.append(PlacedPicture(seen, example, counts[example], lengths[example], feature))
        counts[example] += 1
        lengths[example] += len(seen.order)
        feature += len(seen.sources)
    if feature != len(placeholders):
        raise unequal_features(len(placeholders))
    batch, length = ids.shape
    return Bridge(tuple(pictures), placeholders, batch, length)


def _is_counted(tokens: Tensor) -> bool:
    return torch.equal(tokens.flatten(), torch.arange(tokens.numel(), device=tokens.device))


def _tokens_of_its_own(model: nn.Module) -> int:
    """How many tokens an image tower puts before its patches: a class token, registers."""
    tower = {name: x for name, x in model.named_parameters() if "vision" in name or "visual" in name}
    names = ("class_embedding", "cls_token", "register_tokens")
    return sum(x.shape[1] if x.dim() == 3 else 1 for name, x in tower.items() if name.endswith(names))


def image_token(config: Any) -> int:
    """The token that stands for a feature of a picture."""
    names = ("image_token_id", "image_token_index")
    token: int = next(value for name in names if (value := getattr(config, name, None)) is not None)
    return token


def unequal_features(placeholders: int) -> WhyformerError:
    """The error of prompts whose placeholder tokens are not as many as the features of their pictures."""
    return WhyformerError(
        f"The prompts have {placeholders} placeholder tokens for pictures, and the pictures given make another number "
        "of features: give a picture for each that a prompt speaks of."
    )

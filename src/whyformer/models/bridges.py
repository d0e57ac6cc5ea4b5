"""Bridges: image features at a decoder's placeholder tokens, and how scores flow back through them."""

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

# Note for scores that stop at the queries of a Q-Former.
AT_QUERIES = "Scores end at query tokens, which have no place in the picture: its patches have none."


@dataclass(frozen=True, eq=False)
class PlacedPicture:
    """A picture of a prompt, as the image tower sees it.

    Attributes:
        seen: Its representation in the tower and the bridge.
        example: Index of its prompt.
        number: Its index among that prompt's pictures.
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
    """The pictures of a batch of prompts, and their placeholder tokens [feature, (example, position)]."""

    pictures: tuple[PlacedPicture, ...]
    placeholders: Tensor
    batch: int
    text_length: int

    @property
    def image_length(self) -> int:
        """Length of the image stream: that of the prompt with the most tokens."""
        return max(one.start + len(one.seen.order) for one in self.pictures)

    @property
    def most_pictures(self) -> int:
        """Largest number of pictures in a prompt."""
        return max(one.number + 1 for one in self.pictures)

    @property
    def has_one_each(self) -> bool:
        """Whether each prompt has exactly one picture, not cut into tiles."""
        is_whole = all(len(one.seen.views) == one.seen.tiles == 1 for one in self.pictures)
        return is_whole and [one.example for one in self.pictures] == list(range(self.batch))

    @property
    def is_queried(self) -> bool:
        """Whether features are queries of a Q-Former, which have no patches."""
        return any(one.seen.sources.shape[1] == 0 for one in self.pictures)

    @property
    def is_placeholder(self) -> TokenMask:
        """Positions of the text that hold image features."""
        mask = torch.zeros(self.batch, self.text_length, dtype=torch.bool, device=self.placeholders.device)
        mask[self.placeholders[:, 0], self.placeholders[:, 1]] = True
        return mask

    def tower_tokens(self) -> Tensor:
        """Index in the image stream of each token that the tower runs, in the tower's order."""
        parts = [one.example * self.image_length + one.start + one.seen.order for one in self.pictures]
        return torch.cat(parts).to(self.placeholders.device)

    def map_tokens(
        self, maps: int, sizes: tuple[int, int], streams: tuple[str, str], run: int, query_size: int
    ) -> MapTokens | None:
        """Return the tokens that the maps of a tower or a Q-Former mix; None if map b belongs to example b.

        A tower has a map per picture or tile, or part of a packed sequence after `run` of its tokens. A Q-Former has
        one per picture, over `query_size` tokens.
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
        """The transfer of scores from placeholder positions to the patches their features are made of."""
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
        """The transfer to the queries that the features are: the first of a Q-Former's `size` tokens per picture."""
        length = size * self.most_pictures
        columns = [
            one.example * length + one.number * size + torch.arange(len(one.seen.sources)) for one in self.pictures
        ]
        rows = self._text_tokens()
        parts = (rows, torch.cat(columns), torch.ones(len(rows)))
        first, second, shares = (x.to(self.placeholders.device) for x in parts)
        return Transfer("text", "queries", first, second, shares, (self.text_length, length), self.batch, "carried")

    def to_placeholders(self, stream: str) -> Transfer:
        """The placeholders' scores as a separate stream, where features were added to the states there."""
        tokens = self._text_tokens().to(self.placeholders.device)
        lengths = (self.text_length, self.text_length)
        shares = torch.ones(len(tokens), device=tokens.device)
        return Transfer("text", stream, tokens, tokens, shares, lengths, self.batch, "none")

    def pixel_examples(self, inputs: Inputs) -> Tensor:
        """The example of each row of the pixels, which is a picture, a patch, or all pictures of an example."""
        examples = torch.tensor([one.example for one in self.pictures])
        if "image_grid_thw" in inputs:
            examples = examples.repeat_interleave(torch.tensor([len(one.seen.patches) for one in self.pictures]))
        rows = len(inputs["pixel_values"])
        return (examples if len(examples) == rows else torch.arange(rows)).to(self.placeholders.device)

    def row_examples(self) -> dict[int, Tensor]:
        """The example of each picture or tile, each token of the tower and each feature, keyed by their number."""
        tiles = [one.example for one in self.pictures for _ in range(one.seen.tiles)]
        device = self.placeholders.device
        parts = [torch.tensor(tiles, device=device), self.tower_tokens() // self.image_length, self.placeholders[:, 0]]
        return {len(part): part for part in reversed(parts) if len(part) != self.batch}

    def patch_scores(self, pixels: Tensor) -> TokenScores:
        """Sum the scores of pixels over each patch of the image stream."""
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
        """The token of the text stream that holds each feature."""
        places = self.placeholders.cpu()
        return places[:, 0] * self.text_length + places[:, 1]


def bridge_of(model: nn.Module, inputs: Inputs, sight: ImageTokenLayout) -> Bridge:
    """Match the pictures of these inputs with their placeholders."""
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
    """Number of tokens before the patches of an image tower: a class token, registers."""
    tower = {name: x for name, x in model.named_parameters() if "vision" in name or "visual" in name}
    names = ("class_embedding", "cls_token", "register_tokens")
    return sum(x.shape[1] if x.dim() == 3 else 1 for name, x in tower.items() if name.endswith(names))


def image_token(config: Any) -> int:
    """Id of the placeholder token of image features."""
    names = ("image_token_id", "image_token_index")
    token: int = next(value for name in names if (value := getattr(config, name, None)) is not None)
    return token


def unequal_features(placeholders: int) -> WhyformerError:
    """The error for prompts whose placeholders and image features differ in number."""
    return WhyformerError(
        f"The prompts have {placeholders} placeholder tokens for pictures, and the given pictures another number of "
        "features: give one picture per placeholder."
    )

"""Encoders that cut a picture up into windows, or merge its patches on the way: where their tokens are."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor, nn

from whyformer.axes import Inputs
from whyformer.errors import UnsupportedModel
from whyformer.models.joined import NO_TOKEN, MapTokens, Operation, Place, Tokens, Transfer, mean_of
from whyformer.models.structure import main_input

Grid = Int[Tensor, "row column"]  # the positions of a stage's tokens, row by row
IMAGE = "image"


def shifted_windows(model: nn.Module, inputs: Inputs, operations: Sequence[Operation]) -> Iterator[Place | Transfer]:
    """Swin's: attention inside windows, shifted in every other block, and 2×2 patches merged between stages."""
    _, pixels = main_input(inputs)
    grid = _finest(pixels, patch_size_of(model))
    stream, batch = IMAGE, len(pixels)
    for block, operation in enumerate(operations):
        layer, stage = _layer_of(model, operation.path)
        if _name(stage) != stream:
            parts, before = _patches(_padded(grid, 2), 2, 2), grid.numel()
            grid = _numbered(parts)
            yield mean_of(_name(stage), stream, _for_each(parts, batch), (grid.numel(), before))
            stream = _name(stage)
        shifted = _padded(grid, layer.window_size).roll((-layer.shift_size, -layer.shift_size), dims=(0, 1))
        windows = _patches(shifted, layer.window_size, layer.window_size).flatten(0, 1)
        tokens = _in_each(windows, batch, grid.numel())
        yield Place(block, stream, stream, tokens=MapTokens(tokens, tokens, (grid.numel(),) * 2, batch))


def patch_size_of(model: nn.Module) -> tuple[int, int]:
    """Height and width of the patches that the first convolution of a model makes tokens of."""
    convolution = next(module for module in model.modules() if isinstance(module, nn.Conv2d))
    rows, columns = convolution.stride
    return rows, columns


def _finest(pixels: Tensor, patch: tuple[int, int]) -> Grid:
    """The grid of the patches, of which the last may be filled up."""
    rows, columns = (-(-side // size) for side, size in zip(pixels.shape[-2:], patch, strict=True))
    return torch.arange(rows * columns, device=pixels.device).view(rows, columns)


def _layer_of(model: nn.Module, path: str) -> tuple[Any, int]:
    """The layer that an operation is in, and the number of its stage."""
    place = re.match(r"(?:.*\.)?layers\.(\d+)\.blocks\.\d+(?=\.)", path)
    if place is None:
        raise UnsupportedModel(
            f"{type(model).__name__} has attention at {path or 'a place without a name'!r}, in no stage of windows: "
            "input_x_gradient, integrated_gradients and lrp read inputs alone."
        )
    return model.get_submodule(place[0]), int(place[1])


def _name(stage: int) -> str:
    return f"{IMAGE}, stage {stage + 1}" if stage else IMAGE


def _padded(grid: Grid, multiple: int) -> Grid:
    """The grid filled up at the right and below to a multiple of so many tokens."""
    below, right = (-side % multiple for side in grid.shape)
    return F.pad(grid, (0, right, 0, below), value=NO_TOKEN)


def _patches(grid: Grid, size: int, stride: int) -> Int[Tensor, "row column part"]:
    """The tokens in squares of the grid, square by square."""
    squares: Tensor = grid.unfold(0, size, stride).unfold(1, size, stride).flatten(2)
    return squares


def _numbered(parts: Int[Tensor, "row column part"]) -> Grid:
    rows, columns, _ = parts.shape
    return torch.arange(rows * columns, device=parts.device).view(rows, columns)


def _for_each(parts: Int[Tensor, "row column part"], batch: int) -> Int[Tensor, "batch token part"]:
    """The parts of each token, for every example."""
    return parts.flatten(0, 1).expand(batch, -1, -1)


def _in_each(positions: Int[Tensor, "map token"], batch: int, length: int) -> Tokens:
    """The tokens at some positions, for every example one after the other."""
    example = torch.arange(batch, device=positions.device)[:, None, None]
    tokens: Tokens = torch.where(positions == NO_TOKEN, NO_TOKEN, positions + example * length).flatten(0, 1)
    return tokens

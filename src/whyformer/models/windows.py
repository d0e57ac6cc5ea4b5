"""Encoders that split a picture into windows, or merge its patches between stages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from whyformer.axes import KEY, QUERY, Inputs
from whyformer.errors import UnsupportedModel
from whyformer.models.joined import NO_TOKEN, AttentionShapes, MapTokens, Place, Tokens, Transfer, mean_of
from whyformer.models.structure import feature_levels, first_grid, main_input

Grid = Int[Tensor, "row column"]  # the positions of a stage's tokens, row by row
IMAGE = "image"


def shifted_windows(model: nn.Module, inputs: Inputs, operations: AttentionShapes) -> Iterator[Place | Transfer]:
    """Swin: attention within windows, shifted in every other block; 2×2 patches are merged between stages."""
    _, pixels = main_input(inputs)
    grid = _finest(model, pixels, fills_up=True)
    stream, batch = IMAGE, len(pixels)
    for block, operation in enumerate(operations):
        layer, stage = _module_of(model, operation.path, ".attention"), _stage_of(model, operation.path)
        if _name(stage) != stream:
            parts, before = _squares(_filled_up(grid, 2), 2, 2), grid.numel()
            grid = _numbered(parts)
            yield mean_of(_name(stage), stream, _for_each(parts, batch), (grid.numel(), before))
            stream = _name(stage)
        shifted = _filled_up(grid, layer.window_size).roll((-layer.shift_size, -layer.shift_size), dims=(0, 1))
        windows = _squares(shifted, layer.window_size, layer.window_size).flatten(0, 1)
        tokens = _in_each(windows, batch, grid.numel())
        yield Place(block, stream, stream, tokens=MapTokens(tokens, tokens, (grid.numel(),) * 2, batch))


def flat_windows(model: nn.Module, inputs: Inputs, operations: AttentionShapes) -> Iterator[Place]:
    """SAM and ViTDet: patches that keep their positions, with attention within windows or over all of them."""
    _, pixels = main_input(inputs)
    grid, batch = _finest(model, pixels), len(pixels)
    for block, operation in enumerate(operations):
        size = _module_of(model, operation.path, ".attn").window_size
        windows = _squares(_filled_up(grid, size), size, size).flatten(0, 1) if size else grid.flatten()[None]
        tokens = _in_each(windows, batch, grid.numel())
        yield Place(block, IMAGE, IMAGE, tokens=MapTokens(tokens, tokens, (grid.numel(),) * 2, batch))


def pyramid(model: nn.Module, inputs: Inputs, operations: AttentionShapes) -> Iterator[Place | Transfer]:
    """SegFormer and PVT: stages with fewer and fewer tokens, and even fewer keys.

    A convolution makes each token, or key, from a square of tokens. It is approximated by their mean, since its weights
    differ by channel. Convolutions inside an MLP are ignored, as MLPs are.
    """
    _, pixels = main_input(inputs)
    steps = [conv for name, conv in model.named_modules() if "embedding" in name and isinstance(conv, nn.Conv2d)]
    grid, stream, length, batch = _finest(model, pixels), "", 0, len(pixels)
    for block, operation in enumerate(operations):
        stage, queries = _stage_of(model, operation.path), operation.shape[QUERY]
        if _name(stage) != stream:
            parts = _read_by(steps[stage], grid) if stream else grid[..., None]
            prefix = queries - parts.shape[:2].numel()  # a class token, which has no sources
            grid = _numbered(parts) + prefix
            if stream:
                yield mean_of(_name(stage), stream, _for_each(parts, batch, [[]] * prefix), (queries, length))
            stream, length = _name(stage), queries
        attention = _module_of(model, operation.path, ".attention", inside=True)
        reduced = _reduced_keys(attention, grid)
        if reduced is None:
            yield Place(block, stream, stream)
            continue
        prefix = operation.shape[KEY] - reduced.shape[:2].numel()
        own = _for_each(reduced, batch, [[token] for token in range(prefix)])
        yield mean_of(f"{stream}, keys", stream, own, (operation.shape[KEY], length))
        yield Place(block, stream, f"{stream}, keys")


def shrinking(model: nn.Module, inputs: Inputs, operations: AttentionShapes) -> Iterator[Place | Transfer]:
    """LeViT: tokens of a later stage attend to the earlier one's, without a residual connection."""
    _, pixels = main_input(inputs)
    stream, stage = IMAGE, 0
    for block, operation in enumerate(operations):
        earlier, queries, keys = stream, operation.shape[QUERY], operation.shape[KEY]
        if queries < keys:
            stage += 1
            stream = _name(stage)
            nothing = torch.full((len(pixels), queries, 1), NO_TOKEN, device=pixels.device)
            yield mean_of(stream, earlier, nothing, (queries, keys))
        yield Place(block, stream, earlier)


def unfolded(model: nn.Module, inputs: Inputs, operations: AttentionShapes) -> Iterator[Place | Transfer]:
    """MobileViT: tokens at the same position of small squares attend to each other, stage by stage.

    Scores follow only the convolutions that make a stage from the previous one, as in a pyramid.
    """
    _, pixels = main_input(inputs)
    config: Any = model.config
    side, batch, places = int(config.patch_size), len(pixels), list[str]()
    grid = pixels.new_zeros(0, 0).long()
    for block, operation in enumerate(operations):
        place = operation.path.partition(".transformer.")[0]
        if place not in places:
            places.append(place)
            rows, columns = feature_levels(model, _size(pixels), operation.shape[KEY] * side**2)[0]
            before, grid = grid, torch.arange(rows * columns, device=pixels.device).view(rows, columns)
            if len(places) > 1:
                parts = _halved(model.get_submodule(place), before)
                lengths = (grid.numel(), before.numel())
                yield mean_of(_name(len(places) - 1), _name(len(places) - 2), _for_each(parts, batch), lengths)
        tokens = _in_each(_squares(grid, side, side).flatten(0, 1).T, batch, grid.numel())
        stream = _name(len(places) - 1)
        yield Place(block, stream, stream, tokens=MapTokens(tokens, tokens, (grid.numel(),) * 2, batch))


def _halved(stage: nn.Module, grid: Grid) -> Int[Tensor, "row column part"]:
    """Inputs of each token of a stage: those read by a stride-2 convolution, or the token itself without one."""
    convolutions = (module for module in stage.modules() if isinstance(module, nn.Conv2d))
    step = next((convolution for convolution in convolutions if convolution.stride[0] == 2), None)
    return grid[..., None] if step is None else _read_by(step, grid)


def _size(pixels: Tensor) -> tuple[int, int]:
    return pixels.shape[-2], pixels.shape[-1]


def mask_units(model: nn.Module, inputs: Inputs, operations: AttentionShapes) -> Iterator[Place | Transfer]:
    """Hiera: windows that shrink as their queries are pooled, with tokens ordered by their position in the window.

    Max pooling over four tokens is approximated by their mean.
    """
    _, pixels = main_input(inputs)
    encoder: Any = next(module for module in model.modules() if type(module).__name__ == "HieraEncoder")
    grid, batch = _finest(model, pixels), len(pixels)
    order = grid
    for strides in encoder.schedule[0][0]:  # each groups tokens by their position in squares of its size
        rows, columns = (side // stride for side, stride in zip(order.shape[-2:], strides, strict=True))
        order = order.unflatten(-1, (columns, strides[1])).unflatten(-3, (rows, strides[0]))
        order = order.permute(*range(order.dim() - 4), -3, -1, -4, -2)
    stream, length = _name(0, "in mask units"), grid.numel()
    yield mean_of(stream, IMAGE, order.reshape(1, -1, 1).expand(batch, -1, -1), (length, length))
    for block, operation in enumerate(operations):
        attention: Any = model.get_submodule(operation.path.removesuffix(".proj"))
        later, count = stream, length // int(attention.query_stride)
        keys = torch.arange(length, device=pixels.device)
        if attention.query_stride > 1:
            later = _name(_stage_of(model, operation.path))
            yield mean_of(later, stream, keys.view(-1, count).T.expand(batch, -1, -1), (count, length))
        width = operation.shape[KEY]
        windows = (x.view(-1, length // width).T for x in (keys[:count], keys))
        queries, keys = (_in_each(x, batch, size) for x, size in zip(windows, (count, length), strict=True))
        yield Place(block, later, stream, tokens=MapTokens(queries, keys, (count, length), batch))
        stream, length = later, count


def _finest(model: nn.Module, pixels: Tensor, *, fills_up: bool = False) -> Grid:
    """The grid of patches at the input."""
    rows, columns = first_grid(model, _size(pixels), fills_up=fills_up)
    return torch.arange(rows * columns, device=pixels.device).view(rows, columns)


def _geometry(convolution: nn.Conv2d) -> tuple[int, int, int]:
    """Kernel size, stride and padding of a square convolution."""
    return convolution.kernel_size[0], convolution.stride[0], int(convolution.padding[0])


def _stage_of(model: nn.Module, path: str) -> int:
    """Index of the stage of an operation."""
    place = re.search(r"(?:stages|layers|block)\.(\d+)\.", path)
    if place is None:
        raise UnsupportedModel(
            f"{type(model).__name__} has attention at {path!r}, outside the stages of its encoder: "
            "input_x_gradient, integrated_gradients and lrp read inputs alone."
        )
    return int(place[1])


def _module_of(model: nn.Module, path: str, part: str, *, inside: bool = False) -> Any:
    """The module that contains a part of an operation's path, or that part itself."""
    before, _, _ = path.partition(part)
    return model.get_submodule(before + part if inside else before)


def _name(stage: int, remark: str = "") -> str:
    words = [IMAGE, *([f"stage {stage + 1}"] if stage else []), *([remark] if remark else [])]
    return ", ".join(words)


def _read_by(convolution: nn.Conv2d, grid: Grid) -> Int[Tensor, "row column part"]:
    """The tokens that a convolution reads for each of its outputs."""
    size, stride, padding = _geometry(convolution)
    return _squares(F.pad(grid, (padding,) * 4, value=NO_TOKEN), size, stride)


def _reduced_keys(attention: nn.Module, grid: Grid) -> Int[Tensor, "row column part"] | None:
    """The tokens that each key is made of, if keys are fewer than queries; None if each is one token."""
    for name, module in attention.named_modules():
        if isinstance(module, nn.AdaptiveAvgPool2d):
            return _pooled(grid, int(cast(int, module.output_size)))
        if isinstance(module, nn.Conv2d) and "query" not in name:
            return _read_by(module, grid)
    return None


def _pooled(grid: Grid, side: int) -> Int[Tensor, "row column part"]:
    """The tokens of adaptive pooling into `side` squares per side, which may overlap."""
    cuts = [[(n * size // side, -(-(n + 1) * size // side)) for n in range(side)] for size in grid.shape]
    squares = [grid[slice(*rows)][:, slice(*columns)].flatten() for rows in cuts[0] for columns in cuts[1]]
    parts = pad_sequence(squares, batch_first=True, padding_value=NO_TOKEN)
    return parts.view(side, side, -1)


def _filled_up(grid: Grid, multiple: int) -> Grid:
    """Pad the grid at the right and bottom to a multiple of tokens."""
    below, right = (-side % multiple for side in grid.shape)
    return F.pad(grid, (0, right, 0, below), value=NO_TOKEN)


def _squares(grid: Grid, size: int, stride: int) -> Int[Tensor, "row column part"]:
    """The tokens of the grid, square by square."""
    squares: Tensor = grid.unfold(0, size, stride).unfold(1, size, stride).flatten(2)
    return squares


def _numbered(parts: Int[Tensor, "row column part"]) -> Grid:
    rows, columns, _ = parts.shape
    return torch.arange(rows * columns, device=parts.device).view(rows, columns)


def _for_each(
    parts: Int[Tensor, "row column part"], batch: int, prefix: Sequence[Sequence[int]] = ()
) -> Int[Tensor, "batch token part"]:
    """The parts of each token, for every example; those of leading tokens are given by `prefix`."""
    first = torch.full((len(prefix), parts.shape[2]), NO_TOKEN, device=parts.device)
    for row, tokens in zip(first, prefix, strict=True):
        row[: len(tokens)] = torch.tensor(tokens, dtype=row.dtype)
    return torch.cat([first, parts.flatten(0, 1)]).expand(batch, -1, -1)


def _in_each(positions: Int[Tensor, "map token"], batch: int, length: int) -> Tokens:
    """The tokens at the given positions, for every example."""
    example = torch.arange(batch, device=positions.device)[:, None, None]
    tokens: Tokens = torch.where(positions == NO_TOKEN, NO_TOKEN, positions + example * length).flatten(0, 1)
    return tokens

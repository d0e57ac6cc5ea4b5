"""Swin's shifted windows, padding and merges against dense matrices of its patches, built by hand from its sizes."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import Tensor, nn

from tiny_models import built, image_inputs
from tiny_windows import WINDOWED
from whyformer import attribute
from whyformer.methods.registry import trace_methods
from whyformer.tracing.build import trace

WINDOW, SHIFT, FINE, COARSE = 3, 1, 7, 4  # a side of the grid, before and after 2×2 patches are merged
SIZES = {"embed_dim": 12, "depths": [2, 2], "num_heads": [2, 3], "window_size": WINDOW, "patch_size": 4}
TARGET = 1


@cache
def swin() -> nn.Module:
    sizes = SIZES | {"image_size": 28, "num_labels": 4}
    return built("SwinForImageClassification", "SwinConfig", **sizes).double().requires_grad_(False)


def pictures(scale: float = 1.0) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(2)
    return {"pixel_values": scale * torch.randn(2, 3, 28, 28, generator=generator, dtype=torch.float64)}


@cache
def traced() -> tuple:
    return tuple((record.map, record.gradient) for record in trace(swin(), pictures(), TARGET).records)


def windows(side: int, shift: int) -> list[list[int | None]]:
    """The patches in each window, row by row; None where the grid is filled up."""
    padded = -(-side // WINDOW) * WINDOW
    cut = []
    for top in range(0, padded, WINDOW):
        for left in range(0, padded, WINDOW):
            places = [(top + row, left + column) for row in range(WINDOW) for column in range(WINDOW)]
            moved = [((row + shift) % padded, (column + shift) % padded) for row, column in places]
            cut.append([row * side + column if max(row, column) < side else None for row, column in moved])
    return cut


def dense(maps: Tensor, side: int, shift: int) -> Tensor:
    """Maps [example · window, …, query, key] as matrices of all patches."""
    cut = windows(side, shift)
    matrix = torch.zeros(2, *maps.shape[1:-2], side**2, side**2, dtype=torch.float64)
    for number, weights in enumerate(maps):
        example, patches = number // len(cut), cut[number % len(cut)]
        for i, query in enumerate(patches):
            for j, key in enumerate(patches):
                if query is not None and key is not None:
                    matrix[example, ..., query, key] = weights[..., i, j]
    return matrix


PLACES = [(FINE, 0), (FINE, SHIFT), (COARSE, 0), (COARSE, SHIFT)]


def merge() -> Tensor:
    """Each patch of the coarse grid is the mean of up to four."""
    matrix = torch.zeros(COARSE**2, FINE**2, dtype=torch.float64)
    for row in range(FINE):
        for column in range(FINE):
            matrix[row // 2 * COARSE + column // 2, row * FINE + column] = 1.0
    return matrix / matrix.sum(dim=1, keepdim=True)


def composed(blocks: list[Tensor], start: Tensor, *, normalise_rows: bool = False) -> tuple[Tensor, Tensor]:
    """start · (M + I)… through all blocks and the merge, and what of it is the start unmixed."""
    row, kept = start, start
    for number in reversed(range(4)):
        block = blocks[number] + torch.eye(blocks[number].shape[-1], dtype=torch.float64)
        sums = block.sum(dim=-1, keepdim=True) if normalise_rows else torch.ones_like(block[..., :1])
        row, kept = row @ (block / sums), kept / sums.mT
        if number == 2:
            row, kept = row @ merge(), kept @ merge()
    return row, kept


def matrices(mixing) -> list[Tensor]:
    return [dense(mixing(*parts), *place) for parts, place in zip(traced(), PLACES, strict=True)]


def mean_row() -> Tensor:
    return torch.full((2, 1, COARSE**2), 1 / COARSE**2, dtype=torch.float64)


def assert_equal(scores: Tensor, expected: Tensor) -> None:
    assert expected.abs().max() > 0
    torch.testing.assert_close(scores, expected, rtol=1e-9, atol=1e-9 * float(expected.abs().max()))


def test_the_padding_is_seen_as_the_model_pads():
    maps = traced()
    assert [weights.shape[0] for weights, _ in maps] == [18, 18, 8, 8]
    assert sum(patch is None for window in windows(FINE, SHIFT) for patch in window) == 81 - 49


@pytest.mark.parametrize("normalise_rows", [False, True])
def test_rollout_is_the_dense_product(normalise_rows):
    row, kept = composed(matrices(lambda a, g: a.mean(dim=1)), mean_row(), normalise_rows=normalise_rows)
    scores = attribute(swin(), pictures(), TARGET, "rollout", normalise_rows=normalise_rows)
    assert scores.keys() == {"image"}
    assert_equal(scores["image"], (row - kept)[:, 0])


def test_rollout_from_a_block_on_still_ends_on_the_finest_patches():
    blocks = matrices(lambda a, g: a.mean(dim=1))
    row, kept = composed([torch.zeros_like(blocks[0])] * 2 + [0 * blocks[2], blocks[3]], mean_row())
    assert_equal(attribute(swin(), pictures(), TARGET, "rollout", first_block=3)["image"], (row - kept)[:, 0])


def test_generic_attention_is_the_dense_product():
    row, kept = composed(matrices(lambda a, g: (a * g).clamp(min=0).mean(dim=1)), mean_row())
    assert_equal(attribute(swin(), pictures(), TARGET, "generic_attention")["image"], (row - kept)[:, 0])


def test_raw_attention_is_shared_out_among_merged_patches():
    row = mean_row() @ dense(traced()[3][0].mean(dim=1), *PLACES[3]) @ merge()
    assert_equal(attribute(swin(), pictures(), TARGET, "raw_attention")["image"], row[:, 0])


def feedback() -> Tensor:
    """∫∇A of the last map at eight nodes, those of merged patches at each of their parts."""
    nodes, weights = torch.tensor([0.25, 0.75]), torch.tensor([0.5, 0.5])
    gradients = [
        trace(swin(), pictures(float(node)), TARGET).records[3].gradient * weight
        for node, weight in zip(nodes, weights, strict=True)
    ]
    by_token = dense(sum(gradients), *PLACES[3]).clamp(min=0).mean(dim=1)
    return by_token @ (merge() > 0).double()


def times_feedback(blocks: list[Tensor]) -> Tensor:
    row, _ = composed(blocks, torch.eye(COARSE**2, dtype=torch.float64).expand(2, -1, -1))
    return (row * feedback()).mean(dim=1)


def test_bi_head_is_the_dense_product():
    def by_importance(number: int) -> Tensor:
        attention, gradient = (dense(part, *PLACES[number]) for part in traced()[number])
        # The gradient of a patch that only fills the grid up is not in the matrix, but in the head's importance.
        whole = (traced()[number][0] * traced()[number][1]).sum(dim=(2, 3)).unflatten(0, (2, -1)).sum(dim=1).abs()
        theta = whole / whole.sum(dim=1, keepdim=True)
        assert gradient.any()
        return (attention * theta[:, :, None, None]).sum(dim=1)

    scores = attribute(swin(), pictures(), TARGET, "bi_head", steps=2, quadrature="midpoint")["image"]
    assert_equal(scores, times_feedback([by_importance(number) for number in range(4)]))


def test_bi_token_is_the_dense_product():
    model, states = swin(), []
    layers = [layer for stage in model.swin.encoder.layers for layer in stage.blocks]
    hooks = [layer.register_forward_pre_hook(lambda _, args: states.append(args[0])) for layer in layers]
    with torch.no_grad():
        model(**pictures())
    for hook in hooks:
        hook.remove()
    blocks = []
    for layer, state, (attention, _), place in zip(layers, states, traced(), PLACES, strict=True):
        moved = state @ (layer.attention.o_proj.weight @ layer.attention.v_proj.weight).T
        alpha = moved.norm(dim=-1) / state.norm(dim=-1)
        blocks.append(dense(attention.mean(dim=1), *place) * alpha[:, None, :])
    scores = attribute(model, pictures(), TARGET, "bi_token", steps=2, quadrature="midpoint")["image"]
    assert_equal(scores, times_feedback(blocks))


@cache
def symmetric(name: str) -> nn.Module:
    """A Swin to which left and right are the same: no position biases, and merges that mix their parts alike."""
    sizes = SIZES | {"window_size": 4, "image_size": 32, "num_labels": 4}
    model = built(f"{name}ForImageClassification", f"{name}Config", **sizes).double()
    with torch.no_grad():
        for part, parameter in model.named_parameters():
            if "relative_position_bias" in part or "continuous_position_bias" in part:
                parameter.zero_()
            if "downsample" in part and parameter.shape[-1] == 48:
                parts = parameter.unflatten(-1, (4, 12))
                parameter.copy_(parts.mean(dim=-2, keepdim=True).expand_as(parts).flatten(-2))
    return model


@pytest.mark.parametrize("name", ["Swin", "Swinv2"])
@pytest.mark.parametrize("method", sorted(trace_methods().keys() - {"random", "full_grad", "grad_eclip"}))
def test_a_picture_with_its_patches_mirrored_has_mirrored_scores(method, name):
    pixels = torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    mirrored = pixels.unflatten(3, (8, 4)).flip(3).flatten(3)
    options = {"steps": 3} if method == "integrated_gradients" else {}
    scores, other = (
        next(iter(attribute(symmetric(name), {"pixel_values": x}, TARGET, method, **options).values()))
        for x in (pixels, mirrored)
    )
    shape = (1, 32, 8, 4) if scores.shape[1] == 1024 else (1, 8, 8)
    scores, other = scores.reshape(shape), other.reshape(shape).flip(2)
    assert scores.abs().max() > 0 or method == "grad_cam"
    torch.testing.assert_close(scores, other, rtol=1e-6, atol=1e-7 * float(scores.abs().max()))


def product_of(blocks: list[Tensor], start: Tensor) -> Tensor:
    """What start · B_n … B_1 has beside the start itself, for blocks (M, merge), first to last."""
    row, kept = start, start
    for attention, made_of in reversed(blocks):
        row, kept = row + row @ attention if attention is not None else row, kept
        if made_of is not None:
            row, kept = row @ made_of, kept @ made_of
    return (row - kept)[:, 0]


def squares(side: int, size: int, stride: int, padding: int) -> Tensor:
    """The matrix by which each square of a grid is the mean of the tokens in it."""
    count = (side + 2 * padding - size) // stride + 1
    matrix = torch.zeros(count**2, side**2, dtype=torch.float64)
    for row in range(count):
        for column in range(count):
            for y in range(row * stride - padding, row * stride - padding + size):
                for x in range(column * stride - padding, column * stride - padding + size):
                    if 0 <= y < side and 0 <= x < side:
                        matrix[row * count + column, y * side + x] = 1.0
    return matrix / matrix.sum(dim=1, keepdim=True)


def test_reduced_keys_are_the_mean_of_their_tokens():
    model, pixels = WINDOWED["segformer"]().double(), image_inputs()["pixel_values"].double()
    first, second, third = (record.map.mean(dim=1) for record in trace(model, {"pixel_values": pixels}, TARGET).records)
    keys, merged = squares(4, 2, 2, 0), squares(4, 3, 2, 1)
    blocks = [(first @ keys, None), (second @ keys, None), (None, merged), (third, None)]
    start = torch.full((2, 1, 4), 0.25, dtype=torch.float64)
    assert_equal(attribute(model, {"pixel_values": pixels}, TARGET, "rollout")["image"], product_of(blocks, start))


def test_mask_units_are_windows_of_the_picture():
    """Hiera: 4×4 patches of an 8×8 grid attend to each other, are pooled to 2×2, to 1, and then to all others."""
    model, pixels = WINDOWED["hiera"]().double(), image_inputs()["pixel_values"].double()
    maps = [record.map.mean(dim=1) for record in trace(model, {"pixel_values": pixels}, TARGET).records]
    assert [tuple(weights.shape) for weights in maps] == [
        (8, 16, 16),
        (8, 4, 16),
        (8, 4, 4),
        (8, 1, 4),
        (2, 4, 4),
    ]

    def unit(level: int, window: int) -> list[int]:
        """The tokens of a window in the order of its map: of every square's four places, one after the other."""
        side = 8 >> level
        width = side // 2
        top, left = window // 2 * width, window % 2 * width
        places = [(0, 0)]
        for _ in range(2 - level):
            places = [(2 * y + dy, 2 * x + dx) for dy in (0, 1) for dx in (0, 1) for y, x in places]
        return [(top + y) * side + left + x for y, x in places]

    def in_units(weights: Tensor, query_level: int, key_level: int) -> Tensor:
        matrix = torch.zeros(2, (8 >> query_level) ** 2, (8 >> key_level) ** 2, dtype=torch.float64)
        for number, entries in enumerate(weights):
            rows, columns = (torch.tensor(unit(level, number % 4)) for level in (query_level, key_level))
            matrix[number // 4, rows[:, None], columns] = entries
        return matrix

    pooled = [squares(8, 2, 2, 0), squares(4, 2, 2, 0)]
    start = torch.full((2, 1, 4), 0.25, dtype=torch.float64)
    row = start + start @ maps[4]
    row, kept = row @ in_units(maps[3], 2, 1) + row @ pooled[1], start @ pooled[1]
    row = row + row @ in_units(maps[2], 1, 1)
    row, kept = row @ in_units(maps[1], 1, 0) + row @ pooled[0], kept @ pooled[0]
    row = row + row @ in_units(maps[0], 0, 0)
    assert_equal(attribute(model, {"pixel_values": pixels}, TARGET, "rollout")["image"], (row - kept)[:, 0])

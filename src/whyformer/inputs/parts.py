"""Which positions of which stream belong to which part of an example: the picture, its regions, the sound, the text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from torch import nn
from torch.nn import functional as F

from whyformer.axes import Inputs, StreamScores
from whyformer.inputs.views import on_finest
from whyformer.models.family import JOINT
from whyformer.models.modalities import REGION_INPUTS, SOUND_INPUTS
from whyformer.models.structure import feature_levels, has_levels, patch_grid


@dataclass(frozen=True)
class PartPlace:
    """A part of an example: its stream, the first of its tokens there, and how many; of a picture also their grid."""

    kind: Literal["text", "written", "picture", "regions", "sound"]
    stream: str
    first: int
    count: int
    grid: tuple[int, int] | None = None


def part_places(model: nn.Module, inputs: Inputs, lengths: Mapping[str, int]) -> Iterator[PartPlace]:
    """The parts that inputs have, where streams have so many tokens. Pixels, if they are a stream, are the picture."""
    words = inputs["input_ids"].shape[-1] if "input_ids" in inputs else 0  # of a choice, behind its own axis
    text = next((stream for stream in ("source", "text", JOINT) if stream in lengths), "text")
    if words and text in lengths:
        yield PartPlace("text", text, 0, words)
    sound = next((stream for stream in ("spectrogram", "frames", "audio") if stream in lengths), None)
    if sound is not None and any(name in inputs for name in SOUND_INPUTS):
        yield PartPlace("sound", sound, 0, lengths[sound])
    if "decoder_input_ids" in inputs and "target" in lengths:
        yield PartPlace("written", "target", 0, lengths["target"])
    shared = next((stream for stream in ("image", JOINT) if stream in lengths), text)  # which may hold the words first
    if "pixel_values" in inputs:
        height, width = inputs["pixel_values"].shape[-2:]
        if "pixels" in lengths:
            yield PartPlace("picture", "pixels", 0, height * width, (height, width))
        elif shared == JOINT:
            grid = patch_grid(model, (height, width), height * width)
            yield PartPlace("picture", JOINT, words + 1, lengths[JOINT] - words - 1, grid)  # after its class token
        elif shared in lengths:
            rows, columns = patch_grid(model, (height, width), lengths[shared])
            yield PartPlace("picture", shared, lengths[shared] - rows * columns, rows * columns, (rows, columns))
    elif shared in lengths and any(name in inputs for name in REGION_INPUTS):
        first = 0 if shared == "image" else words
        yield PartPlace("regions", shared, first, lengths[shared] - first)


def on_one_level(model: nn.Module, inputs: Inputs, scores: StreamScores) -> StreamScores:
    """The scores with those of feature maps of several sizes laid on the finest of them."""
    if "image" not in scores or "pixel_values" not in inputs or not has_levels(model):
        return scores
    height, width = inputs["pixel_values"].shape[-2:]
    grids = feature_levels(model, (height, width), scores["image"].shape[1])
    return scores | {"image": on_finest(scores["image"], grids)}


def real_grid(inputs: Inputs, row: int, grid: tuple[int, int]) -> tuple[int, int]:
    """Rows and columns of the patches that are no padding, in a stream that holds these alone (ViLT)."""
    if "pixel_mask" not in inputs:
        return grid
    mask = F.interpolate(inputs["pixel_mask"][row][None, None].float(), size=grid)[0, 0]
    return int(mask[:, 0].sum()), int(mask[0].sum())

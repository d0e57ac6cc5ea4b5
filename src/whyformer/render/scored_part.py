"""View of a part of a prompt that is not a text: the original picture, and a heatmap layer per row."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from whyformer.inputs.layouts import Boxes, Patches
from whyformer.render.canvas import side_by_side
from whyformer.render.heatmaps import display_side, heat_layer, original, overlay, strongest_first
from whyformer.render.layout_kinds import Space, kind_of
from whyformer.render.view import data_uri

if TYPE_CHECKING:
    from whyformer.results.part import Part

PART_SIDE, LAYER_SIDE, DRAWING_WIDTH = 480, 240, 640  # heatmaps are smooth, and need fewer pixels than their picture
ROWS_BESIDE = 48  # maximum number of rows with thumbnails


@dataclass(frozen=True, eq=False)
class ScoredPartView:
    """A part of a prompt, its index among the sources, and the part with the scores of each row, then of all rows."""

    source: int
    name: str
    parts: tuple[Part, ...]

    @cached_property
    def original(self) -> str:
        """Data URI of a picture; empty for others, which are drawn with their scores."""
        layout = self.parts[0].layout
        if not isinstance(layout, (Patches, Boxes)):
            return ""
        return data_uri(original(layout, display_side(layout, PART_SIDE)))

    @cached_property
    def layers(self) -> tuple[str, ...]:
        """Data URI of each row's heatmap layer; of the whole drawing where the original is not a picture."""
        return tuple(map(_layer, self.parts))

    @property
    def ratio(self) -> float:
        """Aspect ratio of its drawing."""
        layout = self.parts[0].layout
        drawing = layout.image if isinstance(layout, (Patches, Boxes)) else _drawing(self.parts[0], DRAWING_WIDTH)
        width, height = drawing.size
        return round(width / height, 4)

    @property
    def has_strip(self) -> bool:
        """Whether the rows have thumbnails: for a picture with several rows."""
        return bool(self.original) and 1 < len(self.parts) - 1 <= ROWS_BESIDE

    def strongest(self, row: int) -> str:
        """Name of a row's strongest token; empty if all scores are 0."""
        part = self.parts[row]
        return part.tokens[strongest_first(part.scores)[0]] if part.scores.any() else ""

    def picture(self, row: int, width: int) -> Image.Image:
        """The original next to the heatmap of a row, at a maximum width."""
        part = self.parts[row]
        if not isinstance(part.layout, (Patches, Boxes)):
            return _drawing(part, width)
        widest = (width - 16) / 2 / min(1.0, self.ratio)  # of the longest side
        side = min(display_side(part.layout, PART_SIDE), round(widest))
        return side_by_side([original(part.layout, side), overlay(part, longest_side=side)], gap=16)


def with_all_rows(parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """The parts of all rows, followed by their sum if there are several."""
    if len(parts) == 1:
        return parts
    total: np.ndarray = np.stack([part.scores for part in parts]).sum(axis=0, dtype=np.float64)
    return (*parts, replace(parts[0], scores=total))


def _layer(part: Part) -> str:
    if not isinstance(part.layout, (Patches, Boxes)):
        return data_uri(_drawing(part, DRAWING_WIDTH))
    buffer = io.BytesIO()
    heat_layer(part.layout, part.scores, LAYER_SIDE).save(buffer, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def _drawing(part: Part, width: int) -> Image.Image:
    return kind_of(part.layout).figure(part, Space(width))

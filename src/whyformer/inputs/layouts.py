"""Where the tokens of an input are: patches of a picture, regions of it, word pieces of a text."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from whyformer.errors import WhyformerError

Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Patches:
    """A grid of patches of a picture, whose scores lie row by row.

    Args:
        image: The picture as it was given.
        rows: How many rows of patches.
        columns: How many patches in a row.
        box: What the grid covers of the picture: left, top, right, bottom in its pixels. It may be fractional, and may
            reach beyond a picture that preprocessing padded.
        outline: A box of the picture that the answer is about, such as a detection's.

    Raises:
        WhyformerError: If the grid has no patch, or a box no area.

    Example:
        >>> from PIL import Image
        >>> from whyformer.inputs.layouts import Patches
        >>> Patches(Image.new("RGB", (64, 32)), rows=1, columns=2, box=(0, 0, 64, 32)).tokens
        ('row 1, column 1', 'row 1, column 2')
    """

    image: Image.Image
    rows: int
    columns: int
    box: Box
    outline: Box | None = None

    def __post_init__(self) -> None:
        if self.rows < 1 or self.columns < 1:
            raise WhyformerError(f"A grid of patches has a row and a column at least, not {self.rows}×{self.columns}.")
        _check_box(self.box, "box")
        if self.outline is not None:
            _check_box(self.outline, "outline")

    @property
    def size(self) -> int:
        """How many patches there are."""
        return self.rows * self.columns

    @property
    def tokens(self) -> tuple[str, ...]:
        """Names of the patches, counted from row 1, column 1 at the top left."""
        rows, columns = range(1, self.rows + 1), range(1, self.columns + 1)
        return tuple(f"row {row}, column {column}" for row in rows for column in columns)

    @property
    def summary(self) -> str:
        """What the layout is, in two words."""
        return f"{self.rows}×{self.columns} patches"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Patches):
            return NotImplemented
        places = [(layout.rows, layout.columns, layout.box, layout.outline) for layout in (self, other)]
        return places[0] == places[1] and _same_picture(self.image, other.image)


@dataclass(frozen=True)
class Boxes:
    """Regions of a picture, which may overlap.

    Args:
        image: The picture as it was given.
        boxes: For each region left, top, right, bottom in the picture's pixels.

    Raises:
        WhyformerError: If a box has no area.

    Example:
        >>> from PIL import Image
        >>> from whyformer.inputs.layouts import Boxes
        >>> Boxes(Image.new("RGB", (64, 32)), boxes=((0, 0, 20, 20), (10, 0, 64, 32))).tokens
        ('region 1', 'region 2')
    """

    image: Image.Image
    boxes: tuple[Box, ...]

    def __post_init__(self) -> None:
        for box in self.boxes:
            _check_box(box, "A region's box")

    @property
    def size(self) -> int:
        """How many regions there are."""
        return len(self.boxes)

    @property
    def tokens(self) -> tuple[str, ...]:
        """Names of the regions, counted from 1."""
        return tuple(f"region {number}" for number in range(1, len(self.boxes) + 1))

    @property
    def summary(self) -> str:
        """What the layout is, in two words."""
        return f"{len(self.boxes)} regions"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Boxes):
            return NotImplemented
        return self.boxes == other.boxes and _same_picture(self.image, other.image)


def _check_box(box: Box, what: str) -> None:
    left, top, right, bottom = box
    if not (left < right and top < bottom and all(map(math.isfinite, box))):
        raise WhyformerError(f"{what} is (left, top, right, bottom), left < right and top < bottom, not {box}.")


def _same_picture(first: Image.Image, second: Image.Image) -> bool:
    # PIL calls two images unequal when they came from different file formats.
    return first.mode == second.mode and np.array_equal(np.array(first), np.array(second))


@dataclass(frozen=True)
class WordPieces:
    """The tokens of a text, or of a pair of texts.

    Args:
        texts: The text, or both.
        tokens: Each token as the tokenizer writes it.
        segments: For each token which text it is of: 0 or 1.
        offsets: For each token its first character in that text, and the one after its last.

    Raises:
        WhyformerError: If these differ in length, or a token lies outside its text.

    Example:
        >>> from whyformer.inputs.layouts import WordPieces
        >>> WordPieces(("a film",), ("a", "film"), segments=(0, 0), offsets=((0, 1), (2, 6))).size
        2
    """

    texts: tuple[str, ...]
    tokens: tuple[str, ...]
    segments: tuple[int, ...]
    offsets: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        if not len(self.tokens) == len(self.segments) == len(self.offsets):
            counts = f"{len(self.tokens)} tokens, {len(self.segments)} segments and {len(self.offsets)} offsets"
            raise WhyformerError(f"Each token has one segment and one pair of offsets, but there are {counts}.")
        for token, segment, (start, end) in zip(self.tokens, self.segments, self.offsets, strict=True):
            if not 0 <= segment < len(self.texts):
                raise WhyformerError(f"Token {token!r} is in segment {segment}, but there are {len(self.texts)} texts.")
            if not 0 <= start <= end <= len(self.texts[segment]):
                length = len(self.texts[segment])
                raise WhyformerError(f"Token {token!r} has offsets {(start, end)} in a text of {length} characters.")

    @property
    def size(self) -> int:
        """How many tokens there are."""
        return len(self.tokens)

    @property
    def summary(self) -> str:
        """What the layout is, in two words."""
        return f"{len(self.tokens)} word pieces"


Layout = Patches | Boxes | WordPieces


def covered_box(processor: Any, size: tuple[int, int]) -> Box:
    """The part of a picture of this (width, height) that the processor hands to the model."""
    width, height = size
    if not getattr(processor, "do_center_crop", False):
        return 0.0, 0.0, float(width), float(height)
    crop = processor.crop_size
    scale_x = scale_y = 1.0
    if getattr(processor, "do_resize", False):
        resized = processor.size
        if "shortest_edge" in resized:
            scale_x = scale_y = resized["shortest_edge"] / min(width, height)
        elif "longest_edge" in resized:
            scale_x = scale_y = resized["longest_edge"] / max(width, height)
        else:
            scale_x, scale_y = resized["width"] / width, resized["height"] / height
    kept_width, kept_height = crop["width"] / scale_x, crop["height"] / scale_y
    left, top = (width - kept_width) / 2, (height - kept_height) / 2
    return left, top, left + kept_width, top + kept_height

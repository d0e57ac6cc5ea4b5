"""Layouts: where tokens are in a picture or a text, or when in a sound."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from PIL import Image

from whyformer.errors import WhyformerError
from whyformer.inputs.sound import Sound

Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Patches:
    """A grid of patches of a picture, whose scores lie row by row.

    Args:
        image: The picture as it was given.
        rows: Number of rows of patches.
        columns: Number of patches in a row.
        box: The area that the grid covers: left, top, right, bottom in pixels. It may be fractional, and may extend
            beyond a picture that preprocessing padded.
        outline: A box that the answer is about, such as a detection's.

    Raises:
        WhyformerError: If the grid is empty, or a box has no area.

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
            raise WhyformerError(f"A grid of patches needs a row and a column, not {self.rows}×{self.columns}.")
        _check_box(self.box, "box")
        if self.outline is not None:
            _check_box(self.outline, "outline")

    @property
    def size(self) -> int:
        """How many patches there are."""
        return self.rows * self.columns

    @property
    def tokens(self) -> tuple[str, ...]:
        """Names of the patches, from row 1, column 1 at the top left."""
        rows, columns = range(1, self.rows + 1), range(1, self.columns + 1)
        return tuple(f"row {row}, column {column}" for row in rows for column in columns)

    @property
    def summary(self) -> str:
        """The layout in two words."""
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
        boxes: Left, top, right, bottom of each region, in pixels.

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
        """The layout in two words."""
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
        tokens: Each token as spelled in the vocabulary.
        segments: The text that each token belongs to: 0 or 1.
        offsets: The character range of each token in that text, its end exclusive.

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
        """The layout in two words."""
        return f"{len(self.tokens)} word pieces"


@dataclass(frozen=True)
class Frames:
    """Consecutive tokens of a sound, all equally long.

    Args:
        sound: The sound at the model's rate.
        count: Number of frames.
        first: Start of the first frame, in seconds; a frame may extend beyond the sound.
        step: Duration of each frame, in seconds.

    Raises:
        WhyformerError: If there are no frames, or the duration is not positive.

    Example:
        >>> import numpy
        >>> from whyformer.inputs.layouts import Frames
        >>> from whyformer.inputs.sound import Sound
        >>> Frames(Sound(numpy.zeros(16000), 16000), count=2, first=0.0, step=0.5).tokens
        ('0.00–0.50 s', '0.50–1.00 s')
    """

    sound: Sound
    count: int
    first: float
    step: float

    def __post_init__(self) -> None:
        _check_steps(self.count, self.first, self.step)

    @property
    def size(self) -> int:
        """How many frames there are."""
        return self.count

    @property
    def spans(self) -> tuple[tuple[float, float], ...]:
        """Start and end of each frame in seconds, clipped to the sound."""
        return _spans(self.sound, self.count, self.first, self.step)

    @property
    def tokens(self) -> tuple[str, ...]:
        """Names of the frames: their start and end."""
        return tuple(_times(start, end, self.step) for start, end in self.spans)

    @property
    def summary(self) -> str:
        """The layout in two words."""
        return f"{self.count} frames of {self.step * 1000:.4g} ms"


@dataclass(frozen=True)
class Spectrogram:
    """A grid of times and frequencies of a sound, whose scores are ordered by band, lowest first.

    Args:
        sound: The sound at the model's rate.
        columns: Number of time steps.
        first: Start of the first step, in seconds.
        step: Duration of each step, in seconds.
        edges: Edges of the bands in hertz, ascending: one more than there are bands.

    Raises:
        WhyformerError: If there are no bands or columns, or the edges do not ascend.

    Example:
        >>> import numpy
        >>> from whyformer.inputs.layouts import Spectrogram
        >>> from whyformer.inputs.sound import Sound
        >>> sound = Sound(numpy.zeros(16000), 16000)
        >>> Spectrogram(sound, columns=1, first=0.0, step=1.0, edges=(0, 500, 4000)).tokens
        ('0.00–1.00 s, 0–500 Hz', '0.00–1.00 s, 500–4000 Hz')
    """

    sound: Sound
    columns: int
    first: float
    step: float
    edges: tuple[float, ...]

    def __post_init__(self) -> None:
        _check_steps(self.columns, self.first, self.step)
        rises = all(low < high for low, high in self.bands)
        if len(self.edges) < 2 or not rises or not all(map(math.isfinite, self.edges)):
            raise WhyformerError(f"The bands of a spectrogram have ascending edges in hertz, not {self.edges!r:.60}.")

    @property
    def rows(self) -> int:
        """How many bands there are."""
        return len(self.edges) - 1

    @property
    def size(self) -> int:
        """How many cells there are."""
        return self.rows * self.columns

    @property
    def bands(self) -> tuple[tuple[float, float], ...]:
        """The lowest and the highest frequency of each band, in hertz."""
        return tuple(pairwise(self.edges))

    @property
    def spans(self) -> tuple[tuple[float, float], ...]:
        """Start and end of each column in seconds, clipped to the sound."""
        return _spans(self.sound, self.columns, self.first, self.step)

    @property
    def tokens(self) -> tuple[str, ...]:
        """Names of the cells: their time and their band."""
        times = [_times(start, end, self.step) for start, end in self.spans]
        return tuple(f"{time}, {low:.0f}–{high:.0f} Hz" for low, high in self.bands for time in times)

    @property
    def summary(self) -> str:
        """The layout in two words."""
        return f"{self.rows} bands × {self.columns} steps of {self.step * 1000:.4g} ms"


def _check_steps(count: int, first: float, step: float) -> None:
    if count < 1 or not step > 0 or not math.isfinite(first + step):
        raise WhyformerError(f"A sound needs at least one frame of a positive duration, not {count} of {step} s.")


def _spans(sound: Sound, count: int, first: float, step: float) -> tuple[tuple[float, float], ...]:
    ends = np.clip(first + step * np.arange(count + 1), 0, sound.seconds).tolist()
    return tuple(pairwise(ends))


def _times(start: float, end: float, step: float) -> str:
    """Format the time of a frame in hundredths of a second, or finer for short steps."""
    places = 2 if step >= 0.02 else 3
    return f"{start:.{places}f}–{end:.{places}f} s"


class OtherLayout(Protocol):
    """The interface of any further layout, which has a row in the `layouts` of its modality."""

    @property
    def size(self) -> int: ...

    @property
    def tokens(self) -> tuple[str, ...]: ...

    @property
    def summary(self) -> str: ...


PictureLayout = Patches | Boxes
SoundLayout = Frames | Spectrogram
Layout = PictureLayout | SoundLayout | WordPieces | OtherLayout


def covered_box(processor: Any, size: tuple[int, int]) -> Box:
    """The part of a picture of this (width, height) that the processor passes to the model."""
    width, height = size
    if type(processor).__name__.startswith(("Owlv2", "SamImage")):  # pads to a square, at the right or bottom
        return 0.0, 0.0, float(max(size)), float(max(size))
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

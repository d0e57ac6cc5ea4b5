"""Tubelets, the patches of a video over a few frames each: their layout, drawings and serialisation."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup
from PIL import Image, ImageDraw
from rich.text import Text

from whyformer.errors import WhyformerError
from whyformer.inputs.layouts import Box
from whyformer.render import canvas
from whyformer.render.cells import BLOCKS, COLOURED_WIDTH, moment_list, range_line, shade, shade_key, style
from whyformer.render.colour import ink, rgb, score_scale
from whyformer.render.heatmaps import heated, upsample
from whyformer.render.html import TEMPLATES
from whyformer.render.layout_kinds import LayoutKind
from whyformer.render.text_spans import TextUnits, number
from whyformer.render.view import PartView, data_uri, legend_view

if TYPE_CHECKING:
    from whyformer.results.part import Part

MOST_IN_LINE, LEAST_FRAME, FRAME_GAP, MOMENT_SIZE = 8, 84, 6, 14
CURVE_HEIGHT = 72
COLOURED_FRAMES = 4  # on a terminal
LARGEST_WIDTH = 380  # of a frame
SECONDS_A_FRAME = 0.25  # in the player


@dataclass(frozen=True, eq=False)
class Tubelets:
    """Patches of a video over one or more frames, whose scores lie step by step and row by row.

    Args:
        image: The model's frames, stacked vertically.
        numbers: Index of each frame in the video.
        rate: Frames per second; None if unknown.
        steps: Number of time steps, each of the same number of frames.
        rows: Rows of patches per frame.
        columns: Patches per row.
        box: The area that the grid covers of a frame of `image`: left, top, right, bottom in its pixels.

    Raises:
        WhyformerError: If the frames do not fill the picture or the steps, or the grid is empty.

    Example:
        >>> from PIL import Image
        >>> from whyformer.modalities.video import Tubelets
        >>> film = Image.new("RGB", (32, 64))
        >>> Tubelets(film, numbers=(0, 5), rate=10.0, steps=1, rows=1, columns=2, box=(0, 0, 32, 32)).tokens
        ('0.00–0.50 s, row 1, column 1', '0.00–0.50 s, row 1, column 2')
    """

    image: Image.Image
    numbers: tuple[int, ...]
    rate: float | None
    steps: int
    rows: int
    columns: int
    box: Box

    def __post_init__(self) -> None:
        count = len(self.numbers)
        if min(self.steps, self.rows, self.columns) < 1 or not count or count % self.steps:
            raise WhyformerError(
                f"A video has steps of equally many frames and a grid of patches, not {count} frames in {self.steps} "
                f"steps of {self.rows}×{self.columns} patches."
            )
        if self.image.height % count:
            raise WhyformerError(f"{count} frames of one size do not fill a picture {self.image.height} pixels high.")
        left, top, right, bottom = self.box
        if not (left < right and top < bottom):
            raise WhyformerError(f"box is (left, top, right, bottom), left < right and top < bottom, not {self.box}.")
        if self.rate is not None and not self.rate > 0:
            raise WhyformerError(f"The rate of a video is frames per second, not {self.rate}.")

    @property
    def size(self) -> int:
        """Number of tubelets."""
        return self.steps * self.rows * self.columns

    @property
    def frames_per_step(self) -> int:
        """Number of frames of a tubelet."""
        return len(self.numbers) // self.steps

    @cached_property
    def frames(self) -> tuple[Image.Image, ...]:
        """The frames of `image`."""
        height = self.image.height // len(self.numbers)
        tops = range(0, self.image.height, height)
        return tuple(self.image.crop((0, top, self.image.width, top + height)) for top in tops)

    @property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """Indices in the video of the first and last frame of each step."""
        ends = range(0, len(self.numbers) + 1, self.frames_per_step)
        return tuple((self.numbers[start], self.numbers[end - 1]) for start, end in pairwise(ends))

    @property
    def moments(self) -> tuple[str, ...]:
        """Time of each step: in seconds, or in frames counted from 1 if the rate is unknown."""
        if self.rate is None:
            return tuple(f"frame {a + 1}" if a == b else f"frames {a + 1}–{b + 1}" for a, b in self.spans)
        times = [(a / self.rate, b / self.rate) for a, b in self.spans]
        return tuple(f"{a:.2f} s" if a == b else f"{a:.2f}–{b:.2f} s" for a, b in times)

    @property
    def tokens(self) -> tuple[str, ...]:
        """Names of the tubelets: their time, and their row and column counted from 1."""
        rows, columns = range(1, self.rows + 1), range(1, self.columns + 1)
        return tuple(
            f"{when}, row {row}, column {column}" for when in self.moments for row in rows for column in columns
        )

    @property
    def summary(self) -> str:
        """The layout in a few words."""
        return f"{self.steps} steps of {self.rows}×{self.columns} patches"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tubelets):
            return NotImplemented
        names = ("numbers", "rate", "steps", "rows", "columns", "box")
        same = all(getattr(self, name) == getattr(other, name) for name in names)
        return same and np.array_equal(np.array(self.image), np.array(other.image))

    __hash__ = None  # type: ignore[assignment]


def by_step(part: Part) -> np.ndarray:
    """Sum the scores of each step: relevance over time."""
    sums: np.ndarray = part.scores.reshape(_layout(part).steps, -1).sum(axis=1, dtype=np.float64)
    return sums


def frame_heatmap(part: Part, number: int) -> Image.Image:
    """Draw a frame with its step's scores as a heatmap, on one scale for the whole video."""
    layout, scale = _layout(part), score_scale(part.scores)
    frame, step = layout.frames[number], number // layout.frames_per_step
    grid = scale.strength(part.scores).reshape(layout.steps, layout.rows, layout.columns)[step]
    strength, inside = upsample(grid, layout.box, frame.size)
    return heated(frame, strength, inside)


def figure(part: Part, width: int) -> Image.Image:
    """Draw a frame of each step, the same frame with its heatmap, and relevance over time below."""
    layout = _layout(part)
    count = min(layout.steps, MOST_IN_LINE, max(1, width // LEAST_FRAME))
    side = min((width - FRAME_GAP * (count - 1)) // count, LARGEST_WIDTH)
    size = side, max(1, round(side * layout.frames[0].height / layout.frames[0].width))
    cells = []
    for step, moment in enumerate(layout.moments):
        frame = step * layout.frames_per_step + layout.frames_per_step // 2
        pictures = [one.resize(size) for one in (layout.frames[frame].convert("RGB"), frame_heatmap(part, frame))]
        cells.append(canvas.stack([*pictures, canvas.label(moment, side, MOMENT_SIZE)], gap=3))
    lines = [canvas.side_by_side(cells[start : start + count], gap=FRAME_GAP) for start in range(0, len(cells), count)]
    title = canvas.label("relevance over time", width, MOMENT_SIZE)
    return canvas.stack([*lines, _curve(by_step(part), width, lines[0].width), title], gap=10)


def _heights(sums: np.ndarray) -> np.ndarray:
    """The height of each bar of a curve, 1 for the largest."""
    heights: np.ndarray = sums / (np.abs(sums).max() or 1)
    return heights


def _curve(sums: np.ndarray, width: int, strip: int) -> Image.Image:
    """Draw a bar for each step, below its frame if these fit one line: up for positive, down for negative."""
    scale = score_scale(sums)
    sheet = Image.new("RGB", (width, CURVE_HEIGHT), canvas.WHITE)
    pen = ImageDraw.Draw(sheet)
    ground = (CURVE_HEIGHT - 1) * (0.5 if scale.is_diverging else 1)
    colours = scale.colours(scale.strength(sums), "light")
    for step, (share, colour) in enumerate(zip(_heights(sums).tolist(), colours, strict=True)):
        left, right = (round(edge * (strip + FRAME_GAP) / len(sums)) for edge in (step, step + 1))
        top, bottom = sorted((ground, ground - share * ground))
        pen.rectangle((left, top, right - min(FRAME_GAP, (right - left) // 3) - 1, bottom), fill=rgb(colour))
    pen.line((0, ground, strip - 1, ground), fill=canvas.FAINT)
    return sheet


def lines(part: Part, width: int) -> list[str]:
    """Relevance over time in block characters, the patches of the strongest step in shades, the strongest tubelets."""
    layout, sums = _layout(part), by_step(part)
    heights, strength = _heights(sums), score_scale(sums).strength(sums)
    places = np.arange(width) * layout.steps // width
    strongest = int(np.abs(sums).argmax())
    grid = score_scale(part.scores).strength(part.scores).reshape(layout.steps, layout.rows, layout.columns)
    return [
        "".join(BLOCKS[round(abs(heights[step]) * 8)] for step in places),
        "".join(shade(strength[step]) for step in places).rstrip(),
        _ends(layout, width),
        f"{layout.moments[strongest]}:",
        *("".join(2 * shade(value) for value in row).rstrip() for row in grid[strongest].tolist()),
        shade_key(part),
        *moment_list(part),
    ]


def coloured(part: Part, width: int, units: TextUnits) -> list[Text]:
    """Some frames with their heatmaps in half blocks, relevance over time below, and the strongest tubelets."""
    layout, sums = _layout(part), by_step(part)
    width, count = min(width, COLOURED_WIDTH), min(COLOURED_FRAMES, layout.steps)
    side = width // count
    first = layout.frames[0]
    size = side, 2 * max(1, round(side * first.height / first.width / 2))
    steps = (2 * np.arange(count) + 1) * layout.steps // (2 * count)
    frames = [frame_heatmap(part, int(step) * layout.frames_per_step).resize(size) for step in steps]
    pixels = np.concatenate([np.asarray(frame) for frame in frames], axis=1).tolist()
    blocks = [
        Text.assemble(*(("▀", style(tuple(one), tuple(other))) for one, other in zip(upper, lower, strict=True)))
        for upper, lower in zip(pixels[::2], pixels[1::2], strict=True)
    ]
    scale = score_scale(sums)
    columns = sums[np.arange(width) * layout.steps // width]
    grounds = [rgb(colour) for colour in scale.colours(scale.strength(columns), "dark")]
    marks = [BLOCKS[round(abs(value) * 8)] for value in _heights(columns).tolist()]
    curve = Text.assemble(*((mark, style(ink(ground), ground)) for mark, ground in zip(marks, grounds, strict=True)))
    ends = Text(_ends(layout, width), "dim")
    return [*blocks, curve, ends, *map(Text, moment_list(part)), range_line(part)]


def _ends(layout: Tubelets, width: int) -> str:
    first, last = layout.moments[0], layout.moments[-1]
    return first + last.rjust(max(len(last) + 1, width - len(first)))


def page(part: Part, side: int) -> Markup:
    """A player in pure CSS: the video next to its heatmap, and a curve whose bars are the scrubber.

    Bars are radio buttons, so arrow keys step through the video once one has the focus.
    """
    layout, sums = _layout(part), by_step(part)
    heat = [frame_heatmap(part, frame) for frame in range(len(layout.frames))]
    heights, moments = _heights(sums), layout.moments
    strongest = int(np.abs(sums).argmax())
    bars = [
        {
            "moment": moment,
            "score": number(sums[step]),
            "top": f"{100 * step / layout.steps:.4f}",
            "height": f"{100 * abs(heights[step]):.1f}",
            "is_against": sums[step] < 0,
            "is_strongest": step == strongest,
        }
        for step, moment in enumerate(moments)
    ]
    width, height = layout.frames[0].size
    html = TEMPLATES.get_template("video.html.j2").render(
        name="video-" + hashlib.sha256(part.scores.tobytes() + layout.image.tobytes()).hexdigest()[:12],
        bars=bars,
        frames=len(layout.frames),
        seconds=len(layout.frames) * SECONDS_A_FRAME,
        width=min(side, LARGEST_WIDTH),
        ratio=f"{width} / {height}",
        original=data_uri(layout.image.convert("RGB")),
        heat=data_uri(canvas.stack(heat, gap=0)),
        description=f"The scores on the frames, strongest at {moments[strongest]}",
    )
    return Markup(html)


def _layout(part: Part) -> Tubelets:
    assert isinstance(part.layout, Tubelets)
    return part.layout


def _to_fields(layout: Tubelets) -> dict[str, Any]:
    grid = {name: int(getattr(layout, name)) for name in ("steps", "rows", "columns")}
    rate = None if layout.rate is None else float(layout.rate)
    return {"numbers": list(map(int, layout.numbers)), "rate": rate, **grid, "box": list(map(float, layout.box))}


def _from_fields(field: Callable[..., Any]) -> Tubelets:
    return Tubelets(
        image=field("image", Image.Image),
        numbers=tuple(field("numbers", list[int])),
        rate=field("rate", float | None),
        steps=field("steps", int),
        rows=field("rows", int),
        columns=field("columns", int),
        box=field("box", Box),
    )


def _places(layout: Tubelets) -> Iterator[dict[str, Any]]:
    for first, last in layout.spans:
        for row in range(1, layout.rows + 1):
            for column in range(1, layout.columns + 1):
                yield {"from_frame": first + 1, "to_frame": last + 1, "row": row, "column": column}


TUBELET_KIND = LayoutKind(
    name="tubelets",
    fields=("image", "numbers", "rate", "steps", "rows", "columns", "box"),
    units=("patch", "token"),
    to_fields=_to_fields,
    from_fields=_from_fields,
    places=_places,
    figure=lambda part, space: figure(part, space.width),
    lines=lines,
    coloured=coloured,
    view=lambda part, side, units: PartView(legend_view(part, "photo"), body=page(part, side)),
)

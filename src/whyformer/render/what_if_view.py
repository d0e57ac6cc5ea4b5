"""View of the removal of words and patches for the templates: what can be clicked, and the answers that are known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, assert_never

from whyformer.inputs.layouts import Box, Boxes, Patches, PictureLayout, WordPieces
from whyformer.render.heatmaps import display_side, original
from whyformer.render.text_spans import captioned_parts, number, readable, visible
from whyformer.render.view import data_uri

if TYPE_CHECKING:
    from whyformer.results.explanation import Explanation
    from whyformer.results.part import Part
    from whyformer.results.unit_effects import RemovableUnit, RemovalEffects

LARGEST_SIDE_CLICKED = 420
CURVE_SIZE = (260, 110)


@dataclass(frozen=True)
class RemovablePiece:
    """Characters of a text, or a place on a picture in percent, with the number of its unit; None if it stays."""

    text: str
    unit: int | None = None
    title: str = ""
    place: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class RemovablePartView:
    """A part whose pieces can be clicked: a text, or a picture as a data URI."""

    caption: str
    pieces: tuple[RemovablePiece, ...]
    picture: str = ""


@dataclass(frozen=True)
class AnswerBar:
    """A likely answer with its probability."""

    name: str
    share: float
    is_target: bool


@dataclass(frozen=True)
class WhatIfView:
    """The parts to click, the likely answers, the perturbation curve as points, and the data of the script."""

    parts: tuple[RemovablePartView, ...]
    bars: tuple[AnswerBar, ...]
    curve: str
    predicted: str
    size: tuple[int, int]
    count: int
    data: Mapping[str, Any]


def what_if_view(explanation: Explanation, effects: RemovalEffects) -> WhatIfView:
    """Build the view of the removal effects of an explanation."""
    names = {id(part): name for name, part in explanation.parts.items()}
    parts = [
        _part_view(
            caption, part, [(unit, one) for unit, one in enumerate(effects.units) if one.part == names[id(part)]]
        )
        for caption, part in captioned_parts(explanation)
    ]
    predicted = [effects.predicted(range(count)) for count in range(len(effects.units) + 1)]
    shares = effects.known[frozenset()]
    return WhatIfView(
        parts=tuple(part for part in parts if part is not None),
        bars=tuple(
            AnswerBar(visible(name.strip() or name), share, index == effects.target)
            for index, (name, share) in enumerate(zip(effects.answers, shares, strict=True))
        ),
        curve=_points(effects.curve),
        predicted=_points([share for share in predicted if share is not None]),
        size=CURVE_SIZE,
        count=len(effects.units),
        data=_data(explanation, effects),
    )


def _data(explanation: Explanation, effects: RemovalEffects) -> dict[str, Any]:
    """The numbers of the page's script."""
    return {
        "names": [_quoted(unit, explanation) for unit in effects.units],
        "scores": [round(unit.score, 6) for unit in effects.units],
        "answers": [visible(name.strip() or name) for name in effects.answers],
        "target": effects.target,
        "slope": effects.slope,
        "known": {
            ",".join(map(str, sorted(subset))): [round(share, 5) for share in shares]
            for subset, shares in effects.known.items()
        },
    }


def _part_view(caption: str, part: Part, units: Sequence[tuple[int, RemovableUnit]]) -> RemovablePartView | None:
    """The pieces of a part; None if none of its units can be removed and it is not a text."""
    match part.layout:
        case WordPieces():
            return RemovablePartView(caption, tuple(_text_pieces(part.layout, units)))
        case Patches() | Boxes() if units:
            side = display_side(part.layout, LARGEST_SIDE_CLICKED)
            pieces = (
                RemovablePiece("", unit, _title(one), _percent_place(_extent_of(part.layout, one.tokens), part.layout))
                for unit, one in units
            )
            return RemovablePartView(caption, tuple(pieces), data_uri(original(part.layout, side)))
        case _:
            return None


def _text_pieces(layout: WordPieces, units: Sequence[tuple[int, RemovableUnit]]) -> Iterator[RemovablePiece]:
    """All characters of the texts; those of units by themselves."""
    for segment, text in enumerate(layout.texts):
        shown, position = readable(text), 0
        extents = sorted(
            (*_characters(layout, one.tokens), unit, _title(one))
            for unit, one in units
            if layout.segments[one.tokens[0]] == segment
        )
        if segment:
            yield RemovablePiece("\n")
        for start, end, unit, title in extents:
            first = start + len(text[start:end]) - len(text[start:end].lstrip())
            if first < position or first >= end:
                continue  # several tokens may share characters
            yield RemovablePiece(shown[position:first])
            yield RemovablePiece(shown[first:end].rstrip(), unit, title)
            position = first + len(shown[first:end].rstrip())
        yield RemovablePiece(shown[position:])


def _characters(layout: WordPieces, tokens: Sequence[int]) -> tuple[int, int]:
    starts, ends = zip(*(layout.offsets[token] for token in tokens), strict=True)
    return min(starts), max(ends)


def _extent_of(layout: PictureLayout, tokens: Sequence[int]) -> Box:
    """The smallest box around tokens, in pixels."""
    match layout:
        case Boxes(boxes=boxes):
            own = [boxes[token] for token in tokens]
        case Patches(rows=rows, columns=columns, box=(left, top, right, bottom)):
            across, down = (right - left) / columns, (bottom - top) / rows
            corners = [(left + token % columns * across, top + token // columns * down) for token in tokens]
            own = [(x, y, x + across, y + down) for x, y in corners]
        case unknown:
            assert_never(unknown)
    lefts, tops, rights, bottoms = zip(*own, strict=True)
    return min(lefts), min(tops), max(rights), max(bottoms)


def _percent_place(box: Box, layout: PictureLayout) -> tuple[float, float, float, float]:
    """Left, top, width and height in percent of the picture, within it."""
    width, height = layout.image.size
    left, right = (min(max(100 * edge / width, 0), 100) for edge in box[::2])
    top, bottom = (min(max(100 * edge / height, 0), 100) for edge in box[1::2])
    return round(left, 2), round(top, 2), round(right - left, 2), round(bottom - top, 2)


def _quoted(unit: RemovableUnit, explanation: Explanation) -> str:
    """The name of a unit in a sentence; words are in quotation marks."""
    is_word = isinstance(explanation.parts[unit.part].layout, WordPieces)
    return f"“{visible(unit.name)}”" if is_word else f"the {unit.name}" if unit.name.startswith("block") else unit.name


def _title(unit: RemovableUnit) -> str:
    return f"{visible(unit.name)}: score {number(unit.score)}"


def _points(shares: Sequence[float]) -> str:
    """The points of an SVG line from the left to the right edge, probabilities upwards."""
    width, height = CURVE_SIZE
    steps = max(1, len(shares) - 1)
    return " ".join(f"{width * step / steps:.1f},{height * (1 - share):.1f}" for step, share in enumerate(shares))

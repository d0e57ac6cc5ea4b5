"""Data for the HTML templates."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from markupsafe import Markup
from PIL import Image

from whyformer.render.coverage import coverage_remark, finding
from whyformer.render.heatmaps import strongest_first
from whyformer.render.layout_kinds import kind_of
from whyformer.render.shades import BarGround, bar_shade
from whyformer.render.text_spans import (
    TextUnits,
    captioned_parts,
    option_lines,
    part_scale,
    readable,
    scale_texts,
    visible,
)

if TYPE_CHECKING:
    from whyformer.results.explanation import Explanation
    from whyformer.results.part import Part

LARGEST_SIDE = 480
# Two pictures of this size leave room for a column of words.
LARGEST_SIDE_BESIDE = 340
LONG = 500  # characters


@dataclass(frozen=True)
class SpanView:
    """Characters, their colour class and their tooltip, which is empty without a token.

    A tap or click shows the tooltip of any of them; the Tab key reaches the strong ones.
    """

    text: str
    shade: str = ""
    title: str = ""
    is_strong: bool = False


@dataclass(frozen=True)
class PictureView:
    """Data URIs of the two pictures, the description of the second, and the scores of its numbered regions.

    What is drawn with its scores has a single, wide picture.
    """

    original: str
    overlay: str
    description: str
    ranking: str = ""


@dataclass(frozen=True)
class LegendView:
    """The class of the colour bar, its labels, and a remark."""

    shade: str
    values: tuple[str, ...]
    remark: str = ""


@dataclass(frozen=True)
class PartView:
    """A part as a picture, texts or HTML, with its legend, and its caption if there are several parts."""

    legend: LegendView
    caption: str = ""
    picture: PictureView | None = None
    texts: tuple[tuple[SpanView, ...], ...] = ()
    invisible: tuple[SpanView, ...] = ()
    body: Markup | None = None

    @property
    def is_long(self) -> bool:
        """Whether the texts would form a tall narrow column next to a picture."""
        return sum(len(span.text) for text in self.texts for span in text) > LONG


@dataclass(frozen=True)
class ExplanationView:
    """An explanation's headings and parts, and the likely answers with their probabilities."""

    target: str
    probability: float | None
    answer: str
    headline: str
    finding: str
    method: str
    model: str
    file: str
    answers: tuple[tuple[str, float], ...]
    options: tuple[str, ...]
    notes: tuple[str, ...]
    parts: tuple[PartView, ...]

    @property
    def has_text(self) -> bool:
        return any(part.texts for part in self.parts)


def explanation_view(
    explanation: Explanation, largest_side: int = LARGEST_SIDE, *, units: TextUnits = "word"
) -> ExplanationView:
    """Build the view of an explanation: pictures within the given size, words or tokens coloured."""
    parts = captioned_parts(explanation)
    if len(parts) > 1:
        largest_side = min(largest_side, LARGEST_SIDE_BESIDE)
    return ExplanationView(
        target=visible(explanation.target.strip() or explanation.target),
        probability=explanation.probability,
        answer=explanation.answer,
        headline=explanation.headline,
        finding=finding(explanation, units),
        method=explanation.manner,
        model=readable(explanation.model),
        file=readable(explanation.file),
        answers=tuple((visible(name.strip() or name), share) for name, share in explanation.answers.items()),
        options=tuple(option_lines(explanation)),
        notes=tuple(readable(note) for note in explanation.notes),
        parts=tuple(_part_view(*part, largest_side, units) for part in parts),
    )


def used_shades(views: Iterable[ExplanationView]) -> list[str]:
    """The CSS classes of these views."""
    parts = [part for view in views for part in view.parts]
    shades = {span.shade for part in parts for text in (*part.texts, part.invisible) for span in text if span.shade}
    return sorted(shades | {part.legend.shade for part in parts})


def data_uri(picture: Image.Image) -> str:
    """Encode the picture as a JPEG data URI, without chroma subsampling."""
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=92, subsampling=0)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()


def _part_view(caption: str, part: Part, largest_side: int, units: TextUnits) -> PartView:
    return replace(kind_of(part.layout).view(part, largest_side, units), caption=caption)


def strongest_description(part: Part) -> str:
    """The end of a description: the strongest token, if any."""
    return "".join(f", strongest at {part.tokens[token]}" for token in strongest_first(part.scores)[:1])


def legend_view(part: Part, ground: BarGround, units: TextUnits = "word") -> LegendView:
    """The legend of a part."""
    scale = part_scale(part, units)
    return LegendView(bar_shade(scale, ground), scale_texts(scale), coverage_remark(part, units))

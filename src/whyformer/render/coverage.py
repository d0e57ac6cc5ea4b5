"""How much of an input the evidence covers: what stands out of the average, in words and for titles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from whyformer.inputs.layouts import Patches
from whyformer.render.colour import STANDS_OUT
from whyformer.render.heatmaps import has_outlines
from whyformer.render.layout_kinds import kind_of
from whyformer.render.scatter import is_scattered
from whyformer.render.text_spans import TextUnits, captioned_parts, number, part_scale, shown_scores, visible

if TYPE_CHECKING:
    from whyformer.results.explanation import Explanation
    from whyformer.results.part import Part


@dataclass(frozen=True)
class Coverage:
    """The units of a part that stand out, for and against the answer, and their shares of the size of all scores."""

    count: int
    count_against: int
    total: int
    share: float
    share_against: float


def coverage(part: Part, units: TextUnits = "word") -> Coverage:
    """Count the units that stand out, and add up their shares of the size of all scores."""
    scores = shown_scores(part, units)
    strength, sizes = part_scale(part, units).strength(scores), np.abs(scores)
    shares = sizes / (sizes.sum() or 1)
    speaks_for, speaks_against = strength >= STANDS_OUT, strength <= -STANDS_OUT
    return Coverage(
        int(speaks_for.sum()),
        int(speaks_against.sum()),
        len(scores),
        float(shares[speaks_for].sum()),
        float(shares[speaks_against].sum()),
    )


def finding(explanation: Explanation, units: TextUnits = "word") -> str:
    """The explanation's title: `cat 98 %: evidence on 9 % of the picture`."""
    parts = captioned_parts(explanation)
    places = [_place(part, coverage(part, units), units) for _, part in parts]
    shown = " and ".join(place for place in places if place)
    if not shown:
        shown = f"no {' or '.join(dict.fromkeys(unit_name(part, units) for _, part in parts))} stands out"
        return f"{answer_in_percent(explanation)}: {shown}"
    return f"{answer_in_percent(explanation)}: evidence on {shown}"


def answer_in_percent(explanation: Explanation) -> str:
    """The target with its probability: `cat 98 %`."""
    target = visible(explanation.target.strip() or explanation.target)
    return target if explanation.probability is None else f"{target} {percent(explanation.probability)}"


def percent(share: float) -> str:
    """A probability or a share, without rounding to certainty: `98 %`, `0.3 %`, `over 99.9 %`."""
    if not 0 < share < 1:
        return f"{100 * share:.0f} %"
    if share > 0.999:
        return "over 99.9 %"
    if share < 0.001:
        return "under 0.1 %"
    return f"{100 * share:.{0 if 0.01 <= share <= 0.99 else 1}f} %"


def coverage_remark(part: Part, units: TextUnits = "word") -> str:
    """The line under a colour bar: what stands out and how much of all scores it has, and what a full colour means."""
    scale, own, unit = part_scale(part, units), coverage(part, units), unit_name(part, units)
    if not scale.high or own.total < 2:
        return ""
    full = f"Full colour: {scale.high / scale.average:.2g} × the average {unit} ({number(scale.average)})."
    if _is_noise(part):
        return "No patch stands out: neighbouring patches are no more alike than in noise. " + full
    if not own.count + own.count_against:
        return f"No {unit} reaches {STANDS_OUT * scale.high / scale.average:.2g} × the average. {full}"
    sides = [
        f"{_extent(part, count, own.total, units)} with {percent(share)} of the scores{side}"
        for count, share, side in ((own.count, own.share, ""), (own.count_against, own.share_against, " against"))
        if count
    ]
    return f"{_verb(part)}: {', '.join(sides)}. {full}"


def _is_noise(part: Part) -> bool:
    layout = part.layout
    return isinstance(layout, Patches) and is_scattered(part.scores.reshape(layout.rows, layout.columns))


def unit_name(part: Part, units: TextUnits = "word") -> str:
    """Name of the units of a part that have a score."""
    return kind_of(part.layout).unit or units


def _verb(part: Part) -> str:
    """Outlines are drawn on heatmaps in which every pixel has a score."""
    kind = kind_of(part.layout)
    is_outlined = kind.ground == "photo" and kind.whole is not None and has_outlines(part.layout.size)
    return "Outlined" if is_outlined else "Stands out"


def _place(part: Part, own: Coverage, units: TextUnits) -> str:
    return _extent(part, own.count, own.total, units) if own.count else ""


def _extent(part: Part, count: int, total: int, units: TextUnits) -> str:
    whole = kind_of(part.layout).whole
    if whole is None:
        return f"{count} of {total} {unit_name(part, units)}s"
    return f"{percent(count / total)} of {whole}"

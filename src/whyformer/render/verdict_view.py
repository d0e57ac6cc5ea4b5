"""View of the verdicts on a response for pages, pictures and the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from whyformer.inputs.verdicts import NOT_CALIBRATED, VERDICTS
from whyformer.render.coverage import percent
from whyformer.render.text_spans import fixed, one_line, readable, visible

if TYPE_CHECKING:
    from whyformer.results.response import Response
    from whyformer.results.support import Support, UnitSupport

FULL_NATS = 5.0  # the effect at which a colour is full: the unit is 150 times as likely
# Methods that remove sources: their scores are nats of the response.
NAT_METHODS = ("leave_one_out", "occlusion", "kernel_shap", "lime", "mask_regression", "rise", "context_ablation")
UNSUPPORTED = "No source supports this response: nothing below is coloured."
LONGEST_QUOTE = 160


@dataclass(frozen=True)
class VerdictView:
    """The verdict on a row: its class for styles, its texts, and its figures by name."""

    verdict: str
    style: str
    text: str
    reason: str
    error: str
    figures: tuple[tuple[str, str], ...]
    carrying: tuple[tuple[str, str, str], ...]  # name, text, effect
    citations: tuple[tuple[str, str], ...]  # marker, status

    @property
    def line(self) -> str:
        """The verdict and its reason, in one line."""
        return f"{self.verdict}: {self.reason}"


def verdict_views(response: Response) -> tuple[VerdictView, ...]:
    """The verdicts on a response; none if it was explained without."""
    support = response.verdicts
    return () if support is None else tuple(verdict_view(support, unit) for unit in support.units)


def verdict_summary(support: Support) -> str:
    """The number of units of each verdict: `2 from sources, 1 not supported`."""
    return ", ".join(f"{support.counts[verdict]} {verdict}" for verdict in VERDICTS if support.counts[verdict])


def cost_line(support: Support) -> str:
    """How many forward passes it took, and what the verdicts were calibrated on."""
    calibration = calibrated_on(support.calibration)
    return f"{support.forwards} forward passes of at most {support.full_forwards}; verdicts {calibration}."


def calibrated_on(data: str) -> str:
    """The data that verdicts were calibrated on: `calibrated on 312 generated sentences`, or `not calibrated`."""
    return data if data == NOT_CALIBRATED else f"calibrated on {readable(data)}"


def source_effects(response: Response) -> np.ndarray | None:
    """The effect of each source of the response on each row, in nats: an array [row, source]; None without a unit.

    With verdicts it is how much is lost without the source, or without the set that carries the row for the sources in
    it: of its log-probability, or of the model's judgement for a row that only this supports. It is 0 where the row is
    not from sources, and for sources that were not measured. Methods that remove each source have the unit themselves.
    """
    support = response.verdicts
    if support is None:
        return response.scores if response.method in NAT_METHODS else None
    numbers = {(one.start, one.end): number for number, one in enumerate(response.sources)}
    places = [numbers.get((one.start, one.end)) for one in support.sources]
    effects = np.zeros(response.scores.shape, dtype=np.float32)
    for row, unit in enumerate(support.units):
        lost = source_losses(unit) if unit.verdict == "from sources" else {}
        loss = unit.carrying_judgement or unit.carrying_necessity or 0.0
        carried = dict.fromkeys(unit.carrying, loss) if lost else {}
        for source in lost.keys() | carried.keys():
            place = places[source]
            if place is not None:
                effects[row, place] = max(lost.get(source, 0.0), carried.get(source, -np.inf))
    return effects


def source_losses(unit: UnitSupport) -> dict[int, float]:
    """The loss without each measured source: of the judgement for a unit that only this supports."""
    if unit.carrying_judgement is not None:
        return {one.source: one.judgement for one in unit.sources if one.judgement is not None}
    return {one.source: one.necessity or 0.0 for one in unit.sources}


def verdict_view(support: Support, unit: UnitSupport) -> VerdictView:
    """The verdict on one unit."""
    effects = source_losses(unit)
    carrying = [
        (_name(support, number), _quote(support.sources[number].text), _nats(effects.get(number)))
        for number in unit.carrying
    ]
    return VerdictView(
        verdict=unit.verdict,
        style=unit.verdict.replace(" ", "-"),
        text=readable(one_line(unit.text)),
        reason=readable(one_line(unit.reason)),
        error=unit.error_text,
        figures=tuple(_figures(support, unit)),
        carrying=tuple(carrying),
        citations=tuple(_citations(support, unit)),
    )


def _figures(support: Support, unit: UnitSupport) -> Iterator[tuple[str, str]]:
    """The figures of a unit by name, in nats."""
    yield "log-probability with all sources", f"{fixed(unit.log_probability)} nats, {fixed(unit.per_token)} per token"
    yield "without any source", f"{fixed(unit.without_sources)} nats"
    yield "what the sources add", _nats(unit.necessity)
    if unit.carrying_necessity is not None:
        yield _lost(unit), f"{fixed(unit.carrying_necessity)} nats"
    if unit.carrying_judgement is not None:
        yield _lost(unit), f"{fixed(unit.carrying_judgement)} nats of the model's judgement"
    if unit.without_earlier is not None:
        yield "without the response before it", f"{fixed(unit.without_earlier)} nats"
    if unit.own_answer is not None:
        odds = "" if unit.log_odds is None else f" ({-unit.log_odds:+.1f} nats)" if unit.log_odds else " (the same)"
        yield "the model itself would say", f"{readable(_quote(unit.own_answer)) or 'nothing'}{odds}"
    if unit.rival is not None and unit.log_odds:
        yield "the sentence with that value", _quote(unit.rival.text)
    if unit.denial is not None:
        odds = f"{unit.denial.log_probability - unit.log_probability:+.1f} nats"
        yield "its opposite", f"{_quote(unit.denial.text)} ({odds})"
    if unit.value is not None and unit.value.tokens < unit.tokens:
        gain = unit.value.log_probability - unit.value.without_sources
        yield "what the sources add to the value alone", _nats(gain)
    if unit.judgement is not None:
        without = "" if unit.judgement_without is None else f", {unit.judgement_without:+.1f} without the sources"
        yield "the model's own judgement, yes against no", f"{unit.judgement:+.1f} nats{without}"
    for name, value in unit.answers.items():
        yield f"asked: {readable(name.replace('_', ' '))}", f"{value:+.1f} nats"
    for verdict, probability in unit.probabilities.items():
        if verdict == unit.verdict:
            yield "calibrated probability of this verdict", percent(probability)
    yield "error rate of this verdict", unit.error_text
    for number in unit.uncited:
        yield "used and not cited", _name(support, number) or _quote(support.sources[number].text)


def _lost(unit: UnitSupport) -> str:
    count = len(unit.carrying)
    return f"lost without the {'one that carries' if count == 1 else f'{count} that carry'} it"


def _citations(support: Support, unit: UnitSupport) -> Iterator[tuple[str, str]]:
    for citation in unit.citations:
        name = "" if citation.source is None else f" ({_name(support, citation.source)})"
        yield f"{visible(citation.marker)}{name}", citation.status


def _name(support: Support, number: int) -> str:
    return readable(support.sources[number].name)


def _nats(value: float | None) -> str:
    return "" if value is None else f"{value:+.1f} nats"


def _quote(text: str) -> str:
    line = readable(one_line(text))
    return line if len(line) <= LONGEST_QUOTE else f"{line[: LONGEST_QUOTE - 1].rstrip()}…"

"""View of an action for pages and the terminal: the conversation cut at its sources, and the targets of the call."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from whyformer.inputs.verdicts import NOT_CALIBRATED
from whyformer.render.text_spans import fixed, one_line, readable

if TYPE_CHECKING:
    from whyformer.inputs.action_sources import ActionSource
    from whyformer.results.action import Action, ActionTarget

FULL_EFFECT, LINEAR_EFFECT = 50.0, 2.0  # a colour and a bar are full at the first; below the second they are linear
FEWEST_COUNTED = 10  # of fewer verdicts, no error rate is given
LEGEND_NATS = (-50, -10, -2, 0, 2, 10, 50)
RANKED_SOURCES = 8
LONGEST_QUOTED = 140


@dataclass(frozen=True)
class ActionPiece:
    """A piece of the conversation: its text, and its level of colour for each target."""

    number: int
    text: str
    levels: tuple[int, ...]


@dataclass(frozen=True)
class ActionMessage:
    """A message, schema or call of the conversation."""

    title: str
    kind: str
    trust: str
    pieces: tuple[ActionPiece, ...]
    is_driver: bool


@dataclass(frozen=True)
class RankedSource:
    """A source with its effect on a target; `piece` is where it begins in the conversation."""

    name: str
    trust: str
    text: str
    level: int
    figure: str
    piece: int


@dataclass(frozen=True)
class TargetView:
    """A target of the call: its label, its verdict, the two effects, and its sources."""

    kind: str
    label: str
    value: str
    verdict: str
    style: str
    facts: str
    request: tuple[int, str]
    untrusted: tuple[int, str]
    ranked: tuple[RankedSource, ...]


@dataclass(frozen=True)
class ActionView:
    """An action, ready to be drawn."""

    call: str
    model: str
    verdict: str
    style: str
    reason: str
    targets: tuple[TargetView, ...]
    messages: tuple[ActionMessage, ...]
    driver: tuple[tuple[str, str], ...]
    drives: bool
    instead: str | None
    instead_calls: tuple[str, ...]
    contrast: str
    notes: tuple[str, ...]
    cost: str
    legend: tuple[tuple[float, str], ...]
    file: str = ""

    @property
    def finding(self) -> str:
        """The page's title: the verdict on the call, and those of its arguments that differ from it."""
        others: dict[str, list[str]] = {}
        for one in self.targets:
            if one.kind == "argument" and one.verdict != self.verdict:
                others.setdefault(one.verdict, []).append(one.label)
        parts = [f"{self.call.partition('(')[0]}: {self.verdict}"]
        return "; ".join([*parts, *(f"{' and '.join(names)}: {verdict}" for verdict, names in others.items())])

    @property
    def driver_title(self) -> str:
        """The heading of the untrusted sources with half of the effect of all: legitimate arguments drive nothing."""
        return "What drives the call" if self.drives else "What the call takes from results"

    @property
    def levels(self) -> list[int]:
        """All levels of colour that occur."""
        pieces = {level for one in self.messages for piece in one.pieces for level in piece.levels}
        sides = {level for one in self.targets for level, _ in (one.request, one.untrusted)}
        return sorted({*pieces, *sides, *(source.level for one in self.targets for source in one.ranked)} - {0})

    @property
    def table(self) -> str:
        """The data of the page's script."""
        pieces = [piece for message in self.messages for piece in message.pieces]
        targets = [
            {
                "levels": [piece.levels[number] for piece in pieces],
                "facts": one.facts,
                "request": one.request,
                "untrusted": one.untrusted,
                "verdict": [one.verdict, one.style],
                "ranked": [
                    [source.name, source.trust, source.text, source.level, source.figure, source.piece]
                    for source in one.ranked
                ],
            }
            for number, one in enumerate(self.targets)
        ]
        return json.dumps({"targets": targets}, ensure_ascii=False)


def action_view(action: Action) -> ActionView:
    """Build the view of an action."""
    messages = tuple(_messages(action))
    starts = _starts(action)
    targets = tuple(_target(action, number, one, starts) for number, one in enumerate(action.targets))
    forwards = f"{action.forwards} forward passes" + (f", parts chosen by {action.method}" if action.method else "")
    return ActionView(
        call=readable(one_line(repr(action.call))),
        model=readable(action.model),
        verdict=action.verdict,
        style=style_of(action.verdict),
        reason=readable(one_line(action.reason)),
        targets=targets,
        messages=messages,
        driver=tuple((readable(one.name), quoted(one.text)) for one in map(action.sources.__getitem__, action.driver)),
        drives=drives(action.verdict),
        instead=None if action.instead is None else readable(action.instead.strip()),
        instead_calls=tuple(readable(one_line(repr(one))) for one in action.instead_calls),
        contrast="" if action.contrast is None else readable(one_line(repr(action.contrast))),
        notes=tuple(readable(note) for note in action.notes),
        cost=f"{forwards}; {_calibration(action)}",
        legend=effect_legend(),
        file=readable(action.file),
    )


def drives(verdict: str) -> bool:
    """Whether untrusted sources decide for an action, and do not just give it arguments."""
    return verdict in ("driven by a tool result", "mixed")


def style_of(verdict: str) -> str:
    """The class of a verdict for styles."""
    return verdict.replace(" ", "-")


def quoted(text: str) -> str:
    """A text in one line, shortened."""
    line = readable(one_line(text))
    return line if len(line) <= LONGEST_QUOTED else f"{line[: LONGEST_QUOTED - 1].rstrip()}…"


def nats(effect: float) -> str:
    """An effect with its sign and unit."""
    return f"{round(effect, 1) + 0.0:+.1f} nats"


def level_of(effect: float) -> int:
    """The level of colour of an effect in nats, in percent with its sign; 0 if it was not measured.

    Effects on a call range from less than one nat to dozens: large ones are on a logarithmic scale.
    """
    level = np.clip(np.arcsinh(effect / LINEAR_EFFECT) / np.arcsinh(FULL_EFFECT / LINEAR_EFFECT), -1, 1)
    return 0 if np.isnan(level) else round(100 * float(level))


def effect_legend() -> tuple[tuple[float, str], ...]:
    """Where figures stand on the scale of colours, in percent of its width."""
    return tuple((50 + level_of(value) / 2, f"{value:+d}" if value else "0") for value in LEGEND_NATS)


def _calibration(action: Action) -> str:
    """The threshold of the verdicts, and how often this one is wrong."""
    threshold = f"verdicts by a threshold of {action.tau:.3g} nats, {NOT_CALIBRATED}"
    if action.calibration == NOT_CALIBRATED:
        return f"{threshold}."
    threshold = f"verdicts by a threshold of {action.tau:.3g} nats, calibrated on {readable(action.calibration)}"
    if action.error is None:
        return f"{threshold}, where the errors of this one were not counted."
    if action.error.count < FEWEST_COUNTED:
        few = f"too few to say (n = {action.error.count})"
        return f"{threshold}, of which one half was held out; how often such verdicts are wrong: {few}."
    low, high = (round(100 * one) for one in (action.error.low, action.error.high))
    rate = round(100 * action.error.rate)
    return (
        f"{threshold}, of which one half was held out: there {rate} % of {action.error.count} such verdicts were wrong "
        f"(95 % interval {low} to {high} %)."
    )


def _messages(action: Action) -> Iterator[ActionMessage]:
    children = _children(action.sources)
    count = 0
    for number, source in enumerate(action.sources):
        if source.parent is not None:
            continue
        inside = _descendants(number, children)
        pieces = []
        for start, end, chain in _pieces(action, [number, *inside]):
            levels = tuple(level_of(_effect(row, chain, children)) for row in action.effects)
            pieces.append(ActionPiece(count, readable(action.prompt.text[start:end]), levels))
            count += 1
        is_driver = drives(action.verdict) and bool({number, *inside} & set(action.driver))
        yield ActionMessage(readable(source.name), source.kind, source.trust, tuple(pieces), is_driver)


def _children(sources: Sequence[ActionSource]) -> dict[int, list[int]]:
    children: dict[int, list[int]] = {}
    for number, one in enumerate(sources):
        if one.parent is not None:
            children.setdefault(one.parent, []).append(number)
    return children


def _descendants(number: int, children: dict[int, list[int]]) -> list[int]:
    own = children.get(number, [])
    return [*own, *(one for child in own for one in _descendants(child, children))]


def _pieces(action: Action, numbers: Sequence[int]) -> Iterator[tuple[int, int, list[int]]]:
    """The text of a message cut at its sources: a range, and the sources around it, the largest first."""
    sources = action.sources
    edges = sorted({edge for number in numbers for edge in (sources[number].start, sources[number].end)})
    for start, end in pairwise(edges):
        chain = [one for one in numbers if sources[one].start <= start and end <= sources[one].end]
        yield start, end, sorted(chain, key=lambda one: (sources[one].start - sources[one].end, one))


def _starts(action: Action) -> dict[int, int]:
    """The number of the first piece of each source."""
    children, starts, count = _children(action.sources), dict[int, int](), 0
    for number, source in enumerate(action.sources):
        if source.parent is None:
            for _, _, chain in _pieces(action, [number, *_descendants(number, children)]):
                for one in chain:
                    starts.setdefault(one, count)
                count += 1
    return starts


def _effect(effects: np.ndarray, chain: Sequence[int], children: dict[int, list[int]]) -> float:
    """The effect that colours a piece: of the smallest source around it; none if other parts of that have their own."""
    measured = [one for one in chain if np.isfinite(effects[one])]
    if not measured or any(np.isfinite(effects[one]) for one in children.get(measured[-1], [])):
        return 0.0
    return float(effects[measured[-1]])


def _target(action: Action, number: int, target: ActionTarget, starts: dict[int, int]) -> TargetView:
    labels = {
        "call": "the whole call",
        "action": f"calling {action.call.name}",
        "decision": "calling a tool at all",
        "name": "the name",
    }
    ranked = [
        RankedSource(
            readable(one.source.name),
            one.source.trust,
            quoted(one.source.text),
            level_of(one.effect),
            nats(one.effect),
            starts.get(action.sources.index(one.source), 0),
        )
        for one in action.top(RANKED_SOURCES, number)
        if abs(one.effect) >= 0.05
    ]
    return TargetView(
        kind=target.kind,
        label=readable(labels.get(target.kind, target.name)),
        value=quoted(target.text) if target.kind == "argument" else "",
        verdict=target.verdict,
        style=style_of(target.verdict),
        facts=_facts(target),
        request=(level_of(target.request_effect), nats(target.request_effect)),
        untrusted=(level_of(target.untrusted_effect), nats(target.untrusted_effect)),
        ranked=tuple(ranked),
    )


def _facts(target: ActionTarget) -> str:
    """How likely a target is, with all sources and without those of either side."""
    figure = "Log-odds" if target.kind == "decision" else "Log-probability"
    count = len(target.tokens)
    return (
        f"{figure} {fixed(target.log_probability)} nats for {count} token{'s' if count != 1 else ''}, "
        f"{fixed(target.without_both)} without the request and the untrusted sources."
    )

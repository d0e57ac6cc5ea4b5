"""A recommendation: a method, its significance, cost and failures, as text, JSON and a page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from whyformer.benchmark.advice.elimination import ERROR_RATE, FIRST_LOOK, Lead
from whyformer.benchmark.choice import Choice
from whyformer.benchmark.reporting.gallery import Gallery, value_text
from whyformer.errors import WhyformerError
from whyformer.files import write_whole
from whyformer.render.html import report_page
from whyformer.render.text_spans import visible


@dataclass(frozen=True)
class Contender:
    """The result of a method or a control.

    Attributes:
        label: Its name in tables.
        value: The deciding figure, with its 95 % interval `low` to `high`, on `samples` samples.
        cost: The computing time of an explanation as a multiple of a plain answer's: CPU time of the process, on a GPU
            elapsed time, measured alternately. None for a control. `seconds` is the time of an explanation here.
        behind: How far it is behind the recommended method, with a p corrected for all tests.
        is_control: Whether it ignores the model.
        dropped_after: The number of samples after which it was dropped; None if it never was.
        beside: Other figures to show, by name.
    """

    label: str
    value: float
    low: float
    high: float
    samples: int
    cost: float | None = None
    seconds: float | None = None
    behind: Lead | None = None
    is_control: bool = False
    dropped_after: int | None = None
    beside: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, eq=False, repr=False)
class Recommendation:
    """Which method to use on a model and data, and why.

    Attributes:
        model: The model's name.
        method: The method, by its name.
        options: Its options, as in `explain`.
        protocol: The deciding protocol, with `figure` its deciding figure and `question` a description.
        contenders: The methods and controls, the best first.
        samples: The number of samples measured, of `available` ones, in `seconds`.
        looks: The number of comparisons.
        is_share: Whether the figure is shown in percent.
        most: The maximum of the figure.
        notes: Methods and samples that were left out, and why.
        worst: The examples on which the method does worst, with their values and maps.

    Example:
        >>> import whyformer
        >>> films = ["a wonderful film, full of warmth", "a dull and endless film"]
        >>> advice = whyformer.recommend("mini-bert", films, methods=["rollout", "input_x_gradient"])
        >>> advice.method, advice.samples, advice.is_enough
        ('input_x_gradient', 2, False)
    """

    model: str
    method: str
    options: Mapping[str, Any]
    protocol: str
    figure: str
    question: str
    contenders: tuple[Contender, ...]
    samples: int
    available: int
    seconds: float
    looks: int
    is_share: bool
    most: float
    notes: tuple[str, ...] = ()
    worst: tuple[tuple[str, float], ...] = ()
    gallery: Gallery | None = None

    @property
    def best(self) -> Contender:
        """The recommended method."""
        return next(one for one in self.contenders if one.label == self.label)

    @property
    def label(self) -> str:
        return Choice(self.method, self.options).label

    @property
    def others(self) -> tuple[Contender, ...]:
        return tuple(one for one in self.contenders if not one.is_control and one.label != self.label)

    @property
    def controls(self) -> tuple[Contender, ...]:
        return tuple(one for one in self.contenders if one.is_control)

    @property
    def ties(self) -> tuple[Contender, ...]:
        """Methods that are not significantly behind."""
        return tuple(one for one in self.others if one.behind is None or not one.behind.is_sure)

    @property
    def is_enough(self) -> bool:
        """Whether there were enough samples for a significant test."""
        return self.samples >= FIRST_LOOK

    @property
    def beats_controls(self) -> bool:
        """Whether it is significantly better than every control."""
        leads = [one.behind for one in self.controls]
        return bool(leads) and all(lead is not None and lead.is_sure and lead.difference.value > 0 for lead in leads)

    @property
    def call(self) -> str:
        """The call in Python."""
        options = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return f"whyformer.explain(example, model={self.model!r}, method={self.method!r}{options})"

    def to_json(self) -> dict[str, Any]:
        """Everything as plain data."""
        document = {key: value for key, value in vars(self).items() if key not in ("gallery", "contenders", "worst")}
        document |= {"options": dict(self.options), "notes": list(self.notes)}
        document |= {name: getattr(self, name) for name in ("is_enough", "beats_controls", "call")}
        document["ties"] = [one.label for one in self.ties]
        document["contenders"] = [asdict(one) | {"beside": dict(one.beside)} for one in self.contenders]
        document["worst"] = [{"name": name, "value": value} for name, value in self.worst]
        return {"verdict": sentences(self), **document}

    def save(self, path: str | Path) -> Path:
        """Write it as a page (.html) or as JSON (.json)."""
        place = Path(path)
        if place.suffix.lower() == ".html":
            write_whole(place, advice_page(self).encode())
        elif place.suffix.lower() == ".json":
            text = json.dumps(self.to_json(), indent=1, ensure_ascii=False)
            write_whole(place, (text + "\n").encode())
        else:
            raise WhyformerError(f"{str(place)!r}: save a recommendation as .html or .json.")
        return place

    def __repr__(self) -> str:
        return f"<Recommendation for {visible(self.model)}: {self.label}, {self.samples} samples>"

    def __str__(self) -> str:
        header, rows = advice_table(self)
        widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (header, *rows)
        ]
        return "\n".join([*sentences(self), "", *(line.rstrip() for line in lines), *(f"  {n}" for n in self.notes)])


def sentences(advice: Recommendation) -> list[str]:
    """The advice in sentences: the method, its significance and cost, the controls, and where it fails."""
    lines = [_use(advice), _decided(advice), _next(advice), _cost(advice), _controls(advice)]
    if advice.worst:
        worst = ", ".join(f"{visible(name)} ({_text(advice, value)})" for name, value in advice.worst)
        lines.append(f"Where it fails: {worst}. Look at these before you trust it.")
    return [line for line in lines if line]


def _use(advice: Recommendation) -> str:
    if not advice.is_enough:
        few = f"{advice.samples} sample{'s' if advice.samples != 1 else ''}"
        return (
            f"A hint, no more: {advice.label} came first, but {few} cannot tell methods apart. Give {FIRST_LOOK} at "
            "least, or more time."
        )
    if not advice.beats_controls:
        return (
            f"No method is significantly better than a control that knows nothing of {visible(advice.model)}: "
            f"do not trust explanations of this data yet. First came {advice.label}."
        )
    return f"Use {advice.label}: {advice.call}"


def _decided(advice: Recommendation) -> str:
    best, scale = advice.best, f" of {_text(advice, advice.most)}" if advice.is_share and advice.most != 1 else ""
    return (
        f"Decided by {advice.question} ({advice.protocol}: {advice.figure}): {_text(advice, best.value)}{scale} "
        f"[{_text(advice, best.low)}, {_text(advice, best.high)}] on {best.samples} of {advice.available} samples, in "
        f"{advice.seconds:.0f} s."
    )


def _next(advice: Recommendation) -> str:
    if not advice.others:
        return "There was no other method to compare it with."
    second = advice.others[0]
    lead = second.behind
    text = f"The next is {second.label}"
    if lead is None:
        return f"{text}."
    low, high = (_text(advice, edge) for edge in (lead.difference.low, lead.difference.high))
    text += f", behind by {_text(advice, lead.difference.value)} [{low}, {high}]: "
    text += (
        f"significantly worse (p = {lead.p:.2g}, for all tests together)."
        if lead.is_sure
        else "not told apart from it."
    )
    ties = advice.ties
    if len(ties) > 1:
        text += f" Nor are {', '.join(one.label for one in ties[1:])}." if ties[0] is second else ""
    cheaper = min((one for one in ties if one.cost is not None), key=lambda one: one.cost or 0, default=None)
    if (
        advice.is_enough
        and cheaper is not None
        and advice.best.cost is not None
        and (cheaper.cost or 0) < 0.8 * advice.best.cost
    ):
        text += f" The cheapest of these is {cheaper.label}, {cheaper.cost:.1f} times the time of an answer."
    return text


def _cost(advice: Recommendation) -> str:
    best = advice.best
    if best.cost is None or best.seconds is None:
        return ""
    return (
        f"An explanation takes {best.cost:.1f} times the computing time of a plain answer, {best.seconds:.2g} s here."
    )


def _controls(advice: Recommendation) -> str:
    parts = []
    for one in advice.controls:
        lead = one.behind
        if lead is None:
            continue
        how = "surely beaten" if lead.is_sure and lead.difference.value > 0 else "NOT surely beaten"
        parts.append(f"{one.label} ({_text(advice, one.value)}) is {how}")
    return f"Controls: {'; '.join(parts)}." if parts else ""


def advice_table(advice: Recommendation) -> tuple[list[str], list[list[str]]]:
    """A row for each method and control, the best first."""
    beside = list(dict.fromkeys(name for one in advice.contenders for name in one.beside))
    header = ["method", advice.figure, "samples", "behind by", "× an answer", *beside]
    rows = []
    for one in advice.contenders:
        mark = "" if one.behind is None or one.behind.is_sure else " ~"
        behind = "–" if one.behind is None else f"{_text(advice, one.behind.difference.value)}{mark}"
        value = f"{_text(advice, one.value)} [{_text(advice, one.low)}, {_text(advice, one.high)}]"
        cost = "control" if one.is_control else "–" if one.cost is None else f"{one.cost:.1f}"
        shown = [f"{100 * one.beside[name]:.1f}" if name in one.beside else "–" for name in beside]
        rows.append([one.label, value, str(one.samples), behind, cost, *shown])
    return header, rows


HOW_TO_READ_ADVICE = (
    "The best first, with 95 % intervals. ~ marks what is not told from the recommended method. Methods significantly "
    f"behind were dropped early and have fewer samples, with an error rate of {ERROR_RATE:.0%} over all looks and "
    "methods together. × an answer is the computing time of an explanation, relative to the model's plain answer to "
    "the same samples, measured in turn: CPU time of this process, on a GPU elapsed time."
)


def advice_page(advice: Recommendation) -> str:
    """A self-contained page: the advice, the table, and the examples on which the method fails."""
    header, rows = advice_table(advice)
    section = {
        "title": advice.protocol,
        "about": HOW_TO_READ_ADVICE,
        "header": header,
        "rows": rows,
        "curves": {},
        "bands": "",
    }
    galleries: Sequence[Gallery] = [advice.gallery] if advice.gallery is not None else []
    title = f"Which method for {advice.model}?"
    return report_page(title, sentences(advice), [section], galleries, advice.notes)


def _text(advice: Recommendation, value: float) -> str:
    return value_text(value if value == value else None, {"is_share": advice.is_share})

"""Fit the verdicts of a model on answers with known support: one half fits, the other says how often they are wrong."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from whyformer.api.answer_support import answer_support
from whyformer.api.calibration_data import case_rows, case_support
from whyformer.api.calibrations import model_digest, needs_white_box
from whyformer.api.served_scorer import ServedScorer
from whyformer.api.verdict_figures import FIGURE_SIGNS, FIGURES, SERVED_FIGURES, figures_of
from whyformer.api.verdict_fit import FigureTable
from whyformer.api.verdict_models import LEAST_PROBABILITY, Calibration, VerdictModel, with_indifference
from whyformer.api.verdict_rules import TAU_NECESSITY
from whyformer.errors import WhyformerError, check_count
from whyformer.facts.statements import PLAIN_STATEMENTS, StatementKind, support_case
from whyformer.inputs.support_logs import LoggedAnswer
from whyformer.inputs.verdicts import FAULTS, VERDICTS, Verdict
from whyformer.models.loading import LoadedModel
from whyformer.progress import track
from whyformer.results.support import UnitSupport, VerdictError
from whyformer.results.support_schema import read_unit

FEWEST_UNITS = 8  # of a verdict in the half that fits, to model it
NEARLY = 0.02
NORMAL_95 = 1.959964


@dataclass(frozen=True)
class LabelledUnit:
    """A unit with its figures, and the verdicts that are right for it, the expected one first.

    `half` is 0 for units that verdicts are fitted on, and 1 for those that errors are counted on.
    """

    unit: UnitSupport
    right: tuple[Verdict, ...]
    half: int
    kind: str = ""
    knows: bool | None = None

    @property
    def is_decidable(self) -> bool:
        """Whether the model can know: what it does not know itself cannot be read from it."""
        return not is_unknown(self.kind, self.knows)


def is_unknown(kind: str, knows: bool | None) -> bool:
    """Whether a unit is about something that the model answers wrongly itself, so that nothing can tell."""
    return knows is False and kind in ("swapped", "by_heart")


def labelled_units(rows: Iterable[Mapping[str, Any]]) -> list[LabelledUnit]:
    """The units of measured rows; even seeds fit. Of what the model does not know, "cannot tell" is right, too."""
    return [
        LabelledUnit(
            read_unit(row["unit"]),
            (*row["right"], *(("cannot tell",) if is_unknown(row["kind"], row.get("knows")) else ())),
            row["seed"] % 2,
            row["kind"],
            row.get("knows"),
        )
        for row in rows
    ]


def generated_rows(
    model: LoadedModel | ServedScorer,
    seeds: int,
    kinds: Sequence[StatementKind],
    *,
    is_plain: bool,
    progress: bool = False,
) -> list[dict[str, Any]]:
    """Measure generated cases of each kind."""
    check_count("seeds", seeds)
    rows = []
    wanted = [(seed, kind) for seed in range(seeds) for kind in kinds]
    for seed, kind in track(wanted, f"calibrating {model.name}", progress=progress):
        case = support_case(seed, kind, register="plain" if is_plain else "prose", sentences=9)
        rows += case_rows(case, case_support(model, case, judge=not is_plain))
    return rows


def calibrate(
    model: LoadedModel | ServedScorer, *, seeds: int = 32, register: str | None = None, progress: bool = False
) -> Calibration:
    """Calibrate the verdicts of a model on generated answers.

    Args:
        model: The model.
        seeds: How many cases of each kind are drawn.
        register: "prose", or "plain" for models of Facts World; by default "plain" for mini-llm.
        progress: Whether to show a progress bar.

    Returns:
        The calibration, not yet saved.

    Raises:
        WhyformerError: If there are too few cases to fit a verdict.
    """
    is_plain = register == "plain" or (register is None and model.name == "mini-llm")
    kinds = PLAIN_STATEMENTS if is_plain else tuple(StatementKind.__args__)  # type: ignore[attr-defined]
    rows = generated_rows(model, seeds, kinds, is_plain=is_plain, progress=progress)
    data = f"{len(rows)} generated sentences of the {'plain' if is_plain else 'prose'} register"
    return fit(labelled_units(rows), model.name, _digest(model), data)


def calibrate_on_log(
    model: LoadedModel | ServedScorer, answers: Sequence[LoggedAnswer], name: str, *, progress: bool = False
) -> Calibration:
    """Calibrate the verdicts of a model on labelled answers: odd rows fit, even ones say how often they are wrong."""
    units = []
    for answer in track(answers, f"calibrating {model.name}", progress=progress):
        if answer.labels is None:
            raise WhyformerError(
                f"{name}, row {answer.number} has no labels: true or false for each sentence of the answer."
            )
        support = answer_support(model, answer.prompt, answer.answer, answer.documents, judge=True)
        if len(answer.labels) != len(support.units):
            raise WhyformerError(
                f"row {answer.number} has {len(answer.labels)} labels, and the answer {len(support.units)} sentences."
            )
        for unit, is_supported in zip(support.units, answer.labels, strict=True):
            right: tuple[Verdict, ...] = ("from sources", "from memory") if is_supported else FAULTS
            units.append(LabelledUnit(unit, right, (answer.number + 1) % 2))
    data = f"{len(units)} labelled sentences of {name}"
    return fit(units, model.name, _digest(model), data)


def _digest(model: LoadedModel | ServedScorer) -> str:
    """The digest of the weights of a loaded model."""
    return model_digest(model) if isinstance(model, LoadedModel) else ""


def fit(units: Sequence[LabelledUnit], model: str, digest: str, data: str) -> Calibration:
    """Fit a model per verdict on one half of the units, and count the errors of each on the other."""
    calibration = _fitted(units, model, digest, data, tuple(FIGURES))
    if not needs_white_box(calibration):
        return calibration
    return replace(calibration, served=_fitted(units, model, digest, data, SERVED_FIGURES))


def _fitted(units: Sequence[LabelledUnit], model: str, digest: str, data: str, figures: Sequence[str]) -> Calibration:
    """The calibration by some figures."""
    own = [one for one in units if one.is_decidable]
    fitted = [one for one in own if one.half == 0]
    count = {verdict: sum(one.right[0] == verdict for one in fitted) for verdict in VERDICTS}
    wanted = [verdict for verdict, number in count.items() if number >= FEWEST_UNITS]
    if len(wanted) < 2:
        raise WhyformerError(
            f"Calibration needs at least {FEWEST_UNITS} sentences of two verdicts in each half, and this data has "
            f"{', '.join(f'{number} {verdict}' for verdict, number in count.items() if number) or 'none'}."
        )
    draft = Calibration(model, digest, data, {}, LEAST_PROBABILITY, {}, _threshold(fitted))
    unknown = [one for one in units if not one.is_decidable]
    draft = _with_models(draft, fitted, wanted, figures)
    draft = with_indifference(draft, [*fitted, *(one for one in unknown if one.half == 0)])
    decided = [(draft.decide(one.unit)[0], one.right) for one in own if one.half == 1]
    errors: dict[str, VerdictError] = {
        verdict: _error([verdict not in right for given, right in decided if given == verdict])
        for verdict in dict.fromkeys(given for given, _ in decided)
        if verdict != "cannot tell"
    }
    report = {
        "fitted": len(fitted),
        "held_out": len(decided),
        "balanced_accuracy": balanced_accuracy(decided),
        "cannot_tell": round(sum(given == "cannot tell" for given, _ in decided) / max(1, len(decided)), 4),
        "unknown": _unknown_report(draft, [one for one in unknown if one.half == 1]),
    }
    return replace(draft, errors=errors, report=report)


def _with_models(
    draft: Calibration, units: Sequence[LabelledUnit], verdicts: Sequence[Verdict], figures: Sequence[str]
) -> Calibration:
    """The calibration with a model of each verdict, fitted on these units."""
    table = FigureTable.of([figures_of(one.unit) for one in units], figures)
    is_later = np.array([one.unit.without_earlier is not None for one in units])
    models: dict[str, VerdictModel] = {}
    for verdict in verdicts:
        labels = np.array([one.right[0] == verdict for one in units])
        among = is_later if verdict == "repeats the response" and not labels[is_later].all() else None
        models[verdict] = table.model(labels, FIGURE_SIGNS[verdict], among)
    used = {name for one in models.values() for name in one.coefficients}
    return replace(draft, models=models, typical={name: value for name, value in table.typical.items() if name in used})


def _unknown_report(calibration: Calibration, units: Sequence[LabelledUnit]) -> dict[str, int]:
    """The verdicts on units about what the model does not know itself."""
    given = [calibration.decide(one.unit)[0] for one in units]
    return {verdict: given.count(verdict) for verdict in dict.fromkeys(given)}


def balanced_accuracy(decided: Sequence[tuple[str, Sequence[str]]]) -> float | None:
    """The mean, over the expected verdicts, of the share of units that got a right one; None without units."""
    expected = dict.fromkeys(right[0] for _, right in decided)
    shares = []
    for verdict in expected:
        own = [given in right for given, right in decided if right[0] == verdict]
        shares.append(sum(own) / len(own))
    return round(float(np.mean(shares)), 4) if shares else None


def wilson(wrong: int, count: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson 1927)."""
    if not count:
        return 0.0, 1.0
    share, square = wrong / count, NORMAL_95**2
    centre = (share + square / (2 * count)) / (1 + square / count)
    half = NORMAL_95 * math.sqrt(share * (1 - share) / count + square / (4 * count**2)) / (1 + square / count)
    return max(0.0, centre - half), min(1.0, centre + half)


def _error(wrong: Sequence[bool]) -> VerdictError:
    low, high = wilson(sum(wrong), len(wrong))
    return VerdictError(round(sum(wrong) / len(wrong), 4), round(low, 4), round(high, 4), len(wrong))


def _threshold(units: Sequence[LabelledUnit]) -> float:
    """The least necessity, from 1 nat, whose balanced accuracy for "from sources" is within NEARLY of the best."""
    values = np.array([one.unit.necessity for one in units])
    labels = np.array([one.right[0] == "from sources" for one in units])
    if labels.all() or not labels.any():
        return TAU_NECESSITY
    candidates = np.unique(np.clip(values, 1.0, None))
    accuracies = [
        ((values >= candidate)[labels].mean() + (values < candidate)[~labels].mean()) / 2 for candidate in candidates
    ]
    good = np.array(accuracies) >= max(accuracies) - NEARLY
    return round(float(candidates[int(np.argmax(good))]), 3)

"""The threshold of the verdicts on actions of a model, and how often they are wrong, by the digest of its weights."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from whyformer.api.action_removal import TAU_ACTION, call_verdict
from whyformer.api.calibrate import wilson
from whyformer.api.calibrations import model_digest
from whyformer.errors import WhyformerError
from whyformer.models.loading import LoadedModel
from whyformer.results.action import VERDICT_RULE, ActionTarget
from whyformer.results.support import VerdictError

INJECTED, USERS = "driven by a tool result", "follows the user"
LEAST_TAU = 0.1  # nats: below, the two sides are alike


@dataclass(frozen=True)
class LabelledAction:
    """A measured call and its action: whether an injection wants it, and in which half of the data it is.

    `half` is 0 for those that the threshold is fitted on, and 1 for those that errors are counted on.
    """

    call: ActionTarget
    action: ActionTarget
    is_injected: bool
    half: int


@dataclass(frozen=True)
class ActionCalibration:
    """The threshold of a model, and the errors of its verdicts on data that it was not fitted on.

    Attributes:
        model: The name of the model.
        digest: The SHA-256 of its weights.
        data: What it was calibrated on, in words.
        tau: The nats from which an effect counts.
        errors: The error rate of each verdict: "driven by a tool result" on calls that no injection wants, "follows
            the user" on injected ones.
        missed: The share of injected calls without the verdict "driven by a tool result".
        fitted: The number of calls that the threshold was fitted on.
    """

    model: str
    digest: str
    data: str
    tau: float
    errors: Mapping[str, VerdictError]
    missed: VerdictError
    fitted: int

    def to_dict(self) -> dict[str, Any]:
        """The calibration as plain data, with the rule of its verdicts."""
        errors = {name: asdict(one) for name, one in self.errors.items()}
        return {"rule": VERDICT_RULE, **vars(self), "errors": errors, "missed": asdict(self.missed)}


def fit_action_calibration(actions: Sequence[LabelledAction], model: str, digest: str, data: str) -> ActionCalibration:
    """Choose the threshold with the largest balanced accuracy on one half, and count errors on the other."""
    fitted, held_out = ([one for one in actions if one.half == half] for half in (0, 1))
    if not all({True, False} == {one.is_injected for one in half} for half in (fitted, held_out)):
        raise WhyformerError("A calibration needs injected and other calls in both halves of the data.")
    figures = (value for one in fitted for value in (one.call.request_effect, one.call.untrusted_effect))
    candidates = sorted({LEAST_TAU, TAU_ACTION, *(round(value, 3) for value in figures)})
    tau = max((one for one in candidates if one >= LEAST_TAU), key=lambda one: _balanced_accuracy(fitted, one))
    given = [(call_verdict(one.call, one.action, tau), one.is_injected) for one in held_out]
    errors = {
        verdict: _rate([is_injected == is_wrong for own, is_injected in given if own == verdict])
        for verdict, is_wrong in ((INJECTED, False), (USERS, True))
        if any(own == verdict for own, _ in given)
    }
    missed = _rate([own != INJECTED for own, is_injected in given if is_injected])
    return ActionCalibration(model, digest, data, tau, errors, missed, len(fitted))


def action_calibration_of(loaded_model: LoadedModel | None) -> ActionCalibration | None:
    """The bundled calibration of a model; None without one."""
    bundled = bundled_action_calibrations()
    if loaded_model is None or not bundled:
        return None
    return bundled.get(model_digest(loaded_model))


@cache
def bundled_action_calibrations() -> Mapping[str, ActionCalibration]:
    """The bundled calibrations by digest; `benchmarks/actions.py calibrate` writes them."""
    text = (files("whyformer") / "api" / "action_calibrations.json").read_text(encoding="utf-8")
    return {one["digest"]: read_action_calibration(one) for one in json.loads(text)}


def read_action_calibration(document: Mapping[str, Any]) -> ActionCalibration:
    """Restore a calibration from plain data; one of another rule of verdicts is refused."""
    document = dict(document)
    rule = document.pop("rule", None)
    if rule != VERDICT_RULE:
        raise WhyformerError(
            f"The calibration of {document.get('model')!s:.60} is of {'no rule' if rule is None else f'rule {rule}'} "
            f"of verdicts, not of rule {VERDICT_RULE}: calibrate again."
        )
    errors = {name: VerdictError(**one) for name, one in document["errors"].items()}
    return ActionCalibration(**{**document, "errors": errors, "missed": VerdictError(**document["missed"])})


def _balanced_accuracy(actions: Sequence[LabelledAction], tau: float) -> float:
    flagged = np.array([call_verdict(one.call, one.action, tau) == INJECTED for one in actions])
    labels = np.array([one.is_injected for one in actions])
    return float((flagged[labels].mean() + (~flagged[~labels]).mean()) / 2)


def _rate(wrong: Sequence[bool]) -> VerdictError:
    low, high = wilson(sum(wrong), len(wrong))
    return VerdictError(round(sum(wrong) / len(wrong), 4), round(low, 4), round(high, 4), len(wrong))

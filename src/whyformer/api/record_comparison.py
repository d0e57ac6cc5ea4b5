"""Compare an audit file with a recomputation, field by field."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from whyformer.render.text_spans import one_line
from whyformer.results.explanation import Explanation
from whyformer.results.schema import read_field, read_list_of, read_mapping, read_number, read_text

# Fields that only a signature can prove: when, where and with what versions it was computed.
STATED = ("created", "computation")
# Fields that another version of the package may word differently.
WORDED = ("tolerance", "doctor", "controls")
ROUNDED = ("completeness", "logit_difference", "largest_logit")  # computed by the model; other numbers are exact
AUDIT_FIELDS = ("format", "version", "model", "input", "question", "explanation", "signature", *STATED, *WORDED)


@dataclass(frozen=True)
class Check:
    """The result of one comparison: its name, whether the audit file agrees, and the finding."""

    name: str
    agrees: bool
    finding: str


@dataclass(frozen=True)
class Allowance:
    """Tolerances: scores relative to the largest, other numbers absolute or relative to 1."""

    scores: float
    others: float
    dtype: str


def compare_target(kept: Mapping[str, Any], now: Explanation) -> Check:
    target = read_field(kept, "target", read_text)
    return Check("target", target == now.target, now.target if target == now.target else f"{now.target}, kept {target}")


def compare_probability(kept: Any, now: float | None, allowance: Allowance) -> Check:
    if kept is None or now is None:
        return Check("probability", kept is now, "none, as kept" if kept is now else f"{now}, kept {kept!r:.20}")
    agrees = type(kept) in (int, float) and abs(kept - now) <= allowance.others
    return Check("probability", agrees, f"{now:.6f}, kept {kept!r:.20}")


def compare_scores(explanation: Mapping[str, Any], now: Explanation, allowance: Allowance) -> Check:
    """Compare every score with the stored one, relative to the largest recomputed score."""
    kept = _kept_scores(explanation)
    if kept.keys() != now.parts.keys():
        return Check("scores", False, f"of {', '.join(now.parts)}, stored were {', '.join(kept)}")
    largest = max(np.abs(part.scores).max(initial=0.0) for part in now.parts.values()) or 1.0
    worst, where = -1.0, ""
    for name, (tokens, scores) in kept.items():
        part = now.parts[name]
        if tuple(tokens) != part.tokens or len(scores) != len(part.scores):
            return Check("scores", False, f"the tokens of {name} differ")
        apart = np.abs(scores - part.scores) / largest
        if len(apart) and not apart.max() <= worst:  # NaN is farther than any number
            place = int(apart.argmax())
            worst, token = float(apart[place]), one_line(part.tokens[place])
            where = f"token {place + 1} of {name}, {token!r}: {part.scores[place]:.6g}, kept {scores[place]:.6g}"
    stated = f"{worst:.1e} of the largest score apart, {allowance.scores:g} is allowed"
    agrees = worst <= allowance.scores
    return Check("scores", agrees, f"{stated} in {allowance.dtype}" if agrees else f"{stated}; {where}")


def compare_section(name: str, kept: Any, now: Any, allowed: float = 0.0) -> Check:
    """Compare all fields of a section that have no separate check."""
    differences = [
        f"{where.removeprefix('.') or name} {difference}" for where, difference in _differences(kept, now, allowed)
    ]
    more = f" (and {len(differences) - 1} more)" if len(differences) > 1 else ""
    return Check(name, not differences, one_line(differences[0]) + more if differences else "as kept")


def without_scores(explanation: Mapping[str, Any]) -> dict[str, Any]:
    """An explanation without fields that have a separate check."""
    parts = {
        name: {field: value for field, value in read_mapping(part).items() if field not in ("scores", "tokens")}
        for name, part in read_field(explanation, "parts", read_mapping).items()
    }
    rest = {name: value for name, value in explanation.items() if name not in ("target", "probability")}
    return {**rest, "parts": parts}


def _kept_scores(explanation: Mapping[str, Any]) -> dict[str, tuple[list[str], np.ndarray]]:
    return {
        name: (
            read_field(part, "tokens", read_list_of(read_text)),
            np.array(read_field(part, "scores", read_list_of(read_number)), dtype=np.float64),
        )
        for name, part in read_field(explanation, "parts", read_mapping).items()
    }


def _differences(kept: Any, now: Any, allowed: float, where: str = "") -> Iterator[tuple[str, str]]:
    """The fields that differ, and how."""
    if isinstance(kept, dict) and isinstance(now, dict):
        for name in {**now, **kept}:
            if name not in kept or name not in now:
                yield f"{where}.{name}", "is missing" if name in now else "is in the file but not recomputed"
            else:
                yield from _differences(kept[name], now[name], allowed, f"{where}.{name}")
    elif isinstance(kept, list) and isinstance(now, list) and len(kept) == len(now):
        for place, (before, here) in enumerate(zip(kept, now, strict=True)):
            yield from _differences(before, here, allowed, f"{where}.{place}")
    elif isinstance(now, float) and type(kept) in (int, float):
        slack = allowed if where.rpartition(".")[2] in ROUNDED else 0.0
        if not math.isclose(kept, now, rel_tol=max(slack, 1e-9), abs_tol=slack):
            yield where, f"is {now:.6g}, kept {kept:.6g}"
    elif type(kept) is not type(now) or kept != now:
        yield where, f"is {now!r:.60}, kept {kept!r:.60}"

"""Verify the audit file of a response: explain it again, and compare scores and verdicts."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from whyformer.api.audit import dtype_name
from whyformer.api.explain_response import explain_response
from whyformer.api.record_comparison import AUDIT_FIELDS, Check, compare_section
from whyformer.api.tolerances import rounding, tolerance
from whyformer.models.loading import LoadedModel
from whyformer.render.text_spans import one_line
from whyformer.results.schema import read_field, read_integer, read_mapping

# Fields of a response with checks of their own, and notes: on a reply that was written, say, or of another version.
COMPARED = ("scores", "token_scores", "earlier", "parts", "sinks", "verdicts")
NOTED = ("notes", "seed")
KNOWN = (*(name for name in AUDIT_FIELDS if name not in ("explanation", "controls")), "response")
VERDICT_SLACK = 10  # figures of verdicts are sums over tokens: so many times the rounding of one


def response_checks(
    document: Mapping[str, Any], exchange: Any, model: LoadedModel, allowed: float | None, *, is_moved: bool
) -> tuple[list[Check], list[str]]:
    """Explain the response again and compare; also list what was not compared."""
    call, kept = (dict(read_field(document, name, read_mapping)) for name in ("question", "response"))
    seed = read_field(read_field(document, "computation", read_mapping), "seed", read_integer)
    options, given = call.pop("options", {}), dict(read_mapping(exchange))
    places = {name: _places(call.pop(name)) for name in ("units", "sources")}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        now = explain_response(given.pop("prompt"), given.pop("response"), model, **given, **places, **call, **options)
    here: dict[str, Any] = json.loads(json.dumps(now.to_dict()))
    dtype = dtype_name(model.model)
    own = tolerance(now.method, dtype) if allowed is None else allowed
    slack = (rounding(dtype) if allowed is None else allowed) * VERDICT_SLACK
    skipped = [name for name in document if name not in KNOWN] + ["doctor", *(f"response.{name}" for name in NOTED)]
    skipped += ["model.name", "model.place", "response.model"] if is_moved else []
    own_fields, kept_fields = (_plain(one, is_moved=is_moved) for one in (here, kept))
    differences = list(field_differences(kept_fields, own_fields, slack))
    checks = [
        score_check(kept, here, own),
        Check("response", not differences, differences[0] if differences else "as kept"),
    ]
    if here["verdicts"] is not None or kept.get("verdicts") is not None:
        differences = list(field_differences(kept.get("verdicts"), here["verdicts"], slack))
        verdicts = ", ".join(unit["verdict"] for unit in (here["verdicts"] or {}).get("units", ()))
        checks.append(Check("verdicts", not differences, differences[0] if differences else verdicts))
    names = ["architecture"] if is_moved else ["architecture", "name", "place"]
    about = read_field(document, "model", read_mapping)
    stated = {"architecture": type(model.model).__name__, "name": model.name, "place": model.place}
    kept_names, own_names = ({name: one.get(name) for name in names} for one in (about, stated))
    checks.append(compare_section("model", kept_names, own_names))
    checks.append(compare_section("tolerance", document.get("tolerance"), tolerance(now.method, dtype)))
    return checks, skipped


def _places(value: Any) -> Any:
    """Spans as they were given: a name, or a list of quotations and places."""
    return [tuple(one) if isinstance(one, list) else one for one in value] if isinstance(value, list) else value


def score_check(
    kept: Mapping[str, Any],
    here: Mapping[str, Any],
    allowed: float,
    names: Sequence[str] = ("scores", "token_scores", "earlier"),
) -> Check:
    """Compare the scores of sources and of tokens, relative to the largest of each."""
    worst = 0.0
    for name in names:
        before, now = kept.get(name), here[name]
        if (before is None) != (now is None) or np.shape(before or ()) != np.shape(now or ()):
            return Check("scores", False, f"{name} has another shape than was kept")
        values, others = np.array(now or (), dtype=float), np.array(before or (), dtype=float)
        largest = float(np.abs(values).max(initial=0.0)) or 1.0
        difference = float(np.abs(values - others).max(initial=0.0)) / largest
        worst = difference if not difference <= worst else worst  # NaN is farther than any number
    finding = f"{worst:.1e} of the largest score apart, {allowed:g} is allowed"
    return Check("scores", worst <= allowed, finding)


def _plain(response: Mapping[str, Any], *, is_moved: bool) -> dict[str, Any]:
    left_out = {*COMPARED, *NOTED, *(("model",) if is_moved else ())}
    return {name: value for name, value in response.items() if name not in left_out}


def field_differences(kept: Any, now: Any, slack: float, where: str = "") -> Iterator[str]:
    """The fields that differ, numbers by more than rounding."""
    if isinstance(kept, dict) and isinstance(now, dict):
        for name in {**now, **kept}:
            yield from field_differences(kept.get(name), now.get(name), slack, f"{where}.{name}")
    elif isinstance(kept, list) and isinstance(now, list) and len(kept) == len(now):
        for place, (before, here) in enumerate(zip(kept, now, strict=True)):
            yield from field_differences(before, here, slack, f"{where}.{place}")
    elif isinstance(now, float) and isinstance(kept, (int, float)) and not isinstance(kept, bool):
        if not math.isclose(kept, now, rel_tol=slack, abs_tol=slack):
            yield one_line(f"{where.removeprefix('.')} is {now:.6g}, kept {kept:.6g}")
    elif type(kept) is not type(now) or kept != now:
        yield one_line(f"{where.removeprefix('.')} is {now!r:.60}, kept {kept!r:.60}")

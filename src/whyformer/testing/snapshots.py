"""Explanations stored beside tests, and compared with the tolerance of audit files."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whyformer.api.record_comparison import Allowance, Check, compare_probability, compare_scores, compare_target
from whyformer.api.tolerances import BY_DTYPE, rounding, tolerance
from whyformer.errors import WhyformerError
from whyformer.files import parse_json, whole_file
from whyformer.results.explanation import Explanation

FORMAT = "whyformer explanation snapshot"
UPDATE = "pytest --update-explanations"
_NAME = re.compile(r"[\w][\w.-]{0,99}")


@dataclass(frozen=True)
class Snapshots:
    """The explanations in a folder; with `updates` they are written, not compared."""

    folder: Path
    updates: bool

    def check(self, name: str, explanation: Explanation) -> None:
        """Compare an explanation with the stored one of this name.

        Raises:
            AssertionError: If nothing is stored, or it differs.
            WhyformerError: If the name is unfit for a file, the value is not an explanation, or the file is damaged.
        """
        __tracebackhide__ = True
        if not _NAME.fullmatch(name):
            raise WhyformerError(f"{name!r:.60} cannot name a file: use letters, digits, '-', '_' and '.'.")
        if not isinstance(explanation, Explanation):
            raise WhyformerError(f"A snapshot keeps an Explanation, not {type(explanation).__name__}.")
        path = self.folder / f"{name}.json"
        if self.updates:
            self.folder.mkdir(parents=True, exist_ok=True)
            with whole_file(path) as unfinished:
                unfinished.write_text(json.dumps(snapshot_of(explanation), indent=1, ensure_ascii=False) + "\n")
            return
        if not path.is_file():
            raise AssertionError(f"No explanation {name!r} is stored in {str(self.folder)!r}: store it by {UPDATE}.")
        failed = [check for check in compare(_read(path), explanation) if not check.agrees]
        if failed:
            findings = "\n".join(f"  {check.name}: {check.finding}" for check in failed)
            raise AssertionError(f"The explanation differs from {str(path)!r}:\n{findings}\nIf it should, {UPDATE}.")


def snapshot_of(explanation: Explanation) -> dict[str, Any]:
    """The fields of an explanation that are stored."""
    parts = {
        name: {"tokens": list(part.tokens), "scores": [float(f"{score:.6g}") for score in part.scores.tolist()]}
        for name, part in explanation.parts.items()
    }
    return {
        "format": FORMAT,
        "method": explanation.manner,
        "model": explanation.model,
        "target": explanation.target,
        "probability": explanation.probability,
        "dtype": _dtype(explanation),
        "parts": parts,
    }


def compare(kept: dict[str, Any], now: Explanation) -> list[Check]:
    """The checks of an explanation against the stored one."""
    dtype = _dtype(now)
    coarser = max(dtype, kept["dtype"], key=rounding) if kept["dtype"] in BY_DTYPE else dtype
    allowance = Allowance(tolerance(now.method, coarser), rounding(coarser), coarser)
    method = Check("method", kept["method"] == now.manner, f"{now.manner}, kept {kept['method']}")
    probability = compare_probability(kept["probability"], now.probability, allowance)
    return [method, compare_target(kept, now), probability, compare_scores(kept, now, allowance)]


def _dtype(explanation: Explanation) -> str:
    """The dtype of the model that is explained; float32 for a function or an explanation from a file."""
    origin = explanation.audit
    module = getattr(origin, "module", lambda: None)()
    if module is None:
        return "float32"
    from whyformer.api.audit import dtype_name

    return dtype_name(module)


def _read(path: Path) -> dict[str, Any]:
    try:
        kept = parse_json(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise WhyformerError(f"{str(path)!r} is damaged ({error}): store it again by {UPDATE}.") from error
    fields = ("method", "target", "probability", "dtype", "parts")
    if not isinstance(kept, dict) or kept.get("format") != FORMAT or not all(name in kept for name in fields):
        raise WhyformerError(f"{str(path)!r} is not a stored explanation: store it again by {UPDATE}.")
    return kept

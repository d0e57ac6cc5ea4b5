"""Verify an audit file: recompute the explanation and compare."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from whyformer.api.action_audit import action_checks
from whyformer.api.audit import dtype_name
from whyformer.api.audit_reading import (
    audit_field,
    audit_model,
    read_audit,
    signature_check,
    surroundings,
    weight_check,
)
from whyformer.api.explain import explain
from whyformer.api.record_comparison import (
    AUDIT_FIELDS,
    STATED,
    WORDED,
    Allowance,
    Check,
    compare_probability,
    compare_scores,
    compare_section,
    compare_target,
    without_scores,
)
from whyformer.api.response_checks import response_checks
from whyformer.api.signatures import SIGNATURE
from whyformer.api.tolerances import rounding
from whyformer.api.tolerances import tolerance as library_tolerance
from whyformer.errors import WhyformerError, reason_of
from whyformer.inputs.identity import restore_example
from whyformer.models.digests import MEMORY
from whyformer.models.loading import LoadedModel
from whyformer.render.text_spans import one_line, readable
from whyformer.results.explanation import Explanation
from whyformer.results.schema import read_boolean, read_field, read_integer, read_mapping, read_text
from whyformer.targets.target_documents import read_target
from whyformer.tracing.attribution import UNSTABLE


@dataclass(frozen=True)
class Verification:
    """The result of verifying an audit file.

    Attributes:
        checks: The comparisons, in order: the signature if a key is given, weights, input, target, probability,
            scores, and the rest of the file: model, explanation, doctor and controls. If the weights or the input
            differ, nothing is recomputed, and the checks after them are missing.
        notes: Other differences that may change scores slightly: versions, the device.
        not_checked: Fields of the file that were not compared: read them as claims.

    Example:
        >>> import tempfile, whyformer
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     whyformer.explain("A wonderful film.", "mini-bert").save(f"{folder}/film.audit.json")
        ...     verification = whyformer.verify(f"{folder}/film.audit.json")
        >>> ", ".join(check.name for check in verification.checks if check.agrees)
        'weights, input, target, probability, scores, model, explanation, tolerance, doctor, controls'
        >>> verification.not_checked
        ('created', 'computation')
    """

    checks: tuple[Check, ...]
    notes: tuple[str, ...] = ()
    not_checked: tuple[str, ...] = ()

    @property
    def agrees(self) -> bool:
        """Whether all checks agree with the audit file."""
        return all(check.agrees for check in self.checks)

    def to_dict(self) -> dict[str, Any]:
        """The verification as plain data, for scripts."""
        lists = {"notes": list(self.notes), "not_checked": list(self.not_checked)}
        return {"agrees": self.agrees, "checks": [vars(check) for check in self.checks], **lists}

    def __str__(self) -> str:
        width = max(len(check.name) for check in self.checks)
        lines = [f"{check.name:<{width}}  {'yes' if check.agrees else 'NO '}  {check.finding}" for check in self.checks]
        failures = [check.name for check in self.checks if not check.agrees]
        verdict = "verified" if self.agrees else f"not verified: {', '.join(failures)}"
        claims = [f"not checked: {', '.join(self.not_checked)}"] if self.not_checked else []
        return readable("\n".join([*lines, *(f"note: {note}" for note in self.notes), *claims, verdict]))


def verify(
    audit: str | Path,
    *,
    inputs: Sequence[Any] = (),
    model: str | Path | nn.Module | LoadedModel | None = None,
    processor: Any = None,
    tolerance: float | None = None,
    key: str | Path | None = None,
) -> Verification:
    """Recompute an explanation from its audit file, and compare.

    Everything that can be recomputed is compared with the file. Tolerances are fixed in this package, by method and
    precision; the file has no influence on them.

    Args:
        audit: The file, as written by `explanation.save("NAME.audit.json")`, or by that of a response or an action.
        inputs: The pictures, sounds or files that were explained, in order, if the audit file only has their digests,
            or they have been moved.
        model: The model, if it has been moved, or was your own module.
        processor: The tokenizer or image processor of your own module.
        tolerance: The tolerance of scores, as a share of the largest; by default that of the package.
        key: The file of the public key (PEM) that the signature must match.

    Returns:
        The Verification: print it, or read `agrees` and its `checks`.

    Raises:
        WhyformerError: If the file is not an audit file, or the key, the model or the input cannot be found.

    Example:
        >>> import tempfile, whyformer
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     whyformer.explain("A wonderful film.", "mini-bert").save(f"{folder}/film.audit.json")
        ...     print(whyformer.verify(f"{folder}/film.audit.json").agrees)
        True
    """
    path = Path(audit)
    document = read_audit(path)
    checks = [] if key is None else [signature_check(document, key)]
    loaded_model = audit_model(path, document, model, processor)
    example = audit_field(path, lambda: restore_example(document.get("input"), inputs))
    finding = "; ".join(example.differences) or "the same SHA-256"
    checks += [weight_check(path, document, loaded_model), Check("input", not example.differences, finding)]
    again = next((compare for name, compare in COMPARISONS.items() if name in document), None)
    not_checked = [*(_unknown_fields(document) if again is None else ()), *(STATED if key is None else ())]
    if key is None and SIGNATURE in document:
        not_checked.append("signature, without a key")
    if all(check.agrees for check in checks if check.name != SIGNATURE):
        compare = again or _explanation_again
        compared, skipped = compare(path, document, example.example, loaded_model, tolerance, model is not None)
        checks += compared
        not_checked += skipped
    notes = audit_field(path, lambda: surroundings(document, loaded_model.model))
    return Verification(tuple(checks), tuple(notes), tuple(not_checked))


Comparison = tuple[list[Check], list[str]]  # the checks, and fields that were not compared


def _explanation_again(
    path: Path, document: Mapping[str, Any], example: Any, model: LoadedModel, allowed: float | None, is_moved: bool
) -> Comparison:
    explanation = _explain_again(path, document, example, model)
    allowance = _allowance(explanation.method, model.model, allowed)
    return audit_field(path, lambda: _compare(document, explanation, allowance, is_moved=is_moved))


def _response_again(
    path: Path, document: Mapping[str, Any], example: Any, model: LoadedModel, allowed: float | None, is_moved: bool
) -> Comparison:
    return audit_field(path, lambda: response_checks(document, example, model, allowed, is_moved=is_moved))


def _action_again(
    path: Path, document: Mapping[str, Any], example: Any, model: LoadedModel, allowed: float | None, is_moved: bool
) -> Comparison:
    return audit_field(path, lambda: action_checks(document, example, model, allowed, is_moved=is_moved))


COMPARISONS = {"response": _response_again, "action": _action_again}  # by the field of what is compared


def _explain_again(path: Path, document: Mapping[str, Any], example: Any, loaded_model: LoadedModel) -> Explanation:
    def recompute() -> Explanation:
        question, kept = (read_field(document, name, read_mapping) for name in ("question", "explanation"))
        machine = read_field(document, "computation", read_mapping)
        with torch.random.fork_rng():
            torch.manual_seed(read_field(machine, "seed", _seed))
            return explain(
                example,
                loaded_model,
                read_target(question.get("target")),
                read_field(kept, "method", read_text),
                readout=_readout(question.get("readout")),
                truncate=read_field(question, "truncate", read_boolean),
                **read_field(kept, "options", read_mapping),
            )

    try:
        return audit_field(path, recompute)
    except WhyformerError:
        raise
    except Exception as error:  # A file's request can fail anywhere in the model.
        reason = f"{type(error).__name__}: {reason_of(error)}"
        raise WhyformerError(f"{str(path)!r} cannot be recomputed: {one_line(reason)}.") from error


def _seed(value: Any) -> int:
    seed = read_integer(value)
    if not 0 <= seed < 2**64:
        raise TypeError(f"{value!r:.60}, not an integer from 0 to 2**64 - 1")
    return seed


def _readout(value: Any) -> str | int | torch.Tensor | None:
    if value is None or type(value) in (str, int):
        return cast("str | int | None", value)
    if not isinstance(value, list):
        raise WhyformerError(f"its readout is {value!r:.60}, not a name, an integer or a list of numbers")
    weights = np.array(value)
    if weights.dtype.kind not in "if":
        raise WhyformerError(f"its readout is {value!r:.60}, not a list of numbers")
    return torch.tensor(value)


def _allowance(method: str, module: nn.Module, tolerance: float | None) -> Allowance:
    dtype = dtype_name(module)
    if tolerance is not None:
        return Allowance(tolerance, tolerance, dtype)
    return Allowance(library_tolerance(method, dtype), rounding(dtype), dtype)


def _compare(
    document: Mapping[str, Any], now: Explanation, allowance: Allowance, *, is_moved: bool
) -> tuple[list[Check], list[str]]:
    """Compare the file with the recomputation; also list what could not be compared."""
    kept = read_field(document, "explanation", read_mapping)
    assert now.audit is not None
    record = json.loads(json.dumps(now.audit(now)))
    names = ["architecture", *([] if is_moved else ["name", "place"])]
    about = read_field(document, "model", read_mapping)
    models = [{name: one[name] for name in names if name in one} for one in (about, record["model"])]
    before, here = without_scores(kept), without_scores(record["explanation"])
    skipped = ["model.name", "model.place", "explanation.model"] if is_moved else []
    if is_moved:
        before["model"] = here["model"]
    is_unstable = UNSTABLE in now.notes  # close to its threshold, the note itself may depend on rounding
    before["notes"], here["notes"] = (_without_unstable(one["notes"]) for one in (before, here))
    skipped += ["explanation.scores, which are unstable in float32"] if is_unstable else []
    is_same_version = _package_version(document) == _package_version(record)
    if not is_same_version:
        skipped += ["explanation.notes", *WORDED]
        before["notes"] = here["notes"]
    sections = [
        compare_section("model", models[0], models[1]),
        compare_section("explanation", before, here, allowance.others),
        *(
            compare_section(name, document.get(name), record[name], allowance.others)
            for name in WORDED
            if is_same_version
        ),
    ]
    return [
        compare_target(kept, now),
        compare_probability(kept.get("probability"), now.probability, allowance),
        *([] if is_unstable else [compare_scores(kept, now, allowance)]),
        *sections,
    ], skipped


def _without_unstable(notes: Any) -> Any:
    return [note for note in notes if note != UNSTABLE] if isinstance(notes, list) else notes


def _unknown_fields(document: Mapping[str, Any]) -> Iterator[str]:
    """Fields that this version does not know, and the digests of model files without files to compare."""
    yield from (name for name in document if name not in AUDIT_FIELDS)
    question, model = (document.get(name) for name in ("question", "model"))
    if isinstance(question, dict):
        yield from (f"question.{name}" for name in question if name not in ("target", "readout", "truncate"))
    if isinstance(model, dict) and "files" not in model and MEMORY not in (model.get("weights") or {}):
        yield "model.files, which the file lacks"


def _package_version(document: Mapping[str, Any]) -> Any:
    versions = read_field(document, "computation", read_mapping).get("versions") or {}
    return read_mapping(versions).get("whyformer")

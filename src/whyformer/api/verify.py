"""Verify an audit file: recompute the explanation and compare."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import nn

from whyformer.api.audit import AUDIT_VERSION, computation, digests_of, dtype_name
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
from whyformer.api.signatures import SIGNATURE, is_signed_by
from whyformer.api.tolerances import rounding
from whyformer.api.tolerances import tolerance as library_tolerance
from whyformer.errors import WhyformerError, reason_of
from whyformer.files import parse_json
from whyformer.inputs.identity import restore_example
from whyformer.inputs.read import check_file
from whyformer.models.digests import MEMORY, module_digest, revision_of
from whyformer.models.loading import LoadedModel, load, resolve_model
from whyformer.models.placement import check_device
from whyformer.render.text_spans import one_line, readable
from whyformer.results.explanation import Explanation
from whyformer.results.schema import read_boolean, read_field, read_integer, read_mapping, read_text
from whyformer.results.storage import AUDIT_FORMAT
from whyformer.targets.target_documents import read_target
from whyformer.tracing.attribution import UNSTABLE

MOST_AUDIT_BYTES = 1 << 28
_Field = TypeVar("_Field")


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
        audit: The file, as written by `explanation.save("NAME.audit.json")`.
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
    document = _read(path)
    checks = [] if key is None else [_signature(document, key)]
    loaded_model = _model(path, document, model, processor)
    example = _field(path, lambda: restore_example(document.get("input"), inputs))
    finding = "; ".join(example.differences) or "the same SHA-256"
    checks += [_weights(path, document, loaded_model), Check("input", not example.differences, finding)]
    not_checked = [*_unknown_fields(document), *(STATED if key is None else ())]
    if key is None and SIGNATURE in document:
        not_checked.append("signature, without a key")
    if all(check.agrees for check in checks if check.name != SIGNATURE):
        explanation = _explain_again(path, document, example.example, loaded_model)
        allowance = _allowance(explanation.method, loaded_model.model, tolerance)
        compared, skipped = _field(path, lambda: _compare(document, explanation, allowance, is_moved=model is not None))
        checks += compared
        not_checked += skipped
    notes = _field(path, lambda: _surroundings(document, loaded_model.model))
    return Verification(tuple(checks), tuple(notes), tuple(not_checked))


def _read(path: Path) -> dict[str, Any]:
    check_file(path)
    if path.stat().st_size > MOST_AUDIT_BYTES:
        raise WhyformerError(f"{str(path)!r} has more than {MOST_AUDIT_BYTES >> 20} MiB: it is not an audit file.")
    try:
        document = parse_json(path.read_bytes())
    except ValueError as error:
        raise WhyformerError(f"{str(path)!r} is not an audit file: it is not JSON ({one_line(str(error))}).") from error
    if not isinstance(document, dict) or document.get("format") != AUDIT_FORMAT:
        raise WhyformerError(f"{str(path)!r} is not an audit file: its format is not {AUDIT_FORMAT}.")
    if type(document.get("version")) is not int or document["version"] != AUDIT_VERSION:
        version = document.get("version")
        raise WhyformerError(
            f"{str(path)!r} has version {version!r:.20}, but this Whyformer reads version {AUDIT_VERSION}."
        )
    return document


def _field(path: Path, read: Callable[[], _Field]) -> _Field:
    """Return `read()`, or raise an error that names the file."""
    try:
        return read()
    except (WhyformerError, KeyError, TypeError, ValueError, OverflowError) as error:
        reason = str(error) if isinstance(error, WhyformerError) else f"{type(error).__name__}: {error}"
        raise WhyformerError(f"{str(path)!r} cannot be verified: {one_line(reason).removesuffix('.')}.") from error


def _signature(document: Mapping[str, Any], key: str | Path) -> Check:
    if is_signed_by(document, key):
        return Check(SIGNATURE, True, f"of the whole file, by the key in {str(key)!r}")
    finding = (
        f"not by the key in {str(key)!r}, or the file was changed" if SIGNATURE in document else "the file has none"
    )
    return Check(SIGNATURE, False, finding)


def _model(path: Path, document: Mapping[str, Any], model: Any, processor: Any) -> LoadedModel:
    """The given or stored model, on the stored device and dtype if available."""
    if isinstance(model, (nn.Module, LoadedModel)):
        return resolve_model(model, processor)
    about = _field(path, lambda: read_field(document, "model", read_mapping))
    place = model or about.get("place")
    if not isinstance(place, (str, Path)):
        raise WhyformerError(f"{str(path)!r} explains your own module: pass it as model=….")
    machine = _field(path, lambda: read_field(document, "computation", read_mapping))
    dtype = _field(path, lambda: read_field(machine, "dtype", read_text))
    try:
        device = check_device(str(machine.get("device")))
    except WhyformerError:
        device = None
    loaded_model = load(place, device=device, dtype=dtype)  # type: ignore[arg-type]  # rejected if it is invalid
    return loaded_model if processor is None else resolve_model(loaded_model, processor)


def _weights(path: Path, document: Mapping[str, Any], loaded_model: LoadedModel) -> Check:
    """Check the weights and all files read with them, or the tensors if digests are of these."""
    about = _field(path, lambda: read_field(document, "model", read_mapping))
    kept = _field(path, lambda: read_field(about, "weights", read_mapping))
    is_in_memory = MEMORY in kept
    if is_in_memory:
        now = {MEMORY: module_digest(loaded_model.model)}
    else:
        now, settings = digests_of(loaded_model)
        if "files" in about:  # missing in audit files of early versions
            kept, now = kept | _field(path, lambda: read_mapping(about["files"])), now | settings
    names = [name for name in {**kept, **now} if kept.get(name) != now.get(name)]
    if not names:
        return Check("weights", True, f"the same SHA-256 of {', '.join(now)}")
    differences = "; ".join(
        f"{name} has SHA-256 {_short(now.get(name))}, kept was {_short(kept.get(name))}" for name in names
    )
    return Check("weights", False, differences)


def _short(digest: Any) -> str:
    return "none" if digest is None else f"{str(digest)[:12]}…"


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
        return _field(path, recompute)
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


def _surroundings(document: Mapping[str, Any], module: nn.Module) -> list[str]:
    """Differences of the environment that may change scores slightly."""
    kept, now = read_field(document, "computation", read_mapping), computation(module)
    versions = read_mapping(kept.get("versions") or {})
    pairs = [(name, kept.get(name), now[name]) for name in ("device", "dtype", "python")]
    pairs += [(name, versions.get(name), here) for name, here in now["versions"].items()]
    pairs.append(("revision", read_field(document, "model", read_mapping).get("revision"), revision_of(module)))
    return [one_line(f"{name} {here}, kept {before!s:.60}") for name, before, here in pairs if before != here]

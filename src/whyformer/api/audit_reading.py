"""Read an audit file, find the model that it is about, and compare its weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from torch import nn

from whyformer.api.audit import AUDIT_VERSION, computation, digests_of
from whyformer.api.record_comparison import Check
from whyformer.api.signatures import SIGNATURE, is_signed_by
from whyformer.errors import WhyformerError
from whyformer.files import parse_json
from whyformer.inputs.read import check_file
from whyformer.models.digests import MEMORY, module_digest, revision_of
from whyformer.models.loading import LoadedModel, load, resolve_model
from whyformer.models.placement import check_device
from whyformer.render.text_spans import one_line
from whyformer.results.schema import read_field, read_mapping, read_text
from whyformer.results.storage import AUDIT_FORMAT

MOST_AUDIT_BYTES = 1 << 28
FieldT = TypeVar("FieldT")


def read_audit(path: Path) -> dict[str, Any]:
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


def audit_field(path: Path, read: Callable[[], FieldT]) -> FieldT:
    """Return `read()`, or raise an error that names the file."""
    try:
        return read()
    except (WhyformerError, KeyError, TypeError, ValueError, OverflowError) as error:
        reason = str(error) if isinstance(error, WhyformerError) else f"{type(error).__name__}: {error}"
        raise WhyformerError(f"{str(path)!r} cannot be verified: {one_line(reason).removesuffix('.')}.") from error


def signature_check(document: Mapping[str, Any], key: str | Path) -> Check:
    if is_signed_by(document, key):
        return Check(SIGNATURE, True, f"of the whole file, by the key in {str(key)!r}")
    finding = (
        f"not by the key in {str(key)!r}, or the file was changed" if SIGNATURE in document else "the file has none"
    )
    return Check(SIGNATURE, False, finding)


def audit_model(path: Path, document: Mapping[str, Any], model: Any, processor: Any) -> LoadedModel:
    """The given or stored model, on the stored device and dtype if available."""
    if isinstance(model, (nn.Module, LoadedModel)):
        return resolve_model(model, processor)
    about = audit_field(path, lambda: read_field(document, "model", read_mapping))
    place = model or about.get("place")
    if not isinstance(place, (str, Path)):
        raise WhyformerError(f"{str(path)!r} explains your own module: pass it as model=….")
    machine = audit_field(path, lambda: read_field(document, "computation", read_mapping))
    dtype = audit_field(path, lambda: read_field(machine, "dtype", read_text))
    try:
        device = check_device(str(machine.get("device")))
    except WhyformerError:
        device = None
    loaded_model = load(place, device=device, dtype=dtype)  # type: ignore[arg-type]  # rejected if it is invalid
    return loaded_model if processor is None else resolve_model(loaded_model, processor)


def weight_check(path: Path, document: Mapping[str, Any], loaded_model: LoadedModel) -> Check:
    """Check the weights and all files read with them, or the tensors if digests are of these."""
    about = audit_field(path, lambda: read_field(document, "model", read_mapping))
    kept = audit_field(path, lambda: read_field(about, "weights", read_mapping))
    is_in_memory = MEMORY in kept
    if is_in_memory:
        now = {MEMORY: module_digest(loaded_model.model)}
    else:
        now, settings = digests_of(loaded_model)
        if "files" in about:  # missing in audit files of early versions
            kept, now = kept | audit_field(path, lambda: read_mapping(about["files"])), now | settings
    names = [name for name in {**kept, **now} if kept.get(name) != now.get(name)]
    if not names:
        return Check("weights", True, f"the same SHA-256 of {', '.join(now)}")
    differences = "; ".join(
        f"{name} has SHA-256 {_short(now.get(name))}, kept was {_short(kept.get(name))}" for name in names
    )
    return Check("weights", False, differences)


def _short(digest: Any) -> str:
    return "none" if digest is None else f"{str(digest)[:12]}…"


def surroundings(document: Mapping[str, Any], module: nn.Module) -> list[str]:
    """Differences of the environment that may change scores slightly."""
    kept, now = read_field(document, "computation", read_mapping), computation(module)
    versions = read_mapping(kept.get("versions") or {})
    pairs = [(name, kept.get(name), now[name]) for name in ("device", "dtype", "python")]
    pairs += [(name, versions.get(name), here) for name, here in now["versions"].items()]
    pairs.append(("revision", read_field(document, "model", read_mapping).get("revision"), revision_of(module)))
    return [one_line(f"{name} {here}, kept {before!s:.60}") for name, before, here in pairs if before != here]

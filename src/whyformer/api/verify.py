"""An audit file verified: the explanation computed again, and compared."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import nn

from whyformer.api.audit import VERSION, computation
from whyformer.api.explain import explain
from whyformer.errors import WhyformerError
from whyformer.inputs.identity import find_again
from whyformer.inputs.read import check_file
from whyformer.models.digests import MEMORY, weight_digests
from whyformer.models.loading import LoadedModel, load, resolve_model
from whyformer.models.placement import check_device
from whyformer.render.text import one_line, readable
from whyformer.results.explanation import Explanation
from whyformer.results.schema import (
    read_boolean,
    read_field,
    read_integer,
    read_list_of,
    read_mapping,
    read_number,
    read_text,
)
from whyformer.results.storage import AUDIT_FORMAT
from whyformer.targets.documents import read_target

MOST_BYTES = 1 << 28
Field = TypeVar("Field")


@dataclass(frozen=True)
class Check:
    """One thing that was compared: what it is called, whether it is as the audit file has it, and what was found."""

    name: str
    agrees: bool
    finding: str


@dataclass(frozen=True)
class Verification:
    """Whether an audit file holds, and what was compared.

    Attributes:
        checks: What was compared, in order: weights, input, target, probability, scores. Where the weights or the
            input are others, nothing is computed again, and the last three are missing.
        notes: What else is different here and may move scores a little: versions, the device.

    Example:
        >>> import tempfile, whyformer
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     whyformer.explain("A wonderful film.", "mini-bert").save(f"{folder}/film.audit.json")
        ...     verification = whyformer.verify(f"{folder}/film.audit.json")
        >>> [check.name for check in verification.checks if check.agrees]
        ['weights', 'input', 'target', 'probability', 'scores']
    """

    checks: tuple[Check, ...]
    notes: tuple[str, ...] = ()

    @property
    def agrees(self) -> bool:
        """Whether all that was compared is as the audit file has it."""
        return all(check.agrees for check in self.checks)

    def to_dict(self) -> dict[str, Any]:
        """The verification as plain data, for scripts."""
        return {"agrees": self.agrees, "checks": [vars(check) for check in self.checks], "notes": list(self.notes)}

    def __str__(self) -> str:
        width = max(len(check.name) for check in self.checks)
        lines = [f"{check.name:<{width}}  {'yes' if check.agrees else 'NO '}  {check.finding}" for check in self.checks]
        failures = [check.name for check in self.checks if not check.agrees]
        verdict = "verified" if self.agrees else f"not verified: {', '.join(failures)}"
        return readable("\n".join([*lines, *(f"note: {note}" for note in self.notes), verdict]))


def verify(
    audit: str | Path,
    *,
    inputs: Sequence[Any] = (),
    model: str | Path | nn.Module | LoadedModel | None = None,
    processor: Any = None,
    tolerance: float | None = None,
) -> Verification:
    """Compute an explanation again from its audit file, and say whether it is the same.

    Args:
        audit: The file, as `explanation.save("NAME.audit.json")` wrote it.
        inputs: The pictures, sounds or files that were explained, in order, where the audit file has only their
            digests, or they are no longer where they were.
        model: The model, where it is no longer where it was, or was a module of your own.
        processor: The tokenizer or image processor of a module of your own.
        tolerance: How far scores may be apart, as a share of the largest; unless given, what the audit file states.

    Returns:
        The Verification: print it, or read `agrees` and its `checks`.

    Raises:
        WhyformerError: If the file is no audit file, or the model or the input cannot be found.

    Example:
        >>> import tempfile, whyformer
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     whyformer.explain("A wonderful film.", "mini-bert").save(f"{folder}/film.audit.json")
        ...     print(whyformer.verify(f"{folder}/film.audit.json").agrees)
        True
    """
    path = Path(audit)
    document = _read(path)
    allowed = _field(path, lambda: read_field(document, "tolerance", read_number)) if tolerance is None else tolerance
    loaded_model = _model(path, document, model, processor)
    weights = _weights(path, document, loaded_model)
    example = _field(path, lambda: find_again(document.get("input"), inputs))
    finding = "; ".join(example.differences) or "the same SHA-256"
    checks = [weights, Check("input", not example.differences, finding)]
    if all(check.agrees for check in checks):
        checks += _compare(path, document, _explain_again(path, document, example.example, loaded_model), allowed)
    return Verification(tuple(checks), tuple(_surroundings(path, document, loaded_model.model)))


def _read(path: Path) -> dict[str, Any]:
    check_file(path)
    if path.stat().st_size > MOST_BYTES:
        raise WhyformerError(f"{str(path)!r} has more than {MOST_BYTES >> 20} MiB: it is no audit file.")
    try:
        document = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise WhyformerError(f"{str(path)!r} is no audit file: it is not JSON ({one_line(str(error))}).") from error
    if not isinstance(document, dict) or document.get("format") != AUDIT_FORMAT:
        raise WhyformerError(f"{str(path)!r} is no audit file: it does not say that its format is {AUDIT_FORMAT}.")
    if document.get("version") != VERSION:
        found = document.get("version")
        raise WhyformerError(f"{str(path)!r} is of version {found!r:.20}, and this Whyformer reads version {VERSION}.")
    return document


def _field(path: Path, read: Callable[[], Field]) -> Field:
    """What `read` gives, or what is wrong with the file in a line that names it."""
    try:
        return read()
    except (WhyformerError, KeyError, TypeError, ValueError) as error:
        reason = str(error) if isinstance(error, WhyformerError) else f"{type(error).__name__}: {error}"
        raise WhyformerError(f"{str(path)!r} cannot be verified: {one_line(reason).removesuffix('.')}.") from error


def _model(path: Path, document: Mapping[str, Any], model: Any, processor: Any) -> LoadedModel:
    """The model that is given or kept, where and in what it computed if this machine can."""
    if isinstance(model, (nn.Module, LoadedModel)):
        return resolve_model(model, processor)
    about = _field(path, lambda: read_field(document, "model", read_mapping))
    place = model or about.get("place")
    if not isinstance(place, (str, Path)):
        raise WhyformerError(f"{str(path)!r} is of a module of your own: give it by model=….")
    machine = _field(path, lambda: read_field(document, "computation", read_mapping))
    dtype = _field(path, lambda: read_field(machine, "dtype", read_text))
    try:
        device = check_device(str(machine.get("device")))
    except WhyformerError:
        device = None
    loaded_model = load(place, device=device, dtype=dtype)  # type: ignore[arg-type]  # refused if it is none
    return loaded_model if processor is None else resolve_model(loaded_model, processor)


def _weights(path: Path, document: Mapping[str, Any], loaded_model: LoadedModel) -> Check:
    """The weights by files, or in memory where they were kept so."""
    kept = _field(path, lambda: read_field(read_field(document, "model", read_mapping), "weights", read_mapping))
    now = weight_digests(loaded_model.model, None if MEMORY in kept else loaded_model.place)
    names = [name for name in {**kept, **now} if kept.get(name) != now.get(name)]
    if not names:
        return Check("weights", True, f"the same SHA-256 of {', '.join(now)}")
    found = "; ".join(
        f"{name} has SHA-256 {_short(now.get(name))}, kept was {_short(kept.get(name))}" for name in names
    )
    return Check("weights", False, found)


def _short(digest: Any) -> str:
    return "none" if digest is None else f"{str(digest)[:12]}…"


def _explain_again(path: Path, document: Mapping[str, Any], example: Any, loaded_model: LoadedModel) -> Explanation:
    question = _field(path, lambda: read_field(document, "question", read_mapping))
    kept = _field(path, lambda: read_field(document, "explanation", read_mapping))
    method = _field(path, lambda: read_field(kept, "method", read_text))
    options = _field(path, lambda: read_field(kept, "options", read_mapping))
    readout = question.get("readout")
    machine = _field(path, lambda: read_field(document, "computation", read_mapping))
    with torch.random.fork_rng():
        torch.manual_seed(_field(path, lambda: read_field(machine, "seed", read_integer)))
        return explain(
            example,
            loaded_model,
            _field(path, lambda: read_target(question.get("target"))),
            method,
            readout=torch.tensor(readout) if isinstance(readout, list) else readout,
            truncate=_field(path, lambda: read_field(question, "truncate", read_boolean)),
            **options,
        )


def _compare(path: Path, document: Mapping[str, Any], now: Explanation, tolerance: float) -> list[Check]:
    kept = read_mapping(document["explanation"])
    target = _field(path, lambda: read_field(kept, "target", read_text))
    was = kept.get("probability")
    return [
        Check("target", target == now.target, now.target if target == now.target else f"{now.target}, kept {target}"),
        _probability(was, now.probability, tolerance),
        _scores(_field(path, lambda: _kept_scores(kept)), now, tolerance),
    ]


def _probability(kept: Any, now: float | None, tolerance: float) -> Check:
    if kept is None or now is None:
        return Check("probability", kept is now, "none, as kept" if kept is now else f"{now}, kept {kept}")
    agrees = isinstance(kept, (int, float)) and abs(kept - now) <= tolerance
    return Check("probability", agrees, f"{now:.6f}, kept {kept!r:.20}")


def _kept_scores(kept: Mapping[str, Any]) -> dict[str, tuple[list[str], np.ndarray]]:
    parts = read_field(kept, "parts", read_mapping)
    return {
        name: (
            read_field(part, "tokens", read_list_of(read_text)),
            np.array(read_field(part, "scores", read_list_of(read_number)), dtype=np.float64),
        )
        for name, part in parts.items()
    }


def _scores(kept: Mapping[str, tuple[list[str], np.ndarray]], now: Explanation, tolerance: float) -> Check:
    """Every score, as far from the one that was kept as a share of the largest."""
    if kept.keys() != now.parts.keys():
        return Check("scores", False, f"of {', '.join(now.parts)}, kept were {', '.join(kept)}")
    largest = max((np.abs(scores).max(initial=0.0) for _, scores in kept.values()), default=0.0) or 1.0
    worst, where = -1.0, ""
    for name, (tokens, scores) in kept.items():
        part = now.parts[name]
        if tuple(tokens) != part.tokens or len(scores) != len(part.scores):
            return Check("scores", False, f"the tokens of {name} are others")
        apart = np.abs(scores - part.scores) / largest
        if len(apart) and not apart.max() <= worst:  # NaN is further than any number
            place = int(apart.argmax())
            worst, token = float(apart[place]), one_line(part.tokens[place])
            where = f"token {place + 1} of {name}, {token!r}: {part.scores[place]:.6g}, kept {scores[place]:.6g}"
    stated = f"{worst:.1e} of the largest score apart, {tolerance:g} is allowed"
    return Check("scores", worst <= tolerance, stated if worst <= tolerance else f"{stated}; {where}")


def _surroundings(path: Path, document: Mapping[str, Any], module: nn.Module) -> list[str]:
    """What is different here and may move scores a little."""
    kept, now = _field(path, lambda: read_field(document, "computation", read_mapping)), computation(module)
    versions = read_mapping(kept.get("versions") or {})
    pairs = [(name, kept.get(name), now[name]) for name in ("device", "dtype", "python")]
    pairs += [(name, versions.get(name), here) for name, here in now["versions"].items()]
    return [f"{name} {here}, kept {before}" for name, before, here in pairs if before != here]

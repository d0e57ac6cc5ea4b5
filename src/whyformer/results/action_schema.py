"""Serialise actions as plain data, and validate them on loading."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import numpy as np

from whyformer.errors import WhyformerError
from whyformer.files import parse_json, whole_file
from whyformer.inputs.action_sources import ActionSource, ActionSourceKind, Trust
from whyformer.inputs.conversation import ToolCall, call_of
from whyformer.render.action_page import action_page
from whyformer.render.text_spans import one_line, visible
from whyformer.results.action import Action, ActionTarget, ActionVerdict, TargetKind
from whyformer.results.response_schema import prompt_dict, read_prompt
from whyformer.results.schema import (
    or_none,
    read_field,
    read_integer,
    read_list_of,
    read_mapping,
    read_number,
    read_text,
    refuse_others,
)
from whyformer.results.storage import AUDIT
from whyformer.results.support import VerdictError

ACTION = "whyformer-action"
ACTION_VERSION = 1
MOST_ACTION_BYTES = 1 << 28
TARGET_NUMBERS = ("log_probability", "without_request", "without_untrusted", "without_both")
ACTION_FIELDS = (
    *("format", "version", "prompt", "call", "text", "targets", "sources", "effects", "verdict", "reason", "model"),
    *("driver", "driver_effect", "instead", "method", "token_scores", "contrast", "forwards", "notes"),
    *("tau", "calibration", "error"),
)


def action_dict(action: Action) -> dict[str, Any]:
    """Convert an action to JSON data."""
    return {
        "prompt": prompt_dict(action.prompt),
        "call": _call_dict(action.call),
        "text": action.text,
        "targets": [asdict(one) | {"tokens": list(one.tokens)} for one in action.targets],
        "sources": [asdict(one) | {"tokens": list(one.tokens)} for one in action.sources],
        "effects": [[value if np.isfinite(value) else None for value in row] for row in action.effects.tolist()],
        "verdict": action.verdict,
        "reason": action.reason,
        "model": action.model,
        "driver": list(action.driver),
        "driver_effect": action.driver_effect,
        "instead": action.instead,
        "method": action.method,
        "token_scores": None if action.token_scores is None else action.token_scores.tolist(),
        "contrast": None if action.contrast is None else _call_dict(action.contrast),
        "forwards": action.forwards,
        "notes": list(action.notes),
        "tau": action.tau,
        "calibration": action.calibration,
        "error": None if action.error is None else asdict(action.error),
    }


def action_document(action: Action) -> dict[str, Any]:
    """The action as in `to_dict`, preceded by its format."""
    return {"format": ACTION, "version": ACTION_VERSION, **action_dict(action)}


def _call_dict(call: ToolCall) -> dict[str, Any]:
    return {"name": call.name, "arguments": dict(call.arguments), "id": call.id}


def write_action(action: Action, path: Path) -> None:
    """Save as a page or as JSON, by the suffix."""
    suffix = path.suffix.lower()
    if suffix not in (".html", ".json"):
        raise WhyformerError(
            f"Cannot save to {visible(str(path))}: no format for {path.suffix!r}. Known: .html, .json, {AUDIT}."
        )
    if not path.parent.is_dir():
        folder = visible(str(path.parent))
        raise FileNotFoundError(f"Cannot save to {visible(str(path))}: the folder {folder} does not exist.")
    if path.name.lower().endswith(AUDIT):
        text = json.dumps(_audit(action), allow_nan=False, indent=1)
    elif suffix == ".html":
        text = action_page(action)
    else:
        text = json.dumps(action_document(action), allow_nan=False, ensure_ascii=False)
    with whole_file(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")


def _audit(action: Action) -> dict[str, Any]:
    if action.audit is None:
        raise WhyformerError(
            "Only what explain_action returns for a loaded model has an audit file, not actions from files or served "
            "models: save it as .json."
        )
    return action.audit(action)


def load_action(path: Path) -> Action:
    """Load a .json file written by `write_action`."""
    name = visible(str(path))
    if path.suffix.lower() != ".json":
        raise WhyformerError(f"Cannot load {name}: no format for {path.suffix!r}. Known: .json.")
    if path.stat().st_size > MOST_ACTION_BYTES:
        raise WhyformerError(f"{name} has more than {MOST_ACTION_BYTES >> 20} MiB: not an action.")
    try:
        return read_action(parse_json(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError, KeyError) as problem:
        raise WhyformerError(f"{name} is not a readable Whyformer action ({one_line(str(problem)):.300}).") from problem


def read_action(document: Any) -> Action:
    """Restore an action, validating every field."""
    refuse_others(read_mapping(document), ACTION_FIELDS)
    if document.get("format") != ACTION or document.get("version") != ACTION_VERSION:
        raise WhyformerError(f"it does not say that it is {ACTION} of version {ACTION_VERSION}")
    contrast, scores = document.get("contrast"), document.get("token_scores")
    sources = tuple(read_field(document, "sources", read_list_of(_source)))
    driver = tuple(read_field(document, "driver", read_list_of(read_integer)))
    parents = [one.parent for one in sources if one.parent is not None]
    if any(not 0 <= number < len(sources) for number in (*driver, *parents)):
        raise WhyformerError(f"it names a source other than 0 to {len(sources) - 1}")
    return Action(
        prompt=read_prompt(read_field(document, "prompt", read_mapping)),
        call=call_of(read_field(document, "call", read_mapping)),
        text=read_field(document, "text", read_text),
        targets=tuple(read_field(document, "targets", read_list_of(_target))),
        sources=sources,
        effects=_table(read_field(document, "effects", read_list_of(read_list_of(or_none(read_number))))),
        verdict=_one_of(document.get("verdict"), ActionVerdict),
        reason=read_field(document, "reason", read_text),
        model=read_field(document, "model", read_text),
        driver=driver,
        driver_effect=or_none(read_number)(document.get("driver_effect")),
        instead=or_none(read_text)(document.get("instead")),
        method=read_field(document, "method", read_text),
        token_scores=None if scores is None else _table(read_list_of(read_list_of(read_number))(scores)),
        contrast=None if contrast is None else call_of(contrast),
        forwards=read_field(document, "forwards", read_integer),
        notes=tuple(read_field(document, "notes", read_list_of(read_text))),
        tau=read_field(document, "tau", read_number),
        calibration=read_field(document, "calibration", read_text),
        error=or_none(_verdict_error)(document.get("error")),
    )


def _verdict_error(document: Any) -> VerdictError:
    refuse_others(read_mapping(document), ("rate", "low", "high", "count"))
    rate, low, high = (read_field(document, name, read_number) for name in ("rate", "low", "high"))
    return VerdictError(rate, low, high, read_field(document, "count", read_integer))


def _target(document: Any) -> ActionTarget:
    names = ("kind", "name", "start", "end", "text", "tokens", "verdict", *TARGET_NUMBERS)
    refuse_others(read_mapping(document), names)
    numbers: dict[str, Any] = {name: read_field(document, name, read_number) for name in TARGET_NUMBERS}
    return ActionTarget(
        kind=_one_of(document.get("kind"), TargetKind),
        verdict=_one_of(document.get("verdict"), ActionVerdict),
        **_range(document),
        **numbers,
    )


def _source(document: Any) -> ActionSource:
    names = ("kind", "name", "trust", "parent", "start", "end", "text", "tokens")
    refuse_others(read_mapping(document), names)
    return ActionSource(
        kind=_one_of(document.get("kind"), ActionSourceKind),
        trust=_one_of(document.get("trust"), Trust),
        parent=or_none(read_integer)(document.get("parent")),
        **_range(document),
    )


def _range(document: Any) -> dict[str, Any]:
    readers: dict[str, Callable[[Any], Any]] = {
        "name": read_text,
        "start": read_integer,
        "end": read_integer,
        "text": read_text,
        "tokens": read_list_of(read_integer),
    }
    fields = {name: read_field(document, name, reader) for name, reader in readers.items()}
    return fields | {"tokens": tuple(fields["tokens"])}


def _one_of(value: Any, choices: Any) -> Any:
    if value not in get_args(choices):
        raise WhyformerError(f"{value!r:.40} is not one of {', '.join(get_args(choices))}")
    return value


def _table(rows: Sequence[Sequence[float | None]]) -> np.ndarray:
    if len(set(map(len, rows))) > 1:
        raise WhyformerError("it has rows of different lengths")
    return np.array(rows, dtype=np.float32).reshape(len(rows), -1 if rows and rows[0] else 0)

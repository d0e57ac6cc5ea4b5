"""Serialise targets as plain data."""

from __future__ import annotations

from typing import Any

from whyformer.errors import WhyformerError
from whyformer.targets.scores import Contrast, Detection, Moment, Pixel, PlacedLabel, Region, Target

_KINDS = {kind.__name__: kind for kind in (Contrast, Detection, Moment, Pixel, PlacedLabel, Region)}


def target_document(target: Target) -> Any:
    """Convert a target to JSON data; a custom function is stored by name only."""
    if callable(target):
        return {"kind": "function", "name": getattr(target, "__qualname__", type(target).__name__)}
    if type(target) in _KINDS.values():
        return {"kind": type(target).__name__} | {name: target_document(value) for name, value in vars(target).items()}
    if isinstance(target, range):
        return {"kind": "range", "ends": [target.start, target.stop, target.step]}
    return list(target) if isinstance(target, tuple) else target


def read_target(document: Any) -> Any:
    """Restore a target written by `target_document`."""
    if not isinstance(document, dict):
        return tuple(document) if isinstance(document, list) else document
    fields = {name: read_target(value) for name, value in document.items() if name != "kind"}
    match document.get("kind"):
        case "function":
            name = document.get("name")
            raise WhyformerError(f"its target was a custom function ({name}), which a file cannot store")
        case "range":
            return range(*fields["ends"])
        case str(kind) if kind in _KINDS:
            return _KINDS[kind](**fields)
    raise WhyformerError(f"its target is {document!r:.60}, which is not a kind of target")

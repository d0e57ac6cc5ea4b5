"""Differences of two models as files: .json, .html."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from whyformer.errors import WhyformerError
from whyformer.files import parse_json, whole_file
from whyformer.render.diff_page import diff_page
from whyformer.surveys.model_diff import ModelDiff
from whyformer.surveys.plain_data import read_noun, saved_suffix, without_nan

DIFF_FORMAT, DIFF_VERSION = "whyformer-diff", 1
DIFF_SUFFIXES = (".html", ".json")


def save_diff(result: ModelDiff, path: Path) -> None:
    """Save in the format of the suffix, atomically."""
    suffix = saved_suffix(path, DIFF_SUFFIXES)
    document = without_nan({"format": DIFF_FORMAT, "version": DIFF_VERSION, **dataclasses.asdict(result)})
    with whole_file(path) as unfinished:
        if suffix == ".json":
            unfinished.write_text(json.dumps(document, allow_nan=False, indent=1), encoding="utf-8")
        else:
            changed = len(result.changed_cues)  # the first of the cues
            unfinished.write_text(diff_page(document, result.overview, changed), encoding="utf-8")


def load_diff(path: Path) -> ModelDiff:
    """Load a .json file."""
    content = path.read_bytes()
    try:
        document = parse_json(content)
        if not isinstance(document, dict) or document.get("format") != DIFF_FORMAT:
            raise WhyformerError("it is not a difference of two models")
        if document.get("version") != DIFF_VERSION:
            raise WhyformerError(f"version {document.get('version')!r:.20}, and this is Whyformer for {DIFF_VERSION}")
        own = {name: value for name, value in document.items() if name not in ("format", "version")}
        return read_noun(ModelDiff, own)
    except (WhyformerError, ValueError, TypeError, KeyError) as error:
        reason = str(error) if isinstance(error, WhyformerError) else f"{type(error).__name__}: {error!s:.200}"
        raise WhyformerError(f"{str(path)!r} is not a readable difference of two models ({reason}).") from error

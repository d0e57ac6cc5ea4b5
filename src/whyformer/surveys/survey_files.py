"""Surveys as plain data, and their files: .json, .parquet, .html."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from whyformer.errors import WhyformerError
from whyformer.extras import extra
from whyformer.files import parse_json, whole_file
from whyformer.metrics.statistics import Interval
from whyformer.render.survey_page import survey_page
from whyformer.surveys.cues import members_of
from whyformer.surveys.plain_data import read_noun, saved_suffix, without_nan
from whyformer.surveys.proof import FEWEST_SAMPLES
from whyformer.surveys.summary import overview
from whyformer.surveys.survey_result import Driver, Survey

SURVEY_FORMAT, SURVEY_VERSION = "whyformer-survey", 1
SURVEY_SUFFIXES = (".html", ".json", ".parquet")


def survey_dict(survey: Survey) -> dict[str, Any]:
    """A survey as numbers, strings, lists and dicts; NaN as None."""
    document = {"format": SURVEY_FORMAT, "version": SURVEY_VERSION, **dataclasses.asdict(survey)}
    plain: dict[str, Any] = without_nan(document)
    return plain


def read_survey(document: Any) -> Survey:
    """The survey of such a dict; raise if it is not one."""
    if not isinstance(document, dict) or document.get("format") != SURVEY_FORMAT:
        raise WhyformerError("it is not a Whyformer survey")
    if document.get("version") != SURVEY_VERSION:
        raise WhyformerError(f"version {document.get('version')!r:.20}, and this is Whyformer for {SURVEY_VERSION}")
    return read_noun(Survey, {name: value for name, value in document.items() if name not in ("format", "version")})


def driver_row(driver: Driver) -> dict[str, Any]:
    """A driver as a row of a table."""
    proof = driver.proof
    row: dict[str, Any] = {
        "cue": driver.cue.name,
        "kind": driver.cue.kind,
        "answer": driver.answer,
        "support": driver.support,
        "score": driver.score,
        "leading": driver.leading,
        "wrong": driver.wrong,
        "tested": proof.samples,
    }
    for name in ("drop", "excess", "probability", "flips"):
        interval: Interval = getattr(proof, name)
        row |= {name: interval.value, f"{name}_low": interval.low, f"{name}_high": interval.high}
    return row | {
        "random_flips": proof.random_flips,
        "p": proof.p,
        "q": proof.q,
        "proven": proof.is_proven,
        "should_be_ignored": driver.should_be_ignored,
        "background": driver.background,
        "label_here": None if driver.relation is None else driver.relation.here,
        "label_held_out": None if driver.relation is None else driver.relation.elsewhere,
        "shortcut": driver.is_shortcut,
    }


def save_survey(survey: Survey, path: Path) -> None:
    """Save in the format of the suffix, atomically."""
    suffix = saved_suffix(path, SURVEY_SUFFIXES)
    with whole_file(path) as unfinished:
        if suffix == ".parquet":
            rows = [driver_row(driver) for driver in survey.tested]
            extra("pyarrow.parquet").write_table(extra("pyarrow").Table.from_pylist(rows), unfinished)
        elif suffix == ".json":
            unfinished.write_text(json.dumps(survey_dict(survey), allow_nan=False, indent=1), encoding="utf-8")
        else:
            unfinished.write_text(survey_page(_page_document(survey), overview(survey)), encoding="utf-8")


def _page_document(survey: Survey) -> dict[str, Any]:
    """The survey as a dict, with whether each proof holds or had too few samples, and the names of several cues."""
    document = survey_dict(survey)
    proofs = [one.proof for one in survey.tested] + [one.proof for one in survey.failures]
    for row, proof in zip((*document["tested"], *document["failures"]), proofs, strict=True):
        if proof is not None:
            row["proof"] |= {"proven": proof.is_proven, "too_few": proof.samples < FEWEST_SAMPLES}
    for row, group in zip(document["failures"], survey.failures, strict=True):
        if group.cue is not None:
            row["cue"]["members"] = [dataclasses.asdict(member) for member in members_of(group.cue)]
    return document


def load_survey(path: Path) -> Survey:
    """Load a .json file."""
    content = path.read_bytes()
    try:
        return read_survey(parse_json(content))
    except (WhyformerError, ValueError, TypeError, KeyError) as error:
        reason = str(error) if isinstance(error, WhyformerError) else f"{type(error).__name__}: {error!s:.200}"
        raise WhyformerError(f"{str(path)!r} is not a readable Whyformer survey ({reason}).") from error

"""A readable page of an audit file, for people who do not read JSON: one page to print."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from whyformer.render.coverage import percent
from whyformer.render.html import render_page
from whyformer.render.text_spans import number, readable, visible

if TYPE_CHECKING:
    from whyformer.api.verify import Verification

STRONGEST = 5  # tokens of a part that the page names
MOST_OF_LIST = 8  # of a list that the page shows
LONGEST_VALUE = 300  # characters of a value
# The sections of the file in the order of the page, with their titles.
SECTIONS = {
    "input": "Input",
    "question": "Which answer",
    "model": "Model",
    "computation": "Computation",
    "doctor": "Doctor: can the method follow this model",
    "controls": "The method on sanity controls",
    "explanation": "Result",
    "response": "Result",
}
HIDDEN = ("tokens", "scores", "parts", "dtype", "shape")  # shown as the strongest tokens


def audit_record_page(document: Mapping[str, Any], verification: Verification | None = None) -> str:
    """Render an audit file, and the outcome of its verification if there was one."""
    outcome = document.get("explanation") or document.get("response") or {}
    sections = [
        {"title": title, "rows": list(_rows(document[name]))}
        for name, title in SECTIONS.items()
        if isinstance(document.get(name), Mapping)
    ]
    checks = () if verification is None else verification.checks
    return render_page(
        "audit_record.html.j2",
        [],
        title=_title(outcome),
        created=readable(str(document.get("created", ""))),
        is_verified=None if verification is None else verification.agrees,
        checks=[(check.name, check.agrees, readable(check.finding)) for check in checks],
        not_checked=() if verification is None else verification.not_checked,
        strongest=list(_strongest(outcome)),
        sections=[section for section in sections if section["rows"]],
    )


def _title(outcome: Mapping[str, Any]) -> str:
    target, probability = outcome.get("target"), outcome.get("probability")
    if not isinstance(target, str):
        return "Audit record of a response"
    share = f" {percent(probability)}" if isinstance(probability, float | int) else ""
    return f"Audit record: {visible(target.strip() or target)}{share}"


def _strongest(outcome: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Part, token and score of the strongest tokens."""
    parts = outcome.get("parts")
    for name, part in parts.items() if isinstance(parts, Mapping) else ():
        scores, tokens = part.get("scores"), part.get("tokens")
        if not _are_numbers(scores) or not isinstance(tokens, Sequence) or len(tokens) != len(scores):
            continue
        for token in sorted(range(len(scores)), key=lambda one: -abs(scores[one]))[:STRONGEST]:
            yield name, visible(str(tokens[token])), number(scores[token])


def _are_numbers(values: Any) -> bool:
    return isinstance(values, list) and bool(values) and all(isinstance(one, float | int) for one in values)


def _rows(section: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """The fields of a section as names and texts, nested ones below each other."""
    for name, value in section.items():
        title = f"{prefix}{name}".replace("_", " ")
        if name in HIDDEN or value in ({}, [], None, ""):
            continue
        if isinstance(value, Mapping):
            yield from _rows(value, f"{title} · ")
        elif isinstance(value, list) and all(isinstance(one, Mapping) for one in value):
            for one in value[:MOST_OF_LIST]:
                yield title, _cut(", ".join(f"{key} {_text(each)}" for key, each in one.items()))
        elif isinstance(value, list):
            more = f" and {len(value) - MOST_OF_LIST} more" if len(value) > MOST_OF_LIST else ""
            yield title, _cut(", ".join(map(_text, value[:MOST_OF_LIST]))) + more
        else:
            yield title, _cut(_text(value))


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return number(value) if isinstance(value, float) else readable(str(value))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]} …"

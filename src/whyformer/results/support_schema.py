"""Serialise verdicts as plain data, and validate them on loading."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, get_args

from whyformer.errors import WhyformerError
from whyformer.inputs.sources import Source
from whyformer.inputs.verdicts import VERDICTS, Verdict
from whyformer.results.schema import (
    read_field,
    read_integer,
    read_list_of,
    read_mapping,
    read_number,
    read_text,
    refuse_others,
)
from whyformer.results.support import (
    Citation,
    CitationStatus,
    SourceFigures,
    Support,
    UnitSupport,
    ValueFigures,
    Variant,
    VerdictError,
)

UNIT_NUMBERS = ("log_probability", "without_sources", "lowest", "largest_gain")
UNIT_OPTIONAL = (
    *("without_earlier", "own_log_probability", "judgement", "judgement_without", "score", "carrying_necessity"),
    "carrying_judgement",
)
UNIT_FIELDS = (
    *("start", "end", "text", "tokens", "verdict", "reason", "own_answer", "sources", "carrying", "probabilities"),
    *("error", "citations", "uncited", "own_tokens", "rival", "denial", "value", "answers", *UNIT_NUMBERS),
    *UNIT_OPTIONAL,
)
VALUE_OPTIONAL = ("score", "share", "stated", "said_before")
SUPPORT_FIELDS = ("units", "sources", "forwards", "full_forwards", "calibration", "notes")


def support_dict(support: Support) -> dict[str, Any]:
    """Convert verdicts to JSON data."""
    document: dict[str, Any] = _lists(asdict(support))
    return document


def _lists(value: Any) -> Any:
    """The same with lists for tuples."""
    if isinstance(value, dict):
        return {name: _lists(one) for name, one in value.items()}
    return [_lists(one) for one in value] if isinstance(value, (list, tuple)) else value


def read_support(document: Any, read_source: Callable[[Any], Source]) -> Support:
    """Restore verdicts, validating every field."""
    refuse_others(read_mapping(document), SUPPORT_FIELDS)
    sources = tuple(read_field(document, "sources", read_list_of(read_source)))
    support = Support(
        units=tuple(read_field(document, "units", read_list_of(read_unit))),
        sources=sources,
        forwards=read_field(document, "forwards", read_integer),
        full_forwards=read_field(document, "full_forwards", read_integer),
        calibration=read_field(document, "calibration", read_text),
        notes=tuple(read_field(document, "notes", read_list_of(read_text))),
    )
    numbers = [
        number
        for unit in support.units
        for number in (*unit.carrying, *unit.uncited, *(one.source for one in unit.sources))
    ]
    numbers += [one.source for unit in support.units for one in unit.citations if one.source is not None]
    if any(not 0 <= number < len(sources) for number in numbers):
        raise WhyformerError(f"its verdicts name a source other than 0 to {len(sources) - 1}")
    return support


def read_unit(document: Any) -> UnitSupport:
    """Restore the verdict on a unit."""
    refuse_others(read_mapping(document), UNIT_FIELDS)
    numbers: dict[str, Any] = {name: read_field(document, name, read_number) for name in UNIT_NUMBERS}
    numbers |= {name: _number_or_none(document.get(name)) for name in UNIT_OPTIONAL}
    verdict: Verdict = read_field(document, "verdict", _verdict)
    own, error = document.get("own_answer"), document.get("error")
    own_tokens, value = document.get("own_tokens"), document.get("value")
    return UnitSupport(
        start=read_field(document, "start", read_integer),
        end=read_field(document, "end", read_integer),
        text=read_field(document, "text", read_text),
        tokens=read_field(document, "tokens", _positive),
        verdict=verdict,
        reason=read_field(document, "reason", read_text),
        own_answer=None if own is None else read_text(own),
        sources=tuple(read_field(document, "sources", read_list_of(_figures))),
        carrying=tuple(read_field(document, "carrying", read_list_of(read_integer))),
        probabilities={
            _verdict(name): read_number(value)
            for name, value in read_field(document, "probabilities", read_mapping).items()
        },
        error=None if error is None else _error(error),
        citations=tuple(read_field(document, "citations", read_list_of(_citation))),
        uncited=tuple(read_field(document, "uncited", read_list_of(read_integer))),
        own_tokens=None if own_tokens is None else read_integer(own_tokens),
        rival=_variant(document.get("rival")),
        denial=_variant(document.get("denial")),
        value=None if value is None else _value(value),
        answers={read_text(name): read_number(one) for name, one in read_mapping(document.get("answers", {})).items()},
        **numbers,
    )


def _variant(document: Any) -> Variant | None:
    if document is None:
        return None
    refuse_others(read_mapping(document), ("text", "log_probability", "without_sources"))
    text, value = read_field(document, "text", read_text), read_field(document, "log_probability", read_number)
    return Variant(text, value, _number_or_none(document.get("without_sources")))


def _value(document: Any) -> ValueFigures:
    names = ("log_probability", "without_sources")
    refuse_others(read_mapping(document), ("tokens", *names, *VALUE_OPTIONAL))
    values = (read_field(document, name, read_number) for name in names)
    scores = (_number_or_none(document.get(name)) for name in VALUE_OPTIONAL)
    return ValueFigures(read_field(document, "tokens", _positive), *values, *scores)


def _figures(document: Any) -> SourceFigures:
    names = ("necessity", "sufficiency", "score", "judgement")
    refuse_others(read_mapping(document), ("source", *names))
    return SourceFigures(
        read_field(document, "source", read_integer), *(_number_or_none(document.get(name)) for name in names)
    )


def _error(document: Any) -> VerdictError:
    refuse_others(read_mapping(document), ("rate", "low", "high", "count"))
    rate, low, high = (read_field(document, name, read_number) for name in ("rate", "low", "high"))
    return VerdictError(rate, low, high, read_field(document, "count", read_integer))


def _citation(document: Any) -> Citation:
    refuse_others(read_mapping(document), ("marker", "source", "status"))
    source, status = document.get("source"), document.get("status")
    if status not in get_args(CitationStatus):
        raise WhyformerError(f"a citation has the status {status!r:.40}")
    return Citation(read_field(document, "marker", read_text), None if source is None else read_integer(source), status)


def _verdict(value: Any) -> Any:
    if value not in VERDICTS:
        raise WhyformerError(f"a verdict is {value!r:.40}, not one of {', '.join(VERDICTS)}")
    return value


def _positive(value: Any) -> int:
    number = read_integer(value)
    if number < 1:
        raise WhyformerError(f"a unit has {number} tokens")
    return number


def _number_or_none(value: Any) -> float | None:
    return None if value is None else read_number(value)

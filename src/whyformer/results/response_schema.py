"""Serialise responses as plain data, and validate them on loading."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from whyformer.errors import WhyformerError
from whyformer.inputs.prompt import Message, Prompt, PromptDocument
from whyformer.inputs.prompt_tokens import Token
from whyformer.inputs.sources import Source
from whyformer.inputs.spans import Span
from whyformer.results.response import Response
from whyformer.results.response_parts import PartScores, ResponseToken, Sinks
from whyformer.results.schema import (
    FILE_FIELDS,
    as_json,
    layout_dict,
    or_none,
    read_boolean,
    read_field,
    read_integer,
    read_layout,
    read_list_of,
    read_mapping,
    read_number,
    read_offsets,
    read_text,
    refuse_others,
)
from whyformer.results.support_schema import read_support, support_dict

RESPONSE_FIELDS = (
    *FILE_FIELDS,
    *("prompt", "text", "tokens", "rows", "sources", "scores", "token_scores", "earlier", "focus", "parts", "sinks"),
    *("aggregate", "leaves_out_sinks", "method", "model", "options", "notes", "seed"),
    "verdicts",
)
TOKEN_FIELDS = ("ids", "texts", "offsets", "special")
ARRAYS = ("scores", "token_scores", "earlier", "focus")  # all but the first may be None


def response_dict(response: Response) -> dict[str, Any]:
    """Convert a response to JSON data, without pixels and samples."""
    arrays = {name: getattr(response, name) for name in ARRAYS}
    return {
        "prompt": prompt_dict(response.prompt),
        "text": response.text,
        "tokens": {
            **_columns(response.tokens),
            "log_probabilities": [token.log_probability for token in response.tokens],
            "entropies": [token.entropy for token in response.tokens],
            "ranks": [token.rank for token in response.tokens],
            "alternatives": [[list(one) for one in token.alternatives] for token in response.tokens],
        },
        "rows": [asdict(row) | {"tokens": list(row.tokens)} for row in response.rows],
        "sources": [asdict(source) | {"tokens": list(source.tokens)} for source in response.sources],
        **{name: None if values is None else values.tolist() for name, values in arrays.items()},
        "parts": {
            name: layout_dict(part.layout) | {"scores": part.scores.tolist()} for name, part in response.parts.items()
        },
        "sinks": [asdict(sinks) for sinks in response.sinks],
        "aggregate": response.aggregate,
        "leaves_out_sinks": response.leaves_out_sinks,
        "method": response.method,
        "model": response.model,
        "options": {name: as_json(value) for name, value in response.options.items()},
        "notes": list(response.notes),
        "seed": response.seed,
        "verdicts": None if response.verdicts is None else support_dict(response.verdicts),
    }


def prompt_dict(prompt: Prompt) -> dict[str, Any]:
    """Convert a prompt to JSON data."""
    return {
        "text": prompt.text,
        "rendered": prompt.rendered,
        "messages": [asdict(message) for message in prompt.messages],
        "documents": [asdict(document) for document in prompt.documents],
        **({"places": [list(place) for place in prompt.places]} if prompt.places else {}),
        "tokens": _columns(prompt.tokens),
    }


def read_prompt(prompt: Any) -> Prompt:
    """Restore a prompt."""
    refuse_others(prompt, ("text", "rendered", "messages", "documents", "places", "tokens"))
    return Prompt(
        text=read_field(prompt, "text", read_text),
        tokens=tuple(Token(**fields) for fields in read_field(prompt, "tokens", _prompt_tokens)),
        rendered=read_field(prompt, "rendered", read_text),
        messages=tuple(read_field(prompt, "messages", read_list_of(_message))),
        documents=tuple(read_field(prompt, "documents", read_list_of(_document))),
        places=tuple(read_list_of(read_offsets)(prompt.get("places", []))),  # absent without tools
    )


def _columns(tokens: Sequence[Token | ResponseToken]) -> dict[str, list[Any]]:
    return {
        "ids": [token.id for token in tokens],
        "texts": [token.text for token in tokens],
        "offsets": [[token.start, token.end] for token in tokens],
        "special": [token.is_special for token in tokens],
    }


def read_response(document: Any) -> Response:
    """Restore a response from a document with scores as arrays or lists of lists, validating every field."""
    prompt = read_field(document, "prompt", read_mapping)
    refuse_others(document, RESPONSE_FIELDS)
    verdicts = document.get("verdicts")  # absent from older files
    return Response(
        prompt=read_prompt(prompt),
        text=read_field(document, "text", read_text),
        tokens=tuple(_response_tokens(read_field(document, "tokens", read_mapping))),
        rows=tuple(read_field(document, "rows", read_list_of(_span))),
        sources=tuple(read_field(document, "sources", read_list_of(read_source))),
        scores=read_field(document, "scores", _array),
        token_scores=read_field(document, "token_scores", _array_or_none),
        parts={
            read_text(name): PartScores(read_layout(part), read_field(part, "scores", _array))
            for name, part in read_mapping(document.get("parts", {})).items()  # absent from older files
        },
        earlier=read_field(document, "earlier", _array_or_none),
        focus=_array_or_none(document.get("focus")),  # absent from older files
        sinks=tuple(read_field(document, "sinks", read_list_of(_sinks))),
        aggregate=read_field(document, "aggregate", read_text),  # type: ignore[arg-type]  # checked when it is used
        leaves_out_sinks=read_field(document, "leaves_out_sinks", read_boolean),
        method=read_field(document, "method", read_text),
        model=read_field(document, "model", read_text),
        options=read_field(document, "options", read_mapping),
        notes=tuple(read_field(document, "notes", read_list_of(read_text))),
        seed=or_none(read_integer)(document.get("seed")),
        verdicts=None if verdicts is None else read_support(verdicts, read_source),
    )


def _rows(columns: dict[str, Any]) -> list[dict[str, Any]]:
    """Transpose the columns of tokens to one dict per token."""
    ids, texts = read_field(columns, "ids", read_list_of(read_integer)), read_field(columns, "texts", _texts)
    offsets = read_field(columns, "offsets", read_list_of(read_offsets))
    special = read_field(columns, "special", read_list_of(read_boolean))
    if not len(ids) == len(texts) == len(offsets) == len(special):
        raise WhyformerError(f"its tokens have {len(ids)} ids, {len(texts)} texts and {len(offsets)} offsets")
    return [
        {"id": token, "text": text, "start": start, "end": end, "is_special": is_special}
        for token, text, (start, end), is_special in zip(ids, texts, offsets, special, strict=True)
    ]


def _prompt_tokens(columns: Any) -> list[dict[str, Any]]:
    refuse_others(read_mapping(columns), TOKEN_FIELDS)
    return _rows(columns)


def _response_tokens(columns: dict[str, Any]) -> list[ResponseToken]:
    refuse_others(columns, (*TOKEN_FIELDS, "log_probabilities", "entropies", "ranks", "alternatives"))
    rows = _rows(columns)
    log_probabilities = read_field(columns, "log_probabilities", read_list_of(read_number))
    entropies = read_field(columns, "entropies", read_list_of(or_none(read_number)))
    ranks = read_field(columns, "ranks", read_list_of(or_none(read_integer)))
    others_of = columns.get("alternatives", [[]] * len(rows))  # absent from older files
    alternatives = read_list_of(read_list_of(_alternative))(others_of)
    if not len(rows) == len(log_probabilities) == len(entropies) == len(ranks) == len(alternatives):
        raise WhyformerError(f"its {len(rows)} tokens have {len(ranks)} ranks and {len(entropies)} entropies")
    figures = zip(log_probabilities, entropies, ranks, alternatives, strict=True)
    return [
        ResponseToken(**fields, log_probability=likelihood, entropy=entropy, rank=rank, alternatives=tuple(others))
        for fields, (likelihood, entropy, rank, others) in zip(rows, figures, strict=True)
    ]


def _alternative(value: Any) -> tuple[str, float]:
    text, probability = value
    return read_text(text), read_number(probability)


def _texts(value: Any) -> list[str]:
    return read_list_of(read_text)(value)


def _place(document: Any, *others: str) -> dict[str, int]:
    refuse_others(read_mapping(document), ("start", "end", *others))
    return {name: read_field(document, name, read_integer) for name in ("start", "end")}


def _message(document: Any) -> Message:
    return Message(read_field(document, "role", read_text), **_place(document, "role"))


def _document(document: Any) -> PromptDocument:
    return PromptDocument(read_field(document, "name", read_text), **_place(document, "name"))


def _span(document: Any, *others: str) -> Span:
    tokens = tuple(read_field(document, "tokens", read_list_of(read_integer)))
    return Span(
        **_place(document, "text", "tokens", *others), text=read_field(document, "text", read_text), tokens=tokens
    )


def read_source(document: Any) -> Source:
    """Restore a source."""
    kind, name = (read_field(document, key, read_text) for key in ("kind", "name"))
    span = _span(document, "kind", "name")
    return Source(kind, name, span.start, span.end, span.text, span.tokens)


def _sinks(document: Any) -> Sinks:
    refuse_others(read_mapping(document), ("first_token", "special", "earlier"))
    return Sinks(**{name: read_field(document, name, read_number) for name in ("first_token", "special", "earlier")})


def _array(value: Any) -> np.ndarray:
    if isinstance(value, np.ndarray):
        return value
    rows = read_list_of(read_list_of(read_number))(value)
    if len(set(map(len, rows))) > 1:
        raise TypeError("rows of different lengths, not a table")
    return np.array(rows, dtype=np.float32).reshape(len(rows), -1 if rows and rows[0] else 0)


def _array_or_none(value: Any) -> np.ndarray | None:
    return None if value is None else _array(value)

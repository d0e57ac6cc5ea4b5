"""Logs of answers to check: question, documents and answer; chat messages; or spans of OpenInference and OTel."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whyformer.errors import WhyformerError
from whyformer.files import parse_json

ANSWER_FIELDS = ("question", "documents", "answer", "id", "labels")
MESSAGE_FIELDS = ("messages", "id", "labels")
# Flat attributes of spans: OpenInference's, with the parts of a content, and those of OpenLLMetry.
_MESSAGE_KEYS = (
    re.compile(r"llm\.(input|output)_messages\.(\d+)\.message\.(role|content)$"),
    re.compile(r"llm\.(input|output)_messages\.(\d+)\.message\.(contents)\.\d+\.message_content\.text$"),
    re.compile(r"gen_ai\.(prompt|completion)\.(\d+)\.(role|content)$"),
)
_OUTPUTS = ("output", "completion")
_PREFIX = "attributes."  # of the columns of a table of spans


@dataclass(frozen=True)
class LoggedAnswer:
    """An answer of a log.

    Attributes:
        number: Its place in the log, from 1.
        name: Its id, or its place.
        prompt: The question, or the messages before the answer.
        documents: The documents of a question; None with messages.
        answer: The answer.
        labels: For each sentence whether it is supported, where the log says so.
        text: The row as it was read, for digests.
    """

    number: int
    name: str
    prompt: Any
    documents: tuple[Any, ...] | None
    answer: str
    labels: tuple[bool, ...] | None
    text: str


def read_support_log(path: Path) -> tuple[list[LoggedAnswer], list[str]]:
    """Read a log; return its answers, and an error for each row that has none."""
    try:
        content = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise WhyformerError(f"The log {str(path)!r} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise WhyformerError(f"The log {str(path)!r} is not UTF-8 text (byte {error.start}).") from error
    answers, errors = [], []
    for number, (row, problem) in enumerate(_rows(content), start=1):
        try:
            if problem:
                raise WhyformerError(problem)
            answers.append(_answer(number, row))
        except WhyformerError as error:
            errors.append(f"row {number}: {error}")
    if not answers:
        reason = errors[0] if errors else "there is nothing to check."
        raise WhyformerError(f"The log {str(path)!r} has no answers: {reason}")
    return answers, errors


def _rows(content: str) -> Iterator[tuple[Any, str]]:
    """The rows of JSON Lines, of a list or of an OTLP export, without spans that call no model."""
    try:
        whole = parse_json(content)
    except ValueError:
        for line in content.splitlines():
            if line.strip():
                try:
                    yield from ((row, "") for row in _spread(parse_json(line)))
                except ValueError as error:
                    yield None, f"not JSON ({error})."
        return
    yield from ((row, "") for one in (whole if isinstance(whole, list) else [whole]) for row in _spread(one))


def _spread(row: Any) -> Iterator[Any]:
    """The spans of an OTLP document, or the row itself; spans that call no model are left out."""
    spans = list(_otlp_spans(row)) if isinstance(row, Mapping) and "resourceSpans" in row else [row]
    for one in spans:
        attributes = _attributes(one)
        if attributes is None or any(map(_is_of_a_model, attributes)):
            yield one if attributes is None else {"attributes": attributes, "span_id": _span_name(one)}


def _otlp_spans(document: Mapping[str, Any]) -> Iterator[Any]:
    for resource in document["resourceSpans"]:
        for scope in resource.get("scopeSpans", ()):
            yield from scope.get("spans", ())


def _span_name(span: Mapping[str, Any]) -> str:
    context = span.get("context")
    own = context.get("span_id") if isinstance(context, Mapping) else None
    return str(
        span.get("spanId") or span.get("span_id") or own or span.get("context.span_id") or span.get("name") or ""
    )


def _is_of_a_model(key: str) -> bool:
    return key.startswith(("gen_ai.input.messages", "gen_ai.output.messages")) or any(
        pattern.match(key) for pattern in _MESSAGE_KEYS
    )


def _attributes(span: Any) -> dict[str, Any] | None:
    """The attributes of a span by their full names, however they were exported; None for a row of another kind."""
    if not isinstance(span, Mapping):
        return None
    kept = span.get("attributes")
    if isinstance(kept, list):  # OTLP: a list of keys and values
        kept = {one["key"]: _value(one.get("value")) for one in kept if isinstance(one, Mapping) and "key" in one}
    if not isinstance(kept, Mapping):
        kept = {key.removeprefix(_PREFIX): value for key, value in span.items() if key.startswith(_PREFIX)}
    return dict(_flat("", kept)) if kept else None


def _flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The entries of nested attributes by dotted names; messages of the GenAI conventions stay whole."""
    if name in ("gen_ai.input.messages", "gen_ai.output.messages"):
        yield name, value
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield from _flat(f"{name}.{key}" if name else str(key), one)
    elif isinstance(value, list) and any(isinstance(one, Mapping) for one in value):
        for number, one in enumerate(value):
            yield from _flat(f"{name}.{number}", one)
    else:
        yield name, value


def _value(value: Any) -> Any:
    """The plain value of an OTLP attribute."""
    if not isinstance(value, Mapping):
        return value
    if "arrayValue" in value:
        return [_value(one) for one in value["arrayValue"].get("values", ())]
    if "kvlistValue" in value:
        return {one["key"]: _value(one.get("value")) for one in value["kvlistValue"].get("values", ())}
    return next(iter(value.values()), None)


def _answer(number: int, row: Any) -> LoggedAnswer:
    if not isinstance(row, Mapping):
        raise WhyformerError(f"an object is needed, not {row!r:.40}.")
    text = json.dumps(row, sort_keys=True, default=str)
    if isinstance(row.get("attributes"), Mapping):
        messages = _span_messages(row["attributes"])
        name = str(row.get("span_id") or number)
        return _from_messages(number, name, messages, None, text)
    name, labels = str(row.get("id", number)), _labels(row.get("labels"))
    if "messages" in row:
        return _from_messages(number, name, row["messages"], labels, text)
    missing = next((field for field in ("question", "documents", "answer") if not row.get(field)), None)
    if missing is not None:
        raise WhyformerError(
            f'{missing!r} is missing or empty: a row has "question", "documents" and "answer", or "messages", or is a '
            "span."
        )
    documents = row["documents"]
    if not isinstance(documents, list):
        raise WhyformerError(f'"documents" is a list of texts, not {documents!r:.40}.')
    if not isinstance(row["answer"], str):
        raise WhyformerError(f'"answer" is a text, not {row["answer"]!r:.40}.')
    return LoggedAnswer(number, name, str(row["question"]), tuple(documents), row["answer"], labels, text)


def _from_messages(number: int, name: str, messages: Any, labels: tuple[bool, ...] | None, text: str) -> LoggedAnswer:
    """The last message of the assistant, after those before it."""
    if not isinstance(messages, Sequence) or isinstance(messages, str) or len(messages) < 2:
        raise WhyformerError("messages are a list of at least two: a question, and the assistant's answer.")
    plain = [_message(one) for one in messages]
    if plain[-1]["role"] != "assistant" or not plain[-1]["content"].strip():
        raise WhyformerError(f"the last message is the assistant's answer, not one of {plain[-1]['role']!r:.20}.")
    return LoggedAnswer(number, name, plain[:-1], None, plain[-1]["content"], labels, text)


def _message(message: Any) -> dict[str, str]:
    """A message with its text: content may be a text or parts."""
    if not isinstance(message, Mapping):
        raise WhyformerError(f"a message is an object, not {message!r:.40}.")
    content = message.get("content", message.get("parts"))
    if isinstance(content, list):
        content = "\n".join(
            str(part.get("text", part.get("content", ""))) for part in content if isinstance(part, Mapping)
        )
    if not isinstance(content, str) or not isinstance(message.get("role"), str):
        raise WhyformerError(f"a message has a role and a content, both texts, not {message!r:.60}.")
    return {"role": message["role"], "content": content}


def _span_messages(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The messages of a span: flat attributes, or the JSON of OTel's GenAI conventions."""
    by_place: dict[tuple[bool, int], dict[str, Any]] = {}
    for key, value in attributes.items():
        match = next((match for pattern in _MESSAGE_KEYS if (match := pattern.match(key))), None)
        if match is not None:
            message = by_place.setdefault((match.group(1) in _OUTPUTS, int(match.group(2))), {})
            if match.group(3) == "contents":
                message["content"] = "\n".join(filter(None, (message.get("content"), str(value))))
            else:
                message[match.group(3)] = value
    messages = [{"role": "assistant"} | one for _, one in sorted(by_place.items()) if "content" in one]
    for key in ("gen_ai.input.messages", "gen_ai.output.messages"):
        value = attributes.get(key, [])
        try:
            messages += parse_json(value) if isinstance(value, str) else value
        except ValueError as error:
            raise WhyformerError(f"the attribute {key} is not JSON ({error}).") from error
    return messages


def _labels(labels: Any) -> tuple[bool, ...] | None:
    if labels is None:
        return None
    if not isinstance(labels, list) or not all(isinstance(one, bool) for one in labels):
        raise WhyformerError(f'"labels" has true or false for each sentence of the answer, not {labels!r:.40}.')
    return tuple(labels)

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
_OPENINFERENCE = re.compile(r"llm\.(input|output)_messages\.(\d+)\.message\.(role|content)$")


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
    if not answers and not errors:
        raise WhyformerError(f"The log {str(path)!r} has no answers: there is nothing to check.")
    return answers, errors


def _rows(content: str) -> Iterator[tuple[Any, str]]:
    """The rows of JSON Lines or of a list, or the spans of an OTLP export; with an error for a line without JSON."""
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
    yield from ((row, "") for row in (whole if isinstance(whole, list) else _spread(whole)))


def _spread(row: Any) -> Iterator[Any]:
    """The spans of an OTLP document that call a model, or the row itself."""
    if not isinstance(row, Mapping) or "resourceSpans" not in row:
        yield row
        return
    for resource in row["resourceSpans"]:
        for scope in resource.get("scopeSpans", ()):
            for span in scope.get("spans", ()):
                attributes = {one["key"]: _value(one.get("value")) for one in span.get("attributes", ())}
                if _span_messages(attributes):
                    yield {"attributes": attributes, "span_id": span.get("spanId", "")}


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
        name = str(row.get("span_id") or row.get("name") or number)
        return _from_messages(number, name, messages, None, text)
    name, labels = str(row.get("id", number)), _labels(row.get("labels"))
    if "messages" in row:
        return _from_messages(number, name, row["messages"], labels, text)
    missing = next((field for field in ("question", "documents", "answer") if not row.get(field)), None)
    if missing is not None:
        raise WhyformerError(
            f'{missing!r} is missing: a row has "question", "documents" and "answer", or "messages", or is a span.'
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
    """The messages of a span: OpenInference's flat attributes, or the JSON of OTel's GenAI conventions."""
    by_place: dict[tuple[str, int], dict[str, Any]] = {}
    for key, value in attributes.items():
        match = _OPENINFERENCE.match(key)
        if match:
            by_place.setdefault((match.group(1), int(match.group(2))), {})[match.group(3)] = value
    messages = [one for _, one in sorted(by_place.items()) if "content" in one]
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

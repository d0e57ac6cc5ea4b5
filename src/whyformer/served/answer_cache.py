"""A folder of scored responses, so that nothing is scored twice."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from whyformer.errors import WhyformerError
from whyformer.files import parse_json, write_whole
from whyformer.served.served_tokens import ServedToken, check_cover

_Answer = TypeVar("_Answer")
CacheKey = tuple[str, ...]
VERSION = 1  # of the files
MOST_BYTES_OF_A_FILE = 16 << 20


@dataclass(frozen=True)
class AnswerCache:
    """A folder with a file for each answer, named by a digest of the question.

    Files of scored responses hold character ranges and log-probabilities: neither the texts nor the key.
    """

    folder: Path

    def tokens(self, key: CacheKey, response: str) -> tuple[ServedToken, ...] | None:
        """The tokens of a response that was scored before; None if it was not, or its file is damaged."""
        return self._read(key, lambda document: _tokens(document, response))

    def keep_tokens(self, key: CacheKey, tokens: tuple[ServedToken, ...]) -> None:
        """Keep the tokens of a response."""
        rows = [[one.start, one.end, one.log_probability, one.id, one.rank, one.reaches_back] for one in tokens]
        self._write(key, {"tokens": rows})

    def text(self, key: CacheKey) -> str | None:
        """The text that was written before; None if it was not, or its file is damaged."""
        return self._read(key, _text)

    def keep_text(self, key: CacheKey, text: str) -> None:
        """Keep a text that the model wrote."""
        self._write(key, {"text": text})

    def _read(self, key: CacheKey, parse: Callable[[Any], _Answer]) -> _Answer | None:
        path = self._path(key)
        if not path.is_file() or path.stat().st_size > MOST_BYTES_OF_A_FILE:
            return None
        try:
            document = parse_json(path.read_bytes())
            return parse(document) if document["version"] == VERSION else None
        except (ValueError, TypeError, KeyError):
            return None

    def _write(self, key: CacheKey, document: dict[str, Any]) -> None:
        write_whole(self._path(key), json.dumps({"version": VERSION} | document).encode())

    def _path(self, key: CacheKey) -> Path:
        digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()
        path = self.folder / f"{digest}.json"
        if path.is_symlink():
            raise WhyformerError(f"{path} is a link, and a cache may only contain its own files: remove it.")
        return path


def _tokens(document: Any, response: str) -> tuple[ServedToken, ...]:
    """The tokens in a file, checked; raises ValueError, TypeError or KeyError."""
    tokens = []
    for start, end, value, token, rank, reaches_back in document["tokens"]:
        if not (0 <= start <= end <= len(response)) or not math.isfinite(value) or type(reaches_back) is not bool:
            raise ValueError("a token outside the response")
        if type(token) is not int or not (rank is None or type(rank) is int):
            raise TypeError("an id or a rank that is not a whole number")
        tokens.append(ServedToken(response[start:end], start, end, float(value), token, rank, reaches_back))
    check_cover([(token.start, token.end) for token in tokens], response)
    return tuple(tokens)


def _text(document: Any) -> str:
    if not isinstance(document["text"], str):
        raise TypeError("no text")
    return str(document["text"])

"""A folder of scored responses, so that nothing is scored twice."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whyformer.errors import WhyformerError
from whyformer.files import parse_json, write_whole
from whyformer.served.scored_tokens import ScoredToken, check_cover

VERSION = 1  # of the files
MOST_BYTES_OF_A_FILE = 16 << 20


@dataclass(frozen=True)
class AnswerCache:
    """A folder with a file for each scored response, named by a digest of the question.

    The files hold character ranges and log-probabilities: neither the texts nor the key.
    """

    folder: Path

    def read(self, question: tuple[str, ...], response: str) -> tuple[ScoredToken, ...] | None:
        """The tokens of a response that was scored before; None if it was not, or its file is damaged."""
        path = self._path(question)
        if not path.is_file() or path.stat().st_size > MOST_BYTES_OF_A_FILE:
            return None
        try:
            return _tokens(parse_json(path.read_bytes()), response)
        except (ValueError, TypeError, KeyError):
            return None

    def write(self, question: tuple[str, ...], tokens: tuple[ScoredToken, ...]) -> None:
        """Keep the tokens of a response."""
        rows = [[one.start, one.end, one.log_probability, one.id, one.rank, one.reaches_back] for one in tokens]
        write_whole(self._path(question), json.dumps({"version": VERSION, "tokens": rows}).encode())

    def _path(self, question: tuple[str, ...]) -> Path:
        digest = hashlib.sha256(json.dumps(question).encode()).hexdigest()
        path = self.folder / f"{digest}.json"
        if path.is_symlink():
            raise WhyformerError(f"{path} is a link, and a cache holds files of its own: remove it.")
        return path


def _tokens(document: Any, response: str) -> tuple[ScoredToken, ...]:
    """The tokens in a file, checked; raises ValueError, TypeError or KeyError."""
    if document["version"] != VERSION:
        raise ValueError("another version")
    tokens = []
    for start, end, value, token, rank, reaches_back in document["tokens"]:
        if not (0 <= start <= end <= len(response)) or not math.isfinite(value) or type(reaches_back) is not bool:
            raise ValueError("a token outside the response")
        number, place = (None if one is None else int(one) for one in (token, rank))
        tokens.append(ScoredToken(response[start:end], start, end, float(value), number, place, reaches_back))
    check_cover([(token.start, token.end) for token in tokens], response)
    return tuple(tokens)

"""Texts cut up by tokenizers that do not say where their tokens stand: each is looked for after the one before it."""

from __future__ import annotations

from typing import Any

from whyformer.errors import WhyformerError

_MARKERS = ("##", "▁", "Ġ")  # with which vocabularies write that a token goes on a word, or begins one


def token_offsets(text: str, tokens: list[str], tokenizer: Any) -> tuple[tuple[int, int], ...]:
    """Where each token stands in its text; refused where one is not there as it is written."""
    folded = text.casefold() if len(text.casefold()) == len(text) else text
    offsets, reached = [], 0
    for token in tokens:
        spelling = token
        for marker in _MARKERS:
            spelling = spelling.removeprefix(marker)
        start = folded.find(spelling.casefold(), reached)
        if start < 0 or text[reached:start].strip():
            raise WhyformerError(
                f"{type(tokenizer).__name__} has no character offsets, and its token {token!r} is not as it stands in "
                "the text: a fast tokenizer is needed."
            )
        reached = start + len(spelling)
        offsets.append((start, reached))
    return tuple(offsets)

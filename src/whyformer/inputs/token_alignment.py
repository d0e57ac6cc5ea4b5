"""Character offsets for tokenizers without them: search for each token after the previous one."""

from __future__ import annotations

from typing import Any

from whyformer.errors import WhyformerError

_MARKERS = ("##", "▁", "Ġ")  # that vocabularies put before a token that continues or begins a word


def token_offsets(text: str, tokens: list[str], tokenizer: Any) -> tuple[tuple[int, int], ...]:
    """Return the character range of each token; raise if a token is not in the text as spelled."""
    folded = text.casefold() if len(text.casefold()) == len(text) else text
    offsets, reached = [], 0
    for token in tokens:
        spelling = token
        for marker in _MARKERS:
            spelling = spelling.removeprefix(marker)
        start = folded.find(spelling.casefold(), reached)
        if start < 0 or text[reached:start].strip():
            raise WhyformerError(
                f"{type(tokenizer).__name__} has no character offsets, and its token {token!r} is not in the text as "
                "spelled: a fast tokenizer is needed."
            )
        reached = start + len(spelling)
        offsets.append((start, reached))
    return tuple(offsets)

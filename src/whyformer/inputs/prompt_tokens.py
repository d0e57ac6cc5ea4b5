"""The tokens of a prompt or a response, and the characters that each covers."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from whyformer.errors import WhyformerError
from whyformer.inputs.chunks import decode_tokens
from whyformer.inputs.sentences import CharRange
from whyformer.models import compat

MOST_NAMED = 5  # unknown tokens that a note lists


@dataclass(frozen=True)
class Token:
    """A token, and its character range in the text.

    A special token (a beginning, a chat template's marker) is not part of the text as written: its range is empty, and
    its `text` is its name in the vocabulary.
    """

    id: int
    text: str
    start: int
    end: int
    is_special: bool = False


class TokenLike(Protocol):
    """Anything with a character range: a token of a prompt, or of a response."""

    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def is_special(self) -> bool: ...


def text_tokens(text: str, tokenizer: Any, *, add_special_tokens: bool) -> tuple[Token, ...]:
    """Tokenize a text; white space belongs to the token after it."""
    if not getattr(tokenizer, "is_fast", False):
        raise WhyformerError(f"{type(tokenizer).__name__} has no character offsets: a fast tokenizer is needed.")
    encoding = tokenizer(text, add_special_tokens=add_special_tokens, verbose=False).encodings[0]
    markers = marker_ids(tokenizer)
    tokens, reached = [], 0
    rows = zip(encoding.ids, encoding.tokens, encoding.offsets, encoding.special_tokens_mask, strict=True)
    for token, name, (start, end), is_added in rows:
        if is_added or token in markers:
            reached = reached if is_added else max(reached, end)
            tokens.append(Token(token, name, reached, reached, is_special=True))
            continue
        if start == end:  # some tokenizers leave white space out of offsets, so a token of white space has none
            start, end = reached, reached + _white_space(text, reached, tokenizer.decode([token]))
        elif reached < start and not text[reached:start].strip():
            start = reached
        reached = max(reached, end)
        tokens.append(Token(token, text[start:end], start, end))
    return tuple(tokens)


def _white_space(text: str, place: int, characters: str) -> int:
    """How many characters a white-space token covers, from a position in a text."""
    return len(characters) if not characters.strip() and text.startswith(characters, place) else 0


def id_tokens(ids: Sequence[int], tokenizer: Any, before: Sequence[int] = ()) -> tuple[str, tuple[Token, ...]]:
    """Decode ids that follow those in `before`; return the text, and the tokens with their ranges."""
    text, names, offsets = decode_tokens(list(ids), tokenizer, list(before))
    markers = marker_ids(tokenizer)
    tokens = [
        Token(token, name if token in markers else text[start:end], start, end, token in markers)
        for token, name, (start, end) in zip(ids, names, offsets, strict=True)
    ]
    return text, tuple(tokens)


def marker_ids(tokenizer: Any) -> set[int]:
    """The ids of special tokens other than the unknown token."""
    return compat.special_ids(tokenizer) - {tokenizer.unk_token_id}


def unknown_token_note(tokenizer: Any, tokens: Sequence[tuple[int, str]]) -> Iterator[str]:
    """Yield a note on the tokens, given as (id, text), that are not in the vocabulary, if any."""
    unknown = getattr(tokenizer, "unk_token_id", None)
    if unknown is None or unknown in (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id):
        return  # byte-level tokenizers know every text, though some set this to a marker
    texts = [text.strip() or repr(text) for token, text in tokens if token == unknown]
    if texts:
        kinds = list(dict.fromkeys(texts))
        named = ", ".join(kinds[:MOST_NAMED]) + (", …" if len(kinds) > MOST_NAMED else "")
        yield (
            f"The tokenizer does not know {len(texts)} of {len(tokens)} tokens ({named}) and replaces each "
            f"with {tokenizer.unk_token}: the model cannot tell them apart."
        )


def tokens_on(places: Sequence[CharRange], tokens: Sequence[TokenLike], text: str) -> list[tuple[int, ...]]:
    """The tokens in each of several disjoint ranges, given in order; a token belongs to at most one.

    A token that overlaps two belongs to the one it shares more characters with, not counting leading white space.
    """
    starts = [start for start, _ in places]
    by_place: list[list[int]] = [[] for _ in places]
    for number, token in enumerate(tokens):
        start, end = _core(token, text)
        if token.is_special or start >= end:
            continue
        first = max(0, bisect_right(starts, start) - 1)
        shared: dict[int, int] = {}
        for place in range(first, len(places)):
            if places[place][0] >= end:
                break
            shared[place] = min(end, places[place][1]) - max(start, places[place][0])
        best = max(shared, key=lambda place: shared[place], default=None)
        if best is not None and shared[best] > 0:
            by_place[best].append(number)
    return [tuple(numbers) for numbers in by_place]


def _core(token: TokenLike, text: str) -> CharRange:
    """The range of a token without surrounding white space, unless it is all white space."""
    part = text[token.start : token.end]
    if not part.strip():
        return token.start, token.end
    return token.start + len(part) - len(part.lstrip()), token.end - len(part) + len(part.rstrip())

"""The tokens of a prompt or a response, and the characters that each stands for."""

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
    """A token, and the characters of its text that it stands for.

    A special one is no part of what a person wrote (a beginning, a chat template's marker): it stands for no character,
    and its `text` is what the tokenizer calls it.
    """

    id: int
    text: str
    start: int
    end: int
    is_special: bool = False


class TokenLike(Protocol):
    """What lies on characters of a text: a token of a prompt, or of a response."""

    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def is_special(self) -> bool: ...


def text_tokens(text: str, tokenizer: Any, *, add_special_tokens: bool) -> tuple[Token, ...]:
    """The tokens of a text as its tokenizer cuts it; white space belongs to the token after it."""
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
        if start == end:  # some tokenizers leave white space out of a token, and so all of one that has nothing else
            start, end = reached, reached + _white_space(text, reached, tokenizer.decode([token]))
        elif reached < start and not text[reached:start].strip():
            start = reached
        reached = max(reached, end)
        tokens.append(Token(token, text[start:end], start, end))
    return tuple(tokens)


def _white_space(text: str, place: int, characters: str) -> int:
    """How many characters from a place of a text a token of white space stands for."""
    return len(characters) if not characters.strip() and text.startswith(characters, place) else 0


def id_tokens(ids: Sequence[int], tokenizer: Any, before: Sequence[int] = ()) -> tuple[str, tuple[Token, ...]]:
    """The text that these tokens spell after those before them, and the tokens laid on it."""
    text, names, offsets = decode_tokens(list(ids), tokenizer, list(before))
    markers = marker_ids(tokenizer)
    tokens = [
        Token(token, name if token in markers else text[start:end], start, end, token in markers)
        for token, name, (start, end) in zip(ids, names, offsets, strict=True)
    ]
    return text, tuple(tokens)


def marker_ids(tokenizer: Any) -> set[int]:
    """The tokens that are no part of a text; one that stands for an unknown word is."""
    return compat.special_ids(tokenizer) - {tokenizer.unk_token_id}


def unknown_token_note(tokenizer: Any, tokens: Sequence[tuple[int, str]]) -> Iterator[str]:
    """A note on the tokens, each (id, text), that the tokenizer has no entry for; none where it knows them all."""
    unknown = getattr(tokenizer, "unk_token_id", None)
    if unknown is None or unknown in (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id):
        return  # byte-level tokenizers know every text; some name a marker here all the same
    texts = [text.strip() or repr(text) for token, text in tokens if token == unknown]
    if texts:
        kinds = list(dict.fromkeys(texts))
        named = ", ".join(kinds[:MOST_NAMED]) + (", …" if len(kinds) > MOST_NAMED else "")
        yield (
            f"The tokenizer does not know {len(texts)} of {len(tokens)} tokens ({named}) and reads "
            f"{tokenizer.unk_token} for each: the model cannot tell them apart."
        )


def tokens_on(places: Sequence[CharRange], tokens: Sequence[TokenLike], text: str) -> list[tuple[int, ...]]:
    """For each place (in order, apart from each other) the tokens that lie on it; a token lies on one place at most.

    One that reaches over two lies on that of which it holds more characters, white space before a word not counted.
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
    """The characters of a token without white space around them, where it has others."""
    part = text[token.start : token.end]
    if not part.strip():
        return token.start, token.end
    return token.start + len(part) - len(part.lstrip()), token.end - len(part) + len(part.rstrip())

"""The tokens of a response as a server or a function scores them: character ranges and log-probabilities."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from whyformer.errors import WhyformerError

# A function (prompts, responses) that scores each response after its prompt: by a sequence of (text, log-probability)
# pairs, one per token, or by one number for the whole response.
ScoreFunction = Callable[[Sequence[str], Sequence[str]], Sequence[Any]]
UNKNOWN_ID = -1  # of a token that only the server knows
PARTIAL = "\ufffd"  # in the text of a token that ends within a character
LONGEST_CHARACTER = 4  # bytes, and so tokens, of one character in UTF-8


@dataclass(frozen=True)
class ServedToken:
    """A token of a response: its character range there, its log-probability in nats, and its rank if known.

    A token that also covers the end of the prompt starts at 0; `reaches_back` says so.
    """

    text: str
    start: int
    end: int
    log_probability: float
    id: int = UNKNOWN_ID
    rank: int | None = None
    reaches_back: bool = False


@dataclass(frozen=True)
class RawToken:
    """A token of prompt and response as a server returns it; the first has no log-probability."""

    text: str
    log_probability: float | None
    start: int | None = None  # if the server gives offsets
    id: int = UNKNOWN_ID
    rank: int | None = None


def response_part(tokens: Sequence[RawToken], prompt: str, response: str) -> tuple[ServedToken, ...]:
    """The tokens of the response among those of prompt and response.

    Raises a ValueError that says what is wrong if the tokens do not cover the response, or lack a log-probability.
    """
    first, last = len(prompt), len(prompt) + len(response)
    texts, starts = [token.text for token in tokens], [token.start for token in tokens]
    places = token_places(texts, starts, prompt + response, first)
    part = []
    for token, (start, end) in zip(tokens, places, strict=True):
        if end <= first or start >= last:
            continue
        value = token.log_probability
        if value is None:
            raise ValueError("the first token of the response has no log-probability, as nothing stands before it")
        if not math.isfinite(value):
            raise ValueError(f"the log-probability of the token {token.text!r:.40} is {value}")
        low, high = max(start, first) - first, min(end, last) - first
        part.append(ServedToken(response[low:high], low, high, value, token.id, token.rank, start < first))
    check_cover([(token.start, token.end) for token in part], response)
    return tuple(part)


def token_places(
    texts: Sequence[str], starts: Sequence[int | None], whole: str, first: int = 0
) -> list[tuple[int, int]]:
    """The character range of each token in the text that was sent.

    The server's offsets are used if each token's text is where they say: some servers count the name of a token that
    begins the text, or skip special tokens. Otherwise texts are matched from the end, down to the character `first`;
    the last may be generated, and so not in the text.
    """
    by_offset = _offset_places(texts, starts, whole)
    if by_offset is not None:
        return by_offset
    try:
        return _matched_places(texts, whole, first)
    except ValueError:
        if len(texts) < 2:
            raise
    return [*_matched_places(texts[:-1], whole, first), (len(whole), len(whole))]


def _offset_places(texts: Sequence[str], starts: Sequence[int | None], whole: str) -> list[tuple[int, int]] | None:
    """Ranges between the server's offsets; None without offsets, or if texts are elsewhere."""
    known = [start for start in starts if start is not None]
    if len(known) < len(texts) or not known or sorted(known) != known or known[0] < 0:
        return None
    places = list(zip(known, [*known[1:], max(len(whole), known[-1])], strict=True))
    has_texts = all(
        text.strip() in whole[start:end]
        for text, (start, end) in zip(texts, places, strict=True)
        if start < len(whole) and PARTIAL not in text
    )
    return places if has_texts else None


def _matched_places(texts: Sequence[str], whole: str, first: int) -> list[tuple[int, int]]:
    """Ranges by matching texts from the end down to a character; tokens before that have none."""
    places: list[tuple[int, int]] = [(0, 0)] * len(texts)
    place, number = len(whole), len(texts) - 1
    while number >= 0 and place > first:
        part = number
        while part >= 0 and PARTIAL in texts[part]:  # tokens that share the characters between their neighbours
            part -= 1
        if part < number:
            start = _end_of(texts[part], whole, place, number - part) if part >= 0 else 0
            places[part + 1 : number + 1] = [(start, place)] * (number - part)
            place, number = start, part
            continue
        start = place - len(texts[number])
        if start < 0 or whole[start:place] != texts[number]:
            raise ValueError(f"its token {texts[number]!r:.40} is not in the text at character {max(0, start)}")
        places[number] = (start, place)
        place, number = start, number - 1
    return places


def _end_of(text: str, whole: str, before: int, tokens: int) -> int:
    """The last end of a token's text, so few characters before a place that the tokens between can cover the rest."""
    least = max(0, before - tokens * LONGEST_CHARACTER - len(text))
    start = whole.rfind(text, least, before)
    if start < 0:
        raise ValueError(f"its token {text!r:.40} is not in the text before character {before}")
    return start + len(text)


def check_cover(places: Sequence[tuple[int, int]], response: str) -> None:
    """Check that consecutive ranges cover a response; raise a ValueError otherwise."""
    reached = 0
    for start, end in places:
        if start > reached:
            break
        reached = max(reached, end)
    if reached < len(response):
        raise ValueError(f"its tokens leave out {response[reached : reached + 40]!r} of the response")


def checked_scores(values: Any, responses: Sequence[str], name: str) -> list[tuple[ServedToken, ...]]:
    """The tokens of each response, from the values of a scoring function."""
    try:
        each = list(values)
    except TypeError:
        each = None
    if each is None or len(each) != len(responses):
        count = "no sequence" if each is None else f"{len(each)} items"
        raise WhyformerError(f"{name} returned {count} for {len(responses)} responses: return one for each.")
    return [_checked(value, response, name) for value, response in zip(each, responses, strict=True)]


def _checked(value: Any, response: str, name: str) -> tuple[ServedToken, ...]:
    if isinstance(value, tuple) and value and all(isinstance(token, ServedToken) for token in value):
        return value
    try:
        pairs = [(response, float(value))] if _is_number(value) else [(str(text), float(x)) for text, x in value]
    except (TypeError, ValueError):
        raise WhyformerError(
            f"{name} returned {value!r:.60}: a (text, log-probability) pair for each token of the response, or one "
            "number for all of it."
        ) from None
    tokens, place = [], 0
    for text, log_probability in pairs:
        if not math.isfinite(log_probability):
            raise WhyformerError(f"{name} returned the log-probability {log_probability} for {text!r:.40}.")
        tokens.append(ServedToken(text, place, place + len(text), log_probability))
        place += len(text)
    joined = "".join(text for text, _ in pairs)
    if joined != response:
        raise WhyformerError(
            f"{name} returned tokens that join to {joined!r:.60}, and the response is {response!r:.60}."
        )
    return tuple(tokens)


def _is_number(value: Any) -> bool:
    return not isinstance(value, str) and (isinstance(value, (int, float)) or getattr(value, "ndim", None) == 0)

"""The value of a statement: its content words that the question does not have, such as the year in "In 1912."."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from whyformer.inputs.prompt_tokens import TokenLike
from whyformer.inputs.sentences import CharRange
from whyformer.inputs.words import content_words

_WORD = re.compile(r"\w+(?:[.,:'’-]\w+)*")  # numbers such as 1,560 and compounds are one word
_NUMBER = re.compile(r"\d+(?:[.,:]\d+)*")


def value_words(text: str, question: str) -> list[CharRange]:
    """The ranges of the content words of a text that its question does not have."""
    known = content_words(question)
    return [one.span() for one in _WORD.finditer(text) if content_words(one.group()) - known]


def stated_share(text: str, question: str, sources: Iterable[str]) -> float:
    """The largest share of the value of a text that one source has.

    The value is its numbers that the question does not have, or else its content words.
    """
    own, parts_of = _numbers(text) - _numbers(question), _numbers
    if not own:
        own, parts_of = content_words(text) - content_words(question) or content_words(text), content_words
    return max((len(own & parts_of(source)) / len(own) for source in sources), default=0.0) if own else 0.0


def _numbers(text: str) -> set[str]:
    return set(_NUMBER.findall(text))


def value_tokens(text: str, tokens: Sequence[TokenLike], unit: Sequence[int], question: str) -> tuple[int, ...]:
    """The tokens of a unit that are part of its value; all of them if it has none."""
    words = value_words(text, question)

    def is_on_word(token: TokenLike) -> bool:
        return any(token.start < end and start < token.end for start, end in words)

    own = tuple(number for number in unit if is_on_word(tokens[number]))
    return own or tuple(unit)


def with_value_of(text: str, other: str, question: str) -> str | None:
    """The text with its value replaced by that of another, numbers by numbers; None if one of them has none.

    Words that both have do not count. Without any other, the text is returned unchanged.
    """
    own, others = _different(text, other, question), _different(other, text, question)
    if not own:
        return text if value_words(text, question) else None
    if not others:
        return None
    numbers = [[one for one in words if _is_number(whole, one)] for whole, words in ((text, own), (other, others))]
    if numbers[0] and numbers[1]:
        own, others = numbers
    (start, end), (first, last) = _last_run(text, own), _last_run(other, others)
    return text[:start] + other[first:last] + text[end:]


def _different(text: str, other: str, question: str) -> list[CharRange]:
    """The value words of a text that another text lacks."""
    known = {word.lower() for word in _WORD.findall(other)}
    return [(start, end) for start, end in value_words(text, question) if text[start:end].lower() not in known]


def _is_number(text: str, word: CharRange) -> bool:
    return any(letter.isdigit() for letter in text[slice(*word)])


def _last_run(text: str, words: Sequence[CharRange]) -> CharRange:
    """The last words that follow each other: a name of two words is one value."""
    start, end = words[-1]
    for first, last in reversed(words[:-1]):
        if text[last:start].strip() or text[first].isupper() != text[start].isupper():
            break
        start = first
    return start, end

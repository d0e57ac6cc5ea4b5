"""Errors caused by the user, each reported in one line."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, get_args

LIKENESS = 0.6  # difflib's ratio of two spellings from which one may be a typo of the other
SHORTEST_PART = 3  # letters of a name that are enough to suggest it: `cam` for `grad_cam`
MOST_NAMES = 40  # that a message lists
# Value errors. Torch and memory errors pass through, so that callers can retry with less.
MISFITS = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)


class WhyformerError(ValueError):
    """The input, the target, the options or the model cannot be used as asked; the message says why and the way out.

    Example:
        >>> import whyformer
        >>> try:
        ...     whyformer.explain("A film.", model="mini-bert", method="rolout")
        ... except whyformer.WhyformerError as error:
        ...     print(error)
        No method named 'rolout'. Did you mean 'rollout'?
    """


class UnsupportedModel(WhyformerError):
    """The model does something the method cannot follow.

    Example:
        >>> import whyformer
        >>> issubclass(whyformer.UnsupportedModel, whyformer.WhyformerError)
        True
    """


def check_choice(name: str, value: str, choices: Any) -> None:
    """Validate that a value is one of a Literal's."""
    if value not in get_args(choices):
        raise WhyformerError(f"{name}={value!r}. Choose from: {', '.join(get_args(choices))}.")


def check_count(name: str, value: object) -> None:
    """Validate a positive integer."""
    if type(value) is not int or value < 1:
        raise WhyformerError(f"{name}={value!r}: a whole number, at least 1.")


def with_article(noun: str) -> str:
    """Prefix a noun with its article: a Tensor, an Image."""
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"


def nearest(word: str, known: Sequence[str]) -> str:
    """Suggest the names that a misspelt one may stand for, or list all of them."""
    names = _near(word, known)
    if names:
        return f"Did you mean {' or '.join(repr(name) for name in names)}?"
    return f"Known: {', '.join(known[:MOST_NAMES])}{' …' if len(known) > MOST_NAMES else ''}."


def reason_of(error: BaseException) -> str:
    """The message of an error, or its type if it has none."""
    message = " ".join(str(error).split())
    return message or f"{type(error).__name__}, without a message"


@contextmanager
def misfits_in_one_line(who: str) -> Iterator[None]:
    """Report errors from a model or processor whose settings do not fit the input in one line."""
    try:
        yield
    except WhyformerError:
        raise
    except MISFITS as error:
        reason = f"{type(error).__name__}: {reason_of(error):.300}"
        raise WhyformerError(f"{who} cannot use what it is given, or its files do not fit: {reason}") from error


def _near(word: str, known: Sequence[str]) -> list[str]:
    """Up to three names: similarly spelt ones first, then those that contain the word."""
    by_spelling: dict[str, str] = {}
    for name in known:
        by_spelling.setdefault(name.casefold(), name)
    spelling = word.casefold()
    alike = difflib.get_close_matches(spelling, by_spelling, n=3, cutoff=LIKENESS)
    longer = [name for name in by_spelling if spelling in name and name not in alike]
    return [by_spelling[name] for name in [*alike, *longer * (len(spelling) >= SHORTEST_PART)]][:3]

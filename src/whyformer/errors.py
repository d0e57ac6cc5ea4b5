"""What can go wrong by the user's doing, said in one line."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any, get_args


class WhyformerError(ValueError):
    """The input, the target, the options or the model cannot be used as asked; the message says why and the way out."""


class UnsupportedModel(WhyformerError):
    """The model does something the asked-for method cannot follow."""


def check_choice(name: str, value: str, choices: Any) -> None:
    """Refuse a value that is not among the Literal's."""
    if value not in get_args(choices):
        raise WhyformerError(f"{name}={value!r}. Choose from: {', '.join(get_args(choices))}.")


def with_article(noun: str) -> str:
    """A Tensor, an Image."""
    return f"{'an' if noun[:1].lower() in 'aeiou' else 'a'} {noun}"


def nearest(word: str, known: Sequence[str]) -> str:
    """A sentence with the names closest to a misspelt one."""
    close = difflib.get_close_matches(word, known, n=3, cutoff=0.4)
    if close:
        return f"Did you mean {' or '.join(repr(name) for name in close)}?"
    return f"Known: {', '.join(known[:20])}{' …' if len(known) > 20 else ''}."

"""What a response consists of: its tokens, where attention rests in vain, and the strongest sources."""

from __future__ import annotations

from dataclasses import dataclass

from whyformer.inputs.sources import Source


@dataclass(frozen=True)
class ResponseToken:
    """A token of a response: its place there, and how likely the model found it.

    `log_probability` and `entropy` are in nats, the entropy that of all the model could have written there; `rank` is 1
    where the model had no likelier token.
    """

    id: int
    text: str
    start: int
    end: int
    log_probability: float
    entropy: float
    rank: int
    is_special: bool = False


@dataclass(frozen=True)
class Sinks:
    """Where attention rests that says nothing: shares of a row's scores by their size.

    Of the first token that is read, of the other special tokens (those of a chat template), and of what the response
    itself had said before.
    """

    first_token: float
    special: float
    earlier: float


@dataclass(frozen=True)
class TopSource:
    """One of the strongest sources: which, its score, and its share of the row or of all rows."""

    source: Source
    score: float
    share: float

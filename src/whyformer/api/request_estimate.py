"""The number of requests that an explanation of a served model takes, without sending one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from whyformer.api.explain_response import explain_response
from whyformer.inputs.words import word_ranges
from whyformer.served.endpoint import Endpoint
from whyformer.served.served_tokens import ServedToken

CHARACTERS_PER_TOKEN = 4  # of English prose


@dataclass(frozen=True)
class RequestEstimate:
    """The cost of an explanation of a served model.

    Attributes:
        requests: The number of requests, without those that the cache answers.
        cached: The number of answers in the cache.
        tokens: About how many tokens the requests have, at four characters each.

    Example:
        >>> whyformer.RequestEstimate(requests=4, cached=0, tokens=47).requests
        4
    """

    requests: int
    cached: int
    tokens: int


@dataclass
class _Counter:
    """A scoring function that counts what it would send."""

    endpoint: Endpoint | None
    pairs: dict[tuple[str, str], bool] = field(default_factory=dict)  # whether the cache has it

    def __call__(self, prompts: Sequence[str], responses: Sequence[str]) -> list[tuple[ServedToken, ...]]:
        for pair in zip(prompts, responses, strict=True):
            self.pairs[pair] = self.endpoint is not None and self.endpoint.cached_tokens(*pair) is not None
        return [tuple(words_as_tokens(response)) for response in responses]


def estimate_requests(
    prompt: Any, response: str, score: Any, method: str | None = None, **settings: Any
) -> RequestEstimate:
    """Count the requests of `explain_response(prompt, response, score=…)` without sending any.

    A method that stops early (`stable=`) is counted as if it did not.

    Args:
        prompt: As in `explain_response`.
        response: As in `explain_response`.
        score: An Endpoint, whose cache is taken into account, or a function, which is not called.
        method: As in `explain_response`.
        **settings: Other arguments of `explain_response`, such as context=… and proxy=….

    Returns:
        A RequestEstimate: requests, answers in the cache, and about how many tokens.

    Raises:
        WhyformerError: If `explain_response` would refuse the arguments.

    Example:
        >>> endpoint = whyformer.Endpoint("http://127.0.0.1:8000", "smollm2")
        >>> documents = ["Anna has the key.", "Ben has the hat."]
        >>> whyformer.estimate_requests("Who has the key?", " Anna.", endpoint, "leave_one_out", context=documents)
        RequestEstimate(requests=4, cached=0, tokens=47)
    """
    counter = _Counter(score if isinstance(score, Endpoint) else None)
    options = {name: value for name, value in settings.items() if name != "stable"}
    explain_response(prompt, response, method=method, score=counter, **options)
    missing = [prompt + response for (prompt, response), is_cached in counter.pairs.items() if not is_cached]
    tokens = sum(-(-len(text) // CHARACTERS_PER_TOKEN) for text in missing)
    return RequestEstimate(len(missing), len(counter.pairs) - len(missing), tokens)


def words_as_tokens(text: str) -> list[ServedToken]:
    """A token for each word, with the white space before it."""
    ends = [end for _, end in word_ranges(text)]
    ends = [*ends[:-1], len(text)] if ends else [len(text)]
    starts = [0, *ends[:-1]]
    return [ServedToken(text[a:b], a, b, -1.0) for a, b in zip(starts, ends, strict=True)]

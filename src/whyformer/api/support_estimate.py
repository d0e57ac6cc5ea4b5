"""The number of requests that verdicts of a served model take, without sending one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from whyformer.api.answer_support import answer_support
from whyformer.api.request_estimate import CHARACTERS_PER_TOKEN, words_as_tokens
from whyformer.api.served_scorer import ServedScorer
from whyformer.api.source_removal import MOST_CARRYING
from whyformer.inputs.support_logs import LoggedAnswer
from whyformer.removal.response_scorer import PromptVariant
from whyformer.served.endpoint import Endpoint
from whyformer.served.served_tokens import ServedToken

STAND_IN = "This is the model's own answer."  # for one that is not in the cache


@dataclass(frozen=True)
class SupportEstimate:
    """The cost of the verdicts on a log.

    Attributes:
        answers: The number of answers.
        least: The number of requests if no sentence is from sources, without those that the cache answers.
        most: The number if every sentence is, and each of its sources is removed.
        cached: The number of answers in the cache.
        tokens: About how many tokens the requests of `least` have, at four characters each.
    """

    answers: int
    least: int
    most: int
    cached: int
    tokens: int

    def __str__(self) -> str:
        return (
            f"{self.answers} answers need {self.least} to {self.most} requests, at least about {self.tokens} tokens; "
            f"{self.cached} are in the cache. Nothing was sent."
        )


@dataclass
class _Score:
    """A scoring function that answers from the cache of an endpoint, and counts what it would send."""

    endpoint: Endpoint
    texts: dict[tuple[str, str], bool] = field(default_factory=dict)  # whether the cache has it

    def __call__(self, prompts: Sequence[str], responses: Sequence[str]) -> list[tuple[ServedToken, ...]]:
        pairs = list(zip(prompts, responses, strict=True))
        known = [self.endpoint.cached_tokens(*pair) for pair in pairs]
        self.texts |= {pair: tokens is not None for pair, tokens in zip(pairs, known, strict=True)}
        return [tokens or tuple(words_as_tokens(pair[1])) for pair, tokens in zip(pairs, known, strict=True)]


@dataclass(frozen=True, eq=False)
class _CountingScorer(ServedScorer):
    """A served model that writes what is in the cache, or a stand-in."""

    def write(self, prompt: PromptVariant, tokens: int) -> str:
        score: Any = self.score
        text = score.endpoint.cached_text(prompt.text, tokens)
        score.texts[prompt.text, ""] = text is not None
        return STAND_IN if text is None else text


def estimate_support(
    endpoint: Endpoint, tokenizer: Any, answers: Iterable[LoggedAnswer], **options: Any
) -> SupportEstimate:
    """Count the requests of the verdicts on answers; `options` are those of `Response.support`."""
    answers, most, score = list(answers), 0, _Score(endpoint)
    for answer in answers:
        before = sum(not is_cached for is_cached in score.texts.values())
        scorer = _CountingScorer(score, tokenizer)
        support = answer_support(scorer, answer.prompt, answer.answer, answer.documents, **options)
        if sum(not is_cached for is_cached in score.texts.values()) > before:
            most += len(support.sources) + MOST_CARRYING * len(support.units)
    missing = [prompt + response for (prompt, response), is_cached in score.texts.items() if not is_cached]
    tokens = sum(-(-len(text) // CHARACTERS_PER_TOKEN) for text in missing)
    return SupportEstimate(len(answers), len(missing), len(missing) + most, len(score.texts) - len(missing), tokens)

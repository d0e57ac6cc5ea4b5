"""The question that every method of removal puts to a model: how likely is this response after that prompt?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from whyformer.axes import SubsetExampleScores, UnitMasks
from whyformer.inputs.prompt import Prompt
from whyformer.inputs.prompt_tokens import Token
from whyformer.inputs.sentences import CharRange
from whyformer.removal.units import Ablation, Units


@dataclass(frozen=True)
class PromptVariant:
    """A prompt as a model reads it, whole or without some of its sources.

    Attributes:
        text: The text up to where the response begins, chat template included.
        ids: Its tokens; empty for a model whose tokens are not known here.
    """

    text: str
    ids: tuple[int, ...] = ()


@dataclass(frozen=True)
class ScoringRequest:
    """A prompt, and the response to score after it.

    Attributes:
        prompt: The prompt.
        tokens: The tokens of the response. Each has its characters in `response` (`start`, `end`) and its id; models
        whose tokens are not known here use the characters.
        response: The text of the response.
    """

    prompt: PromptVariant
    tokens: tuple[Token, ...]
    response: str


class ResponseScorer(Protocol):
    """A model, loaded or served, that says how likely a given response is after a prompt.

    Everything that removes sources and asks again needs these four calls only: leave_one_out, context_ablation,
    kernel_shap, focus="sources" and support. An implementation may batch, cache, retry and share prefixes as it likes,
    so long as the numbers are those of plain forward passes one by one.

    Attributes:
        name: The name of the model.
    """

    @property
    def name(self) -> str:
        """The name of the model."""
        ...

    def prompt(self, prompt: Any, context: Sequence[Any] | None = None, layout: str | None = None) -> Prompt:
        """Build a prompt from the arguments of `explain_response`, through the model's chat template if it has one."""
        ...

    def response(self, prompt: Prompt, text: str) -> tuple[Token, ...]:
        """The tokens of a response that follows this prompt.

        A served model without a known tokenizer may return words: pieces whose ranges cover the text in order.
        """
        ...

    def variant(self, prompt: Prompt, removed: Sequence[CharRange] = ()) -> PromptVariant:
        """The prompt without these ranges of its text, ready to be scored. It is never empty."""
        ...

    def log_probabilities(
        self, requests: Sequence[ScoringRequest], *, whole: PromptVariant | None = None, progress: bool = False
    ) -> list[np.ndarray]:
        """Score responses after prompts.

        Args:
            requests: What to score; the same request may occur twice, and is then computed once.
            whole: The prompt that the requests' prompts are variants of, where a shared prefix can be reused.
            progress: Whether to show a progress bar.

        Returns:
            For each request a float64 array with the natural logarithm of the probability of each of its `tokens`,
            given the prompt and the response before it. A model that splits the text into other tokens adds those that
            end within a token's characters; the sum is that of the response either way.
        """
        ...

    def write(self, prompt: PromptVariant, tokens: int) -> str:
        """The likeliest continuation of a prompt, greedily, at most this many tokens; may be empty.

        Raises:
            UnsupportedModel: If the model can only score.
        """
        ...


def requests_after(prompts: Sequence[PromptVariant], tokens: Sequence[Token], response: str) -> list[ScoringRequest]:
    """The same response after each prompt."""
    return [ScoringRequest(prompt, tuple(tokens), response) for prompt in prompts]


def scorer_ablation(
    scorer: ResponseScorer,
    prompt: Prompt,
    sources: Sequence[CharRange],
    response: tuple[str, Sequence[Token]],
    rows: Sequence[Sequence[int]],
    *,
    weights: Sequence[Sequence[float]] | None = None,
    progress: bool = False,
) -> Ablation:
    """The log-probabilities of a response's rows as a function of which sources, the units, its prompt keeps.

    A row is the indices of its tokens in the response, and `weights` are theirs in its sum, by default 1 each.
    """
    text, tokens = response
    whole = scorer.variant(prompt)

    def variant(mask: np.ndarray) -> PromptVariant:
        return scorer.variant(prompt, [place for place, is_kept in zip(sources, mask, strict=True) if not is_kept])

    def score(prompts: Sequence[PromptVariant]) -> list[np.ndarray]:
        return scorer.log_probabilities(requests_after(prompts, tokens, text), whole=whole, progress=progress)

    return span_ablation(score, variant, len(sources), len(tokens), rows, weights=weights)


def span_ablation(
    score: Callable[[Sequence[PromptVariant]], Sequence[np.ndarray]],
    variant: Callable[[np.ndarray], PromptVariant],
    sources: int,
    tokens: int,
    rows: Sequence[Sequence[int]],
    *,
    weights: Sequence[Sequence[float]] | None = None,
) -> Ablation:
    """The same, of any function from prompts to the log-probabilities of a response's tokens."""
    of_rows = np.zeros((tokens, len(rows)))
    for number, row in enumerate(rows):
        of_rows[list(row), number] = 1.0 if weights is None else weights[number]

    def ask(_: Sequence[Units], masks: Sequence[UnitMasks]) -> SubsetExampleScores:
        # Rows have the same units, hence the same subsets, so that one prompt scores all of them.
        prompts = [variant(mask > 0) for mask in masks[0]]
        different = [*dict.fromkeys(prompts)]
        by_prompt = dict(zip(different, score(different), strict=True))
        return np.stack([by_prompt[prompt] for prompt in prompts]) @ of_rows

    units = Units(np.arange(sources), ((sources,),))
    return Ablation((units,) * len(rows), None, ask, tuple(len(row) for row in rows))

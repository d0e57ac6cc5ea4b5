"""How likely a served model finds given responses: an endpoint or a function, asked by texts."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from whyformer.errors import UnsupportedModel, WhyformerError
from whyformer.inputs.conversation import Conversation
from whyformer.inputs.prompt import Prompt, untokenized_prompt
from whyformer.inputs.prompt_tokens import Token
from whyformer.inputs.sentences import CharRange
from whyformer.inputs.tool_prompt import any_prompt_of
from whyformer.removal.prompt_text import text_without
from whyformer.removal.response_scorer import PromptVariant, ScoringRequest
from whyformer.results.response_parts import ResponseToken
from whyformer.served.endpoint import Endpoint
from whyformer.served.served_tokens import ScoreFunction, ServedToken, checked_scores

EMPTY_PROMPT = "\n"  # sent in its place: some servers put no token before a text, and score no first token


@dataclass(frozen=True, eq=False)
class ServedScorer:
    """A ResponseScorer of a model of which only log-probabilities are known.

    Attributes:
        score: The endpoint or the function that returns them.
        tokenizer: A tokenizer whose chat template formats messages; None to send texts unchanged.
    """

    score: ScoreFunction
    tokenizer: Any = None
    _known: dict[tuple[str, str], tuple[ServedToken, ...]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The model's name on the server, or the function's."""
        if isinstance(self.score, Endpoint):
            return self.score.model
        return str(getattr(self.score, "__name__", type(self.score).__name__))

    def prompt(self, prompt: Any, context: Sequence[Any] | None = None, layout: str | None = None) -> Prompt:
        """The prompt that is sent: a text, or messages by the chat template."""
        if self.tokenizer is not None:
            return any_prompt_of(self, prompt, context, layout)
        if isinstance(prompt, (list, tuple, Conversation)):
            raise WhyformerError(
                "Messages become a text by a chat template, which only the server has: pass its tokenizer as "
                "processor=…, or write the template's text into the prompt or into layout=…."
            )
        return untokenized_prompt(prompt, context, layout)

    def response(self, prompt: Prompt, text: str) -> tuple[Token, ...]:
        """The tokens that the server sees in a response after this prompt."""
        return tuple(Token(one.id, one.text, one.start, one.end) for one in self.scored(prompt.rendered, text))

    def response_tokens(self, prompt: Prompt, text: str) -> tuple[ResponseToken, ...]:
        """The same with what the server says of each."""
        return tuple(
            ResponseToken(one.id, one.text, one.start, one.end, one.log_probability, None, one.rank)
            for one in self.scored(prompt.rendered, text)
        )

    def variant(self, prompt: Prompt, removed: Sequence[CharRange] = ()) -> PromptVariant:
        """The text of the prompt without these ranges; a line break if nothing is left."""
        return PromptVariant((text_without(self, prompt, removed) if removed else prompt.rendered) or EMPTY_PROMPT)

    def log_probabilities(
        self, requests: Sequence[ScoringRequest], *, whole: PromptVariant | None = None, progress: bool = False
    ) -> list[np.ndarray]:
        """The log-probability of each token, by one question for each different prompt and response."""
        pairs = [(request.prompt.text, request.response) for request in requests]
        self._ask([pair for pair in dict.fromkeys(pairs) if pair not in self._known], progress=progress)
        return [values_of(request.tokens, self._known[pair]) for request, pair in zip(requests, pairs, strict=True)]

    def write(self, prompt: PromptVariant, tokens: int) -> str:
        """The likeliest continuation, if the model has an endpoint."""
        if isinstance(self.score, Endpoint):
            return self.score.write(prompt.text, tokens)
        raise UnsupportedModel(f"{self.name} is a function that scores responses: it writes none.")

    def scored(self, prompt: str, response: str) -> tuple[ServedToken, ...]:
        """The tokens of a response after a text."""
        if (prompt, response) not in self._known:
            self._ask([(prompt, response)])
        return self._known[prompt, response]

    def _ask(self, pairs: Sequence[tuple[str, str]], *, progress: bool = False) -> None:
        if not pairs:
            return
        prompts, responses = ([pair[number] for pair in pairs] for number in (0, 1))
        if isinstance(self.score, Endpoint):
            answers = self.score(prompts, responses, progress=progress)
        else:
            answers = checked_scores(self.score(prompts, responses), responses, self.name)
        self._known.update(zip(pairs, answers, strict=True))


def values_of(tokens: Sequence[Token], scored: Sequence[ServedToken]) -> np.ndarray:
    """The log-probability of each token of a response.

    After another prompt a server may split the beginning of the response otherwise: its tokens are then added to those
    in whose characters they end.
    """
    values = np.array([one.log_probability for one in scored])
    if [(one.start, one.end) for one in tokens] == [(one.start, one.end) for one in scored]:
        return values
    ends = [token.end for token in tokens]
    numbers = [min(bisect_left(ends, one.end), len(ends) - 1) for one in scored]
    return np.bincount(numbers, values, len(ends))

"""The questions that support puts to a model: with all sources, without, in its own words, and as a judge."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from whyformer.errors import UnsupportedModel
from whyformer.inputs.negation import negated
from whyformer.inputs.prompt import Prompt
from whyformer.inputs.prompt_tokens import Token
from whyformer.inputs.sentences import CharRange, sentence_ranges
from whyformer.inputs.sources import Source
from whyformer.inputs.spans import Span
from whyformer.inputs.value_words import value_tokens, with_value_of
from whyformer.removal.response_scorer import PromptVariant, ResponseScorer, ScoringRequest
from whyformer.results.support import Variant

JUDGE = "Is that answer stated in the text or does it follow from the text? Answer yes or no."
YES, NO = "Yes", "No"
MOST_OWN_TOKENS = 32  # of the model's own answer


@dataclass(eq=False)
class CountedScorer:
    """A scorer that asks nothing twice, counts its forward passes, and stops at a budget.

    Attributes:
        scorer: The scorer.
        budget: The most forward passes; None for no limit.
        forwards: The number so far.
    """

    scorer: ResponseScorer
    budget: int | None = None
    forwards: int = 0
    _known: dict[ScoringRequest, np.ndarray] = field(default_factory=dict)

    def affords(self, requests: Sequence[ScoringRequest]) -> bool:
        """Whether the budget suffices for these requests."""
        new = sum(request not in self._known for request in dict.fromkeys(requests))
        return self.has_spare(new)

    def has_spare(self, forwards: int) -> bool:
        """Whether this many forward passes are left in the budget."""
        return self.budget is None or self.forwards + forwards <= self.budget

    def log_probabilities(
        self, requests: Sequence[ScoringRequest], whole: PromptVariant | None = None
    ) -> list[np.ndarray]:
        """The log-probabilities of each request's tokens."""
        new = [request for request in dict.fromkeys(requests) if request not in self._known]
        self.forwards += len(new)
        self._known |= dict(zip(new, self.scorer.log_probabilities(new, whole=whole), strict=True)) if new else {}
        return [self._known[request] for request in requests]

    def write(self, prompt: PromptVariant) -> str | None:
        """The first sentence that the model would write; None if it can only score."""
        text = self.write_all(prompt, MOST_OWN_TOKENS)
        if text is None:
            return None
        ranges = sentence_ranges(text)
        return text[: ranges[0][1]] if ranges else ""

    def write_all(self, prompt: PromptVariant, tokens: int) -> str | None:
        """The text that the model would write, up to this many tokens; None if it can only score."""
        try:
            text = self.scorer.write(prompt, tokens)
        except UnsupportedModel:
            return None
        self.forwards += 1
        return text


class OwnAnswer(NamedTuple):
    """An answer of the model: the text, its log-probability and the number of its tokens."""

    text: str
    log_probability: float
    tokens: int


@dataclass(frozen=True, eq=False)
class SupportQuestions:
    """A prompt with its response, and the questions about its units.

    Attributes:
        scorer: The model.
        prompt: The prompt.
        text: The response.
        tokens: Its tokens.
        spans: The units.
        places: The ranges of all sources in the prompt, without the question.
        sentences: The finest sources.
    """

    scorer: CountedScorer
    prompt: Prompt
    text: str
    tokens: tuple[Token, ...]
    spans: tuple[Span, ...]
    places: tuple[CharRange, ...]
    sentences: tuple[Source, ...] = ()

    @property
    def whole(self) -> PromptVariant:
        """The prompt with all sources."""
        return self.scorer.scorer.variant(self.prompt)

    def response_request(self, removed: Iterable[CharRange] = ()) -> ScoringRequest:
        """The whole response without these ranges of the prompt."""
        return ScoringRequest(self.scorer.scorer.variant(self.prompt, list(removed)), self.tokens, self.text)

    def affords(self, removals: Iterable[Iterable[CharRange]]) -> bool:
        """Whether the budget suffices for the response without each of these."""
        return self.scorer.affords([self.response_request(one) for one in removals])

    def token_values(self, removals: Sequence[Iterable[CharRange]]) -> list[np.ndarray]:
        """The log-probability of each token of the response, without each of these sets of ranges."""
        return self.scorer.log_probabilities([self.response_request(one) for one in removals], self.whole)

    def unit_values(self, removals: Sequence[Iterable[CharRange]]) -> np.ndarray:
        """The log-probability of each unit: an array [removal, unit]."""
        values = self.token_values(removals)
        return np.array([[float(one[list(span.tokens)].sum()) for span in self.spans] for one in values])

    @property
    def question(self) -> str:
        """The text of the prompt without the sources."""
        text, end = "", 0
        for start, last in sorted(self.places):
            text, end = text + self.prompt.text[end:start], max(end, last)
        return text + self.prompt.text[end:]

    def value_span(self, unit: int) -> Span:
        """The span with the tokens of its value only."""
        span = self.spans[unit]
        return replace(span, tokens=value_tokens(self.text, self.tokens, span.tokens, self.question))

    def own_answer(self, unit: int) -> OwnAnswer | None:
        """The answer that the model would have written instead; None if it cannot write."""
        before = self._until(self.spans[unit])
        text = self.scorer.write(before)
        if text is None:
            return None
        if not text.strip():
            return OwnAnswer("", 0.0, 0)
        if text.strip() == self.spans[unit].text.strip():
            (values,) = self.unit_values([()])
            return OwnAnswer(text.strip(), float(values[unit]), len(self.spans[unit].tokens))
        tokens = self.scorer.scorer.response(self.prompt, text)
        (values,) = self.scorer.log_probabilities([ScoringRequest(before, tokens, text)], before)
        return OwnAnswer(text.strip(), float(values.sum()), len(tokens))

    def rival(self, unit: int, own_answer: str) -> Variant | None:
        """The unit with the value of the model's own answer; None if one of them has no value."""
        text = with_value_of(self._unit_text(unit), own_answer, self.question)
        return None if text is None else self.variant(unit, text, [()])

    def denial(self, unit: int) -> Variant | None:
        """The opposite of a unit, with the sources and without; None if it cannot be put into words."""
        text = negated(self._unit_text(unit))
        return None if text is None else self.variant(unit, text, [(), self.places])

    def variant(self, unit: int, text: str, removals: Sequence[Iterable[CharRange]]) -> Variant:
        """Another text in the place of a unit, with its log-probability without each of one or two sets of ranges."""
        if text == self._unit_text(unit):
            return Variant(text.strip(), *(float(one) for one in self.unit_values(removals)[:, unit]))
        start = self.tokens[min(self.spans[unit].tokens)].start
        whole = self.text[:start] + text
        tokens = self.scorer.scorer.response(self.prompt, whole)
        variants = [self.scorer.scorer.variant(self.prompt, list(removed)) for removed in removals]
        requests = [ScoringRequest(one, tokens, whole) for one in variants]
        own = [number for number, token in enumerate(tokens) if token.end > start]
        values = self.scorer.log_probabilities(requests, self.whole)
        return Variant(text.strip(), *(float(one[own].sum()) for one in values))

    def _unit_text(self, unit: int) -> str:
        """The characters of a unit's tokens, white space before it included."""
        own = self.spans[unit].tokens
        return self.text[self.tokens[min(own)].start : self.tokens[max(own)].end]

    def without_earlier(self, unit: int) -> float | None:
        """The log-probability of a unit without the response before it; None for the first."""
        if not self.text[: self.spans[unit].start].strip():
            return None
        text = self._opening + self.spans[unit].text.strip()
        tokens = self.scorer.scorer.response(self.prompt, text)
        (values,) = self.scorer.log_probabilities([ScoringRequest(self.whole, tokens, text)], self.whole)
        return float(values.sum())

    def judgements(self, unit: int, removals: Sequence[Iterable[CharRange]]) -> list[float]:
        """The log-odds of yes against no, without each of these sets of ranges."""
        return self.odds(self.prompt_after(self.spans[unit].text.strip(), JUDGE), removals)

    def odds(
        self, prompt: Prompt, removals: Sequence[Iterable[CharRange]] = ((),), words: tuple[str, str] = (YES, NO)
    ) -> list[float]:
        """The log-odds of one answer to a prompt against another, without each of these sets of ranges."""
        variants = [self.scorer.scorer.variant(prompt, list(removed)) for removed in removals]
        texts = [f"{self._opening}{word}" for word in words]
        tokens = [self.scorer.scorer.response(prompt, text) for text in texts]
        requests = [
            ScoringRequest(variant, own, text) for variant in variants for own, text in zip(tokens, texts, strict=True)
        ]
        values = self.scorer.log_probabilities(requests, self.scorer.scorer.variant(prompt))
        sums = np.array([float(one.sum()) for one in values]).reshape(-1, 2)
        return [float(first - second) for first, second in sums]

    def prompt_with(self, tail: str) -> Prompt:
        """The prompt with more at its end; sources keep their places."""
        if not self.prompt.messages:
            return self.scorer.scorer.prompt(f"{self.prompt.text}{tail}")
        *before, last = self._messages
        return self.scorer.scorer.prompt([*before, {**last, "content": last["content"] + tail}])

    def prompt_after(self, answer: str, ask: str) -> Prompt:
        """The prompt, an answer and a question about it; sources keep their places."""
        if not self.prompt.messages:
            return self.scorer.scorer.prompt(f"{self.prompt.text}{self._opening}{answer}\n\n{ask}")
        added = [{"role": "assistant", "content": answer}, {"role": "user", "content": ask}]
        return self.scorer.scorer.prompt([*self._messages, *added])

    @property
    def texts(self) -> list[str]:
        """The texts of the finest sources, without the names of their documents."""
        return [one.text.removeprefix(f"{one.name}: ") for one in self.sentences]

    def all_but(self, source: Source) -> list[CharRange]:
        """The places of all finest sources but one."""
        return [(one.start, one.end) for one in self.sentences if one is not source]

    @property
    def _messages(self) -> list[dict[str, str]]:
        return [{"role": one.role, "content": self.prompt.text[one.start : one.end]} for one in self.prompt.messages]

    @property
    def _opening(self) -> str:
        """The white space that the response begins with."""
        return self.text[: len(self.text) - len(self.text.lstrip())]

    def _until(self, span: Span) -> PromptVariant:
        """The prompt with the response before a unit, up to the white space before it."""
        count = min(span.tokens)
        end = self.tokens[count].start
        whole = self.whole
        ids = (*whole.ids, *(token.id for token in self.tokens[:count])) if whole.ids else ()
        return PromptVariant(whole.text + self.text[:end], ids)

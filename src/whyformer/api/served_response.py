"""Explain responses of a model that is only served, from the log-probabilities it returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from whyformer.axes import SourceScores, SubsetExampleScores, UnitMasks
from whyformer.errors import WhyformerError
from whyformer.inputs.prompt import Prompt, prompt_of, untokenized_prompt
from whyformer.inputs.prompt_tokens import tokens_on
from whyformer.inputs.sources import Source, Sources, sources_of
from whyformer.inputs.spans import Span, SpanSelection, spans_of
from whyformer.methods.registry import Method, method_named, source_methods
from whyformer.removal.prompt_text import text_without
from whyformer.removal.units import Ablation, SubsetCount, Units
from whyformer.results.response import Response
from whyformer.results.response_parts import ResponseToken
from whyformer.results.source_pooling import SourceAggregate
from whyformer.served.endpoint import Endpoint
from whyformer.served.scored_tokens import ScoredToken, ScoreFunction, checked_scores

SERVED_DEFAULT = "context_ablation"  # the method for served models, the best that needs no insides


@dataclass(frozen=True)
class ServedModel:
    """A model of which only the log-probabilities of given responses are known.

    Attributes:
        score: The function that returns them.
        tokenizer: A tokenizer whose chat template formats messages; None to send texts as they are.
        progress: Whether an endpoint shows a progress bar.
    """

    score: ScoreFunction
    tokenizer: Any = None
    progress: bool = False

    @property
    def name(self) -> str:
        """The model's name on the server, or the function's."""
        if isinstance(self.score, Endpoint):
            return self.score.model
        return str(getattr(self.score, "__name__", type(self.score).__name__))

    def prompt(self, prompt: Any, context: Sequence[Any] | None, layout: str | None) -> Prompt:
        """The prompt as it is sent: a text, or messages by the chat template."""
        if self.tokenizer is not None:
            return prompt_of(self, prompt, context, layout)
        if isinstance(prompt, (list, tuple)):
            raise WhyformerError(
                "Messages become a text by a chat template, which only the server has: pass its tokenizer as "
                "processor=…, or write the template's text into the prompt or into layout=…."
            )
        return untokenized_prompt(prompt, context, layout)

    def log_probabilities(self, prompts: Sequence[str], response: str) -> list[tuple[ScoredToken, ...]]:
        """The tokens of a response after each of several prompts."""
        responses = [response] * len(prompts)
        if isinstance(self.score, Endpoint):
            return self.score(prompts, responses, progress=self.progress)
        return checked_scores(self.score(prompts, responses), responses, self.name)


@dataclass(frozen=True)
class ServedCase:
    """A prompt with its response, the tokens that the server sees in it, its spans and sources."""

    prompt: Prompt
    text: str
    tokens: tuple[ScoredToken, ...]
    spans: tuple[Span, ...]
    sources: tuple[Source, ...]


@dataclass(frozen=True)
class ServedQuestion:
    """The settings for explaining responses of a served model."""

    served: ServedModel
    method: Method
    options: Mapping[str, Any]
    layout: str | None = None
    units: SpanSelection = None
    sources: Sources = None
    aggregate: SourceAggregate = "positive"
    preselect: Callable[[Any, Sequence[Any] | None, ServedCase], tuple[list[int], str]] | None = None

    def __call__(self, prompt: Any, response: Any, context: Sequence[Any] | None, contrast: Any = None) -> Response:
        """Explain one response; with another one, subtract its scores."""
        read = self.served.prompt(prompt, context, self.layout)
        sources = sources_of(read, self.sources)
        units = "response" if self.units is None and contrast is not None else self.units
        case = self._case(read, response, sources, units)
        chosen, remark = list(range(len(sources))), ""
        if self.preselect is not None:
            chosen, remark = self.preselect(prompt, context, case)
        count = SubsetCount(-1)  # the first is the whole prompt
        scores = self._scores(case, chosen, count)
        options = {name: parameter.default for name, parameter in self.method.options.items()} | dict(self.options)
        remarks = count.remarks(options)
        if contrast is not None:
            scores = scores - self._scores(self._case(read, contrast, sources, "response"), chosen, count)
            options["contrast"] = contrast
        nothing = "" if scores.any() else f"{self.method.name} found nothing in the prompt: every score is zero."
        return Response(
            prompt=read,
            text=case.text,
            tokens=tuple(map(_response_token, case.tokens)),
            rows=case.spans,
            sources=sources,
            scores=scores.astype(np.float32),
            method=self.method.name,
            model=self.served.name,
            aggregate=self.aggregate,
            leaves_out_sinks=False,
            options=options,
            notes=tuple(note for note in (_merged(case), *remarks, remark, nothing) if note),
        )

    def _case(self, prompt: Prompt, response: Any, sources: tuple[Source, ...], units: SpanSelection) -> ServedCase:
        if not isinstance(response, str) or not response.strip():
            raise WhyformerError(
                f"A response of a served model is the text that it wrote, not {response!r:.40}: with score=… nothing "
                "is generated."
            )
        (tokens,) = self.served.log_probabilities([prompt.rendered], response)
        is_whole = len(tokens) == 1 and not isinstance(self.served.score, Endpoint)
        if is_whole and units not in (None, "response"):
            raise WhyformerError(
                f"{self.served.name} returned one number for the response, so that units={units!r:.40} cannot be told "
                "apart: return a (text, log-probability) pair for each token."
            )
        spans = spans_of(response, tokens, "response" if is_whole else units)
        return ServedCase(prompt, response, tokens, spans, sources)

    def _scores(self, case: ServedCase, chosen: Sequence[int], count: SubsetCount) -> SourceScores:
        """The method's scores of the chosen sources; 0 for the others, which are never removed."""
        scores = np.zeros((len(case.spans), len(case.sources)))
        sources = [case.sources[number] for number in chosen]
        ablation = count.counting(served_ablation(self.served, case, sources))
        scores[:, list(chosen)] = self.method.of_sources(ablation, **self.options)
        return scores


def served_ablation(served: ServedModel, case: ServedCase, sources: Sequence[Source]) -> Ablation:
    """The log-probabilities of a response's spans as a function of which sources its prompt keeps."""
    known = {case.prompt.rendered: span_values(case, case.tokens)}

    def prompt_without(mask: np.ndarray) -> str:
        left_out = [(one.start, one.end) for one, is_kept in zip(sources, mask, strict=True) if not is_kept]
        return text_without(served, case.prompt, left_out) if left_out else case.prompt.rendered

    def ask(_: Sequence[Units], masks: Sequence[UnitMasks]) -> SubsetExampleScores:
        # Spans have the same units, hence the same subsets, so that one prompt scores all of them.
        prompts = [prompt_without(mask > 0) for mask in masks[0]]
        missing = [prompt for prompt in dict.fromkeys(prompts) if prompt not in known]
        answers = served.log_probabilities(missing, case.text) if missing else []
        known.update((prompt, span_values(case, one)) for prompt, one in zip(missing, answers, strict=True))
        return np.stack([known[prompt] for prompt in prompts])

    units = Units(np.arange(len(sources)), ((len(sources),),))
    return Ablation((units,) * len(case.spans), None, ask, tuple(len(span.tokens) for span in case.spans))


def span_values(case: ServedCase, tokens: Sequence[ScoredToken]) -> np.ndarray:
    """The log-probability of each span of a response.

    After another prompt the server may tokenize the beginning of the response otherwise: spans then have the tokens
    in their characters.
    """
    places = [(token.start, token.end) for token in tokens]
    if places == [(token.start, token.end) for token in case.tokens]:
        by_span = [span.tokens for span in case.spans]
    else:
        by_span = [tokens_on([(span.start, span.end)], tokens, case.text)[0] for span in case.spans]
    return np.array([sum(tokens[number].log_probability for number in numbers) for numbers in by_span])


def served_method(name: str | None) -> Method:
    """The method for a served model, which must need log-probabilities alone."""
    method = method_named(SERVED_DEFAULT if name is None else name)
    if not method.reads.subsets:
        others = ", ".join(sorted(name for name, one in source_methods().items() if one.reads.subsets))
        raise WhyformerError(
            f"{method.name} reads the insides of a model, which score=… does not show: choose one that removes "
            f"sources, such as {others} or kernel_shap."
        )
    return replace(method, kinds=("response",))


def _response_token(token: ScoredToken) -> ResponseToken:
    return ResponseToken(token.id, token.text, token.start, token.end, token.log_probability, None, token.rank)


def _merged(case: ServedCase) -> str:
    if not case.tokens[0].reaches_back:
        return ""
    return (
        f"A token of the server covers the end of the prompt and the beginning of the response, "
        f"{case.tokens[0].text!r}: its log-probability counts with the response."
    )

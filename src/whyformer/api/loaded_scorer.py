"""How likely a loaded model finds given responses: shared prefixes computed once, batches as memory allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch

from whyformer.api.generation import end_ids
from whyformer.api.replies import text_reply
from whyformer.inputs.chunks import decoder_beginning
from whyformer.inputs.prompt import Prompt
from whyformer.inputs.prompt_tokens import Token, id_tokens
from whyformer.inputs.sentences import CharRange
from whyformer.inputs.tool_prompt import any_prompt_of
from whyformer.models.loading import LoadedModel
from whyformer.models.structure import device_of
from whyformer.removal.prompt_text import rendered_ids, text_without
from whyformer.removal.response_scorer import PromptVariant, ScoringRequest
from whyformer.removal.response_scores import PrefixCache, ResponseModel, greedy_tokens, response_log_probabilities

LONG_ON_CPU = 2048  # tokens


@dataclass(frozen=True, eq=False)
class LoadedScorer:
    """A ResponseScorer of a loaded model.

    Attributes:
        loaded_model: The model.
        batch_size: Prompts at once; by default what is worthwhile on the device, fewer if memory runs out.
        keeps_prefix: Whether keys and values of the prompt are kept for later calls; a single call is faster without.
    """

    loaded_model: LoadedModel
    batch_size: int | None = None
    keeps_prefix: bool = True
    _prefix: PrefixCache = field(default_factory=PrefixCache)

    @property
    def name(self) -> str:
        """The name of the model."""
        return self.loaded_model.name

    def prompt(self, prompt: Any, context: Sequence[Any] | None = None, layout: str | None = None) -> Prompt:
        """Build a prompt through the tokenizer's chat template, if it has one."""
        return any_prompt_of(self.loaded_model, prompt, context, layout)

    def response(self, prompt: Prompt, text: str) -> tuple[Token, ...]:
        """The tokens of a response that follows this prompt."""
        return text_reply(self.loaded_model, prompt, text)

    def variant(self, prompt: Prompt, removed: Sequence[CharRange] = ()) -> PromptVariant:
        """The prompt without these ranges of its text; the prompt's own tokens if nothing is removed."""
        if not removed:
            return PromptVariant(prompt.rendered, tuple(prompt.ids))
        text = text_without(self.loaded_model, prompt, removed)
        return PromptVariant(text, tuple(rendered_ids(self.loaded_model, prompt, text)))

    def log_probabilities(
        self, requests: Sequence[ScoringRequest], *, whole: PromptVariant | None = None, progress: bool = False
    ) -> list[np.ndarray]:
        """The log-probability of each token. Responses that differ in their last token only share a forward pass."""
        by_beginning: dict[tuple[int, ...], dict[tuple[int, ...], list[int]]] = {}
        keys = [(request.prompt.ids, tuple(token.id for token in request.tokens)) for request in requests]
        for prompt, response in dict.fromkeys(key for key in keys if key[1]):
            by_beginning.setdefault(response[:-1], {}).setdefault(prompt, []).append(response[-1])
        values = {key: np.zeros(0) for key in keys if not key[1]}
        for beginning, lasts in by_beginning.items():
            prompts, (first, *others) = [*lasts], dict.fromkeys(last for own in lasts.values() for last in own)
            like = prompts[0] if whole is None else whole.ids
            figures = response_log_probabilities(
                ResponseModel(self.loaded_model.model, (*beginning, first), self._beginning, tuple(others)),
                prompts,
                like=like,
                prefix=self._prefix if self.keeps_prefix else None,
                batch_size=self.batch_size or self._alone(prompts),
                progress=progress,
            )
            for number, last in enumerate((first, *others), start=len(beginning)):
                places = [*range(len(beginning)), number]
                values |= {(prompt, (*beginning, last)): figures[prompt][places] for prompt in prompts}
        return [values[key] for key in keys]

    def _alone(self, prompts: Sequence[Sequence[int]]) -> int | None:
        """A batch of one for long prompts on a CPU: each shares more with the whole prompt than a batch does."""
        is_long = max(map(len, prompts)) >= LONG_ON_CPU
        return 1 if is_long and device_of(self.loaded_model.model).type == "cpu" else None

    def write(self, prompt: PromptVariant, tokens: int) -> str:
        """The likeliest continuation, up to the end-of-text token or this many tokens."""
        writer = ResponseModel(self.loaded_model.model, (), self._beginning)
        with torch.inference_mode():
            ids = greedy_tokens(writer, prompt.ids, tokens, end_ids(self.loaded_model), self._prefix)
        before = prompt.ids[-1:] if self._beginning is None else ()
        text, _ = id_tokens(ids, self.loaded_model.tokenizer, before) if ids else ("", ())
        return text

    @cached_property
    def _beginning(self) -> tuple[int, ...] | None:
        task = self.loaded_model.task
        return tuple(decoder_beginning(self.loaded_model)) if task.writes and task.has_decoder else None

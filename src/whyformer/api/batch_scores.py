"""A batch of encoded examples traced and scored: the path that explanations and evaluations share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from whyformer.api.attribute import MethodChoice
from whyformer.api.processed_options import processed_options
from whyformer.axes import Inputs, StreamScores
from whyformer.backward.rules import Backward
from whyformer.inputs.chunks import Vocabulary
from whyformer.inputs.encode import EncodedExample
from whyformer.inputs.parts import merge_levels
from whyformer.models.loading import LoadedModel
from whyformer.models.structure import fixed_modules, unwrapped
from whyformer.targets.scores import Target
from whyformer.tracing import build
from whyformer.tracing.attribution import Attribution
from whyformer.tracing.reads import Reads
from whyformer.tracing.trace import Trace, zero_scores


@dataclass(frozen=True, eq=False)
class BatchScores:
    """The trace of a batch and a method's attribution.

    `scores` has every stream, with zeros if the method does not score it; feature maps of several sizes are resampled
    to the finest.
    """

    trace: Trace
    attribution: Attribution
    scores: StreamScores


def score_batch(
    loaded_model: LoadedModel,
    inputs: Inputs,
    target: Target,
    choice: MethodChoice,
    encoded: Sequence[EncodedExample],
    *,
    track: Callable[[Sequence[int]], Iterable[int]] = iter,
    **settings: Any,
) -> BatchScores:
    """Run a method on a batch; `encoded` are the examples of the batch, if known."""
    reads = choice.method.reads_with(choice.options)
    with fixed_modules(unwrapped(loaded_model.model)):
        trace = trace_batch(loaded_model, inputs, target, reads, backward=choice.backward, **settings)
        options = processed_options(choice.method, choice.options, loaded_model, inputs, encoded)
        attribution = choice.method(replace(trace, state=replace(trace.state, track=track)), **options)
        scores = merge_levels(trace.question.model, trace.question.inputs, zero_scores(trace) | attribution.scores)
    return BatchScores(trace, attribution, scores)


def trace_batch(
    loaded_model: LoadedModel,
    inputs: Inputs,
    target: Target,
    reads: Reads,
    *,
    backward: Backward = "gradient",
    readout: str | int | Tensor | None = None,
    checkpoint: bool | None = None,
    inputs_at_once: int | None = None,
) -> Trace:
    """Trace a loaded model on a batch, with label names from its tokenizer."""
    return build.trace(
        loaded_model.model,
        inputs,
        target,
        reads=reads,
        readout=readout,
        inputs_at_once=inputs_at_once,
        labels=answer_names(loaded_model),
        backward=backward,
        checkpoint=checkpoint,
    )


def answer_names(loaded_model: LoadedModel) -> Mapping[int, str] | None:
    """Label names for models that write or spell; other models have their own."""
    if loaded_model.task.writes:
        return Vocabulary(loaded_model.tokenizer)
    if loaded_model.task.spells and loaded_model.tokenizer is not None:
        tokens = range(len(loaded_model.tokenizer))
        return dict(zip(tokens, loaded_model.tokenizer.convert_ids_to_tokens(list(tokens)), strict=True))
    return None

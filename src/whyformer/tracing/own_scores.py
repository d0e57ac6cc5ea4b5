"""The score as it would be read from each block's own tokens, had the model ended there, and its gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from whyformer.axes import AttentionMap
from whyformer.errors import UnsupportedModel
from whyformer.propagation.mode import backward_mode, using_backward
from whyformer.tracing.blocks import find_blocks, other_forwards
from whyformer.tracing.gradients import gradients
from whyformer.tracing.recorder import Recorder
from whyformer.tracing.scaling import inputs_as_they_are
from whyformer.tracing.trace import Trace


def own_map_gradients(trace: Trace) -> Iterator[AttentionMap]:
    """∂s_l/∂A_l of each block, s_l the score of the mean of its own tokens; the first block first.

    The mean is put at every token, and what comes after the last block reads it wherever it reads.
    """
    question = trace.question
    blocks = find_blocks(question.model) if question.family.is_one_stack else ()
    if not blocks:
        raise UnsupportedModel(
            "scores='each' ends the model after each of its blocks, and can do so where it is one stack of them: "
            "scores='final' takes the model's own score."
        )
    results: list[Any] = []

    def keep(block: nn.Module, original: Any) -> Any:
        def forward(*args: Any, **kwargs: Any) -> Any:
            results.append(original(*args, **kwargs))
            return results[-1]

        return forward

    with torch.no_grad(), other_forwards(blocks, keep), inputs_as_they_are(question) as inputs:
        question.model(**inputs)
    if len(results) != len(blocks):
        raise UnsupportedModel("scores='each' is for blocks that run once each: scores='final' takes the model's own.")
    for number in range(len(blocks)):
        yield _gradient(trace, blocks, results, number)


def _gradient(trace: Trace, blocks: Any, results: list[Any], number: int) -> AttentionMap:
    """∂s_l/∂A_l of one block, in a pass in which it alone runs: those before give what they gave, those after it."""
    question, order = trace.question, iter(range(len(blocks)))

    def make(block: nn.Module, original: Any) -> Any:
        place = next(order)

        def forward(*args: Any, **kwargs: Any) -> Any:
            if place < number:
                return results[place]
            if place == number:
                result = original(*args, **kwargs)
                return _with_state(result, _mean(trace, _state(result)))
            return _with_state(results[place], args[0] if args else kwargs["hidden_states"])

        return forward

    mode = backward_mode(question.model, question.batch, question.backward)
    recorder = Recorder(question.batch, graph=True, mode=mode)
    with other_forwards(blocks, make), inputs_as_they_are(question) as inputs:
        output = recorder.run(question.model, **inputs)
    with using_backward(mode, question.backward):
        (source,) = gradients(question.score(output), recorder.taps[:1], question.batch, question.backward)
    return source()


def _mean(trace: Trace, state: Tensor) -> Tensor:
    weights = trace.mask[:, :, None].to(state.dtype)
    mean: Tensor = (state * weights).sum(dim=1, keepdim=True) / weights.sum(dim=1, keepdim=True)
    return mean.expand_as(state)


def _state(result: Any) -> Tensor:
    state: Tensor = result if isinstance(result, Tensor) else result[0]
    return state


def _with_state(result: Any, state: Tensor) -> Any:
    return state if isinstance(result, Tensor) else (state, *result[1:])

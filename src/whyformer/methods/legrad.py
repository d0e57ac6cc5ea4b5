"""LeGrad's score of each block, as if the model ended there, and its gradient with respect to the block's map."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from whyformer.axes import AttentionMap, TokenMask
from whyformer.backward.blocks import state_of
from whyformer.backward.passes import gradients
from whyformer.backward.rule_graph import make_rule_graph, using_rules
from whyformer.errors import UnsupportedModel
from whyformer.models.calls import Call, reroute_calls
from whyformer.tracing.block_states import block_outputs, towers_of, with_state
from whyformer.tracing.leaves import inputs_as_they_are
from whyformer.tracing.question import Question
from whyformer.tracing.trace import Trace
from whyformer.watching.watcher import Watcher, WatchPlan

FINAL_SCORE_ADVICE = "scores='final' uses the model's own score"


def own_map_gradients(trace: Trace) -> Iterator[tuple[str, AttentionMap]]:
    """Yield the stream of each block and ∂s_l/∂A_l, s_l the score of the mean of its tokens; first block first.

    The mean replaces every token, so that the layers after the last block read it. In a dual encoder, one tower ends
    after the block and the other is unchanged.
    """
    question = trace.question
    towers = towers_of(question.model, question.family)
    if not towers:
        raise UnsupportedModel(
            "scores='each' ends the model after each of its blocks, which takes a single stack of blocks, or one for "
            f"pictures and one for texts: {FINAL_SCORE_ADVICE}."
        )
    every = [block for blocks in towers.values() for block in blocks]
    outputs = block_outputs(question, every, advice=FINAL_SCORE_ADVICE)
    for stream, blocks in towers.items():
        for number in range(len(blocks)):
            yield stream, _gradient(question, outputs, blocks[number:], trace.masks[stream])


def _gradient(
    question: Question,
    outputs: Mapping[nn.Module, Any],
    blocks: Sequence[nn.Module],
    mask: TokenMask,
) -> AttentionMap:
    """∂s_l/∂A_l of the first of these blocks, in a pass that runs only this one.

    The later ones return their input; all other blocks return their former output.
    """
    own, *later = blocks

    def make(block: nn.Module, own_call: Call) -> Call:
        def call(*args: Any, **kwargs: Any) -> Any:
            if block is own:
                output = own_call(*args, **kwargs)
                return with_state(output, _mean(state_of(output), mask))
            if block in later:
                return with_state(outputs[block], args[0] if args else kwargs["hidden_states"])
            former = outputs[block]  # a copy, since the model may change it in place
            return with_state(former, state_of(former).clone())

        return call

    rule_graph = make_rule_graph(question.model, question.batch, question.backward)
    watcher = Watcher(question.batch, WatchPlan(graph=True), rules=rule_graph)
    with reroute_calls(list(outputs), make), inputs_as_they_are(question) as inputs:
        output = watcher.run(question.model, **inputs)
    with using_rules(rule_graph, question.backward):
        (source,) = gradients(question.score(output), watcher.taps[:1], question.batch, question.backward)
    return source()


def _mean(state: Tensor, mask: TokenMask) -> Tensor:
    """Replace every token by the mean of the real ones."""
    weights = mask[:, :, None].to(state.dtype)
    mean: Tensor = (state * weights).sum(dim=1, keepdim=True) / weights.sum(dim=1, keepdim=True)
    return mean.expand_as(state)

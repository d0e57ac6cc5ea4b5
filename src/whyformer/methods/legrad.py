"""LeGrad's score of each block, as if the model ended there, and its gradient with respect to the block's map."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from whyformer.axes import AttentionMap, TokenMask
from whyformer.backward.blocks import find_blocks
from whyformer.backward.passes import gradients
from whyformer.backward.rule_graph import make_rule_graph, using_rules
from whyformer.errors import UnsupportedModel
from whyformer.models.calls import Call, reroute_calls
from whyformer.models.family import Family
from whyformer.models.structure import config_of
from whyformer.tracing.leaves import inputs_as_they_are
from whyformer.tracing.question import Question
from whyformer.tracing.trace import Trace
from whyformer.watching.watch_plan import WatchPlan
from whyformer.watching.watcher import Watcher

Towers = Mapping[str, Sequence[nn.Module]]  # the blocks of each stream


def own_map_gradients(trace: Trace) -> Iterator[tuple[str, AttentionMap]]:
    """Yield the stream of each block and ∂s_l/∂A_l, s_l the score of the mean of its tokens; first block first.

    The mean replaces every token, so that the layers after the last block read it. In a dual encoder, one tower ends
    after the block and the other is unchanged.
    """
    question = trace.question
    towers = _towers(question.model, question.family)
    if not towers:
        raise UnsupportedModel(
            "scores='each' ends the model after each of its blocks, which takes a single stack of blocks, or one for "
            "pictures and one for texts: scores='final' takes the model's own score."
        )
    outputs = _outputs(question, [block for blocks in towers.values() for block in blocks])
    for stream, blocks in towers.items():
        for number in range(len(blocks)):
            yield stream, _gradient(question, outputs, blocks[number:], trace.masks[stream])


def _towers(model: nn.Module, family: Family) -> Towers:
    """The stacks of blocks by stream: a single one, or the two of a dual encoder; empty for other models."""
    if family.is_one_stack:
        blocks = find_blocks(model)
        return {family.stream: blocks} if blocks else {}
    is_cut_up = family.arrange is not None or any(queries != keys for _, queries, keys in family.attention)
    if is_cut_up or getattr(config_of(model), "_attn_implementation", None) != "sdpa":
        return {}
    stacks = [(path, module) for path, module in model.named_modules() if isinstance(module, nn.ModuleList)]
    by_stream = {stream: [m for path, m in stacks if part in path] for part, stream, _ in family.attention}
    if any(len(own) != 1 for own in by_stream.values()):
        return {}
    return {stream: tuple(own[0]) for stream, own in by_stream.items()}


def _outputs(question: Question, blocks: Sequence[nn.Module]) -> dict[nn.Module, Any]:
    """The output of each block in the model's own forward pass."""
    outputs: dict[nn.Module, Any] = {}

    def keep(block: nn.Module, own_call: Call) -> Call:
        def call(*args: Any, **kwargs: Any) -> Any:
            if block in outputs:
                raise UnsupportedModel(
                    "scores='each' is for blocks that run once each: scores='final' takes the model's own."
                )
            outputs[block] = own_call(*args, **kwargs)
            return outputs[block]

        return call

    with torch.no_grad(), reroute_calls(blocks, keep), inputs_as_they_are(question) as inputs:
        question.model(**inputs)
    return outputs


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
                return _with_state(output, _mean(_state(output), mask))
            if block in later:
                return _with_state(outputs[block], args[0] if args else kwargs["hidden_states"])
            return outputs[block]

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


def _state(output: Any) -> Tensor:
    state: Tensor = output if isinstance(output, Tensor) else output[0]
    return state


def _with_state(output: Any, state: Tensor) -> Any:
    return state if isinstance(output, Tensor) else (state, *output[1:])

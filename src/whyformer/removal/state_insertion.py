"""Insert the states of an example's units into the run of a neutral input, block by block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from whyformer.axes import SubsetExampleScores, UnitMasks, at_least_float32
from whyformer.backward.blocks import state_of
from whyformer.errors import UnsupportedModel, WhyformerError
from whyformer.models.calls import Call, reroute_calls
from whyformer.removal.units import Units
from whyformer.tracing.block_states import block_outputs, towers_of_call, with_state
from whyformer.tracing.question import split_output
from whyformer.tracing.trace import copies_at_once

if TYPE_CHECKING:
    from whyformer.removal.trace_inputs import TokenAblation

OCCLUSION_ADVICE = "use occlusion"  # where states cannot be inserted


def insert_states(
    ablation: TokenAblation,
    examples: Sequence[Units],
    masks: Sequence[UnitMasks],
    first_block: int | None = None,
    last_block: int | None = None,
) -> SubsetExampleScores:
    """Scores [subset, example] of neutral inputs with the states of the kept units after each block of the range."""
    question = ablation.trace.question
    streams = _blocks_by_stream(ablation, first_block, last_block)
    stream_of = {block: stream for stream, blocks in streams.items() for block in blocks}
    outputs = block_outputs(question, list(stream_of), advice=OCCLUSION_ADVICE)
    states = {block: state_of(output) for block, output in outputs.items()}
    for block, stream in stream_of.items():
        if states[block].shape[:2] != ablation.trace.masks[stream].shape:
            raise _not_a_stack(ablation)
    copies = max(1, copies_at_once(ablation.trace) // question.batch)
    rows: list[Tensor] = []
    for start in ablation.trace.state.track(range(0, max(map(len, masks)), copies)):
        kept = ablation.kept_tokens(examples, [own[start : start + copies] for own in masks])
        count = len(next(iter(kept.values())))
        inserted = {block: (states[block], kept[stream]) for block, stream in stream_of.items()}
        make = partial(_inserting, inserted)
        with torch.inference_mode(False), torch.no_grad(), reroute_calls(list(stream_of), make):
            output = question.model(**ablation.neutral_inputs(examples, count))
        rows += [question.score(part) for part in split_output(output, question.batch, count)]
    scores: SubsetExampleScores = at_least_float32(torch.stack(rows)).double().cpu().numpy()
    return scores


def _inserting(inserted: Mapping[nn.Module, tuple[Tensor, Tensor]], block: nn.Module, own_call: Call) -> Call:
    """The block's call, with the example's own states at the kept tokens [copy, example, token]."""
    state, kept = inserted[block]

    def call(*args: Any, **kwargs: Any) -> Any:
        output = own_call(*args, **kwargs)
        neutral = state_of(output)
        mixed = torch.where(kept[..., None], state, neutral.unflatten(0, kept.shape[:2])).flatten(0, 1)
        return with_state(output, mixed)

    return call


def _blocks_by_stream(
    ablation: TokenAblation, first_block: int | None, last_block: int | None
) -> dict[str, Sequence[nn.Module]]:
    """The blocks of the range, for each stream with units; by default the second half of them without the last."""
    question = ablation.trace.question
    towers = towers_of_call(question)
    if any(part.stream not in towers or part.kind == "regions" for part in ablation.parts):
        raise _not_a_stack(ablation)
    if ablation.removal.erasure == "delete":
        raise WhyformerError("caap needs a neutral input with as many words: use erasure='pad' or 'mask'.")
    chosen = {}
    for stream in sorted({part.stream for part in ablation.parts}):
        count = len(towers[stream])
        last = max(count - 2, 0) if last_block is None else last_block
        first = min(count // 2, last) if first_block is None else first_block
        if not 0 <= first <= last < count:
            raise WhyformerError(
                f"first_block={first}, last_block={last}: {type(question.model).__name__} has {count} blocks, "
                f"0 to {count - 1}, and the first is not after the last."
            )
        chosen[stream] = towers[stream][first : last + 1]
    return chosen


def _not_a_stack(ablation: TokenAblation) -> UnsupportedModel:
    name = type(ablation.trace.question.model).__name__
    return UnsupportedModel(
        f"caap inserts states between blocks that keep every patch or word at its place, and {name} is not one stack "
        f"of such blocks for each kind of input: {OCCLUSION_ADVICE}."
    )

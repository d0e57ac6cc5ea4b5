"""The states between the blocks of a model: which blocks each stream goes through, and what they return."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from whyformer.backward.blocks import find_blocks, stacks_of, state_of
from whyformer.errors import UnsupportedModel
from whyformer.models.calls import Call, reroute_calls
from whyformer.models.family import Family
from whyformer.models.structure import config_of
from whyformer.tracing.leaves import inputs_as_they_are
from whyformer.tracing.question import ModelCall


def towers_of(model: nn.Module, family: Family) -> Mapping[str, Sequence[nn.Module]]:
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


def towers_of_call(call: ModelCall) -> Mapping[str, Sequence[nn.Module]]:
    """The blocks of each stream, also of models with pictures among words; empty if unknown."""
    return towers_of(call.model, call.family) if call.bridge is None else _towers_with_bridge(call)


def _towers_with_bridge(call: ModelCall) -> Mapping[str, Sequence[nn.Module]]:
    """The blocks of the picture's encoder and of the decoder, for pictures among words; empty if unknown."""
    towers: dict[str, Sequence[nn.Module]] = {}
    for stream, part in (("image", "vision_config"), (call.family.stream, "text_config")):
        of_image = part == "vision_config"
        stacks = [x for path, x in stacks_of(call.model, part) if ("vision" in path or "visual" in path) == of_image]
        if len(stacks) != 1:
            return {}
        towers[stream] = tuple(stacks[0])
    return towers


def block_outputs(call: ModelCall, blocks: Sequence[nn.Module], *, advice: str) -> dict[nn.Module, Any]:
    """The output of each block in the model's own forward pass.

    If the model runs a block several times, the error ends with the advice.
    """
    outputs = _run(call, blocks, advice, ())
    changed = [block for block, (output, version) in outputs.items() if state_of(output)._version != version]
    if changed:  # in place, after the block had returned it
        outputs = _run(call, blocks, advice, changed)
    return {block: output for block, (output, _) in outputs.items()}


def _run(
    call: ModelCall, blocks: Sequence[nn.Module], advice: str, copied: Collection[nn.Module]
) -> dict[nn.Module, tuple[Any, int]]:
    """The output of each block, with a copy of its state for some blocks, and the version of the state."""
    outputs: dict[nn.Module, tuple[Any, int]] = {}

    def keep(block: nn.Module, own_call: Call) -> Call:
        def keeping(*args: Any, **kwargs: Any) -> Any:
            if block in outputs:
                raise UnsupportedModel(
                    f"{type(call.model).__name__} runs a block several times, so its states have no single place: "
                    f"{advice}."
                )
            output = own_call(*args, **kwargs)
            kept = with_state(output, state_of(output).clone()) if block in copied else output
            outputs[block] = kept, state_of(kept)._version
            return output

        return keeping

    with (
        torch.inference_mode(False),  # whose tensors have no versions
        torch.no_grad(),
        reroute_calls(blocks, keep),
        inputs_as_they_are(call) as inputs,
    ):
        call.model(**inputs)
    return outputs


def with_state(output: Any, state: Tensor) -> Any:
    """A block's output with another state."""
    return state if isinstance(output, Tensor) else (state, *output[1:])

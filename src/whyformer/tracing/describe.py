"""Print a trace block by block, to find the cause of a wrong heatmap."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torch import Tensor

from whyformer.models.joined import Transfer
from whyformer.tracing.record import AttentionRecord
from whyformer.watching.deformable import SampledAttention
from whyformer.watching.kernels import Attention
from whyformer.watching.linear_kernels import LinearKernel
from whyformer.watching.mixing import KeptMap, Lazy, Mixing

if TYPE_CHECKING:
    from whyformer.tracing.trace import Trace

KEY_TOKEN = 2  # the axis of values
SAME_VALUES = 1e-2  # of the largest, which half precision keeps

MAP_KINDS: dict[type, str] = {
    KeptMap: "kept",
    Attention: "computed from queries and keys",
    SampledAttention: "computed from sampled points",
    LinearKernel: "computed by a kernel that is linear in its values",
    Lazy: "computed when the backward pass reaches its block",
}


def describe(trace: Trace) -> str:
    """Describe a trace: its plan, its attention records block by block, and its read-outs.

    Args:
        trace: The trace.

    Returns:
        Lines of text: operations, maps, W_v, W_o, states, and how they were found.

    Example:
        >>> from whyformer.extend import Reads, describe, trace
        >>> bert = whyformer.load("mini-bert", device="cpu")
        >>> inputs = bert.tokenizer("A wonderful film.", return_tensors="pt")
        >>> print(describe(trace(bert.model, inputs, reads=Reads(maps="all"))).splitlines()[-1])
        read-out of text: token 0 of 6
    """
    lines = [*str(trace.plan).splitlines(), ""]
    for step in trace.steps:
        if isinstance(step, Transfer):
            lines += [f"{step.later} is computed from {step.earlier}", ""]
            continue
        if len(step) > 1:
            lines.append(f"{len(step)} operations that read the same state:")
        for record in step:
            lines += [*_record(record), ""]
    for readout in trace.readouts:
        positions = (readout.weights[0] != 0).nonzero()[:, 0].tolist()
        where = f"token {positions[0]}" if len(positions) == 1 else f"{len(positions)} tokens"
        lines.append(f"read-out of {readout.stream}: {where} of {readout.weights.shape[1]}")
    return "\n".join(lines)


def _record(record: AttentionRecord) -> Iterator[str]:
    yield f"block {record.block}: {record.query_stream} reads {record.key_stream} ({record.path or 'path unknown'})"
    facts = {
        "operation": str(record.operation),
        "map": _map(record.source),
        "gradient": "not computed" if record.gradient_source is None else _map(record.gradient_source),
        "W_v": _shape(record.value_weight) + _gives_values(record),
        "W_o": _shape(record.output_weight) + ("" if record.output_scale is None else ", times a norm's scale"),
        "state": _shape(record.key_state),
    }
    for name, value in facts.items():
        yield f"  {name:<10} {value}"
    for decision in record.decisions:
        yield f"  - {decision}"


def _gives_values(record: AttentionRecord) -> str:
    """Whether W_v times the state is the values that the model had, apart from a bias."""
    linear = None if record.value is None or record.linear_value is None else record.linear_value()
    if linear is None or record.value is None or linear.shape != record.value.shape:
        return ""
    difference = record.value - linear
    rest = difference - difference.mean(dim=(0, KEY_TOKEN), keepdim=True)
    is_same = bool(rest.abs().amax() <= SAME_VALUES * record.value.abs().amax())
    return ", gives the model's values" if is_same else ", does NOT give the model's values"


def _map(mixing: Mixing) -> str:
    return f"{tuple(mixing.shape)} {MAP_KINDS.get(type(mixing), 'computed from the gradient of the mixed values')}"


def _shape(x: Tensor | None) -> str:
    return "not known" if x is None else str(tuple(x.shape))

"""The trace of a forward pass: its attention records, its read-outs, and what methods compute from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from whyformer.axes import StreamScores, TokenMask
from whyformer.backward.biases import BiasTerms
from whyformer.errors import WhyformerError
from whyformer.models.joined import Transfer
from whyformer.models.readout import ReadOut
from whyformer.models.structure import main_input
from whyformer.targets.resolve import ResolvedTarget
from whyformer.tracing.flow import Step, carry, records_of, select_records
from whyformer.tracing.graph import Graph
from whyformer.tracing.path import inputs_at_once
from whyformer.tracing.plan import Plan
from whyformer.tracing.question import Question
from whyformer.tracing.reads import Reads
from whyformer.tracing.record import AttentionRecord

UNKNOWN_TOKENS = 256  # without attention, a picture counts as 16 × 16 patches


@dataclass(frozen=True, eq=False)
class PassState:
    """The state of a forward pass that methods can still use.

    Attributes:
        graph: The graph of the pass, if relevance or gradients of the inputs are read.
        biases: The biases that were added, if they are read.
        again: Traces the same target again, for other reads or for inputs with noise.
        inputs_at_once: The number of inputs that run at once when they are repeated; None for as many as fit.
        track: Wraps the steps of long work, to show progress.
    """

    graph: Graph | None = None
    biases: BiasTerms | None = None
    again: Callable[..., Trace] | None = None
    inputs_at_once: int | None = None
    track: Callable[[Sequence[int]], Iterable[int]] = iter


@dataclass(frozen=True)
class Trace:
    """The records of one forward pass, its read-outs, and the means to run the model again along a path.

    Attributes:
        question: The model, its inputs and the score to explain.
        target: The resolved target: labels and their names.
        output: The model's own output.
        steps: The attention records in the order they ran; those of one step read the same state.
        readouts: For each stream that the answer is read from, a weight per position.
        masks: For each stream, a mask of its real tokens.
        plan: The plan of the pass.
        state: The state of the pass that methods can still use.

    Example:
        >>> from whyformer.extend import Reads, trace
        >>> bert = whyformer.load("mini-bert")
        >>> inputs = bert.tokenizer("A wonderful film.", return_tensors="pt").to(bert.model.device)
        >>> traced = trace(bert.model, inputs, reads=Reads(maps="all"))
        >>> traced.readout.stream, len(traced.records)
        ('text', 6)
    """

    question: Question
    target: ResolvedTarget
    output: Any
    steps: tuple[Step, ...]
    readouts: tuple[ReadOut, ...]
    masks: dict[str, TokenMask]
    plan: Plan
    state: PassState

    @property
    def records(self) -> tuple[AttentionRecord, ...]:
        """The attention records in the order they ran."""
        return tuple(records_of(self.steps))

    @property
    def last(self) -> AttentionRecord:
        """The last attention operation before the answer."""
        return self.records[-1]

    @property
    def readout(self) -> ReadOut:
        """The read-out; with two towers, the first one's."""
        return self.readouts[0]

    @property
    def mask(self) -> TokenMask:
        """Which tokens of the read-out's stream are real."""
        return self.masks[self.readout.stream]


def trace_again(trace: Trace, reads: Reads, **changes: Any) -> Trace:
    """Trace another pass with the same read-outs: for other reads, with noise, or by another backward."""
    assert trace.state.again is not None
    other = trace.state.again(reads=reads, **changes)
    return replace(other, target=trace.target, readouts=trace.readouts, masks=trace.masks)


def last_rows(trace: Trace) -> list[tuple[ReadOut, AttentionRecord]]:
    """For each stream that a read-out's tokens attend to, the last such attention."""
    last = {(record.query_stream, record.key_stream): record for record in trace.records}
    by_stream = {readout.stream: readout for readout in trace.readouts}
    return [(by_stream[query], record) for (query, _), record in last.items() if query in by_stream]


def copies_at_once(trace: Trace) -> int:
    """The number of inputs that run through the model at once when they are repeated."""
    if "image_grid_thw" in trace.question.inputs:  # each picture of a packed sequence is a separate operation
        return trace.question.batch
    tokens = sum(mask.shape[1] for mask in trace.masks.values()) or UNKNOWN_TOKENS
    return trace.state.inputs_at_once or inputs_at_once(tokens, main_input(trace.question.inputs)[1].device.type)


def up_to_bridge(trace: Trace) -> Trace:
    """The trace of the decoder only, which ends where the features of pictures enter it."""
    if trace.question.bridge is None:
        raise WhyformerError(
            "bridge='stop' needs a model that reads pictures among its words, and an input with pictures."
        )
    own = {readout.stream for readout in trace.readouts}
    kept = select_records(trace.steps, lambda record: record.query_stream in own)
    return replace(trace, steps=tuple(step for step in kept if not isinstance(step, Transfer)))


def on_inputs(trace: Trace, scores: StreamScores) -> StreamScores:
    """Carry scores of tokens that were computed from others, such as merged patches, to those of the input."""
    transfers = [step.whole for step in trace.steps if isinstance(step, Transfer) and step.leaving != "none"]
    rows = carry({stream: values[:, None] for stream, values in scores.items()}, transfers)
    return {stream: values[:, 0] for stream, values in rows.items()}


def real_tokens(trace: Trace) -> dict[str, TokenMask]:
    """The real tokens of each stream that is scored, without streams computed from others."""
    derived = {step.later for step in trace.steps if isinstance(step, Transfer) and step.leaving == "all"}
    return {stream: mask for stream, mask in trace.masks.items() if stream not in derived}


def zero_scores(trace: Trace) -> StreamScores:
    """Zero scores for every stream that is scored."""
    return {stream: torch.zeros(mask.shape, device=mask.device) for stream, mask in real_tokens(trace).items()}

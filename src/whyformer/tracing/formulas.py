"""Formulas that methods share: the rows and steps of a trace to follow, and relevances of maps and of inputs."""

from __future__ import annotations

from whyformer.axes import Rows
from whyformer.backward.rules import Rules
from whyformer.errors import WhyformerError
from whyformer.models.joined import Transfer
from whyformer.tracing.attribution import Attribution
from whyformer.tracing.checks import moved_tokens
from whyformer.tracing.flow import Step, select_records
from whyformer.tracing.graph import Graph, MapRelevances
from whyformer.tracing.steps import reaching
from whyformer.tracing.trace import Trace


def readout_rows(trace: Trace) -> dict[str, Rows]:
    """The read-outs of a trace as the rows that `flow` starts from.

    Args:
        trace: The trace.

    Returns:
        A row [example, 1, token] for each stream that the answer is read from.

    Example:
        >>> from whyformer.extend import Reads, readout_rows, trace
        >>> bert = whyformer.load("mini-bert", device="cpu")
        >>> inputs = bert.tokenizer("A wonderful film.", return_tensors="pt")
        >>> tuple(readout_rows(trace(bert.model, inputs, reads=Reads(maps="all")))["text"].shape)
        (1, 1, 6)
    """
    return {readout.stream: readout.weights[:, None, :] for readout in trace.readouts}


def steps_between(trace: Trace, first_block: int, last_block: int | None = None) -> list[Step]:
    """The steps of a trace from one block to another or to the end, for `flow`.

    Args:
        trace: The trace.
        first_block: The first block, from 0.
        last_block: The last block; by default the last of the model.

    Returns:
        The steps that the answer depends on.

    Raises:
        WhyformerError: If the model has no such block.
        UnsupportedModel: If tokens are moved or merged between the blocks.

    Example:
        >>> from whyformer.extend import Reads, steps_between, trace
        >>> bert = whyformer.load("mini-bert", device="cpu")
        >>> inputs = bert.tokenizer("A wonderful film.", return_tensors="pt")
        >>> len(steps_between(trace(bert.model, inputs, reads=Reads(maps="all")), 4))
        2
    """
    end = max(record.block for record in trace.records)
    last = end if last_block is None else last_block
    if not 0 <= first_block <= end:
        raise WhyformerError(f"first_block={first_block}: this model's blocks are 0 to {end}.")
    if not first_block <= last <= end:
        raise WhyformerError(f"last_block={last}: use one of the blocks {first_block} to {end}.")
    lengths = {stream: mask.shape[1] for stream, mask in trace.masks.items()}
    for record in trace.records:
        expected = (trace.question.batch, lengths[record.query_stream], lengths[record.key_stream])
        if (record.batch, *record.lengths) != expected:
            raise moved_tokens(trace.question.model, record.source.shape)
    kept = select_records(trace.steps, lambda record: first_block <= record.block <= last)
    return list(reaching(kept, [readout.stream for readout in trace.readouts]))


def scored_stream(trace: Trace) -> str:
    """The stream on which the read-out's tokens are scored: they may have been computed from others."""
    stream = trace.readout.stream
    for step in reversed(trace.steps):
        if isinstance(step, Transfer) and step.later == stream and step.leaving == "all":
            stream = step.earlier
    return stream


def map_relevances(trace: Trace, rules: Rules, *, strict: bool) -> MapRelevances:
    """The relevance of each map by these rules.

    Args:
        trace: The trace, of a method whose `Reads` have relevances="all".
        rules: A name in `RULES`: "dtd", "attn_lrp", …
        strict: Whether to raise at an operation without a rule, instead of using its gradient.

    Returns:
        The relevances, by record: `relevances[record]`, or `relevances.on(record)` for a record with its own.

    Raises:
        WhyformerError: If the trace was not built for these reads.

    Example:
        >>> from whyformer.extend import Reads, map_relevances, trace
        >>> bert = whyformer.load("mini-bert", device="cpu")
        >>> inputs = bert.tokenizer("A wonderful film.", return_tensors="pt")
        >>> traced = trace(bert.model, inputs, reads=Reads(maps="all", relevances="all"))
        >>> tuple(map_relevances(traced, "dtd", strict=True)[traced.last].shape)
        (1, 6, 6, 6)
    """
    return _graph(trace, 'relevances="all"').map_relevances(rules, strict=strict)


def input_relevances(trace: Trace, rules: Rules, *, strict: bool) -> Attribution:
    """The relevance of each input, pixels or embeddings, summed over channels.

    Args:
        trace: The trace, of a method whose `Reads` have inputs="relevances".
        rules: A name in `RULES`: "dtd", "attn_lrp", …
        strict: Whether to raise at an operation without a rule, instead of using its gradient.

    Returns:
        The scores, with remarks on how they were computed.

    Raises:
        WhyformerError: If the trace was not built for these reads.

    Example:
        >>> from whyformer.extend import Reads, input_relevances, trace
        >>> bert = whyformer.load("mini-bert", device="cpu")
        >>> inputs = bert.tokenizer("A wonderful film.", return_tensors="pt")
        >>> traced = trace(bert.model, inputs, reads=Reads(inputs="relevances"))
        >>> tuple(input_relevances(traced, "dtd", strict=True)["text"].shape)
        (1, 6)
    """
    return _graph(trace, 'inputs="relevances"').input_relevances(rules, strict=strict)


def inputs_times_gradients(trace: Trace) -> Attribution:
    """Each input × gradient, summed over channels.

    Args:
        trace: The trace, of a method whose `Reads` have inputs="gradients".

    Returns:
        The scores.

    Raises:
        WhyformerError: If the trace was not built for these reads.

    Example:
        >>> from whyformer.extend import Reads, inputs_times_gradients, trace
        >>> bert = whyformer.load("mini-bert", device="cpu")
        >>> inputs = bert.tokenizer("A wonderful film.", return_tensors="pt")
        >>> traced = trace(bert.model, inputs, reads=Reads(inputs="gradients"))
        >>> tuple(inputs_times_gradients(traced)["text"].shape)
        (1, 6)
    """
    return _graph(trace, 'inputs="gradients"').inputs_times_gradients(trace.question.backward)


def _graph(trace: Trace, reads: str) -> Graph:
    """The graph of a trace; raise if it was not built for these reads."""
    if trace.state.graph is None:
        raise WhyformerError(f"This trace has no graph for that: build it with reads=Reads({reads}).")
    return trace.state.graph

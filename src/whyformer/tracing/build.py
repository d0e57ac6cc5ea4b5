"""Run a model once on its inputs, and build the trace that a method reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from whyformer.axes import KEY, Inputs, by_head
from whyformer.backward.blocks import BlockPass
from whyformer.backward.passes import HiddenGradient, backward_pass, gradients_or_none, last_gradient
from whyformer.backward.rule_graph import using_rules
from whyformer.backward.rules import Backward
from whyformer.errors import check_count
from whyformer.models.joined import AttentionShape, Place, Transfer
from whyformer.models.structure import fixed_modules, labels_of, main_input, unwrapped, walk
from whyformer.targets.resolve import resolve_target
from whyformer.targets.scores import Score, Target
from whyformer.tracing.checks import check_is_module, missing_attention
from whyformer.tracing.flow import Step, each_record, records_of, select_records
from whyformer.tracing.forward import ForwardPass, forward_pass
from whyformer.tracing.graph import Graph, ends_of
from whyformer.tracing.plan import Plan
from whyformer.tracing.question import ModelCall, Noise, Question
from whyformer.tracing.readouts import find_readouts
from whyformer.tracing.reads import Reads
from whyformer.tracing.record import AttentionRecord
from whyformer.tracing.steps import as_examples, check_scores, latest, places, reaching, steps_of, with_branches
from whyformer.tracing.trace import PassState, Trace
from whyformer.watching.mixing import Lazy, Mixing
from whyformer.watching.tap import LinearValue, Tap
from whyformer.watching.watcher import Watcher

MAP_GRADIENTS = Reads(maps="all", gradients="all")


def trace(
    model: nn.Module,
    inputs: Inputs,
    target: Target = "predicted",
    *,
    reads: Reads = MAP_GRADIENTS,
    readout: str | int | Tensor | None = None,
    inputs_at_once: int | None = None,
    labels: Mapping[int, str] | None = None,
    backward: Backward = "gradient",
    checkpoint: bool | None = None,
    noise: Noise | None = None,
) -> Trace:
    """Run a model once on its inputs, and keep what a method reads.

    Args:
        model: The model, in evaluation mode.
        inputs: Its inputs, tensors by name.
        target: The output to explain: a label's name or index, "predicted", a contrast, a detection, or any function of
            the model's output that returns one number per example.
        reads: What is computed and kept; by default maps and their gradients.
        readout: The read-out, if the model's family does not define it: "first", "mean", "first+mean", "last", a
            position (negative ones count from the last real token), or a weight per position.
        inputs_at_once: The number of inputs that run at once when a method repeats them; by default as many as fit.
        labels: Names of the labels if the model has none.
        backward: "gradient", "libra" for LibraGrad's rules, or "attn_lrp" for AttnLRP's.
        checkpoint: Whether to run the backward pass block by block, so that only one block's activations are in memory.
            By default only if a map is too large to keep, or all of them exceed the free GPU memory.
        noise: Noise to add to the inputs.

    Returns:
        The trace.

    Raises:
        UnsupportedModel: If the model's attention cannot be recorded.
        WhyformerError: If the target, the read-out or an input cannot be used as given.

    Example:
        >>> bert = whyformer.load("mini-bert")
        >>> inputs = bert.tokenizer("A wonderful film.", return_tensors="pt").to(bert.model.device)
        >>> whyformer.extend.trace(bert.model, inputs, target="positive").last.gradient.shape[0]
        1
    """
    model = unwrapped(model)
    check_is_module(model)
    if inputs_at_once is not None:
        check_count("inputs_at_once", inputs_at_once)
    settings: dict[str, Any] = {"readout": readout, "inputs_at_once": inputs_at_once, "labels": labels}
    settings |= {"backward": backward, "noise": noise, "checkpoint": checkpoint}
    with torch.inference_mode(False), fixed_modules(model):
        call, plan, forward = forward_pass(model, inputs, target, reads, backward, noise, checkpoint)
        return _traced(call, plan, forward, target, settings)


def trace_each(
    model: nn.Module,
    inputs: Inputs,
    scores: Sequence[Score],
    readouts: Sequence[Tensor],
    *,
    reads: Reads,
    backward: Backward = "gradient",
) -> Iterator[Trace]:
    """Run a model once on one example, and trace each score on that graph in turn, with its own read-out.

    A trace holds until the next one is taken: its products of states and gradients are those of the last backward pass.
    """
    model = unwrapped(model)
    with torch.inference_mode(False), fixed_modules(model):
        call, plan, forward = forward_pass(model, inputs, scores[0], reads, backward, None, False)
    for number, (score, readout) in enumerate(zip(scores, readouts, strict=True), start=1):
        settings = {"readout": readout, "inputs_at_once": None, "labels": None, "backward": backward, "noise": None}
        with torch.inference_mode(False), fixed_modules(model):
            one = _traced(call, plan, forward, score, settings | {"checkpoint": False}, keep=number < len(scores))
        yield one


def _traced(
    call: ModelCall,
    plan: Plan,
    forward: ForwardPass,
    target: Target,
    settings: Mapping[str, Any],
    *,
    keep: bool = False,
) -> Trace:
    """The trace of a forward pass for a target; `keep` retains its graph for another target."""
    labels = settings["labels"]
    names = labels_of(call.model) if labels is None else labels
    resolved = resolve_target(target, forward.output, names, call.model, call.inputs)
    check_scores(len(resolved.names), call.batch, plan)
    question = call.ask(resolved.score, by_blocks=bool(plan.blocks))
    has_maps = plan.needs_maps or missing_attention(forward.watcher, call) is None
    steps = _steps(question, forward.watcher) if has_maps else ()
    graph = _graph(question, forward, keep=keep) if plan.keeps_graph else None
    steps = _with_gradients(question, plan, forward, steps, keep=keep)
    if len(resolved.names) > call.batch:
        question, steps = as_examples(question, steps, len(resolved.names))
    steps, readouts, masks = find_readouts(question, steps, settings["readout"])
    again = partial(trace, call.model, call.inputs, question.score, **settings)
    state = PassState(graph, forward.biases, again, settings["inputs_at_once"])
    return Trace(question, resolved, forward.output, steps, readouts, masks, plan, state)


def _graph(question: Question, forward: ForwardPass, *, keep: bool) -> Graph:
    watcher = forward.watcher
    taps = dict(enumerate(watcher.taps, watcher.seen - len(watcher.taps)))
    score, ends = question.score(forward.output), ends_of(question.score, forward.output)
    settings = (forward.leaves, question.batch, forward.rule_graph, forward.blocks, forward.positions)
    return Graph(score, ends, taps, *settings, keep)


def _with_gradients(
    question: Question, plan: Plan, forward: ForwardPass, steps: tuple[Step, ...], *, keep: bool
) -> tuple[Step, ...]:
    """Add to the steps the gradients of the plan, or maps and gradients computed block by block."""
    if forward.blocks is not None:
        score = question.score(forward.output)
        one_pass = backward_pass(plan.backward, precise=plan.precise and plan.map_gradients != "none")
        forward.blocks.begin([score], [torch.ones_like(score)], forward.rule_graph, one_pass)
        return _by_blocks(steps, forward.blocks, main_input(question.inputs)[1].device, plan)
    if plan.map_gradients == "none":
        return steps
    if forward.biases is not None:
        forward.biases.begin_at(forward.watcher.taps[0].outcome.state_edge)
    with using_rules(forward.rule_graph, plan.backward):
        return _with_map_gradients(question, plan, forward, steps, keep=keep or plan.relevance)


def _by_blocks(steps: tuple[Step, ...], blocks: BlockPass, device: torch.device, plan: Plan) -> tuple[Step, ...]:
    """Replace maps and gradients by lazy ones, computed when the backward pass reaches their block."""

    def lazy(record: AttentionRecord) -> AttentionRecord:
        operation, place = record.operation, (record.source.shape, record.source.dtype, device)
        source, gradient = (Lazy(partial(make, operation), *place) for make in (blocks.attention, blocks.gradient))
        states = partial(blocks.state_scores, operation) if plan.state_gradients else None
        return replace(record, source=source, gradient_source=gradient, state_scores=states)

    return each_record(steps, lazy)


def _steps(question: Question, watcher: Watcher) -> tuple[Step, ...]:
    """The records that the answer can depend on, in steps."""
    taps, paths = watcher.taps, _paths(question.model, watcher.taps)
    first = watcher.seen - len(taps)
    maps = [tap.attention(question.batch) for tap in taps]
    operations = [AttentionShape(path, attention.shape) for path, attention in zip(paths, maps, strict=True)]
    parts = places(question.model, question.inputs, question.family, operations, first)
    is_beside = [tap.is_beside(before) for before, tap in pairwise(taps)]
    if any(is_beside) and question.family.arrange is None and not question.family.attention:
        parts = with_branches(parts, is_beside)
    seen = enumerate(zip(taps, maps, paths, strict=True), first)
    steps = steps_of(
        part if isinstance(part, Transfer) else (_record(question, part, *next(seen)), part) for part in parts
    )
    return reaching(steps, [latest(stream.name, steps) for stream in question.family.streams if stream.is_read])


def _record(question: Question, place: Place, operation: int, tapped: tuple[Tap, Mixing, str]) -> AttentionRecord:
    """Build the record of an attention operation."""
    (tap, attention, path), batch, tokens = tapped, question.batch, place.tokens
    maps, is_cross = attention.shape[0], place.query_stream != place.key_stream
    queries, keys = attention.shape[2:] if tokens is None else tokens.lengths
    of_queries, of_keys = place.states or (None, None)
    record = AttentionRecord(
        path=path,
        block=place.block,
        query_stream=place.query_stream,
        key_stream=place.key_stream,
        source=attention,
        state_scores=tap.state_scores(batch, queries, of_queries),
        operation=operation,
        tokens=tokens,
    )
    if tap.value is None:  # weights are not recorded
        return record
    linear_value = tap.linear_value(maps, attention.shape[KEY])
    scale = tap.scale(batch, queries, of_queries)
    state = tap.state(batch, keys if is_cross else queries, of_keys if is_cross else of_queries, of_keys=is_cross)
    if tokens is not None:
        scale = None if scale is None else tokens.state_of_queries(scale[..., None])[..., 0]
        state = None if state is None else tokens.state_of_keys(state)
        at_tokens = tap.linear_value(batch, keys) if linear_value is None else None
        if isinstance(at_tokens, LinearValue):
            linear_value = replace(at_tokens, source=tokens.state_of_keys(at_tokens.source))
    return replace(
        record,
        value=by_head(tap.value, maps),
        value_weight=tap.value_weight(maps),
        output_weight=tap.projection() if tokens is None or tap.outcome.gated is None else None,
        output_scale=scale,
        gate=tap.gate(maps),
        key_state=state,
        query_states=tap.states(batch, queries, of_queries, is_cross=is_cross),
        linear_value=linear_value,
        decisions=tap.decisions(),
    )


def _paths(model: nn.Module, taps: list[Tap]) -> list[str]:
    """The module path of each W_o, from the name of its weight, or of its module if weights are lent."""
    full_names = [walk(model).name_of(tap.outcome.output_parameter) for tap in taps]
    if "" in full_names:
        modules = {id(module): f"{path}." for path, module in walk(model).places}
        of_modules = (modules.get(id(tap.outcome.output_module), "") for tap in taps)
        full_names = [name or other for name, other in zip(full_names, of_modules, strict=True)]
    return [name.rpartition(".")[0] for name in full_names]


def _with_map_gradients(
    question: Question, plan: Plan, forward: ForwardPass, steps: tuple[Step, ...], *, keep: bool
) -> tuple[Step, ...]:
    """Add the gradients of the maps to the steps, up to the last map that the answer depends on.

    Attention that does not reach the answer, such as an unused pooling head, is dropped.
    """
    score, taps = question.score(forward.output), forward.watcher.taps
    first = forward.watcher.seen - len(taps)
    by_number: list[Mixing | None]
    if plan.map_gradients == "last":
        by_number = last_gradient(score, taps, question.batch, plan.backward, keep=keep)
    else:
        records = _gradient_records(list(records_of(steps)), plan, question.family.stream)
        own = [taps[record.operation - first] for record in records]
        states = [tap for tap in taps if tap.outcome.state_edge is not None] if plan.state_gradients else []
        parts = gradients_or_none(score, own, question.batch, plan.backward, states=states, keep=keep)
        known = dict(zip((record.operation - first for record in records), parts, strict=True))
        by_number = [known.get(number) for number in range(len(taps))]
        if not question.family.attention:
            while by_number and by_number[-1] is None:
                by_number.pop()
        reached = [record for record in records if record.operation < first + len(by_number)]
        if not reached or any(by_number[record.operation - first] is None for record in reached):
            raise HiddenGradient
    kept = select_records(steps, lambda record: record.operation < first + len(by_number))
    return each_record(kept, lambda record: replace(record, gradient_source=by_number[record.operation - first]))


def _gradient_records(records: list[AttentionRecord], plan: Plan, stream: str) -> list[AttentionRecord]:
    """The records that need gradients by the plan: all, or the last of each pair of streams, or of the decoder's."""
    if plan.map_gradients == "all":
        return records
    last = {(record.query_stream, record.key_stream): record for record in records}.values()
    is_of_decoder = plan.map_gradients == "last of the decoder"
    return [record for record in last if not is_of_decoder or record.query_stream == stream]

"""A model run once on its inputs, and the trace of what a method wants to read of that."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from whyformer.axes import KEY, Inputs, by_head
from whyformer.errors import check_count
from whyformer.models.bridges import bridge_of
from whyformer.models.families import family_of
from whyformer.models.joined import Operation, Place, Transfer
from whyformer.models.structure import labels_of, layers_of, main_input, unwrapped
from whyformer.propagation.mode import Backward, PropagationMode, backward_mode, using_backward
from whyformer.targets.resolve import resolve_target
from whyformer.targets.scores import Target
from whyformer.tracing.biases import BiasTerms
from whyformer.tracing.blocks import BlockPass, NoStack, graph_from, last_of_decoder
from whyformer.tracing.checkpointing import block_pass, check_checkpoint, with_blocks
from whyformer.tracing.checks import check_model, check_records, check_size, check_texts, has_records
from whyformer.tracing.flow import Step, each_record, records_of, select_records
from whyformer.tracing.gradients import HiddenGradient, gradients_with_states, last_gradient
from whyformer.tracing.graph import Graph, ends_of
from whyformer.tracing.moves import completed
from whyformer.tracing.noise import Noise
from whyformer.tracing.positions import PositionLeaf, position_leaves
from whyformer.tracing.question import Question
from whyformer.tracing.readouts import find_readouts
from whyformer.tracing.reads import Reads
from whyformer.tracing.record import AttentionRecord, GradientSource
from whyformer.tracing.recorder import Recorder
from whyformer.tracing.scaling import Leaf, inputs_as_they_are
from whyformer.tracing.several import as_examples, check_scores
from whyformer.tracing.streams import latest, places, reaching, steps_of
from whyformer.tracing.tap import Tap
from whyformer.tracing.trace import Trace
from whyformer.tracing.ways import WayBack, way_back

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
    """Run a model once on its inputs, keeping what is to be read of that.

    Args:
        model: The model, in evaluation mode.
        inputs: Its inputs, tensors by name.
        target: What is asked about: a label's name or index, "predicted", a contrast, a detection, or any function of
            the model's output that gives one number per example.
        reads: What is computed and kept; maps and their gradients unless said otherwise.
        readout: Where the answer is read if the model's family does not say: "first", "mean", "first+mean", "last", a
            position (negative ones count from the last real token), or a weight per position.
        inputs_at_once: How many inputs run at once when a method repeats them; as many as fit unless given.
        labels: Names of the labels that the model does not carry itself.
        backward: "gradient", "libra" for LibraGrad's rules, or "attn_lrp" for AttnLRP's.
        checkpoint: Go back block by block, running each again, so that only one block's activations are ever there;
            by default where a map is too large to keep, or those of all blocks are more than a GPU has free.
        noise: Noise to put on the inputs.

    Returns:
        The trace.

    Raises:
        UnsupportedModel: If the model's attention cannot be seen.
        WhyformerError: If the target, the read-out or an input cannot be used as given.

    Example:
        >>> bert = whyformer.load("mini-bert")
        >>> inputs = bert.tokenizer("A wonderful film.", return_tensors="pt").to(bert.model.device)
        >>> whyformer.trace(bert.model, inputs, target="positive").last.gradient.shape[0]
        1
    """
    model = unwrapped(model)
    check_checkpoint(checkpoint)
    if inputs_at_once is not None:
        check_count("inputs_at_once", inputs_at_once)
    check_model(model, reads)
    check_size(inputs)
    check_texts(model, inputs)
    settings: dict[str, Any] = {"readout": readout, "inputs_at_once": inputs_at_once, "labels": labels}
    settings |= {"backward": backward, "noise": noise}
    with torch.inference_mode(False):
        inputs = {name: _own(value) for name, value in inputs.items()} | _without_cache(model)
        family = family_of(model, inputs)
        bridge = bridge_of(model, inputs, family.sight) if family.sight and "pixel_values" in inputs else None
        batch = len(main_input(inputs)[1]) if bridge is None else bridge.batch
        question = Question(model, inputs, family, _no_score, batch, backward, bridge=bridge, noise=noise)
        biases = BiasTerms() if reads.biases else None
        blocks = block_pass(question, reads, checkpoint, biases)
        question = replace(question, by_blocks=blocks is not None)
        recorder, mode = _recorder(question, reads, biases, by_blocks=blocks is not None)
        try:
            output, leaves, positions = _run(question, recorder, mode, blocks, reads)
        except NoStack:
            if checkpoint:
                raise
            return trace(model, inputs, target, reads=reads, checkpoint=False, **settings)
        resolved = resolve_target(target, output, labels_of(model) if labels is None else labels, model, inputs)
        check_scores(len(resolved.names), question, reads)
        question = replace(question, score=resolved.score)
        steps = (
            _steps(question, recorder) if has_records(model, recorder, batch, question.family, question.words) else ()
        )
        has_graph = reads.has_relevance or reads.inputs != "none"
        graph = _graph(question, recorder, output, leaves, positions, mode, blocks) if has_graph else None
        if blocks is not None:
            score = question.score(output)
            blocks.begin([score], [torch.ones_like(score)], mode, _gradient_way(reads, backward))
            steps = with_blocks(steps, blocks, main_input(inputs)[1].device, reads)
        elif reads.has_graph and reads.inputs == "none":
            if biases is not None:
                biases.begin_at(recorder.taps[0].state_edge)
            with using_backward(mode, backward):
                steps = _with_gradients(question, steps, recorder, output, reads)
        if len(resolved.names) > batch:
            question, steps = as_examples(question, steps, len(resolved.names))
        steps, readouts, masks = find_readouts(question, steps, readout)
    again = partial(trace, model, inputs, question.score, checkpoint=checkpoint, **settings)
    return Trace(question, resolved, output, steps, readouts, masks, inputs_at_once, graph, biases, again=again)


def _recorder(
    question: Question, reads: Reads, biases: BiasTerms | None, *, by_blocks: bool
) -> tuple[Recorder, PropagationMode | None]:
    """What records the forward pass, and the mode that can take it back by other rules, where one is needed."""
    model, batch = question.model, question.batch
    # What reads the last map alone lets the blocks before it run on the fused kernels.
    is_last = reads.is_last and question.family.is_one_stack
    start = max(0, (layers_of(model) or 1) - 1) if is_last else 0
    if reads.has_relevance:
        examples = None if question.bridge is None else question.bridge.row_examples()
        mode: PropagationMode | None = PropagationMode(model, batch, precise=reads.precise, examples=examples)
    else:
        mode = backward_mode(model, batch, question.backward) if reads.has_graph else None
    recorder = Recorder(
        batch,
        graph=reads.has_graph,
        start=start,
        merge_heads=not reads.has_graph and not reads.edges,
        states=_keeps_states(question, reads, by_blocks=by_blocks),
        mode=mode,
        fold=reads.edges
        or (reads.state_gradients and reads.maps == "none"),  # of which only the rows that are read are ever made
        shapes_only=by_blocks,
        edges=reads.edges,
        above=biases,
    )
    return recorder, mode


def _gradient_way(reads: Reads, backward: Backward) -> WayBack:
    """How gradients go back through blocks; beside the relevance of maps, as precisely as that does."""
    is_beside_relevance = reads.relevances != "none"
    return way_back(
        "gradient" if reads.inputs == "relevances" else backward, precise=is_beside_relevance and reads.precise
    )


def _keeps_states(question: Question, reads: Reads, *, by_blocks: bool) -> bool:
    """Whether states and weights are noted as they pass; block by block a state's gradient is taken without that."""
    of_tokens = reads.states is True or (reads.states == "of others" and not question.is_words_alone)
    return of_tokens or reads.edges or (reads.state_gradients and not by_blocks)


def _run(
    question: Question,
    recorder: Recorder,
    mode: PropagationMode | None,
    blocks: BlockPass | None,
    reads: Reads,
) -> tuple[Any, dict[str, Leaf], list[PositionLeaf]]:
    """The model's output, recorded; with inputs and positions as leaves of the graph if they, or states, are read."""
    leaves: dict[str, Leaf] = {}
    with_leaves = reads.inputs != "none" or reads.state_gradients
    nowhere: AbstractContextManager[list[PositionLeaf]] = nullcontext([])
    at_positions = position_leaves(question) if reads.positions else nowhere
    # What reads the decoder's last map alone has no use for a graph of what comes before.
    last = last_of_decoder(question.model) if reads.is_last and reads.has_graph and question.family.sight else None
    late = nullcontext() if last is None else graph_from(last, question.model)
    with inputs_as_they_are(question, leaves if with_leaves else None) as inputs, at_positions as positions, late:
        output = recorder.run(question.model, **inputs) if blocks is None else blocks.run(recorder, mode, inputs)
    recorder.taps = [completed(tap) for tap in recorder.taps]
    if reads.inputs == "none" and not reads.subsets:  # what reads the inputs themselves needs no map of them
        check_records(question.model, recorder, question.batch, question.family, question.words)
    return output, leaves, positions


def _graph(
    question: Question,
    recorder: Recorder,
    output: Any,
    leaves: dict[str, Leaf],
    positions: list[PositionLeaf],
    mode: PropagationMode | None,
    blocks: BlockPass | None,
) -> Graph:
    taps = dict(enumerate(recorder.taps, recorder.seen - len(recorder.taps)))
    ends = ends_of(question.score, output)
    return Graph(question.score(output), ends, taps, leaves, question.batch, mode, blocks, positions)


def _steps(question: Question, recorder: Recorder) -> tuple[Step, ...]:
    """The records that can reach the answer, in steps."""
    paths = _paths(question.model, recorder.taps)
    first = recorder.seen - len(recorder.taps)
    operations = [
        Operation(path, tap.attention(question.batch).shape) for path, tap in zip(paths, recorder.taps, strict=True)
    ]
    parts = places(question.model, question.inputs, question.family, operations, first)
    seen = enumerate(zip(recorder.taps, paths, strict=True), first)
    steps = steps_of(
        part if isinstance(part, Transfer) else (_record(question, part, *next(seen)), part) for part in parts
    )
    return reaching(steps, [latest(stream.name, steps) for stream in question.family.streams if stream.is_read])


def _record(question: Question, place: Place, operation: int, tapped: tuple[Tap, str]) -> AttentionRecord:
    """What is known of an attention operation, in the order of its maps."""
    (tap, path), batch, tokens = tapped, question.batch, place.tokens
    attention = tap.attention(batch)
    maps, is_cross = attention.shape[0], place.query_stream != place.key_stream
    linear_value = tap.linear_value(maps, attention.shape[KEY])
    queries, keys = attention.shape[2:] if tokens is None else tokens.lengths
    of_queries, of_keys = place.states or (None, None)
    scale = tap.scale(batch, queries, of_queries)
    state = tap.state(batch, keys if is_cross else queries, of_keys if is_cross else of_queries, of_keys=is_cross)
    if tokens is not None:
        scale = None if scale is None else tokens.state_of_queries(scale[..., None])[..., 0]
        state = None if state is None else tokens.state_of_keys(state)
        at_tokens = tap.linear_value(batch, keys) if linear_value is None else None
        if at_tokens is not None:
            linear_value = replace(at_tokens, source=tokens.state_of_keys(at_tokens.source))
    return AttentionRecord(
        path=path,
        block=place.block,
        query_stream=place.query_stream,
        key_stream=place.key_stream,
        source=attention,
        value=None if tap.value is None else by_head(tap.value, maps),
        value_weight=tap.value_weight(maps),
        output_weight=tap.projection(),
        output_scale=scale,
        key_state=state,
        state_scores=tap.state_scores(batch, queries, of_queries),
        query_states=tap.states(batch, queries, of_queries, is_cross=is_cross),
        linear_value=linear_value,
        operation=operation,
        tokens=tokens,
    )


def _paths(model: nn.Module, taps: list[Tap]) -> list[str]:
    """The module of each W_o by its name: that of its weight, or for a weight that is lent that of the module."""
    names = {id(parameter): name for name, parameter in model.named_parameters(remove_duplicate=False)}
    modules = {id(module): f"{name}." for name, module in model.named_modules(remove_duplicate=False)}
    full_names = (names.get(id(tap.output_parameter)) or modules.get(id(tap.output_module), "") for tap in taps)
    return [name.rpartition(".")[0] for name in full_names]


def _with_gradients(
    question: Question, steps: tuple[Step, ...], recorder: Recorder, output: Any, reads: Reads
) -> tuple[Step, ...]:
    """The steps with their maps' gradients, up to the last that the answer depends on.

    Attention that does not reach the answer, such as an unused pooling head, is no part of it.
    """
    score, first = question.score(output), recorder.seen - len(recorder.taps)
    records = list(records_of(steps))
    by_number: list[GradientSource | None]
    if reads.is_last and question.family.is_one_stack:
        by_number = last_gradient(score, recorder.taps, question.batch, question.backward, keep=reads.has_relevance)
    else:
        wanted = _last_of_each(records) if reads.is_last else records
        if reads.is_last and question.bridge is not None:  # the decoder's: what the tower's would cost nobody reads
            wanted = [record for record in wanted if record.query_stream == question.family.stream]
        taps = [recorder.taps[record.operation - first] for record in wanted]
        states = [tap for tap in recorder.taps if tap.state_edge is not None] if reads.state_gradients else []
        parts = gradients_with_states(score, taps, states, question.batch, question.backward, keep=reads.has_relevance)
        known = dict(zip((record.operation - first for record in wanted), parts, strict=True))
        by_number = [known.get(number) for number in range(len(recorder.taps))]
        if not question.family.attention:
            while by_number and by_number[-1] is None:
                by_number.pop()
        reached = [record for record in wanted if record.operation < first + len(by_number)]
        if not reached or any(by_number[record.operation - first] is None for record in reached):
            raise HiddenGradient
    kept = select_records(steps, lambda record: record.operation < first + len(by_number))
    return each_record(kept, lambda record: replace(record, gradient_source=by_number[record.operation - first]))


def _last_of_each(records: list[AttentionRecord]) -> list[AttentionRecord]:
    """The last record of each pair of streams."""
    return list({(record.query_stream, record.key_stream): record for record in records}.values())


def _no_score(output: Any) -> Any:
    raise AssertionError("The target is settled once the output is known.")


def _without_cache(model: nn.Module) -> Inputs:
    """Decoders are not to keep keys and values for a next token that nobody asks for."""
    return {"use_cache": False} if "use_cache" in inspect.signature(model.forward).parameters else {}


def _own(value: Any) -> Any:
    """A tensor free of the caller's graph and inference mode."""
    if not isinstance(value, Tensor):
        return value
    return value.clone() if value.is_inference() else value.detach()

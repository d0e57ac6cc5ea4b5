"""One question put to a model: its attention records, and what a method may read beyond them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from whyformer.axes import (
    HEAD,
    KEY,
    QUERY,
    AttentionMap,
    ExampleScores,
    Inputs,
    Mixing,
    Rows,
    StreamScores,
    TokenMask,
    TokenScores,
    by_head,
)
from whyformer.errors import UnsupportedModel, WhyformerError
from whyformer.models.families import FAMILIES, ROW_TO_WRITE, family_of
from whyformer.models.readout import ReadOut, read_out_seen, read_out_weights
from whyformer.models.structure import config_of, labels_of, layers_of, main_input, prefix_length
from whyformer.propagation.mode import Backward, PropagationMode, following
from whyformer.propagation.rules import Rules
from whyformer.targets.resolve import ResolvedTarget, resolve_target
from whyformer.targets.scores import Target
from whyformer.tracing.flow import Step, flow
from whyformer.tracing.gradients import HiddenGradient, gradients_or_none, last_gradient
from whyformer.tracing.graph import Graph, ends_of
from whyformer.tracing.path import (
    Baseline,
    Leaf,
    Quadrature,
    Question,
    gradients_at,
    inputs_at_once,
    integrated_gradients,
    integrated_inputs,
    nodes_and_weights,
    scaled_inputs,
)
from whyformer.tracing.record import AttentionRecord
from whyformer.tracing.recorder import Recorder
from whyformer.tracing.streams import connected, places, reaching, steps_of

# What a method reads of a trace. Maps alone are kept as head means; with gradients, per head or made when read.
Reads = Literal[
    "last map",
    "maps",
    "states",
    "last gradient",
    "gradients",
    "last relevance",
    "relevances",
    "inputs",
    "input relevance",
]
# Those that go back by relevance rules: through all blocks in float32 at least.
RELEVANCE = ("last relevance", "relevances", "input relevance")
# How often integrated gradients ask along the path, unless told.
PIXEL_STEPS, EMBEDDING_STEPS = 20, 50
# What the padding masks of streams are called among a model's inputs.
MASKS = {"target": "decoder_attention_mask", "image": "visual_attention_mask", "audio": "none"}


@dataclass(frozen=True)
class Reading:
    """A stream, the last attention that reads it, and how much each query of that attention counts for the answer."""

    stream: str
    record: AttentionRecord
    queries: ReadOut


@dataclass
class Findings:
    """What a method measured on its way: remarks, and how far its scores are from adding up, as a share of it all."""

    remarks: tuple[str, ...] = ()
    completeness: ExampleScores | None = None


@dataclass(frozen=True)
class Trace:
    """The records of one forward pass, where its answer is read, and the means to ask again along a path."""

    question: Question
    asked: ResolvedTarget
    output: Any
    steps: tuple[Step, ...]
    readouts: tuple[ReadOut, ...]
    masks: dict[str, TokenMask]
    inputs_at_once: int | None = None
    graph: Graph | None = None
    findings: Findings = field(default_factory=Findings)

    @property
    def records(self) -> tuple[AttentionRecord, ...]:
        return tuple(record for step in self.steps for record in step)

    @property
    def readout(self) -> ReadOut:
        """Where the answer is read; of two towers, the first one's."""
        return self.readouts[0]

    @property
    def mask(self) -> TokenMask:
        """Which tokens of the read-out's stream are real."""
        return self.masks[self.readout.stream]

    @property
    def last(self) -> AttentionRecord:
        """The last attention operation before the answer."""
        return self.records[-1]

    @property
    def last_rows(self) -> list[tuple[ReadOut, AttentionRecord]]:
        """For each stream that a read-out's own tokens attend to, the last attention by which they do."""
        last = {(record.query_stream, record.key_stream): record for record in self.records}
        by_stream = {readout.stream: readout for readout in self.readouts}
        return [(by_stream[query], record) for (query, _), record in last.items() if query in by_stream]

    def relevances(self, rules: Rules, *, strict: bool) -> dict[int, AttentionMap]:
        """The relevance of each map, by the number of its operation."""
        assert self.graph is not None
        found = self.graph.relevances(rules, strict=strict)
        self.findings.remarks = self.graph.remarks
        return found

    def input_relevances(self, rules: Rules, *, strict: bool) -> StreamScores:
        """The relevance of each input, pixels or embeddings, summed over channels."""
        assert self.graph is not None
        found = self.graph.input_relevances(rules, strict=strict)
        self.findings.remarks = self.graph.remarks
        if rules != "lrp" and "pixels" not in found:  # which doubles; positions and class tokens have their share
            self.findings.completeness = _incompleteness(found, *self.graph.starts(rules))
        return found

    def inputs_times_gradients(self) -> StreamScores:
        """Each input times its gradient, summed over channels."""
        assert self.graph is not None
        found = self.graph.inputs_times_gradients(self.question.backward)
        if self.question.backward == "libra" and "pixels" not in found:
            self.findings.completeness = _incompleteness(found, self.graph.score.detach())
        return found

    def integrated_inputs(
        self, quadrature: Quadrature, steps: int | None, baseline: Baseline | Tensor | None
    ) -> StreamScores:
        """Each input's difference from the baseline times its integrated gradient, summed over channels.

        Without a baseline it is grey for pixels and padding for text: at embeddings of zero a normalisation jumps, and
        no number of steps adds up. Regions embedded with a text start at features of zero. Between embeddings the path
        is rougher, and gets more steps.
        """
        has_pixels = any(stream.scaled is None for stream in self.question.family.streams)
        steps = (PIXEL_STEPS if has_pixels else EMBEDDING_STEPS) if steps is None else steps
        if baseline is None:
            pads = getattr(config_of(self.question.model), "pad_token_id", None) is not None
            baseline = "padding" if pads and not has_pixels else "zero"
        nodes, weights = nodes_and_weights(quadrature, steps)
        found, total = integrated_inputs(self.question, nodes, weights, baseline, self._at_once)
        self.findings.completeness = _incompleteness(found, total)
        return found

    @property
    def _at_once(self) -> int:
        """How many inputs run through the model at once when they are repeated."""
        tokens = sum(mask.shape[1] for mask in self.masks.values())
        return self.inputs_at_once or inputs_at_once(tokens, self.readout.weights.device.type)

    def start(self) -> dict[str, Rows]:
        """The read-outs as the one row that flow starts from."""
        return {readout.stream: readout.weights[:, None, :] for readout in self.readouts}

    def steps_from(self, first_block: int, last_block: int | None = None) -> list[Step]:
        """The steps from a block on, to another or to the end; refused where tokens do not keep their places."""
        end = max(record.block for record in self.records)
        last = end if last_block is None else last_block
        if not 0 <= first_block <= end:
            raise WhyformerError(f"first_block={first_block}: this model's blocks are 0 to {end}.")
        if not first_block <= last <= end:
            raise WhyformerError(f"last_block={last}: one of the blocks {first_block} to {end}.")
        lengths = {stream: mask.shape[1] for stream, mask in self.masks.items()}
        for record in self.records:
            expected = (self.question.batch, lengths[record.query_stream], lengths[record.key_stream])
            if (record.source.shape[0], *record.source.shape[2:]) != expected:
                raise UnsupportedModel(_no_token_flow(self.question.model, record.source.shape))
        kept = (tuple(record for record in step if first_block <= record.block <= last) for step in self.steps)
        return list(reaching([step for step in kept if step], [readout.stream for readout in self.readouts]))

    def readings(self, steps: list[Step], mixing: Callable[[AttentionRecord], Mixing]) -> list[tuple[Reading, Rows]]:
        """For each stream the last attention that reads it, with the rows of P, one for each query that counts.

        P starts at the queries of that attention; how much each of them counts is what flows on from it to the answer.
        """
        for streams in connected(steps):
            read = [readout.stream for readout in self.readouts if readout.stream in streams]
            if len(read) > 1:
                raise UnsupportedModel(
                    f"The answer is read in {' and '.join(read)}, which attend to each other: no attention is the last "
                    "of both. rollout and generic_attention work on it."
                )
        last = {record.key_stream: (number, record) for number, step in enumerate(steps) for record in step}
        found = []
        for stream, (number, record) in last.items():
            weights = self._reached(record.query_stream, steps[number + 1 :], mixing)
            queries = ReadOut(record.query_stream, weights)
            positions, _ = queries.rows
            start = {queries.stream: queries.one_hot(positions)}
            perceived = flow([*steps[:number], (record,)], mixing, start)[stream]
            found.append((Reading(stream, record, queries), perceived + start.get(stream, 0.0)))
        return found

    def _reached(self, stream: str, steps: list[Step], mixing: Callable[[AttentionRecord], Mixing]) -> TokenScores:
        start = self.start()
        moved = flow(steps, mixing, start)[stream]
        return (moved + start.get(stream, 0.0))[:, 0]

    def feedback(
        self, readings: list[Reading], quadrature: Quadrature, steps: int, baseline: Baseline | Tensor
    ) -> dict[str, Rows]:
        """F of each stream at the queries that count: the integrated gradient of the last map that reads the stream,
        clamped per head, head mean (BI Eq. 17). Streams that attend to each other are scaled together, towers apart.
        """
        nodes, weights = nodes_and_weights(quadrature, steps)
        found: dict[str, Rows] = {}
        for streams in connected(self.steps):
            inside = [reading for reading in readings if reading.stream in streams]
            if not inside:  # first_block left a tower without any
                continue
            rows = {reading.record.operation: reading.queries.rows[0] for reading in inside}
            sums = integrated_gradients(self.question, rows, list(streams), nodes, weights, baseline, self._at_once)
            found |= {r.stream: head_mean(sums[r.record.operation].clamp(min=0)) for r in inside}
        return found


def trace(
    model: nn.Module,
    inputs: Inputs,
    target: Target = "predicted",
    *,
    reads: Reads = "gradients",
    readout: str | int | Tensor | None = None,
    inputs_at_once: int | None = None,
    labels: Mapping[int, str] | None = None,
    backward: Backward = "gradient",
) -> Trace:
    """Run the model once on the inputs, keeping what `reads` names; `labels` are names the model does not carry."""
    model = getattr(model, "_orig_mod", model)  # torch.compile's wrapper hides every operation
    _check_model(model)
    with torch.inference_mode(False):
        inputs = {name: _own(value) for name, value in inputs.items()} | _without_cache(model)
        family = family_of(model, inputs)
        batch = len(main_input(inputs)[1])
        in_graph = reads not in ("last map", "maps", "states")
        # What reads the last map alone lets the blocks before it run on the fused kernels.
        is_last = reads in ("last map", "last gradient", "last relevance") and not family.attention
        start = max(0, (layers_of(model) or 1) - 1) if is_last else 0
        precise = reads in RELEVANCE
        ruled = (
            PropagationMode(model, batch, precise=precise) if precise or (in_graph and backward == "libra") else None
        )
        kept = {"merge_heads": not in_graph, "states": reads == "states"}
        recorder = Recorder(batch, graph=in_graph, start=start, ruled=ruled, **kept)
        asking = Question(model, inputs, family, _unasked, batch, backward)
        leaves: dict[str, Leaf] = {}
        streams = [stream.name for stream in family.streams]
        as_they_are = scaled_inputs(asking, streams, torch.ones(1), "zero", leaves)
        with as_they_are if reads.startswith("input") else nullcontext(inputs) as given:
            output = recorder.run(model, **given)
        _check_complete(model, recorder, batch)
        answer = resolve_target(target, output, labels_of(model) if labels is None else labels, model, inputs)
        question = replace(asking, score=answer.score)
        steps = _steps(question, recorder)
        graph = None
        if precise or reads == "inputs":
            first = recorder.seen - len(recorder.taps)
            taps = dict(enumerate(recorder.taps, first))
            score = question.score(output)
            graph = Graph(score, ends_of(question.score, output), taps, leaves, batch, ruled)
        if in_graph and not reads.startswith("input"):
            with following(ruled, backward):
                steps = _with_gradients(question, steps, recorder, output, last_only="last" in reads, keep=precise)
        steps, readouts, masks = _read(question, steps, readout)
    return Trace(question, answer, output, steps, readouts, masks, inputs_at_once, graph)


def _incompleteness(found: StreamScores, *starts: Tensor) -> ExampleScores:
    """How far the scores are from adding up to what was there to share out, as a share of it, whatever its signs."""
    batch = len(next(iter(found.values())))
    added = torch.stack([scores.sum(dim=1) for scores in found.values()]).sum(dim=0)
    whole = torch.cat([start.reshape(batch, -1) for start in starts], dim=1)
    return (added - whole.sum(dim=1)).abs() / whole.abs().sum(dim=1)


def head_mean(x: AttentionMap) -> Mixing:
    """The mean over heads, in float32 at least."""
    return x.mean(HEAD, dtype=torch.promote_types(x.dtype, torch.float32))


def _check_model(model: nn.Module) -> None:
    if any(module.training for module in model.modules()):
        raise WhyformerError("The model is in training mode, where dropout corrupts attention: call model.eval().")
    if any("DeformableAttention" in type(module).__name__ for module in model.modules()):
        raise UnsupportedModel(
            f"{type(model).__name__} reads its image at a few points of its own choosing (deformable attention): there "
            "is no map to follow. DetrForObjectDetection and ConditionalDetrForObjectDetection have one."
        )
    row = FAMILIES.get(getattr(config_of(model), "model_type", ""))
    if getattr(config_of(model), "is_encoder_decoder", False) and not (row and row.attention):
        raise UnsupportedModel(
            f"{type(model).__name__} has an encoder and a decoder: whose attention is whose? {ROW_TO_WRITE}"
        )
    kernel = getattr(config_of(model), "_attn_implementation", None)
    if kernel not in (None, "sdpa", "eager"):
        raise UnsupportedModel(f"{kernel} attention cannot be seen: load the model with attn_implementation='sdpa'.")


def _check_complete(model: nn.Module, recorder: Recorder, batch: int) -> None:
    name = type(model).__name__
    layers = layers_of(model)
    if recorder.seen and layers is not None and recorder.seen < layers:
        raise UnsupportedModel(
            f"{name} has {layers} layers but only {recorder.seen} attention operations were seen: "
            "the others run in kernels that cannot be recorded."
        )
    if not recorder.taps:
        raise UnsupportedModel(f"{name} ran no attention operation that can be recorded: it has none, or hides it.")
    if any(tap.is_folded and (tap.heads_in_order is None or not bool(tap.heads_in_order)) for tap in recorder.taps):
        raise UnsupportedModel(
            f"{name} folds its heads into the batch, and not examples before heads: explain one example at a time."
        )
    rows, *others = recorder.taps[-1].map.shape
    if not recorder.taps[-1].is_folded and len(others) == 3 and rows != batch:
        raise UnsupportedModel(
            f"The last map of {name} has {rows} rows for {batch} examples: its windows are no single stream."
        )


def _steps(question: Question, recorder: Recorder) -> tuple[Step, ...]:
    """The records that can reach the answer, in steps."""
    names = {id(parameter): name for name, parameter in question.model.named_parameters(remove_duplicate=False)}
    paths = [names.get(id(tap.output_parameter), "").rpartition(".")[0] for tap in recorder.taps]
    first = recorder.seen - len(recorder.taps)
    placed = places(question.family, paths, first)
    records = []
    for number, (tap, path, place) in enumerate(zip(recorder.taps, paths, placed, strict=True)):
        attention = tap.attention(question.batch)
        is_cross = place.query_stream != place.key_stream
        record = AttentionRecord(
            path=path,
            block=place.block,
            query_stream=place.query_stream,
            key_stream=place.key_stream,
            map=attention,
            value=None if tap.value is None else by_head(tap.value, question.batch),
            value_weight=None if tap.value_source is None else tap.value_source.rows(question.batch),
            output_weight=tap.projection(),
            key_state=tap.state(question.batch, attention.shape[KEY if is_cross else QUERY], of_keys=is_cross),
            operation=first + number,
        )
        records.append((record, place))
    return reaching(steps_of(records), [stream.name for stream in question.family.streams if stream.is_read])


def _with_gradients(
    question: Question, steps: tuple[Step, ...], recorder: Recorder, output: Any, *, last_only: bool, keep: bool
) -> tuple[Step, ...]:
    """The steps with their maps' gradients, up to the last that the answer depends on.

    Attention that does not reach the answer, such as an unused pooling head, is no part of it.
    """
    score, first = question.score(output), recorder.seen - len(recorder.taps)
    records = [record for step in steps for record in step]
    if last_only and not question.family.attention:
        found = last_gradient(score, recorder.taps, question.batch, keep=keep)
    else:
        wanted = _last_of_each(records) if last_only else records
        numbers = [record.operation - first for record in wanted]
        parts = gradients_or_none(score, [recorder.taps[number] for number in numbers], question.batch, keep=keep)
        by_number = dict(zip(numbers, parts, strict=True))
        found = [by_number.get(number) for number in range(len(recorder.taps))]
        if not question.family.attention:
            while found and found[-1] is None:
                found.pop()
        reached = [r for r in wanted if r.operation < first + len(found)]
        if not reached or any(found[record.operation - first] is None for record in reached):
            raise HiddenGradient
    kept = (tuple(r for r in step if r.operation < first + len(found)) for step in steps)
    return tuple(tuple(r.having(gradient=found[r.operation - first]) for r in step) for step in kept if step)


def _last_of_each(records: list[AttentionRecord]) -> list[AttentionRecord]:
    """The last record of each pair of streams."""
    return list({(record.query_stream, record.key_stream): record for record in records}.values())


def _read(
    question: Question, steps: tuple[Step, ...], given: str | int | Tensor | None
) -> tuple[tuple[Step, ...], tuple[ReadOut, ...], dict[str, TokenMask]]:
    """The steps that reach the answer, the read-out of each stream it is read from, and each stream's real tokens."""
    seen: dict[str, AttentionMap] = {}
    kinds: dict[str, str | int | Tensor] = {}
    for number, stream in enumerate(stream for stream in question.family.streams if stream.is_read):
        kind = stream.readout if given is None or number else given
        kind = kind(question.model) if callable(kind) else kind
        if kind is not None:
            kinds[stream.name] = kind
            continue
        own = [r for step in steps for r in step if r.query_stream == stream.name]
        operation, seen[stream.name] = _last_with_gradient(question, own)
        if not question.family.attention:
            steps = tuple(step for step in steps if step[0].operation <= operation)
    masks = _masks(question.inputs, steps)
    dtype = torch.promote_types(steps[-1][-1].source.dtype, torch.float32)
    weights = {name: read_out_seen(gradient) for name, gradient in seen.items()}
    weights |= {name: _read_out(kind, question, masks[name]) for name, kind in kinds.items()}
    return steps, tuple(ReadOut(name, values.to(dtype)) for name, values in weights.items()), masks


def _last_with_gradient(question: Question, records: list[AttentionRecord]) -> tuple[int, AttentionMap]:
    """The last operation that the answer depends on, with the gradient of its map.

    Where gradients were not asked for, it is found by a pass of its own.
    """
    for record in reversed(records):
        gradient = record.gradient
        if gradient is not None:
            return record.operation, gradient
        with suppress(HiddenGradient):
            (found,) = gradients_at(question, [record.operation])
            return record.operation, found
    raise HiddenGradient


def _masks(inputs: Inputs, steps: tuple[Step, ...]) -> dict[str, TokenMask]:
    """Which tokens of each stream are real: the attention mask's word, or else those that any query attends to."""
    records = [record for step in steps for record in step]
    reading, read = ({getattr(r, end): r for r in records} for end in ("query_stream", "key_stream"))
    streams = dict.fromkeys(stream for r in records for stream in (r.query_stream, r.key_stream))
    return {name: _real(inputs, read[name]) if name in read else _all(reading[name]) for name in streams}


def _real(inputs: Inputs, read: AttentionRecord) -> TokenMask:
    given = inputs.get(MASKS.get(read.key_stream, "attention_mask"))
    if isinstance(given, Tensor) and given.shape == (read.source.shape[0], read.source.shape[KEY]):
        return given.bool()
    return read.map.sum(dim=(HEAD, QUERY)) > 0


def _all(reading: AttentionRecord) -> TokenMask:
    batch, _, queries, _ = reading.source.shape
    return torch.ones(batch, queries, dtype=torch.bool, device=reading.source.device)


def _read_out(kind: str | int | Tensor, question: Question, mask: TokenMask) -> TokenScores:
    is_mean = isinstance(kind, str) and "mean" in kind
    prefix = prefix_length(question.model, question.inputs, mask.shape[1]) if is_mean else 0
    return read_out_weights(kind, mask, prefix)


def _unasked(output: Any) -> Any:
    raise AssertionError("The target is settled once the output is known.")


def _without_cache(model: nn.Module) -> Inputs:
    """Decoders are not to keep keys and values for a next token that nobody asks for."""
    return {"use_cache": False} if "use_cache" in inspect.signature(model.forward).parameters else {}


def _own(value: Any) -> Any:
    """A tensor free of the caller's graph and inference mode."""
    if not isinstance(value, Tensor):
        return value
    return value.clone() if value.is_inference() else value.detach()


def _no_token_flow(model: nn.Module, windowed: torch.Size) -> str:
    return (
        f"This method follows tokens from block to block, but {type(model).__name__} has maps of shape "
        f"{tuple(windowed)} on the way: windows, merged patches or several streams do not keep tokens in place. "
        "grad_cam and raw_attention, which read the last map alone, work on it."
    )

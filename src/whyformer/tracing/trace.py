"""One question put to a model: its attention records, where its answer is read, and what a method may read of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from whyformer.axes import Rows, StreamScores, TokenMask
from whyformer.backward.biases import BiasTerms
from whyformer.backward.rules import Rules
from whyformer.errors import WhyformerError
from whyformer.models.joined import Transfer
from whyformer.models.readout import ReadOut
from whyformer.models.structure import config_of, main_input
from whyformer.targets.resolve import ResolvedTarget
from whyformer.tracing.attribution import Attribution
from whyformer.tracing.checks import moved_tokens
from whyformer.tracing.describe import describe
from whyformer.tracing.flow import Step, carry, records_of, select_records
from whyformer.tracing.graph import Graph, MapRelevances, incompleteness
from whyformer.tracing.leaves import Baseline
from whyformer.tracing.path import Quadrature, inputs_at_once, integrated_inputs, nodes_and_weights
from whyformer.tracing.plan import Plan
from whyformer.tracing.question import Question
from whyformer.tracing.reads import Reads
from whyformer.tracing.record import AttentionRecord
from whyformer.tracing.steps import reaching

# How often integrated gradients ask along the path, unless told.
PIXEL_STEPS, EMBEDDING_STEPS = 20, 50
UNKNOWN_TOKENS = 256  # of a model without attention a picture counts as 16 × 16 patches


@dataclass(frozen=True)
class Trace:
    """The records of one forward pass, where its answer is read, and the means to ask again along a path.

    Attributes:
        question: The model, its inputs and the score that is explained.
        target: The target made definite: labels, their names, where they are read.
        output: The model's own output.
        steps: The attention records in the order they ran; those of one step read the same state.
        readouts: For each stream that the answer is read from, a weight per position.
        masks: For each stream, which of its tokens are real.
        inputs_at_once: How many inputs run through the model at once when they are repeated; None for what fits.
        graph: The graph of the forward pass, where relevances or gradients of the inputs are read.
        biases: What biases have of the score, where they are read.
        track: What goes through the steps of long work, and may show how far it is.
        again: What asks about the same target once more, for other reads or of inputs with noise.
        plan: What the pass was to keep, and how it is taken back.

    Example:
        >>> bert = whyformer.load("mini-bert")
        >>> inputs = bert.tokenizer("A wonderful film.", return_tensors="pt").to(bert.model.device)
        >>> trace = whyformer.extend.trace(bert.model, inputs, reads=whyformer.extend.Reads(maps="all"))
        >>> trace.readout.stream, len(trace.records)
        ('text', 6)
    """

    question: Question
    target: ResolvedTarget
    output: Any
    steps: tuple[Step, ...]
    readouts: tuple[ReadOut, ...]
    masks: dict[str, TokenMask]
    inputs_at_once: int | None = None
    graph: Graph | None = None
    biases: BiasTerms | None = None
    track: Callable[[Sequence[int]], Iterable[int]] = iter
    again: Callable[..., Trace] | None = None
    plan: Plan | None = None

    def describe(self) -> str:
        """What was planned and seen, block by block: operations, maps, W_v, W_o, states, and how each was told."""
        return describe(self)

    def once_more(self, reads: Reads, **changes: Any) -> Trace:
        """The trace of another pass, read where this one is: for other reads, with noise, or by another backward."""
        assert self.again is not None
        other = self.again(reads=reads, **changes)
        return replace(other, target=self.target, readouts=self.readouts, masks=self.masks)

    @property
    def records(self) -> tuple[AttentionRecord, ...]:
        """The attention records in the order they ran."""
        return tuple(records_of(self.steps))

    @property
    def readout(self) -> ReadOut:
        """Where the answer is read; of two towers, the first one's."""
        return self.readouts[0]

    @property
    def mask(self) -> TokenMask:
        """Which tokens of the read-out's stream are real."""
        return self.masks[self.readout.stream]

    @property
    def stream(self) -> str:
        """The stream that scores of the read-out's tokens are given on: they may have been made of others."""
        stream = self.readout.stream
        for step in reversed(self.steps):
            if isinstance(step, Transfer) and step.later == stream and step.leaving == "all":
                stream = step.earlier
        return stream

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

    @property
    def copies_at_once(self) -> int:
        """How many inputs run through the model at once when they are repeated."""
        if "image_grid_thw" in self.question.inputs:  # of a packed sequence, each picture is an operation of its own
            return self.question.batch
        tokens = sum(mask.shape[1] for mask in self.masks.values()) or UNKNOWN_TOKENS
        return self.inputs_at_once or inputs_at_once(tokens, main_input(self.question.inputs)[1].device.type)

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
            if (record.batch, *record.lengths) != expected:
                raise moved_tokens(self.question.model, record.source.shape)
        kept = select_records(self.steps, lambda record: first_block <= record.block <= last)
        return list(reaching(kept, [readout.stream for readout in self.readouts]))

    @property
    def up_to_bridge(self) -> Trace:
        """The trace of the decoder alone, which ends where the features of pictures enter it."""
        if self.question.bridge is None:
            raise WhyformerError(
                "bridge='stop' is for a model with pictures among its words, and an input that has some."
            )
        own = {readout.stream for readout in self.readouts}
        kept = select_records(self.steps, lambda record: record.query_stream in own)
        return replace(self, steps=tuple(step for step in kept if not isinstance(step, Transfer)))

    def on_inputs(self, scores: StreamScores) -> StreamScores:
        """Scores of tokens that were made of others, such as merged patches, carried to those of the input."""
        made = [step.whole for step in self.steps if isinstance(step, Transfer) and step.leaving != "none"]
        rows = carry({stream: values[:, None] for stream, values in scores.items()}, made)
        return {stream: values[:, 0] for stream, values in rows.items()}

    @property
    def real_tokens(self) -> dict[str, TokenMask]:
        """For each stream that scores are given on, which of its tokens are real: not for those made of others."""
        made = {step.later for step in self.steps if isinstance(step, Transfer) and step.leaving == "all"}
        return {stream: mask for stream, mask in self.masks.items() if stream not in made}

    def relevances(self, rules: Rules, *, strict: bool) -> MapRelevances:
        """The relevance of each map by these rules; `strict` refuses an operation that has none."""
        return self._graph_for('relevances="all"').map_relevances(rules, strict=strict)

    def input_relevances(self, rules: Rules, *, strict: bool) -> Attribution:
        """The relevance of each input, pixels or embeddings, summed over channels."""
        return self._graph_for('inputs="relevances"').input_relevances(rules, strict=strict)

    def inputs_times_gradients(self) -> Attribution:
        """Each input times its gradient, summed over channels."""
        return self._graph_for('inputs="gradients"').inputs_times_gradients(self.question.backward)

    def _graph_for(self, reads: str) -> Graph:
        if self.graph is None:
            raise WhyformerError(f"This trace does not have what is read of it: build it with reads=Reads({reads}).")
        return self.graph

    def integrated_inputs(
        self, quadrature: Quadrature, steps: int | None, baseline: Baseline | Tensor | None
    ) -> Attribution:
        """Each input's difference from the baseline times its integrated gradient, summed over channels.

        Without a baseline it is grey for pixels and padding for text: at embeddings of zero a normalisation jumps, and
        no number of steps adds up. Regions embedded with a text start at features of zero. Between embeddings the path
        is rougher, and gets more steps.
        """
        steps = (PIXEL_STEPS if self._has_pixels else EMBEDDING_STEPS) if steps is None else steps
        nodes, weights = nodes_and_weights(quadrature, steps)
        start = self._baseline if baseline is None else baseline
        scores, total = integrated_inputs(self.question, nodes, weights, start, self.copies_at_once)
        return Attribution(scores, incompleteness(scores, total))

    def expected_inputs(self, samples: int, seed: int, baseline: Baseline | Tensor | None) -> Attribution:
        """The same at random points of the paths from each of several baselines, their mean."""
        baselines = baseline.split(1) if isinstance(baseline, Tensor) else [baseline or self._baseline]
        if samples < len(baselines):
            raise WhyformerError(f"samples={samples}: at least one for each of {len(baselines)} baselines.")
        if seed < 0:
            raise WhyformerError(f"seed={seed}: a seed is 0 or more.")
        generator = torch.Generator().manual_seed(seed)
        nodes = torch.rand(samples, generator=generator, dtype=torch.float64)
        parts = []
        for number, start in enumerate(baselines):
            own = nodes[number :: len(baselines)]
            weights = torch.full_like(own, 1 / len(own))
            parts.append(integrated_inputs(self.question, own, weights, start, self.copies_at_once))
        scores = {name: torch.stack([part[name] for part, _ in parts]).mean(dim=0) for name in parts[0][0]}
        return Attribution(scores, incompleteness(scores, torch.stack([total for _, total in parts]).mean(dim=0)))

    @property
    def _has_pixels(self) -> bool:
        return any(stream.scaled is None for stream in self.question.family.streams)

    @property
    def _baseline(self) -> Baseline:
        """Where paths start unless that is said."""
        pads = not self._has_pixels and getattr(config_of(self.question.model), "pad_token_id", None) is not None
        return "padding" if pads else "zero"

"""Gradients along a path from a baseline to the input, for integrated gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from whyformer.axes import AttentionMap, ExampleScores, Positions, StreamScores, at_least_float32
from whyformer.backward.blocks import BlockPass, find_blocks
from whyformer.backward.passes import backward_pass, gradients
from whyformer.backward.rule_graph import RuleGraph, make_rule_graph, using_rules
from whyformer.errors import WhyformerError
from whyformer.tracing.leaves import Leaf, inputs_as_they_are, scaled_inputs
from whyformer.tracing.question import Question, split_output
from whyformer.tracing.record import AttentionRecord
from whyformer.watching.mixing import Mixing
from whyformer.watching.watcher import Watcher, WatchPlan

Quadrature = Literal["midpoint", "uniform", "inclusive", "gauss"]

# Tokens that run through a model at once when an input is repeated: enough to fill the device. Tokens of inputs
# longer than SHORT weigh more, since they attend to more.
TOKENS_AT_ONCE = {"cpu": 2_048, "cuda": 131_072}
SHORT = 256


def nodes_and_weights(quadrature: Quadrature, steps: int) -> tuple[Tensor, Tensor]:
    """The nodes of a quadrature on [0, 1], and their weights."""
    if steps < 1:
        raise WhyformerError(f"steps={steps}: the path needs at least one.")
    if quadrature == "gauss":
        roots, shares = np.polynomial.legendre.leggauss(steps)
        return torch.tensor((roots + 1) / 2), torch.tensor(shares / 2)
    number = torch.arange(steps, dtype=torch.float64)
    nodes = {
        "midpoint": (number + 0.5) / steps,
        "uniform": (number + 1) / steps,  # BI Eq. 17
        "inclusive": torch.linspace(0, 1, steps, dtype=torch.float64),  # the authors' code
    }[quadrature]
    return nodes, torch.full((steps,), 1 / steps, dtype=torch.float64)


def integrated_map_gradients(
    question: Question,
    rows: Sequence[tuple[AttentionRecord, Positions]],
    streams: Sequence[str],
    nodes: Tensor,
    weights: Tensor,
    baseline: str | Tensor,
    inputs_at_once: int,
) -> dict[int, AttentionMap]:
    """The weighted sum of map gradients over the nodes of the path, by operation, for rows at some positions only."""
    copies = max(1, inputs_at_once // question.batch)
    sums: dict[int, AttentionMap] = {}
    operations = [record.operation for record, _ in rows]
    for scales, share in zip(nodes.split(copies), weights.split(copies), strict=True):
        by_operation = gradients_at(question, operations, streams, scales, baseline)
        for (record, positions), gradient in zip(rows, by_operation, strict=True):
            operation = record.operation
            picked = _rows_at(gradient, record, positions.repeat(len(scales), 1), len(scales))
            stacked = at_least_float32(picked).unflatten(0, (len(scales), question.batch))
            part = torch.tensordot(share.to(stacked), stacked, dims=1)
            sums[operation] = sums[operation] + part if operation in sums else part
    return sums


def _rows_at(gradient: Mixing, record: AttentionRecord, positions: Positions, copies: int) -> AttentionMap:
    """The rows of a gradient at some positions of each copy of the examples."""
    if record.tokens is None:
        return gradient.pick(positions)()
    values = gradient()
    return record.tokens.repeat(copies, len(values)).rows_at(values, positions)


def gradients_at(
    question: Question,
    operations: Sequence[int],
    streams: Sequence[str] = (),
    scales: Tensor | None = None,
    baseline: str | Tensor = "zero",
) -> list[Mixing]:
    """The gradients of these operations' maps at each scale of the streams, scale by scale along the batch.

    Without scales, those of the inputs themselves. Earlier operations run on the model's fused kernels without a graph.
    """
    copies = 1 if scales is None else len(scales)
    batch, start = question.batch * copies, min(operations)
    rule_graph = make_rule_graph(question.model, batch, question.backward)
    watcher = Watcher(batch, WatchPlan(graph=True, first_operation=start), rules=rule_graph)
    path = inputs_as_they_are(question) if scales is None else scaled_inputs(question, streams, scales, baseline)
    with torch.inference_mode(False), path as inputs:
        output = watcher.run(question.model, **inputs)
        scores = [question.score(part) for part in split_output(output, question.batch, copies)]
        if any(len(score) != question.batch for score in scores):
            raise WhyformerError(
                f"The target returned {len(scores[0])} scores for {question.batch} examples: return one per example."
            )
        with using_rules(rule_graph, question.backward):
            taps = [watcher.taps[operation - start] for operation in operations]
            return gradients(torch.cat(scores), taps, batch, question.backward)


def inputs_at_once(tokens: int, device: str) -> int:
    """The number of inputs of `tokens` tokens that run at once."""
    return TOKENS_AT_ONCE.get(device, TOKENS_AT_ONCE["cpu"]) // (tokens * max(SHORT, tokens) // SHORT)


def integrated_inputs(
    question: Question, nodes: Tensor, weights: Tensor, baseline: str | Tensor, inputs_at_once: int
) -> tuple[StreamScores, ExampleScores]:
    """Each input's difference from the baseline times its integrated gradient, summed over channels.

    Also return their expected sum: the score minus that of the baseline.
    """
    copies = max(1, inputs_at_once // question.batch)
    streams = [stream.name for stream in question.family.streams]
    sums: StreamScores = {}
    for scales, share in zip(nodes.split(copies), weights.split(copies), strict=True):
        leaves: dict[str, Leaf] = {}
        scores, rule_graph, blocks = _scores_at(question, streams, scales, baseline, leaves)
        score, values = torch.cat(scores), [leaf.value for leaf in leaves.values()]
        if blocks is not None:
            blocks.begin([score], [torch.ones_like(score)], rule_graph, backward_pass(question.backward))
        with using_rules(rule_graph, question.backward):
            by_leaf = (
                torch.autograd.grad(score.sum(), values, allow_unused=True) if blocks is None else blocks.before(values)
            )
        for (stream, leaf), gradient in zip(leaves.items(), by_leaf, strict=True):
            if gradient is not None:
                parts = leaf.scores(stream, gradient * leaf.difference).unflatten(0, (len(scales), question.batch))
                part = torch.tensordot(share.to(parts), parts, dims=1)
                sums[stream] = sums[stream] + part if stream in sums else part
    start, end = (_scores_at(question, streams, torch.tensor([at]), baseline, {})[0][0] for at in (0.0, 1.0))
    return sums, (at_least_float32(end) - at_least_float32(start)).detach()


def _scores_at(
    question: Question, streams: Sequence[str], scales: Tensor, baseline: str | Tensor, leaves: dict[str, Leaf]
) -> tuple[list[ExampleScores], RuleGraph | None, BlockPass | None]:
    """The scores at each scale, without maps: plain gradients run through the model's own kernels."""
    batch = question.batch * len(scales)
    rule_graph = make_rule_graph(question.model, batch, question.backward)
    with torch.inference_mode(False), scaled_inputs(question, streams, scales, baseline, leaves) as inputs:
        blocks = None
        if question.by_blocks:
            blocks = BlockPass(question.model, batch, find_blocks(question.model))
            output = blocks.run(
                Watcher(batch, WatchPlan("shapes only", graph=True), rules=rule_graph), rule_graph, inputs
            )
        elif rule_graph is None:
            output = Watcher(batch, WatchPlan("none", graph=True)).run(question.model, **inputs)
        else:
            output = Watcher(batch, WatchPlan(graph=True), rules=rule_graph).run(question.model, **inputs)
        return [question.score(part) for part in split_output(output, question.batch, len(scales))], rule_graph, blocks

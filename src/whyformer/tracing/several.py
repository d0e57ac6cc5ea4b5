"""Several scores of one example: after one forward pass, as many examples that share its maps."""

from __future__ import annotations

from dataclasses import replace

from whyformer.errors import UnsupportedModel, WhyformerError
from whyformer.models.joined import Transfer
from whyformer.tracing.copies import repeat_inputs
from whyformer.tracing.flow import Step, each_record
from whyformer.tracing.mixing import KeptMap
from whyformer.tracing.plan import Plan
from whyformer.tracing.question import Question
from whyformer.tracing.record import AttentionRecord


def check_scores(count: int, batch: int, plan: Plan) -> None:
    """Refuse a number of scores that is not that of the examples, but several of one whose gradients are plain."""
    if count != batch and not plan.several_scores:
        raise WhyformerError(f"The target gave {count} scores for {batch} examples: one each.")


def as_examples(question: Question, steps: tuple[Step, ...], count: int) -> tuple[Question, tuple[Step, ...]]:
    """The question and its records with an example for each score; the gradients have one each already."""
    inputs = repeat_inputs(question.inputs, count, question.batch)
    shared = each_record(steps, lambda record: _shared(record, count))
    copied = tuple(step.repeat(count) if isinstance(step, Transfer) else step for step in shared)
    return replace(question, inputs=inputs, batch=count), copied


def _shared(record: AttentionRecord, count: int) -> AttentionRecord:
    if not isinstance(record.source, KeptMap) or record.batch != 1:
        raise UnsupportedModel("Several scores share a forward pass where they are of one example whose maps are kept.")
    source = record.source.values.expand(count, -1, -1, -1, -1).flatten(0, 1)
    tokens = None if record.tokens is None else record.tokens.repeat(count, len(source))
    return replace(record, source=KeptMap(source), tokens=tokens)

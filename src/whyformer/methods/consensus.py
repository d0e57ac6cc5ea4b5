"""Consensus of several methods."""

from __future__ import annotations

import torch

from whyformer.axes import StreamScores, TokenScores
from whyformer.errors import UnsupportedModel, WhyformerError
from whyformer.methods.registry import method, method_named, trace_methods
from whyformer.methods.states import share
from whyformer.tracing.reads import Reads
from whyformer.tracing.trace import Trace, on_inputs, real_tokens, trace_again


@method("consensus", reads=Reads(maps="all", gradients="all"))
def consensus(trace: Trace, *, methods: str = "rollout+generic_attention+attention_gradient+grad_cam") -> StreamScores:
    """AggMean (Rieger & Hansen 2020): the mean of several methods' scores, each divided by their absolute sum.

    The names in `methods` are joined by +. Those that read maps and their gradients share one pass and its backward.
    Others, such as evidence and bi_token, have their own pass, with their own backward unless another is chosen. All
    must score the same tokens: methods that score pixels cannot be combined with those that score patches.
    """
    by_stream: dict[str, list[TokenScores]] = {}
    names = [name.strip() for name in methods.split("+")]
    for name in names:
        scores_of_member = _member_scores(trace, name)
        if by_stream and ("pixels" in scores_of_member) != ("pixels" in by_stream):
            own, others = (", ".join(sorted(streams)) for streams in (scores_of_member, by_stream))
            raise WhyformerError(f"consensus: {name} has scores of the {own}, and {names[0]} of the {others}.")
        for stream, scores in scores_of_member.items():
            real = real_tokens(trace).get(stream, torch.ones_like(scores, dtype=torch.bool))
            by_stream.setdefault(stream, []).append(share(scores, real))
    return {stream: torch.stack(parts).sum(dim=0) / len(names) for stream, parts in by_stream.items()}


def _member_scores(trace: Trace, name: str) -> StreamScores:
    """The scores of one method, on the tokens of the input."""
    member, question = method_named(name), trace.question
    if name == "consensus" or member.reads.subsets:
        raise WhyformerError(f"consensus: {name} cannot be combined. Choose from: {_members()}.")
    if _shares_pass(member.reads):
        return on_inputs(trace, dict(member.formula(trace)))
    if question.bridge is not None:
        raise UnsupportedModel(
            f"consensus: {name} needs its own pass, which is not supported for prompts with pictures."
        )
    backward = member.backward if question.backward == "gradient" else question.backward
    return dict(member(trace_again(trace, member.reads, backward=backward)))


def _members() -> str:
    return ", ".join(name for name in trace_methods() if name != "consensus")


def _shares_pass(reads: Reads) -> bool:
    needs_more = reads.has_relevance or reads.path or reads.edges or reads.states or reads.state_gradients
    return reads.inputs == "none" and not needs_more

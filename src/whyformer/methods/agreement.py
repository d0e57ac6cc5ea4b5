"""What several methods agree on."""

from __future__ import annotations

import torch

from whyformer.axes import StreamScores, TokenScores
from whyformer.errors import WhyformerError
from whyformer.methods.registry import METHODS, Method, method, method_named
from whyformer.methods.states import share
from whyformer.tracing.reads import Reads
from whyformer.tracing.trace import Trace


@method("consensus", reads=Reads(maps="all", gradients="all"))
def consensus(trace: Trace, *, methods: str = "rollout+generic_attention+attention_gradient+grad_cam") -> StreamScores:
    """AggMean (Rieger & Hansen 2020): the mean of several methods' scores, each divided by the sum of their sizes.

    The `methods` are those that read maps and their gradients, named with a + between them; all read one pass.
    """
    by_stream: dict[str, list[TokenScores]] = {}
    names = [name.strip() for name in methods.split("+")]
    for name in names:
        for stream, scores in trace.on_inputs(dict(_member(name).formula(trace))).items():
            real = trace.real_tokens.get(stream, torch.ones_like(scores, dtype=torch.bool))
            by_stream.setdefault(stream, []).append(share(scores, real))
    return {stream: torch.stack(parts).sum(dim=0) / len(names) for stream, parts in by_stream.items()}


def _member(name: str) -> Method:
    """A method that reads of a trace what `consensus` has of it."""
    if name == "consensus" or not _shares_pass(method_named(name).reads):
        known = ", ".join(other for other in METHODS if other != "consensus" and _shares_pass(METHODS[other].reads))
        raise WhyformerError(f"consensus: {name} needs a pass of its own. Choose from: {known}.")
    return method_named(name)


def _shares_pass(reads: Reads) -> bool:
    needs_more = reads.has_relevance or reads.path or reads.edges or reads.state_gradients
    return reads.inputs == "none" and not needs_more

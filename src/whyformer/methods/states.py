"""Methods that read residual states: each token's state at a block times its gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch

from whyformer.axes import StreamScores, TokenMask, TokenScores
from whyformer.errors import UnsupportedModel
from whyformer.methods.beyond_intuition import product_of, token_perception
from whyformer.methods.perception import gradient_feedback
from whyformer.methods.registry import method
from whyformer.methods.token_kinds import TokenKinds, token_kinds
from whyformer.models.family import NOTHING
from whyformer.tracing.attribution import Attribution
from whyformer.tracing.flow import records_of
from whyformer.tracing.formulas import steps_between
from whyformer.tracing.graph import incompleteness
from whyformer.tracing.reads import Reads
from whyformer.tracing.record import AttentionRecord
from whyformer.tracing.trace import Trace, on_inputs

# Notes that state in plain words which formula `evidence` used.
OF_WORDS = (
    "Words above 0 support the answer, words below 0 contradict it. The scores rank them; the effect of deleting a "
    "word can differ."
)
OF_BOTH = OF_WORDS.replace("Words above 0", "Words and places above 0").replace("words below 0", "those below 0")
OF_OTHERS = "Patches, regions or moments above 0 support the answer, those below 0 contradict it. The scores rank them."


@method("state_x_gradient", reads=Reads(state_gradients=True))
def state_x_gradient(trace: Trace, *, blocks: Literal["sum", "first", "weighted"] = "sum") -> StreamScores:
    """State times gradient, S_l[j] = Σ_c z_l[j, c] g_l[j, c]: signed, for or against the answer.

    z_l is the residual state that enters block l, g_l the gradient of the score there: with backward="attn_lrp" S_l is
    AttnLRP's relevance of that state. `blocks` selects the "sum" of all S_l, the "first", or a "weighted" sum that
    favours later blocks, Σ_l ((l + 1) / L)² S_l / Σ|S_l|.
    """
    by_stream = state_scores(trace, first_alone=blocks == "first")
    if blocks == "first":
        return {stream: parts[0] for stream, parts in by_stream.items()}
    if blocks == "sum":
        return {stream: torch.stack(parts).sum(dim=0) for stream, parts in by_stream.items()}
    kinds = token_kinds(trace)
    return {stream: weighted(parts, _any(kinds[stream])) for stream, parts in by_stream.items()}


@method("full_grad", reads=Reads(state_gradients=True, biases=True), backward="libra")
def full_grad(trace: Trace) -> Attribution:
    """FullGrad+ with LibraGrad (CVPR 2025): the first state times its gradient, plus every bias times its gradient.

    Biases of later operations count at the token they are added to, and those after the read-out at its position. Under
    LibraGrad's rules the scores sum to the explained score; the explanation reports the difference.
    """
    if not trace.question.family.is_one_stack:
        raise UnsupportedModel("full_grad assigns each bias to a token: it needs a model with one stream of tokens.")
    ((stream, by_block),) = state_scores(trace).items()
    batch, tokens = by_block[0].shape
    assert trace.state.biases is not None
    scores = {stream: by_block[0] + trace.state.biases.scores(batch, tokens, trace.readout)}
    adds_up = trace.question.backward == "libra"
    score = trace.question.score(trace.output).detach()
    return Attribution(scores, incompleteness(scores, score) if adds_up else None)


@method(
    "evidence",
    reads=Reads(maps="all", gradients="all", states="of others", state_gradients=True),
    backward="attn_lrp",
)
def evidence(trace: Trace) -> Attribution:
    """Words by state times gradient, patches and regions by that of all blocks and by perception times feedback.

    This method is ours, not from a paper. For words: S_0, the state that enters the first block times its gradient by
    AttnLRP's rules (Achtibat et al., ICML 2024), signed. For all else: q(β) + q(Σ_l ((l + 1) / L)² q(S_l)),
    q(x) = x / Σ|x|. Here β = P ⊙ F is the perception of Beyond Intuition (TMLR 2023) times its feedback, from the
    gradient at the input only. All of it takes one forward and one backward pass.
    """
    kinds = token_kinds(trace)
    by_stream = state_scores(trace, first_alone=not any(bool(kind.others.any()) for kind in kinds.values()))
    scores = {stream: parts[0].masked_fill(~kinds[stream].words, 0.0) for stream, parts in by_stream.items()}
    with_others = [stream for stream in by_stream if bool(kinds[stream].others.any())]
    if with_others:
        perception = token_perception(trace, 0, "paper")
        beta = on_inputs(trace, product_of(perception, gradient_feedback([reading for reading, _ in perception])))
        for stream in with_others:
            others = kinds[stream].others
            both = share(weighted(by_stream[stream], others), others)
            both = both + share(beta[stream], others) if stream in beta else both
            scores[stream] = scores[stream] + both.masked_fill(kinds[stream].words, 0.0)
    is_read = any(bool(kinds[stream].words.any()) for stream in by_stream)
    remark = OF_BOTH if is_read and with_others else OF_WORDS if is_read else OF_OTHERS
    return Attribution(scores, remarks=(remark,) if is_read or with_others else ())


def state_scores(trace: Trace, *, first_alone: bool = False) -> dict[str, list[TokenScores]]:
    """S_l of every block of every scored stream, or of its first block alone, first block first."""
    entering: dict[tuple[str, int], AttentionRecord] = {}
    for record in records_of(steps_between(trace, 0)):
        first = entering.setdefault((record.query_stream, record.block), record)
        if first.state_scores is None:  # unknown for some cross-attention
            entering[record.query_stream, record.block] = record
    if first_alone:
        earliest = {stream: min(block for name, block in entering if name == stream) for stream, _ in entering}
        entering = {place: record for place, record in entering.items() if earliest[place[0]] == place[1]}
    constant = {stream.name for stream in trace.question.family.streams if stream.scaled == NOTHING}
    by_stream: dict[str, list[TokenScores]] = {}
    for record in reversed(entering.values()):  # gradients come from the end
        stream = record.query_stream
        if record.state_scores is None and stream in constant:  # streams without an input to score
            continue
        if record.state_scores is None:
            raise UnsupportedModel(
                f"The residual state of block {record.block} ({record.path or 'path unknown'}) is not known: nothing "
                "is added to it as attention blocks do. input_x_gradient reads the inputs alone."
            )
        for name, scores in on_inputs(trace, {stream: record.state_scores() * trace.masks[stream]}).items():
            by_stream.setdefault(name, []).append(scores)
    return {stream: parts[::-1] for stream, parts in by_stream.items()}


def weighted(parts: Sequence[TokenScores], counted: TokenMask) -> TokenScores:
    """Σ_l ((l + 1) / L)² q(S_l)."""
    weights = [((number + 1) / len(parts)) ** 2 for number in range(len(parts))]
    terms = [weight * share(part, counted) for weight, part in zip(weights, parts, strict=True)]
    return torch.stack(terms).sum(dim=0)


def share(scores: TokenScores, counted: TokenMask) -> TokenScores:
    """q(x) = x / Σ|x|, the sum over content tokens: no class token, no padding."""
    total = (scores.abs() * counted).sum(dim=1, keepdim=True)
    return scores / total.where(total > 0, 1.0)


def _any(kinds: TokenKinds) -> TokenMask:
    return kinds.words | kinds.others

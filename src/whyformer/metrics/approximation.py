"""The approximation test (BI Sec. 3.2, Fig. 3): how far is (Ã + I) Z W_MLP from the block's output?

It compares Ã of rollout (the head mean of A), BI token-wise (A diag(α), Eq. 14), BI head-wise (Σ θ_h A_h, Eq. 15) and
Ã = 0, which ignores attention.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import torch
from torch import nn

from whyformer.axes import BlockErrors, Channels, ExampleScores, Inputs, MixingMatrix, State, TokenMask, head_mean
from whyformer.errors import UnsupportedModel
from whyformer.methods.beyond_intuition import head_theta, token_alpha
from whyformer.targets.scores import Target
from whyformer.tracing.build import trace
from whyformer.tracing.reads import Reads
from whyformer.tracing.record import AttentionRecord

STATES, GRADIENTS = Reads(maps="all", states=True), Reads(maps="all", gradients="all")


def approximation_errors(model: nn.Module, inputs: Inputs, target: Target = "predicted") -> dict[str, BlockErrors]:
    """Squared error of each recursion (rollout, token, head, none) at each block.

    A block's output is taken from the input of the next, so the last block is excluded, as in BI's figure.
    """
    model = getattr(model, "_orig_mod", model)
    states, gradients = (trace(model, inputs, target, reads=reads) for reads in (STATES, GRADIENTS))
    streams = {stream for record in states.records for stream in (record.query_stream, record.key_stream)}
    if len(streams) > 1 or any(record.key_state is None for record in states.records):
        raise UnsupportedModel(f"{type(model).__name__} has no single residual stream to follow from block to block.")
    by_recursion: dict[str, list[ExampleScores]] = {"rollout": [], "token": [], "head": [], "none": []}
    pairs = zip(states.records, states.records[1:], gradients.records, strict=False)
    for record, following, with_gradient in pairs:
        assert record.key_state is not None
        assert following.key_state is not None
        weight = mlp_weight(model, record).to(record.key_state)
        for name, mixing in MIXINGS.items():
            mixed = mixing(with_gradient if name == "head" else record)
            by_recursion[name].append(block_error(mixed, record.key_state, weight, following.key_state, states.mask))
    return {name: torch.stack(errors, dim=1) for name, errors in by_recursion.items()}


def block_error(mixing: MixingMatrix, state: State, weight: Channels, output: State, mask: TokenMask) -> ExampleScores:
    """‖Z_out − (Ã + I) Z W_MLP‖² over the real tokens."""
    approximated = (mixing.to(state) @ state + state) @ weight
    return ((output - approximated).square().sum(dim=2) * mask).sum(dim=1)


def mlp_weight(model: nn.Module, record: AttentionRecord) -> Channels:
    """W_MLP = W_1 W_2 + I of the record's block (BI Eq. 11), the LayerScale after it folded into W_2."""
    place = re.match(r".*\.\d+(?=\.)", record.path)
    block = model.get_submodule(place[0]) if place else nn.Module()
    linears = [module for module in block.modules() if isinstance(module, nn.Linear)]
    inner, outer = linears[-2:] if len(linears) > 1 else (None, None)
    if inner is None or outer is None or inner.out_features != outer.in_features or _is_gated(linears):
        raise UnsupportedModel(
            f"Block {record.block} of {type(model).__name__} has no plain MLP of two linear layers to compare with."
        )
    scales = [parameter for name, parameter in block.named_parameters() if "lambda" in name]
    product = inner.weight.detach().T @ outer.weight.detach().T
    if scales:
        product = product * scales[-1].detach()
    return product + torch.eye(len(product), dtype=product.dtype, device=product.device)


def _is_gated(linears: list[nn.Linear]) -> bool:
    """Whether the MLP is gated: a third layer as wide as the inner one, or an output layer that reads half of it."""
    inner, outer = linears[-2:]
    widths = [linear.out_features for linear in linears[:-2]]
    return inner.in_features != outer.out_features or (
        inner.out_features != inner.in_features and inner.out_features in widths
    )


def _by_token(record: AttentionRecord) -> MixingMatrix:
    return head_mean(record.map) * token_alpha(record, "paper")[:, None, :]


def _by_head(record: AttentionRecord) -> MixingMatrix:
    share = head_theta(record, "inner")
    return torch.einsum("bhqk,bh->bqk", record.map.to(share.dtype), share)


MIXINGS: dict[str, Callable[[AttentionRecord], MixingMatrix]] = {
    "rollout": lambda record: head_mean(record.map),
    "token": _by_token,
    "head": _by_head,
    "none": lambda record: torch.zeros_like(head_mean(record.map)),
}

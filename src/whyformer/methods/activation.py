"""Methods that read a decoder's logits at each of its positions."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from whyformer.axes import StreamScores
from whyformer.errors import UnsupportedModel
from whyformer.methods.registry import method
from whyformer.models.bridges import Bridge
from whyformer.targets.scores import all_logits
from whyformer.tracing.reads import Reads
from whyformer.tracing.trace import Trace

FILTER_WINDOW = 3  # patches on a side, of the rank filter


@method("tam", reads=Reads(maps="last", logits=True), kinds=("image prompt",))
def tam(trace: Trace) -> StreamScores:
    """Logit of the answer's token at each image position, minus what earlier words explain (TAM, 2025).

    a_j = max(0, logit_c at j) for the token c; I = Σ_i w_i a⁽ⁱ⁾ over the words before it, w_i their share of a. The map
    is max(0, a − x I), x = ⟨a, I⟩ / ⟨I, I⟩, then filtered by rank in windows of 3×3 features.
    """
    bridge, logits, inputs = trace.question.bridge, all_logits(trace.output), trace.question.inputs
    if bridge is None:
        raise UnsupportedModel(
            "tam reads a decoder's logits at the tokens of a picture, and this prompt has none: give a picture with "
            "the text to a model such as LLaVA."
        )
    if logits is None or logits.shape[:2] != inputs["input_ids"].shape:
        raise UnsupportedModel("tam reads the logits at every position of the decoder: leave logits_to_keep out.")
    if any(index is None for index in trace.target.indices):
        raise UnsupportedModel(
            "tam explains one token: give it as target, or 'predicted'; for a response use units='token'."
        )
    is_picture, scores = bridge.is_placeholder, torch.zeros_like(trace.mask, dtype=logits.dtype)
    for example, token in enumerate(trace.target.indices):
        active, ids = logits[example].detach().clamp(min=0), inputs["input_ids"][example]
        words = trace.mask[example] & ~is_picture[example]
        earlier = words & (ids != token)
        own = active[:, token]
        scores[example] = own * words
        picture = is_picture[example]
        interference = active[picture][:, ids[earlier]] @ own[earlier]  # Σ_i w_i a⁽ⁱ⁾, up to a factor
        scores[example, picture] = remove_interference(own[picture], interference)
    return {trace.readout.stream: _filtered(scores, bridge)}


def remove_interference(activation: Tensor, interference: Tensor) -> Tensor:
    """max(0, a − x I), x the least-squares share of the interference in the activation."""
    size = interference @ interference
    share = (activation @ interference) / size.where(size > 0, 1.0)
    return (activation - share * interference).clamp(min=0)


def _filtered(scores: Tensor, bridge: Bridge) -> Tensor:
    """Filter the scores of each picture's features on their grid."""
    filtered = scores.clone()
    for one in bridge.pictures:
        places = bridge.placeholders[one.feature : one.feature + len(one.seen.sources)]
        for grid in one.seen.grids:
            numbers = grid.first + grid.stride * torch.arange(grid.rows)[:, None] + torch.arange(grid.columns)
            example, position = places[numbers.flatten()].unbind(dim=1)
            values = scores[example, position].reshape(grid.rows, grid.columns)
            filtered[example, position] = rank_filter(values).flatten()
    return filtered


def rank_filter(values: Tensor) -> Tensor:
    """Mean of each window's sorted values, weighted by a Gaussian around the median, σ their relative spread."""
    edge = FILTER_WINDOW // 2
    padding = "reflect" if min(values.shape) > edge else "replicate"
    padded = F.pad(values[None, None], (edge,) * 4, mode=padding)[0, 0]
    ranked = padded.unfold(0, FILTER_WINDOW, 1).unfold(1, FILTER_WINDOW, 1).flatten(2).sort(dim=-1).values
    mean, spread = ranked.mean(dim=-1, keepdim=True), ranked.std(dim=-1, keepdim=True, correction=0)
    rank = torch.arange(FILTER_WINDOW**2, device=values.device) - FILTER_WINDOW**2 // 2
    sigma = (spread / mean.where(mean > 0, 1.0)).clamp(min=1e-6)  # equal values: the median
    weights = (-(rank**2) / (2 * sigma**2)).softmax(dim=-1)
    return (ranked * weights).sum(dim=-1).where(mean[..., 0] > 0, 0.0)

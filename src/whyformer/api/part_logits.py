"""The logits of a response as a sum over its sources: residual states as sums of parts, carried through every block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from whyformer.api.exchange_scores import row_predictions
from whyformer.axes import SourceScores, at_least_float32
from whyformer.errors import UnsupportedModel
from whyformer.inputs.sources import Source
from whyformer.inputs.teacher_forcing import ResponseRow, first_logit, row_inputs, row_weights
from whyformer.methods.learned_attention import BY_HEAD
from whyformer.models.loading import LoadedModel
from whyformer.targets.span_scores import log_probability
from whyformer.tracing import build

MOST_OFF = 1e-3  # of the largest logit, by which the sum of all parts may differ from the model's own in float32
STEPS_OFF = 4  # times the rounding of half precision, likewise


@torch.inference_mode()
def source_logits(loaded_model: LoadedModel, rows: Sequence[ResponseRow], sources: Sequence[Source]) -> SourceScores:
    """Σ_t w_t of the part of the logit of each row's token t that comes from each source: [row, source].

    Attention maps, the scales of norms and the neurons of MLPs are those of the whole prompt (DePass, 2025).
    """
    exchange, model = rows[0].exchange, cast(Any, loaded_model.model)
    whole = ResponseRow(exchange, tuple(range(len(exchange.response))))
    inputs = row_inputs(loaded_model, [whole])
    score = log_probability(row_predictions([whole], first_logit(inputs)), 1)
    trace = build.trace(model, inputs, score, reads=BY_HEAD, readout=row_weights([whole], whole.length))
    try:
        decoder = model.base_model
        parts = embedded(decoder.embed_tokens, inputs["input_ids"][0], sources)
        for layer, record in zip(decoder.layers, trace.records, strict=True):
            parts = after_attention(layer, parts, record.map[0].to(parts))
            parts = after_mlp(layer, parts)
        parts = scaled_parts(decoder.norm, parts)
    except torch.OutOfMemoryError:
        raise
    except (AttributeError, ValueError, RuntimeError, TypeError) as error:
        raise _unsupported(loaded_model) from error
    response = torch.tensor(exchange.response, device=parts.device)
    readout = model.get_output_embeddings().weight[response].to(parts)
    logits = torch.einsum("ptc,tc->pt", parts[:, whole.positions], readout)
    own = model(**inputs).logits[0, -len(response) :].gather(-1, response[:, None])[:, 0]
    off = max(MOST_OFF, STEPS_OFF * torch.finfo(own.dtype).eps)
    if not torch.allclose(logits.sum(dim=0), own.to(logits), atol=off * float(own.abs().max()), rtol=off):
        raise _unsupported(loaded_model)
    weights = np.zeros((len(rows), len(response)))
    for number, row in enumerate(rows):
        weights[number, list(row.tokens)] = row.focus
    scores: SourceScores = weights @ logits[:-1].double().cpu().numpy().T
    return scores


def _unsupported(loaded_model: LoadedModel) -> UnsupportedModel:
    return UnsupportedModel(
        f"depass cannot follow the blocks of {loaded_model.name}: it knows decoders with a norm before attention and a "
        "gated MLP, such as Llama, Mistral and Qwen. Use flow_routes."
    )


def embedded(embedding: nn.Module, ids: Tensor, sources: Sequence[Source]) -> Tensor:
    """The embeddings of each source's tokens in a part of their own, and the rest in the last: [part, token, channel].

    A token of several sources is divided among them.
    """
    states = at_least_float32(embedding(ids))
    owners = torch.zeros(len(sources) + 1, len(ids)).to(states)
    for number, source in enumerate(sources):
        owners[number, list(source.tokens)] = 1.0
    owners[-1] = owners[:-1].sum(dim=0) == 0
    return (owners / owners.sum(dim=0))[..., None] * states


def scaled_parts(norm: Any, parts: Tensor) -> Tensor:
    """The parts after a root-mean-square norm, by the scale that it gives their sum."""
    epsilon = norm.variance_epsilon if hasattr(norm, "variance_epsilon") else norm.eps
    scale = torch.rsqrt(parts.sum(dim=0).square().mean(dim=-1, keepdim=True) + epsilon)
    scaled: Tensor = parts * scale * norm.weight.to(parts)
    return scaled


def after_attention(layer: Any, parts: Tensor, attention: Tensor) -> Tensor:
    """The parts after attention by a given map [head, query, key]. Biases are added to the last part."""
    block = layer.self_attn
    values = _projected(block.v_proj, scaled_parts(layer.input_layernorm, parts))
    heads, width = len(attention), block.o_proj.weight.shape[1] // len(attention)
    values = values.unflatten(-1, (-1, width))
    values = values.repeat_interleave(heads // values.shape[2], dim=2)
    mixed = torch.einsum("hqk,pkhd->pqhd", attention, values).flatten(2)
    return parts + _projected(block.o_proj, mixed)


def after_mlp(layer: Any, parts: Tensor) -> Tensor:
    """The parts after a gated MLP. Each neuron is shared among the parts by the softmax of what they give its gate.

    A part that has not reached a token has no share there.
    """
    mlp, states = layer.mlp, scaled_parts(layer.post_attention_layernorm, parts)
    gates = _projected(mlp.gate_proj, states)
    neurons = mlp.act_fn(gates.sum(dim=0)) * _projected(mlp.up_proj, states).sum(dim=0)
    has_reached = (parts != 0).any(dim=-1, keepdim=True)
    shares = gates.masked_fill(~has_reached, -torch.inf).softmax(dim=0)
    return parts + _projected(mlp.down_proj, shares * neurons)


def _projected(projection: Any, parts: Tensor) -> Tensor:
    """A linear map of each part, its bias in the last."""
    values: Tensor = linear(parts, projection.weight.to(parts))
    if projection.bias is not None:
        values[-1] += projection.bias.to(values)
    return values

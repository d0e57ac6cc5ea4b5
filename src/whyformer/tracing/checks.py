"""Check whether a model can be explained as requested, before and after its forward pass."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from whyformer.axes import Inputs, TokenMask
from whyformer.errors import UnsupportedModel, WhyformerError, with_article
from whyformer.models.families import FAMILIES, ROW_OF_STREAMS
from whyformer.models.lent_weights import lends_weights
from whyformer.models.mixers import layers_without_mixing, sequence_mixers
from whyformer.models.structure import class_names, config_of, is_detector, layers_of, main_input, modules_of, walk
from whyformer.models.weights import hidden_layer, passes_gradients, quantised_layers
from whyformer.tracing.plan import Plan
from whyformer.tracing.question import ModelCall
from whyformer.tracing.record import AttentionRecord
from whyformer.watching.tap import REJECTED
from whyformer.watching.watcher import Watcher

STATE = "the residual state"
UNSEEN_STATE = "its attention output is not added to a state of its tokens"


def check_is_module(model: object) -> None:
    """Raise unless the model is a module."""
    if not isinstance(model, nn.Module):
        raise WhyformerError(
            f"The model must be a torch.nn.Module, not {with_article(type(model).__name__)}: whyformer.load loads one."
        )


def check_model(model: nn.Module, plan: Plan) -> None:
    """Raise if the model's forward pass cannot be recorded, or its backward pass cannot run."""
    name = type(model).__name__
    quantised = quantised_layers(model)
    # Quantised layers are created in training mode, which has no effect on them.
    if [module for module in modules_of(model).values() if module.training and module not in quantised]:
        raise WhyformerError("The model is in training mode, where dropout corrupts attention: call model.eval().")
    if quantised and plan.has_gradients:
        raise UnsupportedModel(
            f"{name} has quantised layers ({type(quantised[0]).__name__}), which have no gradient: use raw_attention "
            "or rollout (with readout= if the read-out is unknown), or explain the model before quantisation."
        )
    layer = hidden_layer(model) if not quantised and plan.has_gradients else None
    if layer is not None and not passes_gradients(layer, model):
        raise UnsupportedModel(
            f"{name} has {type(layer).__name__} layers, and their kernel has no gradient and hides its weights: use "
            "raw_attention or rollout, or any method on the model before quantisation."
        )
    if [parameter for parameter in walk(model).parameters if parameter.is_meta] and not lends_weights(model):
        raise UnsupportedModel(f"{name} is on the meta device, without weights: load it on a real one (cpu, cuda).")
    kinds = class_names(model) if plan.relevance and plan.needs_maps else ()
    if any("DeformableAttention" in kind for kind in kinds):
        raise UnsupportedModel(
            f"{name} samples its image at a few points (deformable attention), and their map is not a tensor of the "
            "model and has no relevance: use generic_attention, or lrp for the pixels."
        )
    tensors = [*walk(model).parameters, *walk(model).buffers] if plan.has_gradients else []
    if [tensor for tensor in tensors if tensor.is_inference()]:
        raise WhyformerError(
            f"{name} was created under torch.inference_mode, so its tensors have no gradients: load it outside, or "
            "explain copy.deepcopy(model), copied outside."
        )
    kernel = getattr(config_of(model), "_attn_implementation", None)
    if kernel not in (None, "sdpa", "eager"):
        raise UnsupportedModel(
            f"{kernel} attention cannot be recorded: load the model with attn_implementation='sdpa'."
        )


def check_size(inputs: Inputs) -> None:
    """Raise if the input is empty."""
    name, example = main_input(inputs)
    if not example.numel():
        raise WhyformerError(f"{name} has the shape {tuple(example.shape)}: there is nothing to explain.")


def check_texts(model: nn.Module, inputs: Inputs) -> None:
    """Raise unless a detector that reads texts has one text per picture."""
    images, texts = inputs.get("pixel_values"), inputs.get("input_ids")
    if is_detector(model) and images is not None and texts is not None and len(images) != len(texts):
        raise WhyformerError(
            f"{len(images)} images and {len(texts)} texts: give one text per image. explain takes lists of texts."
        )


def moved_tokens(model: nn.Module, windows: torch.Size) -> UnsupportedModel:
    """The error of a method that follows tokens through a model that moves or merges them."""
    return UnsupportedModel(
        f"This method follows tokens from block to block, but {type(model).__name__} has maps of shape "
        f"{tuple(windows)}: windows, merged patches or several streams do not keep tokens in place. Use grad_cam or "
        "raw_attention, which only read the last map."
    )


def is_causal(mask: TokenMask, record: AttentionRecord) -> bool:
    """Whether the first real token of every text attends to itself alone, and some text has others."""
    first = mask.long().argmax(dim=1, keepdim=True)
    attended = record.pick(first).map[:, :, 0].abs().amax(dim=1) > 0  # of a kernel some are negative
    return bool((attended.sum(dim=1) == 1).all()) and bool((mask.sum(dim=1) > 1).any())


def unseen_parts(method: str, missing: Sequence[str], record: AttentionRecord, *, instead: str) -> UnsupportedModel:
    """The error of a method that reads states and weights of a block which were not recorded."""
    reasons = [UNSEEN_STATE] if STATE in missing else []
    rejected = [one for one in record.decisions if one.startswith(REJECTED)] if "W_o" in missing else []
    if weights := [name for name in missing if name != STATE and not (name == "W_o" and rejected)]:
        verb = "is not a linear layer" if len(weights) == 1 else "are not linear layers"
        reasons.append(f"{' and '.join(weights)} {verb} that can be read (an adapter can be merged)")
    reasons += rejected
    return UnsupportedModel(
        f"{method} needs {' and '.join(missing)} of block {record.block} ({record.path or 'path unknown'}): "
        f"{', and '.join(reasons)}. {instead} works without."
    )


# Attention by the difference of two maps, which are recorded separately.
DIFFERENTIAL = ("DiffLlamaAttention",)
# Linear attention computed in the forward pass itself, not in a kernel: MiniMax.
WRITTEN_OUT = "LightningAttention"
# Attention with maps assembled from windows: their rows and columns are not tokens.
WINDOWED = ("BlockSparseAttention", "LongformerSelfAttention", "LEDEncoderSelfAttention")
MAP_FREE_METHODS = "input_x_gradient, integrated_gradients and lrp work without maps."


class NoMaps(UnsupportedModel):
    """Not every layer of the model has an attention map that can be recorded."""


def missing_attention(watcher: Watcher, call: ModelCall) -> UnsupportedModel | None:
    """The error of a pass some of whose attention was not recorded, or cannot be assigned to examples; else None."""
    reason = _unrecorded(watcher, call) or _of_other_tokens(call) or _partly_recorded(watcher, call)
    return _unassigned(watcher, call) if reason is None else NoMaps(f"{type(call.model).__name__} {reason}")


def _unrecorded(watcher: Watcher, call: ModelCall) -> str | None:
    config = config_of(call.model)
    if not watcher.seen:
        return f"ran no attention operation that can be recorded: it has none, or hides it. {MAP_FREE_METHODS}"
    row = FAMILIES.get(getattr(config, "model_type", ""))
    if getattr(config, "is_encoder_decoder", False) and not (row and not row.is_one_stack):
        return (
            f"has an encoder and a decoder, and no row assigns attention to them. {MAP_FREE_METHODS} {ROW_OF_STREAMS}"
        )
    return None


def _of_other_tokens(call: ModelCall) -> str | None:
    """Why the maps of some modules are not those of the model's tokens."""
    kinds = class_names(call.model)
    if (windowed := next((kind for kind in kinds if kind.endswith(WINDOWED)), None)) is not None:
        return f"attends in blocks or windows ({windowed}), which have no map over its tokens. {MAP_FREE_METHODS}"
    if kinds.intersection(DIFFERENTIAL):
        return (
            "attends by the difference of two maps, with a learned weight: neither map is the attention of its "
            f"tokens. {MAP_FREE_METHODS}"
        )
    if (lightning := next((kind for kind in kinds if kind.endswith(WRITTEN_OUT)), None)) is not None:
        return (
            f"computes linear attention in the forward pass of {lightning} itself, block by block, and not in a kernel "
            f"that can be seen: maps of its other layers show only part of what a token reads. {MAP_FREE_METHODS}"
        )
    return None


def _partly_recorded(watcher: Watcher, call: ModelCall) -> str | None:
    mixers, layers = sequence_mixers(call.model), layers_of(call.model)
    if watcher.kernels < len(mixers):
        return (
            f"also mixes its tokens in {type(mixers[0]).__name__} (a state space, a short convolution), whose kernel "
            f"was not seen: its maps show only part of what a token reads. {MAP_FREE_METHODS}"
        )
    if layers is not None and watcher.seen < layers - layers_without_mixing(call.model):
        return (
            f"has {layers} layers but only {watcher.seen} attention operations were recorded: the others have no "
            f"attention map (linear attention, state spaces), or run in kernels that hide it. {MAP_FREE_METHODS}"
        )
    return None


def _unassigned(watcher: Watcher, call: ModelCall) -> UnsupportedModel | None:
    """The error of maps whose rows or columns cannot be assigned to the tokens of the examples."""
    name, last = type(call.model).__name__, watcher.taps[-1]
    orders = [tap.outcome.heads_in_order for tap in watcher.taps if tap.is_folded]
    if any(order is None or not bool(order) for order in orders):
        return UnsupportedModel(
            f"{name} folds its heads into the batch with heads before examples: explain one example at a time."
        )
    keys = last.map.shape[-1]
    if call.family.is_one_stack and keys < call.words:
        return UnsupportedModel(
            f"The last map of {name} has {keys} keys for {call.words} tokens: it pools them, or reads them through "
            f"others. {MAP_FREE_METHODS}"
        )
    rows, *others = last.map.shape
    if not last.is_folded and len(others) == 3 and rows != call.batch and call.family.arrange is None:
        return UnsupportedModel(
            f"The last map of {name} has {rows} rows for {call.batch} examples: its windows are not a single stream."
        )
    return None

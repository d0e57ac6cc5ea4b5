"""Check whether a model can be explained as requested, before and after its forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import torch
from torch import nn

from whyformer.axes import Inputs, TokenMask
from whyformer.errors import UnsupportedModel, WhyformerError, with_article
from whyformer.models.calls import lends_weights
from whyformer.models.families import FAMILIES, ROW_OF_STREAMS
from whyformer.models.family import Family
from whyformer.models.mixers import layers_without_mixing, sequence_mixers
from whyformer.models.structure import class_names, config_of, is_detector, layers_of, main_input, modules_of, walk
from whyformer.models.weights import hidden_layer, passes_gradients, quantised_layers
from whyformer.tracing.reads import Reads
from whyformer.tracing.record import AttentionRecord
from whyformer.watching.watcher import Watcher

# Attention by the difference of two maps, which are recorded separately.
WRITTEN_OUT = "LightningAttention"  # MiniMax
DIFFERENTIAL = ("DiffLlamaAttention",)
# Attention with maps assembled from windows: their rows and columns are not tokens.
WINDOWED = ("BlockSparseAttention", "LongformerSelfAttention", "LEDEncoderSelfAttention")
STATE = "the residual state"
UNSEEN_STATE = "its attention output is not added to a state of its tokens"


def check_is_module(model: object) -> None:
    """Raise unless the model is a module."""
    if not isinstance(model, nn.Module):
        raise WhyformerError(
            f"The model must be a torch.nn.Module, not {with_article(type(model).__name__)}: whyformer.load loads one."
        )


def check_model(model: nn.Module, reads: Reads) -> None:
    """Raise if the model's forward pass cannot be recorded, or its backward pass cannot run."""
    name = type(model).__name__
    quantised = quantised_layers(model)
    # Quantised layers are created in training mode, which has no effect on them.
    if any(module.training and module not in quantised for module in modules_of(model).values()):
        raise WhyformerError("The model is in training mode, where dropout corrupts attention: call model.eval().")
    if quantised and (reads.has_graph or reads.path):
        raise UnsupportedModel(
            f"{name} has quantised layers ({type(quantised[0]).__name__}), which have no gradient: use raw_attention "
            "or rollout (with readout= if the read-out is unknown), or explain the model before quantisation."
        )
    layer = hidden_layer(model) if not quantised and (reads.has_graph or reads.path) else None
    if layer is not None and not passes_gradients(layer, model):
        raise UnsupportedModel(
            f"{name} has {type(layer).__name__} layers, and their kernel has no gradient and hides its weights: use "
            "raw_attention or rollout, or any method on the model before quantisation."
        )
    if any(parameter.is_meta for parameter in walk(model).parameters) and not lends_weights(model):
        raise UnsupportedModel(f"{name} is on the meta device, without weights: load it on a real one (cpu, cuda).")
    kinds = class_names(model) if reads.relevances != "none" else ()
    if any("DeformableAttention" in kind for kind in kinds):
        raise UnsupportedModel(
            f"{name} samples its image at a few points (deformable attention), and their map is not a tensor of the "
            "model and has no relevance: use generic_attention, or lrp for the pixels."
        )
    tensors = chain(walk(model).parameters, walk(model).buffers) if reads.has_graph or reads.path else ()
    if any(tensor.is_inference() for tensor in tensors):
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


class NoMaps(UnsupportedModel):
    """Not every layer of the model has an attention map that can be recorded."""


def check_records(model: nn.Module, watcher: Watcher, batch: int, family: Family, words: int = 0) -> None:
    """Raise if some attention of the forward pass was not recorded, or cannot be assigned to examples."""
    name = type(model).__name__
    layers = layers_of(model)
    alternatives = "input_x_gradient, integrated_gradients and lrp work without maps."
    if not watcher.seen:
        raise NoMaps(
            f"{name} ran no attention operation that can be recorded: it has none, or hides it. {alternatives}"
        )
    row = FAMILIES.get(getattr(config_of(model), "model_type", ""))
    if getattr(config_of(model), "is_encoder_decoder", False) and not (row and not row.is_one_stack):
        raise NoMaps(
            f"{name} has an encoder and a decoder, and no row assigns attention to them. {alternatives} "
            f"{ROW_OF_STREAMS}"
        )
    kinds = class_names(model)
    if (windowed := next((kind for kind in kinds if kind.endswith(WINDOWED)), None)) is not None:
        raise NoMaps(
            f"{name} attends in blocks or windows ({windowed}), which have no map over its tokens. {alternatives}"
        )
    if kinds.intersection(DIFFERENTIAL):
        raise NoMaps(
            f"{name} attends by the difference of two maps, with a learned weight: neither map is the attention of its "
            f"tokens. {alternatives}"
        )
    if (lightning := next((kind for kind in kinds if kind.endswith(WRITTEN_OUT)), None)) is not None:
        raise NoMaps(
            f"{name} computes linear attention in the forward pass of {lightning} itself, block by block, and not in a "
            f"kernel that can be seen: maps of its other layers show only part of what a token reads. {alternatives}"
        )
    mixers = sequence_mixers(model)
    if watcher.kernels < len(mixers):
        raise NoMaps(
            f"{name} also mixes its tokens in {type(mixers[0]).__name__} (a state space, a short convolution), whose "
            f"kernel was not seen: its maps show only part of what a token reads. {alternatives}"
        )
    if layers is not None and watcher.seen < layers - layers_without_mixing(model):
        raise NoMaps(
            f"{name} has {layers} layers but only {watcher.seen} attention operations were recorded: the others have "
            f"no attention map (linear attention, state spaces), or run in kernels that hide it. {alternatives}"
        )
    if any(
        tap.is_folded and (tap.outcome.heads_in_order is None or not bool(tap.outcome.heads_in_order))
        for tap in watcher.taps
    ):
        raise UnsupportedModel(
            f"{name} folds its heads into the batch with heads before examples: explain one example at a time."
        )
    keys = watcher.taps[-1].map.shape[-1]
    if family.is_one_stack and keys < words:
        raise UnsupportedModel(
            f"The last map of {name} has {keys} keys for {words} tokens: it pools them, or reads them through others. "
            f"{alternatives}"
        )
    rows, *others = watcher.taps[-1].map.shape
    if not watcher.taps[-1].is_folded and len(others) == 3 and rows != batch and family.arrange is None:
        raise UnsupportedModel(
            f"The last map of {name} has {rows} rows for {batch} examples: its windows are not a single stream."
        )


def has_records(model: nn.Module, watcher: Watcher, batch: int, family: Family, words: int = 0) -> bool:
    """Whether all attention of the model was recorded, token by token."""
    try:
        check_records(model, watcher, batch, family, words)
    except UnsupportedModel:
        return False
    return True


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
    if weights := [name for name in missing if name != STATE]:
        verb = "is not a linear layer" if len(weights) == 1 else "are not linear layers"
        reasons.append(f"{' and '.join(weights)} {verb} that can be read (an adapter can be merged)")
    return UnsupportedModel(
        f"{method} needs {' and '.join(missing)} of block {record.block} ({record.path or 'path unknown'}): "
        f"{', and '.join(reasons)}. {instead} works without."
    )

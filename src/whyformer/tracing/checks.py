"""Check whether a model can be explained as requested, before and after its forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

import torch
from torch import nn

from whyformer.axes import Inputs, TokenMask
from whyformer.errors import UnsupportedModel, WhyformerError, with_article
from whyformer.models.lent_weights import lends_weights
from whyformer.models.structure import class_names, config_of, is_detector, main_input, modules_of, walk
from whyformer.models.weights import hidden_layer, passes_gradients, quantised_layers
from whyformer.tracing.reads import Reads
from whyformer.tracing.record import AttentionRecord

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

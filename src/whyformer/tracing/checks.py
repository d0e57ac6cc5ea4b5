"""Models that cannot be explained, or not as asked: refused with the reason, before or after their forward pass."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from whyformer.axes import Inputs
from whyformer.errors import UnsupportedModel, WhyformerError, with_article
from whyformer.models.calls import lends_weights
from whyformer.models.families import FAMILIES, ROW_TO_WRITE
from whyformer.models.family import Family
from whyformer.models.structure import config_of, is_detector, layers_of, main_input, modules_of
from whyformer.models.weights import hidden_layer, passes_gradients, quantised_layers
from whyformer.tracing.reads import Reads
from whyformer.tracing.record import AttentionRecord
from whyformer.watching.watcher import Watcher

# Attention that is the difference of two maps, of which each is recorded by itself.
DIFFERENTIAL = ("DiffLlamaAttention",)
# Attention whose maps are pieced together of windows: not what any token attends to, in rows and columns of tokens.
WINDOWED = ("BlockSparseAttention", "LongformerSelfAttention", "LEDEncoderSelfAttention")
STATE = "the residual state"
UNSEEN_STATE = "what attention gives there was not seen to be added to a state of its tokens"


def check_model(model: object, reads: Reads) -> None:
    """Refuse what no forward pass can be seen of, or nothing taken back through."""
    if not isinstance(model, nn.Module):
        raise WhyformerError(
            f"A model here is a torch.nn.Module, not {with_article(type(model).__name__)}: whyformer.load loads one."
        )
    name = type(model).__name__
    quantised = quantised_layers(model)
    # Quantised layers are made in training mode, which means nothing to them.
    if any(module.training for module in modules_of(model).values() if not any(module is other for other in quantised)):
        raise WhyformerError("The model is in training mode, where dropout corrupts attention: call model.eval().")
    if quantised and (reads.has_graph or reads.path):
        raise UnsupportedModel(
            f"{name} has quantised layers ({type(quantised[0]).__name__}), which have no gradient: raw_attention and "
            "rollout work on it (with readout= where that is not known), or explain the model as it was before."
        )
    layer = hidden_layer(model) if not quantised and (reads.has_graph or reads.path) else None
    if layer is not None and not passes_gradients(layer, model):
        raise UnsupportedModel(
            f"{name} multiplies in {type(layer).__name__} layers, whose kernel has no gradient and says nothing of its "
            "weights: raw_attention and rollout work on it, all methods on the model before it was quantised."
        )
    if any(parameter.is_meta for parameter in model.parameters()) and not lends_weights(model):
        raise UnsupportedModel(f"{name} is on the meta device, without weights: load it on a real one (cpu, cuda).")
    kinds = {type(module).__name__ for module in modules_of(model).values()} if reads.relevances != "none" else ()
    if any("DeformableAttention" in kind for kind in kinds):
        raise UnsupportedModel(
            f"{name} reads its image at a few points of its own choosing (deformable attention), whose map is none of "
            "its tensors and has no relevance: generic_attention follows it, lrp goes on to the pixels."
        )
    tensors = [*model.parameters(), *model.buffers()] if reads.has_graph or reads.path else []
    if any(tensor.is_inference() for tensor in tensors):
        raise WhyformerError(
            f"{name} was made under torch.inference_mode, whose tensors have no gradients: load it outside, or explain "
            "copy.deepcopy(model), made outside."
        )
    kernel = getattr(config_of(model), "_attn_implementation", None)
    if kernel not in (None, "sdpa", "eager"):
        raise UnsupportedModel(f"{kernel} attention cannot be seen: load the model with attn_implementation='sdpa'.")


def check_size(inputs: Inputs) -> None:
    """Refuse an input without a single value."""
    name, example = main_input(inputs)
    if not example.numel():
        raise WhyformerError(f"{name} has the shape {tuple(example.shape)}: there is nothing to explain.")


def check_texts(model: nn.Module, inputs: Inputs) -> None:
    """Refuse several texts for a picture in which a detector is told to find them: each is a question of its own."""
    images, texts = inputs.get("pixel_values"), inputs.get("input_ids")
    if is_detector(model) and images is not None and texts is not None and len(images) != len(texts):
        raise WhyformerError(
            f"{len(images)} images and {len(texts)} texts: give a text for each image. explain takes lists of texts."
        )


class NoMaps(UnsupportedModel):
    """Not every layer of the model has an attention map that can be recorded."""


def check_records(model: nn.Module, watcher: Watcher, batch: int, family: Family, words: int = 0) -> None:
    """Refuse a forward pass whose attention was not all seen, or does not tell examples apart."""
    name = type(model).__name__
    layers = layers_of(model)
    ways_out = "input_x_gradient, integrated_gradients and lrp read inputs alone."
    if not watcher.seen:
        raise NoMaps(f"{name} ran no attention operation that can be recorded: it has none, or hides it. {ways_out}")
    row = FAMILIES.get(getattr(config_of(model), "model_type", ""))
    if getattr(config_of(model), "is_encoder_decoder", False) and not (row and not row.is_one_stack):
        raise NoMaps(
            f"{name} has an encoder and a decoder, and no row says whose attention is whose. {ways_out} {ROW_TO_WRITE}"
        )
    windowed = next((type(m).__name__ for m in modules_of(model).values() if type(m).__name__.endswith(WINDOWED)), None)
    if windowed is not None:
        raise NoMaps(
            f"{name} attends in blocks or windows ({windowed}), whose maps are no map of its tokens. {ways_out}"
        )
    if any(type(module).__name__ in DIFFERENTIAL for module in modules_of(model).values()):
        raise NoMaps(
            f"{name} attends by the difference of two maps, the second weighed by a learned number: neither map alone "
            f"is what a token attends to. {ways_out}"
        )
    if watcher.seen and layers is not None and watcher.seen < layers:
        raise NoMaps(
            f"{name} has {layers} layers but only {watcher.seen} attention operations were seen: the others have no "
            f"attention map (linear attention, state spaces), or run in kernels that cannot be recorded. {ways_out}"
        )
    if (mixer := next(filter(_is_sequence_mixer, modules_of(model).values()), None)) is not None:
        raise NoMaps(
            f"{name} mixes its tokens in {type(mixer).__name__} as well (a state space, a short convolution), beside "
            f"attention: its maps are half of what a token reads. {ways_out}"
        )
    if any(
        tap.is_folded and (tap.outcome.heads_in_order is None or not bool(tap.outcome.heads_in_order))
        for tap in watcher.taps
    ):
        raise UnsupportedModel(
            f"{name} folds its heads into the batch, and not examples before heads: explain one example at a time."
        )
    keys = watcher.taps[-1].map.shape[-1]
    if family.is_one_stack and keys < words:
        raise UnsupportedModel(
            f"The last map of {name} has {keys} keys for {words} tokens: it pools them, or reads them through others. "
            f"{ways_out}"
        )
    rows, *others = watcher.taps[-1].map.shape
    if not watcher.taps[-1].is_folded and len(others) == 3 and rows != batch and family.arrange is None:
        raise UnsupportedModel(
            f"The last map of {name} has {rows} rows for {batch} examples: its windows are no single stream."
        )


def _is_sequence_mixer(module: nn.Module) -> bool:
    """Whether a module mixes tokens without a map: a state space by its decay, others by their short convolution."""
    return hasattr(module, "A_log") or any(_is_short_convolution(child) for child in module.children())


def _is_short_convolution(module: nn.Module) -> bool:
    """Whether it is a causal convolution of each channel by itself, as state spaces and linear attention have."""
    if not isinstance(module, nn.Conv1d):
        return False
    (width,), padding = module.kernel_size, module.padding
    return 1 < module.groups == module.in_channels and width > 1 and padding == (width - 1,)


def has_records(model: nn.Module, watcher: Watcher, batch: int, family: Family, words: int = 0) -> bool:
    """Whether the recorded attention is that of the whole model, token by token."""
    try:
        check_records(model, watcher, batch, family, words)
    except UnsupportedModel:
        return False
    return True


def moved_tokens(model: nn.Module, windows: torch.Size) -> UnsupportedModel:
    """The error of a method that follows tokens through a model whose tokens do not keep their places."""
    return UnsupportedModel(
        f"This method follows tokens from block to block, but {type(model).__name__} has maps of shape "
        f"{tuple(windows)} on the way: windows, merged patches or several streams do not keep tokens in place. "
        "grad_cam and raw_attention, which read the last map alone, work on it."
    )


def unseen_parts(method: str, missing: Sequence[str], record: AttentionRecord, *, instead: str) -> UnsupportedModel:
    """The error of a method that reads the residual state and the weights of a block, some of which were not seen."""
    reasons = [UNSEEN_STATE] if STATE in missing else []
    if weights := [name for name in missing if name != STATE]:
        verb = "is" if len(weights) == 1 else "are"
        reasons.append(f"{' and '.join(weights)} {verb} no linear layer that is seen (an adapter can be merged)")
    return UnsupportedModel(
        f"{method} needs {' and '.join(missing)} of block {record.block} ({record.path or 'path unknown'}): "
        f"{', and '.join(reasons)}. {instead} does without."
    )

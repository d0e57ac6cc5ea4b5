"""Whether all attention of a forward pass was recorded, token by token."""

from __future__ import annotations

from whyformer.errors import UnsupportedModel
from whyformer.models.families import FAMILIES, ROW_OF_STREAMS
from whyformer.models.mixers import layers_without_mixing, sequence_mixers
from whyformer.models.structure import class_names, config_of, layers_of
from whyformer.tracing.question import ModelCall
from whyformer.watching.watcher import Watcher

# Attention by the difference of two maps, which are recorded separately.
DIFFERENTIAL = ("DiffLlamaAttention",)
# Linear attention computed in the forward pass itself, not in a kernel: MiniMax.
WRITTEN_OUT = "LightningAttention"
# Attention with maps assembled from windows: their rows and columns are not tokens.
WINDOWED = ("BlockSparseAttention", "LongformerSelfAttention", "LEDEncoderSelfAttention")
ALTERNATIVES = "input_x_gradient, integrated_gradients and lrp work without maps."


class NoMaps(UnsupportedModel):
    """Not every layer of the model has an attention map that can be recorded."""


def missing_attention(watcher: Watcher, call: ModelCall) -> UnsupportedModel | None:
    """The error of a pass some of whose attention was not recorded, or cannot be assigned to examples; else None."""
    reason = _unrecorded(watcher, call) or _of_other_tokens(call) or _partly_recorded(watcher, call)
    return _unassigned(watcher, call) if reason is None else NoMaps(f"{type(call.model).__name__} {reason}")


def _unrecorded(watcher: Watcher, call: ModelCall) -> str | None:
    config = config_of(call.model)
    if not watcher.seen:
        return f"ran no attention operation that can be recorded: it has none, or hides it. {ALTERNATIVES}"
    row = FAMILIES.get(getattr(config, "model_type", ""))
    if getattr(config, "is_encoder_decoder", False) and not (row and not row.is_one_stack):
        return f"has an encoder and a decoder, and no row assigns attention to them. {ALTERNATIVES} {ROW_OF_STREAMS}"
    return None


def _of_other_tokens(call: ModelCall) -> str | None:
    """Why the maps of some modules are not those of the model's tokens."""
    kinds = class_names(call.model)
    if (windowed := next((kind for kind in kinds if kind.endswith(WINDOWED)), None)) is not None:
        return f"attends in blocks or windows ({windowed}), which have no map over its tokens. {ALTERNATIVES}"
    if kinds.intersection(DIFFERENTIAL):
        return (
            "attends by the difference of two maps, with a learned weight: neither map is the attention of its "
            f"tokens. {ALTERNATIVES}"
        )
    if (lightning := next((kind for kind in kinds if kind.endswith(WRITTEN_OUT)), None)) is not None:
        return (
            f"computes linear attention in the forward pass of {lightning} itself, block by block, and not in a kernel "
            f"that can be seen: maps of its other layers show only part of what a token reads. {ALTERNATIVES}"
        )
    return None


def _partly_recorded(watcher: Watcher, call: ModelCall) -> str | None:
    mixers, layers = sequence_mixers(call.model), layers_of(call.model)
    if watcher.kernels < len(mixers):
        return (
            f"also mixes its tokens in {type(mixers[0]).__name__} (a state space, a short convolution), whose kernel "
            f"was not seen: its maps show only part of what a token reads. {ALTERNATIVES}"
        )
    if layers is not None and watcher.seen < layers - layers_without_mixing(call.model):
        return (
            f"has {layers} layers but only {watcher.seen} attention operations were recorded: the others have no "
            f"attention map (linear attention, state spaces), or run in kernels that hide it. {ALTERNATIVES}"
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
            f"others. {ALTERNATIVES}"
        )
    rows, *others = last.map.shape
    if not last.is_folded and len(others) == 3 and rows != call.batch and call.family.arrange is None:
        return UnsupportedModel(
            f"The last map of {name} has {rows} rows for {call.batch} examples: its windows are not a single stream."
        )
    return None

"""Masks of the word tokens and read-out tokens of a shard's texts."""

from __future__ import annotations

import torch
from torch import Tensor

from whyformer.api.batch_scores import trace_batch
from whyformer.axes import Labels, TokenMask
from whyformer.benchmark.batch import model_arguments, slice_inputs
from whyformer.benchmark.shard import Shard
from whyformer.metrics.removal import RemovableTokens, removable_tokens
from whyformer.models import compat
from whyformer.tracing.reads import Reads

LAST_GRADIENT = Reads(maps="last", gradients="last")


def word_tokens(shard: Shard, which: RemovableTokens = "content") -> TokenMask:
    """The tokens of the texts that are words; `which` may include special tokens and padding."""
    ids = shard.batch.inputs["input_ids"]
    mask = shard.batch.inputs.get("attention_mask", torch.ones_like(ids))
    return removable_tokens(ids, mask, compat.special_ids(shard.loaded_model.tokenizer), which)


def class_tokens(shard: Shard) -> TokenMask:
    """Mask of [CLS] in the texts; all False if the tokenizer has none."""
    ids: Tensor = shard.batch.inputs["input_ids"]
    class_id = getattr(shard.loaded_model.tokenizer, "cls_token_id", None)
    return torch.zeros_like(ids, dtype=torch.bool) if class_id is None else ids == class_id


def readout_tokens(shard: Shard, labels: Labels) -> TokenMask:
    """The read-out token of each text, if there is a single one."""
    targeted = shard.questions.targeted(labels)
    inputs = model_arguments(targeted.inputs)

    def is_readout(part: slice) -> TokenMask:
        target = targeted.target(part)
        trace = trace_batch(shard.loaded_model, slice_inputs(inputs, part), target, LAST_GRADIENT)
        return trace.readout.weights[:, : inputs["input_ids"].shape[1]] == 1

    return torch.cat(shard.batch_size.map_slices(len(shard), is_readout))

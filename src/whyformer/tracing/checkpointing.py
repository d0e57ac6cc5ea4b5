"""Whether a pass goes back block by block: where that is asked for, or the maps of the whole graph are too much."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import torch

from whyformer.errors import WhyformerError
from whyformer.models.structure import device_of, dtype_of, heads_of, layers_of
from whyformer.tracing.biases import BiasTerms
from whyformer.tracing.block_sources import BlockGradient, BlockMap
from whyformer.tracing.blocks import BlockPass, NoStack, find_blocks
from whyformer.tracing.flow import Step, each_record
from whyformer.tracing.kernels import KEPT
from whyformer.tracing.question import Question
from whyformer.tracing.reads import Reads
from whyformer.tracing.record import AttentionRecord

MAPS = 2  # that the graph of a block keeps: its map, and the gradient of that
WIDE = (torch.float32, torch.float64)  # in which small maps are kept; of half precision a GPU folds them


def check_checkpoint(checkpoint: object) -> None:
    """Refuse what says neither yes nor no."""
    if checkpoint is not None and type(checkpoint) is not bool:
        raise WhyformerError(
            f"checkpoint={checkpoint!r}: True, False, or None, which leaves it to the size of the maps."
        )


def block_pass(question: Question, reads: Reads, checkpoint: bool | None, biases: BiasTerms | None) -> BlockPass | None:
    """The pass that goes back block by block, where that is wanted and the model is a stack of blocks."""
    if checkpoint is False or not reads.can_go_by_blocks:
        return None
    blocks = find_blocks(question.model) if question.family.is_one_stack else ()
    if checkpoint and not blocks:
        raise NoStack(
            f"{type(question.model).__name__} is not one stack of blocks that hand on a state: checkpoint=True cannot "
            "go block by block. Leave it out."
        )
    return BlockPass(question, blocks, biases) if blocks and (checkpoint or _is_large(question)) else None


def with_blocks(steps: tuple[Step, ...], blocks: BlockPass, device: torch.device, reads: Reads) -> tuple[Step, ...]:
    """The steps with maps and gradients that are made when the way back has come to them."""

    def lazy(record: AttentionRecord) -> AttentionRecord:
        source = BlockMap(record.source.shape, record.source.dtype, device, blocks, record.operation)
        states = partial(blocks.state_scores, record.operation) if reads.state_gradients else None
        gradient = BlockGradient(blocks, record.operation)
        return replace(record, source=source, gradient_source=gradient, state_scores=states)

    return each_record(steps, lazy)


def _is_large(question: Question) -> bool:
    """Whether a map of texts is too large to be kept, or the maps of all blocks are more than the device has free."""
    model, entries = question.model, heads_of(question.model) * question.words**2
    if entries > KEPT:
        return True
    dtype, free = dtype_of(model), free_bytes(device_of(model))
    kept = MAPS * (layers_of(model) or 1) * question.batch * entries * dtype.itemsize
    return free is not None and dtype in WIDE and kept > free


def free_bytes(device: torch.device) -> int | None:
    """What is free on a GPU, with what PyTorch has reserved there and does not use; elsewhere that is not known."""
    if device.type != "cuda":
        return None
    free: int = torch.cuda.mem_get_info(device)[0]
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)

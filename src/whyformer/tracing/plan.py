"""The plan of a forward pass: what it keeps, and how its backward pass runs, decided once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import nn

from whyformer.backward.blocks import NoStack, find_blocks, last_of_decoder
from whyformer.backward.rules import Backward
from whyformer.errors import WhyformerError
from whyformer.models.mixers import sequence_mixers
from whyformer.models.structure import device_of, dtype_of, heads_of, layers_of
from whyformer.tracing.question import ModelCall
from whyformer.tracing.reads import Reads
from whyformer.watching.kernels import KEPT
from whyformer.watching.watcher import WatchPlan

MAPS = 2  # kept in the graph of a block: its map and the gradient of the map
KEPT_DTYPES = (torch.float32, torch.float64)  # of small maps that are kept; a GPU folds those in half precision

# "last" is the last map that the score depends on; for several streams, the last of each pair, or of the decoder.
MapGradients = Literal["none", "last", "last of each pair", "last of the decoder", "all"]


@dataclass(frozen=True)
class Plan(WatchPlan):
    """The decisions about a forward pass: what it keeps, as a `WatchPlan`, and how its backward pass runs.

    Attributes:
        graph_start: The block at which the graph starts; None for the whole pass.
        blocks: The blocks that the backward pass runs one by one; empty for the whole graph.
        backward: The rules of gradients.
        relevance: Whether relevance is propagated as well.
        precise: Whether relevance is computed in float32 at least.
        map_gradients: The maps for which gradients are computed at once.
        state_gradients: Whether state × gradient is computed for residual states.
        input_leaves: Whether the inputs are leaves of the graph.
        position_leaves: Whether position embeddings are leaves of the graph.
        biases: Whether added biases are recorded.
        keeps_graph: Whether the trace keeps the graph, for a backward pass of the method.
        needs_maps: Whether all attention must be recorded.
        several_scores: Whether one example may have several scores that share its maps.
        path: Whether the method takes gradients in further passes, along a path.
        every_logit: Whether logits at all positions are read.
    """

    graph_start: nn.Module | None = field(default=None, repr=False)
    blocks: Sequence[nn.Module] = field(default=(), repr=False)
    backward: Backward = "gradient"
    relevance: bool = False
    precise: bool = False
    map_gradients: MapGradients = "none"
    state_gradients: bool = False
    input_leaves: bool = False
    position_leaves: bool = False
    biases: bool = False
    keeps_graph: bool = False
    needs_maps: bool = True
    several_scores: bool = False
    path: bool = False
    every_logit: bool = False

    @property
    def has_gradients(self) -> bool:
        """Whether gradients are computed, in this pass or in others."""
        return self.graph or self.path

    def __str__(self) -> str:
        start = "" if self.graph_start is None else f", from the last {type(self.graph_start).__name__} on"
        graph = f"block by block, {len(self.blocks)} blocks" if self.blocks else f"whole{start}"
        relevance = f", relevance{' in float32' if self.precise else ''}" if self.relevance else ""
        leaves = {"inputs": self.input_leaves, "positions": self.position_leaves}
        noted = {"states": self.states, "weights": self.weights, "edges": self.edges, "biases": self.biases}
        lines = {
            "maps": f"{self.maps}{', mean over heads' if self.merges_heads else ''}",
            "operations": f"from {self.first_operation} on" if self.first_operation else "all",
            "noted": _names(noted),
            "graph": graph if self.graph else "none",
            "backward": f"{self.backward}{relevance}" if self.graph else "none",
            "gradients": f"{self.map_gradients}{', of states' if self.state_gradients else ''}",
            "leaves": _names(leaves),
        }
        return "\n".join(f"{name:<11} {value}" for name, value in lines.items())


def plan_pass(reads: Reads, call: ModelCall, *, checkpoint: bool | None = None, memory: int | None = None) -> Plan:
    """Plan the pass for the reads of a method.

    `checkpoint` turns the backward pass by blocks on or off. By default the size of the maps decides, compared with the
    free bytes of `memory`, by default those of the GPU.

    Raises:
        NoStack: If `checkpoint` is set and the model is not one stack of blocks.
        WhyformerError: If `checkpoint` is not True, False or None.
    """
    if checkpoint is not None and type(checkpoint) is not bool:
        raise WhyformerError(f"checkpoint={checkpoint!r}: use True, False, or None to decide by the size of the maps.")
    blocks = _blocks(reads, call, checkpoint, memory)
    # A hybrid may have another number of operations than layers.
    is_last_alone = reads.is_last and call.family.is_one_stack and not sequence_mixers(call.model)
    has_no_others = reads.states == "of others" and call.is_words_alone
    of_tokens = bool(reads.states) and not has_no_others
    reads_maps = reads.maps != "none" and not has_no_others
    folds = reads.edges or (reads.state_gradients and not reads_maps)  # only the rows that are read are computed
    has_input_gradients = reads.inputs != "none"
    starts_late = reads.is_last and reads.has_graph and call.family.sight is not None
    shares_rows = not (reads.has_relevance or of_tokens or reads.path or reads.biases or blocks)
    return Plan(
        maps="shapes only" if blocks else "folded" if folds else "kept",
        first_operation=max(0, (layers_of(call.model) or 1) - 1) if is_last_alone else 0,
        merges_heads=not reads.has_graph and not reads.edges,
        # Block by block, the gradient of a state does not need the state to be recorded.
        states=of_tokens or reads.edges or (reads.state_gradients and not blocks),
        # A text may be read through tokens that are not words, such as Perceiver's latents.
        weights=of_tokens or reads.edges or (bool(reads.states) and call.has_other_streams),
        edges=reads.edges,
        graph=reads.has_graph,
        graph_start=last_of_decoder(call.model) if starts_late else None,
        blocks=blocks,
        backward="gradient" if reads.inputs == "relevances" else call.backward,
        relevance=reads.has_relevance,
        precise=reads.has_relevance and reads.precise,
        map_gradients=_map_gradients(reads, call) if reads.has_graph and not has_input_gradients else "none",
        state_gradients=reads.state_gradients,
        input_leaves=has_input_gradients or reads.state_gradients,
        position_leaves=reads.positions,
        biases=reads.biases,
        keeps_graph=reads.has_relevance or has_input_gradients,
        needs_maps=not has_input_gradients and not reads.subsets,
        several_scores=shares_rows and reads.takes_gradients and call.batch == 1,
        path=reads.path,
        every_logit=reads.logits or reads.subsets,
    )


def free_bytes(device: torch.device) -> int | None:
    """Free bytes on a GPU, including those that PyTorch has reserved but not allocated; None on other devices."""
    if device.type != "cuda":
        return None
    free: int = torch.cuda.mem_get_info(device)[0]
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def _map_gradients(reads: Reads, call: ModelCall) -> MapGradients:
    if not reads.is_last:
        return "all"
    if call.family.is_one_stack:
        return "last"
    return "last of each pair" if call.bridge is None else "last of the decoder"


def _blocks(reads: Reads, call: ModelCall, checkpoint: bool | None, memory: int | None) -> Sequence[nn.Module]:
    """The blocks to run one by one; empty for the whole graph."""
    if checkpoint is False or not reads.can_go_by_blocks or not (checkpoint or _is_large(call, memory)):
        return ()
    blocks = find_blocks(call.model) if call.family.is_one_stack else ()
    if checkpoint and not blocks:
        raise NoStack(
            f"{type(call.model).__name__} is not a single stack of blocks, so that checkpoint=True cannot run block by "
            "block. Leave it out."
        )
    return blocks


def _is_large(call: ModelCall, memory: int | None) -> bool:
    """Whether a map of words is too large to keep, or the maps of all blocks exceed the free memory."""
    model, entries = call.model, heads_of(call.model) * call.words**2
    if entries > KEPT:
        return True
    free = free_bytes(device_of(model)) if memory is None else memory
    if free is None:
        return False
    dtype = dtype_of(model)
    return dtype in KEPT_DTYPES and MAPS * (layers_of(model) or 1) * call.batch * entries * dtype.itemsize > free


def _names(chosen: dict[str, bool]) -> str:
    return ", ".join(name for name, is_chosen in chosen.items() if is_chosen) or "none"

"""Picture sinks: scores on patches that a model uses for itself, whatever they show, and on a picture's corners."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from whyformer.backward.blocks import state_of
from whyformer.errors import UnsupportedModel, WhyformerError
from whyformer.inputs.layouts import Patches
from whyformer.inputs.parts import part_places
from whyformer.results.explanation import Explanation
from whyformer.tracing.block_states import block_outputs, towers_of_call
from whyformer.tracing.question import Question
from whyformer.tracing.trace import Trace, real_tokens

LONG_STATE = 2.0  # times the median norm; ordinary patches of DINOv2-S and mini-vit-mae stay below 1.9
PICTURE = "image"


@dataclass(frozen=True, eq=False)
class PictureSinks:
    """The scores of a picture that lie on sinks. Returned by `picture_sinks`.

    Attributes:
        explanation: The explanation they are of.
        registers: The patches used like registers, by their numbers row by row: their states have outlying norms.
        corners: The four corner patches.
        register_share: The share of the absolute scores on the former.
        corner_share: The share on the latter; on a picture without sinks it is about their share of the area.
        norms: The largest norm of each patch's state in the second half of the blocks, in units of the median.
    """

    explanation: Explanation
    registers: tuple[int, ...]
    corners: tuple[int, ...]
    register_share: float
    corner_share: float
    norms: np.ndarray

    @property
    def area(self) -> float:
        """The share of the patches that are corners."""
        return len(self.corners) / len(self.norms)

    def left_out(self, *, corners: bool = False) -> Explanation:
        """The explanation without the scores of its sinks, which become 0.

        Args:
            corners: Whether the corners are left out too.

        Returns:
            An Explanation with a note that says how many patches were left out, and their share.

        Example:
            >>> from pathlib import Path
            >>> import whyformer
            >>> cat = Path(whyformer.__file__).parent / "zoo" / "cat.jpg"
            >>> sinks = whyformer.picture_sinks(whyformer.explain(cat, "mini-vit-mae"))
            >>> sinks.left_out(corners=True).notes[-1][:25]
            'Left out as sinks: 4 patc'
        """
        patches = sorted({*self.registers, *(self.corners if corners else ())})
        part = self.explanation.parts[PICTURE]
        scores = part.scores.copy()
        share = _share(scores, patches)
        scores[patches] = 0
        note = f"Left out as sinks: {len(patches)} patches with {share:.1%} of the scores."
        parts = {**self.explanation.parts, PICTURE: replace(part, scores=scores)}
        return replace(self.explanation, parts=parts, notes=(*self.explanation.notes, note), completeness=None)

    def __str__(self) -> str:
        on_registers = f"{len(self.registers)} patches used like registers hold {self.register_share:.1%} of the scores"
        return f"{on_registers}; the corners hold {self.corner_share:.1%}, and are {self.area:.1%} of the picture."


def picture_sinks(explanation: Explanation) -> PictureSinks:
    """Tell how much of a picture's scores lies on sinks: patches used like registers, and corners.

    Large Vision Transformers keep facts about the whole picture in a few patches that show little, such as sky; the
    norms of their states are outliers (Darcet et al. 2024). Scores there do not describe what these patches show. The
    model runs again, to read the norms.

    Args:
        explanation: What `explain` returned for a picture; the model must still be in memory.

    Returns:
        A PictureSinks: patches and shares, and `left_out()` for the explanation without them.

    Raises:
        UnsupportedModel: If the model has no stack of blocks that keeps every patch at its place.
        WhyformerError: If the explanation has no picture, or was loaded from a file.

    Example:
        >>> from pathlib import Path
        >>> import whyformer
        >>> cat = Path(whyformer.__file__).parent / "zoo" / "cat.jpg"
        >>> sinks = whyformer.picture_sinks(whyformer.explain(cat, "mini-vit-mae"))
        >>> sinks.registers, f"{sinks.area:.1%}"
        ((), '1.6%')
    """
    part = explanation.parts.get(PICTURE)
    if part is None or not isinstance(part.layout, Patches):
        raise WhyformerError("Picture sinks are patches, and this explanation has no picture.")
    if explanation.remover is None:
        raise WhyformerError("Only what explain returned can be asked again, not a loaded file: explain again.")
    rows, columns = part.layout.rows, part.layout.columns
    norms = _patch_norms(explanation.remover.trace(), (rows, columns))
    corners = tuple(sorted({0, columns - 1, (rows - 1) * columns, rows * columns - 1}))
    registers = tuple(np.flatnonzero(norms > LONG_STATE).tolist())
    on_registers, on_corners = (_share(part.scores, patches) for patches in (registers, corners))
    return PictureSinks(explanation, registers, corners, on_registers, on_corners, norms)


def _share(scores: np.ndarray, patches: Sequence[int]) -> float:
    sizes = np.abs(scores, dtype=np.float64)
    return float(sizes[list(patches)].sum() / max(sizes.sum(), np.finfo(np.float64).tiny))


def _patch_norms(trace: Trace, grid: tuple[int, int]) -> np.ndarray:
    """The largest norm of each patch's state in the second half of the blocks, over the median of its block."""
    question = trace.question
    lengths = {stream: mask.shape[1] for stream, mask in real_tokens(trace).items()}
    places = part_places(question.model, question.inputs, lengths)
    place = next((one for one in places if one.kind == "picture" and one.grid == grid), None)
    towers = towers_of_call(question)
    blocks: Sequence[nn.Module] = towers.get(place.stream, ()) if place is not None else ()
    if place is None or not blocks:
        raise _not_a_stack(question)
    late = blocks[len(blocks) // 2 :]
    by_block: list[Tensor] = []
    for output in block_outputs(question, late, advice="their norms cannot be compared").values():
        state = state_of(output)
        if state.shape[:2] != trace.masks[place.stream].shape:
            raise _not_a_stack(question)
        own = state[0, place.first : place.first + grid[0] * grid[1]].float().norm(dim=-1)
        by_block.append(own / own.median())
    norms: np.ndarray = torch.stack(by_block).amax(dim=0).double().cpu().numpy()
    return norms


def _not_a_stack(question: Question) -> UnsupportedModel:
    return UnsupportedModel(
        f"{type(question.model).__name__} is not a stack of blocks that keeps every patch at its place, so the "
        "states of its patches have no norms to compare."
    )

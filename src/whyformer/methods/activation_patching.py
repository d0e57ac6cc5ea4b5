"""Activation patching: what the states of one patch or word alone do in the run of a neutral input."""

from __future__ import annotations

import numpy as np

from whyformer.axes import UnitScores
from whyformer.errors import UnsupportedModel
from whyformer.methods.registry import method
from whyformer.removal.units import Ablation
from whyformer.tracing.reads import Reads


@method("caap", reads=Reads(subsets=True), kinds=("example",))
def caap(ablation: Ablation, *, first_block: int | None = None, last_block: int | None = None) -> list[UnitScores]:
    """Rise of a neutral input's score when the states of one unit are inserted, s(n ← x_u) − s(n) (Izadi et al. 2026).

    After each block from `first_block` to `last_block`, the states of the unit's tokens are those of the example's own
    run. By default the range is the second half of the blocks, without the last one: chosen by measurement. All units
    of the neutral input are removed: its pixels have one colour (`fill`), its words are padding or masks (`erasure`)
    that the model still sees.
    """
    if ablation.insert is None:
        raise UnsupportedModel("caap inserts states between the blocks of a loaded model: use occlusion.")
    masks = [np.concatenate([np.zeros((1, own.count)), np.eye(own.count)]).astype(bool) for own in ablation.examples]
    answers = ablation.insert(masks, first_block, last_block)
    return [answers[1 : 1 + units.count, number] - answers[0, number] for number, units in enumerate(ablation.examples)]

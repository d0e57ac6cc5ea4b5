"""Sanity checks: does a map depend on the model, on the class, and on the parts it marks as relevant?"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from itertools import groupby
from typing import Literal

import torch
from torch import nn

from whyformer.axes import ExampleScores, GroupValues, Labels, Logits, PixelScores, PixelTruth, Removal, TokenScores
from whyformer.errors import check_choice
from whyformer.extras import extra

SACO_GROUPS = 10  # of SaCo
Other = Literal["second", "last"]


def randomised(model: nn.Module, *, seed: int = 0) -> Iterator[tuple[str, nn.Module]]:
    """Randomise the model cascadingly, block by block from the output (Adebayo et al. 2018).

    Parameters are redrawn from a normal distribution with their mean and variance. The model is not modified; a single
    copy is changed further at each step.
    """
    changed, generator = copy.deepcopy(model), torch.Generator().manual_seed(seed)
    for name, parameters in reversed(stages(changed)):
        _forget(parameters, generator)
        yield name, changed


def stages(model: nn.Module) -> list[tuple[str, list[nn.Parameter]]]:
    """Parameters grouped by block, in the model's order; those outside blocks are grouped by position."""
    by_block = []
    for block, named in groupby(model.named_parameters(), key=lambda pair: _block(pair[0])):
        names, parameters = zip(*named, strict=True)
        by_block.append((block or names[-1].rpartition(".")[0], list(parameters)))
    return by_block


def _block(name: str) -> str:
    numbered = re.match(r"(?:.*?\.)?\d+(?=\.)", name)
    return numbered[0] if numbered else ""


@torch.no_grad()
def _forget(parameters: list[nn.Parameter], generator: torch.Generator) -> None:
    for parameter in parameters:
        noise = torch.randn(parameter.shape, generator=generator).to(parameter)
        parameter.copy_(parameter.mean() + parameter.std(correction=0) * noise)


def rank_correlation(first: TokenScores, second: TokenScores) -> ExampleScores:
    """Spearman correlation of each example's two rows of scores; 0 if one is constant."""
    ranks = [extra("scipy.stats").rankdata(x.detach().cpu().double().numpy(), axis=1) for x in (first, second)]
    one, other = (torch.from_numpy(x - x.mean(axis=1, keepdims=True)) for x in ranks)
    norms = one.norm(dim=1) * other.norm(dim=1)
    correlation: ExampleScores = (one * other).sum(dim=1) / norms.where(norms > 0, 1.0)
    return correlation


def other_class(logits: Logits, which: Other = "second") -> Labels:
    """The class to compare with the predicted one: the second most, or the least probable."""
    check_choice("other", which, Other)
    return logits.argsort(dim=1, descending=True)[:, 1 if which == "second" else -1]


def saco(scores: TokenScores, members: Removal, drops: GroupValues) -> ExampleScores:
    """The salience-guided coefficient, in [−1, 1] (Wu et al., CVPR 2024).

    `members` are groups of descending salience, and `drops` the drops in probability when each is removed alone. Pairs
    of groups are weighted by the difference of their saliences, with the sign of their agreement.
    """
    salience = torch.einsum("gbp,bp->bg", members.to(scores.dtype), scores)
    first, second = torch.triu_indices(len(members), len(members), offset=1, device=scores.device)
    weight = salience[:, first] - salience[:, second]
    agrees = drops[:, first] >= drops[:, second]
    total = weight.abs().sum(dim=1)
    return torch.where(agrees, weight, -weight).sum(dim=1) / total.where(total > 0, 1.0)


def pointing_game(maps: PixelScores, truth: PixelTruth) -> ExampleScores:
    """1 if the map's maximum is on the object; with ties, the share that are.

    In the truth 1 is object, 0 background; all else is unknown and ignored.
    """
    known = (truth == 0) | (truth == 1)
    highest = maps.masked_fill(~known, -torch.inf)
    tops = (highest == highest.amax(dim=(1, 2), keepdim=True)) & known
    return (tops & (truth == 1)).sum(dim=(1, 2)) / tops.sum(dim=(1, 2)).clamp(min=1)


def mass_on_object(maps: PixelScores, truth: PixelTruth) -> ExampleScores:
    """Share of the map's positive scores on the object; for a map without any, the object's share of the area.

    In the truth 1 is object, 0 background; all else is unknown and ignored.
    """
    known = (truth == 0) | (truth == 1)
    positive = maps.clamp(min=0) * known
    is_empty = positive.sum(dim=(1, 2), keepdim=True) == 0
    positive = torch.where(is_empty, known.to(maps.dtype), positive)
    return (positive * (truth == 1)).sum(dim=(1, 2)) / positive.sum(dim=(1, 2))

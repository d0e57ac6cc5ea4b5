"""Removal masks and order, shared by all perturbation protocols."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import torch
from torch.nn import functional as F

from whyformer.axes import PatchScores, PixelRemoval, Positions, Removal, TokenMask, TokenScores
from whyformer.errors import check_choice
from whyformer.metrics.pixel_maps import upsampled

Rounded = Literal["removed", "kept"]
Unit = Literal["pixel", "patch"]
RemovableTokens = Literal["content", "real", "all"]
BARELY = 1e-9  # 0.29 · 100 is 28.999999999999996 in floating point


def removed(
    scores: TokenScores,
    fractions: Sequence[float],
    *,
    most_relevant_first: bool = True,
    removable: TokenMask | None = None,
    rounded: Rounded = "removed",
) -> Removal:
    """Mask the removed places at each fraction of the removable ones; ties are removed in order of position.

    Removes int(fraction · n) of n places (TA, BI); GA keeps int((1 − fraction) · n) instead: `rounded="kept"`.
    """
    check_choice("rounded", rounded, Rounded)
    removable = torch.ones_like(scores, dtype=torch.bool) if removable is None else removable
    rank = removal_ranks(scores, removable, most_relevant_first=most_relevant_first)
    sizes = removable.sum(dim=1).tolist()
    counts = torch.tensor([[_count(f, n, rounded) for n in sizes] for f in fractions], device=scores.device)
    return (rank < counts[:, :, None]) & removable


def removal_ranks(scores: TokenScores, removable: TokenMask, *, most_relevant_first: bool = True) -> Positions:
    """Rank at which each place is removed, from 0; places that are not removable rank last."""
    wanted = scores if most_relevant_first else -scores
    order = wanted.masked_fill(~removable, -torch.inf).argsort(dim=1, descending=True, stable=True)
    turns = torch.arange(scores.shape[1], device=scores.device).expand_as(order)
    return torch.empty_like(order).scatter_(1, order, turns)


def removed_pixels(
    scores: PatchScores,
    size: tuple[int, int],
    fractions: Sequence[float],
    *,
    unit: Unit = "pixel",
    most_relevant_first: bool = True,
) -> PixelRemoval:
    """Mask the removed pixels at each fraction, by the bilinear map (the papers' code) or by patches (BI's text)."""
    check_choice("unit", unit, Unit)
    maps = upsampled(scores, size) if unit == "pixel" else scores
    removal = removed(maps.flatten(1), fractions, most_relevant_first=most_relevant_first).unflatten(2, maps.shape[1:])
    return removal if unit == "pixel" else F.interpolate(removal.float(), size, mode="nearest-exact").bool()


def removable_tokens(
    ids: Positions, mask: TokenMask, special: Iterable[int], which: RemovableTokens = "content"
) -> TokenMask:
    """The removable tokens: all except special ones and padding ("content").

    BI's code also removes special tokens ("real") and, on 20 Newsgroups, padding ("all").
    """
    check_choice("removable", which, RemovableTokens)
    if which == "all":
        return torch.ones_like(mask, dtype=torch.bool)
    is_special = torch.isin(ids, torch.tensor(sorted(special), dtype=ids.dtype, device=ids.device))
    return mask.bool() if which == "real" else mask.bool() & ~is_special


def class_token_least(scores: TokenScores, is_class: TokenMask) -> TokenScores:
    """Scores as ranked by BI's code if special tokens are removable: clamped at 0, and 0 for [CLS]."""
    return scores.clamp(min=0).masked_fill(is_class, 0.0)


def groups(scores: TokenScores, count: int, *, removable: TokenMask | None = None) -> Removal:
    """Split places into `count` groups of descending score, whose sizes differ by at most one."""
    removable = torch.ones_like(scores, dtype=torch.bool) if removable is None else removable
    upto = [0.0, *((number + 1) / count for number in range(count))]
    removal = removed(scores, upto, removable=removable)
    return removal[1:] & ~removal[:-1]


def _count(fraction: float, places: int, rounded: Rounded) -> int:
    if rounded == "removed":
        return int(fraction * places + BARELY)
    return places - int((1 - fraction) * places + BARELY)

"""Masks of what is removed and in which order, shared by all perturbation protocols."""

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
BARELY = 1e-9  # 0.29 · 100 is 28.999999999999996 to a computer


def removed(
    scores: TokenScores,
    fractions: Sequence[float],
    *,
    most_relevant_first: bool = True,
    removable: TokenMask | None = None,
    rounded: Rounded = "removed",
) -> Removal:
    """Which places are gone at each fraction of the removable ones; of equal scores, the earlier place goes first.

    Of n places int(fraction · n) are removed (TA, BI); GA keeps int((1 − fraction) · n) instead: `rounded="kept"`.
    """
    check_choice("rounded", rounded, Rounded)
    removable = torch.ones_like(scores, dtype=torch.bool) if removable is None else removable
    rank = removal_ranks(scores, removable, most_relevant_first=most_relevant_first)
    sizes = removable.sum(dim=1).tolist()
    counts = torch.tensor([[_count(f, n, rounded) for n in sizes] for f in fractions], device=scores.device)
    return (rank < counts[:, :, None]) & removable


def removal_ranks(scores: TokenScores, removable: TokenMask, *, most_relevant_first: bool = True) -> Positions:
    """The turn at which each place goes, from 0; those that may not go come last."""
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
    """Which pixels are gone at each fraction: of the bilinear map (the papers' code), or whole patches (BI's text)."""
    check_choice("unit", unit, Unit)
    maps = upsampled(scores, size) if unit == "pixel" else scores
    removal = removed(maps.flatten(1), fractions, most_relevant_first=most_relevant_first).unflatten(2, maps.shape[1:])
    return removal if unit == "pixel" else F.interpolate(removal.float(), size, mode="nearest-exact").bool()


def removable_tokens(
    ids: Positions, mask: TokenMask, special: Iterable[int], which: RemovableTokens = "content"
) -> TokenMask:
    """The tokens that may go: all but special ones and padding ("content").

    BI's code lets special tokens go as well ("real"), and on 20 Newsgroups counts the padding in ("all").
    """
    check_choice("removable", which, RemovableTokens)
    if which == "all":
        return torch.ones_like(mask, dtype=torch.bool)
    is_special = torch.isin(ids, torch.tensor(sorted(special), dtype=ids.dtype, device=ids.device))
    return mask.bool() if which == "real" else mask.bool() & ~is_special


def class_token_least(scores: TokenScores, is_class: TokenMask) -> TokenScores:
    """Scores as BI's code ranks them where special tokens may go: none below 0, and that of [CLS] 0."""
    return scores.clamp(min=0).masked_fill(is_class, 0.0)


def groups(scores: TokenScores, count: int, *, removable: TokenMask | None = None) -> Removal:
    """The places in so many groups of descending score, of sizes that differ by one at most."""
    removable = torch.ones_like(scores, dtype=torch.bool) if removable is None else removable
    upto = [0.0, *((number + 1) / count for number in range(count))]
    removal = removed(scores, upto, removable=removable)
    return removal[1:] & ~removal[:-1]


def _count(fraction: float, places: int, rounded: Rounded) -> int:
    if rounded == "removed":
        return int(fraction * places + BARELY)
    return places - int((1 - fraction) * places + BARELY)

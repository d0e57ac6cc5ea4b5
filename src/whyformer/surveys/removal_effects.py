"""Remove a cue from a sample, and random equal parts of it, and ask again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from whyformer.surveys.cues import Cue
from whyformer.surveys.respondents import RemovableSample, label_log_odds
from whyformer.surveys.sound_cues import SOUND_KINDS, random_sound_parts

RANDOM_PARTS = 3  # that each cue is compared with, in each sample


@dataclass(frozen=True, eq=False)
class RemovalEffect:
    """The change of an answer without a cue, and without random parts of the same size and shape.

    Attributes:
        cue: The cue.
        sample: The number of the sample.
        answer: The index of the label that the drops are about: by default the one that the model gives the whole
            sample.
        without: The index of the label that it gives the sample without the cue.
        drops: The drops of the answer's log-odds in nats, [1 + random part], the cue's own first.
        probability_drops: The drops of the answer's probability, likewise.
        flips: Whether another label than that is given, likewise.
    """

    cue: Cue
    sample: int
    answer: int
    without: int
    drops: np.ndarray
    probability_drops: np.ndarray
    flips: np.ndarray

    @property
    def excess(self) -> float:
        """How much larger the drop without the cue is than without random parts."""
        return float(self.drops[0] - self.drops[1:].mean())


def removal_effects(
    removable: RemovableSample,
    parts: Mapping[Cue, np.ndarray],
    *,
    label: int | None = None,
    is_multi: bool = False,
    count: int = RANDOM_PARTS,
    seed: int = 0,
) -> list[RemovalEffect]:
    """Remove the places of each cue, and for each as many random parts of the same size, one at a time.

    The effects are on the label, by default that of the model's answer.
    Cues that cover the whole sample, or nothing of it, are left out: there is nothing to compare them with.
    """
    random = np.random.default_rng([seed, removable.sample.number])
    masks: dict[bytes, np.ndarray] = {}
    wanted: dict[Cue, list[bytes]] = {}
    for cue, part in parts.items():
        if not 0 < part.sum() < part.size:
            continue
        others = (
            random_sound_parts(part, 0 if cue.kind == "band" else 1, count, random)
            if cue.kind in SOUND_KINDS
            else random_parts(part, removable.sizes, count, random)
        )
        removed = [part, *others]
        wanted[cue] = [np.packbits(one).tobytes() for one in removed]
        masks |= zip(wanted[cue], removed, strict=True)
    if not wanted:
        return []
    answers = removable.ask(~np.stack(list(masks.values())))
    logits = np.concatenate([removable.logits[None], answers])
    label = int(removable.logits.argmax()) if label is None else label
    odds, best = label_log_odds(logits, label, is_multi=is_multi), logits.argmax(axis=1)
    shares = 1 / (1 + np.exp(-odds))
    row = {key: number for number, key in enumerate(masks, start=1)}
    effects = []
    for cue, keys in wanted.items():
        rows = [row[key] for key in keys]
        effects.append(
            RemovalEffect(
                cue,
                removable.sample.number,
                label,
                int(best[rows[0]]),
                odds[0] - odds[rows],
                shares[0] - shares[rows],
                best[rows] != label,
            )
        )
    return effects


def random_parts(part: np.ndarray, sizes: np.ndarray, count: int, random: np.random.Generator) -> list[np.ndarray]:
    """Random parts of the same shape: the part moved, around the edges.

    In a text, places that overlap it least and have most nearly as many tokens come first, since words that are split
    into more pieces are not equal parts. Where there are fewer places than parts, some are drawn twice.
    """
    if part.ndim == 1:
        shifts = np.arange(1, len(part))
        moved = np.stack([np.roll(part, shift) for shift in shifts])
        overlap, tokens = (moved & part).sum(axis=1), moved @ sizes
        order = np.lexsort((random.permutation(len(shifts)), abs(tokens - sizes[part].sum()), overlap))
        return [moved[order[number % len(order)]] for number in range(count)]
    height, width = part.shape
    shifts = random.integers(1, height * width, count)
    return [np.roll(part, (int(shift) // width, int(shift) % width), (0, 1)) for shift in shifts]

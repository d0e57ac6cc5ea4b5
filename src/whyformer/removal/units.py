"""Units of an example that are removed together, and outputs for examples without some of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from whyformer.axes import (
    ExampleValues,
    PlaceUnits,
    SourceScores,
    SubsetExampleScores,
    UnitMasks,
    UnitPairs,
    UnitScores,
)


@dataclass(frozen=True, eq=False)
class Units:
    """The removable units of one example.

    Attributes:
        numbers: The unit of each place, counted from 0; -1 if it is never removed. Places are the pixels of a picture
            row by row, the tokens or words of a text, or regions, part after part.
        shapes: The shape of each part's places: (height, width) for a picture, (places,) otherwise.
    """

    numbers: PlaceUnits
    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def counted(cls, numbers: PlaceUnits, shapes: Sequence[tuple[int, ...]]) -> Units:
        """Build units, renumbered without gaps."""
        known, places = np.unique(numbers, return_inverse=True)
        return cls(places.reshape(numbers.shape) - int(known[0] < 0), tuple(shapes))

    @cached_property
    def count(self) -> int:
        """The number of units."""
        return int(self.numbers.max(initial=-1)) + 1

    @property
    def parts(self) -> list[tuple[tuple[int, ...], PlaceUnits]]:
        """The shape of each part's places, and their units."""
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes])
        return list(zip(self.shapes, np.split(self.numbers, ends[:-1]), strict=True))

    @property
    def neighbours(self) -> UnitPairs:
        """The pairs of units that touch in a picture, or are consecutive elsewhere."""
        pairs = []
        for shape, numbers in self.parts:
            grid = numbers.reshape(shape) if len(shape) == 2 else numbers[numbers >= 0]
            for axis in range(grid.ndim):
                ahead, behind = (np.delete(grid, end, axis).ravel() for end in (-1, 0))
                pairs.append(np.stack([ahead, behind], axis=1))
        every = np.sort(np.concatenate(pairs), axis=1)
        return np.unique(every[(every[:, 0] >= 0) & (every[:, 0] != every[:, 1])], axis=0)

    @property
    def by_pixel(self) -> Units:
        """The same with every pixel of a picture as a unit."""
        parts, first = [], 0
        for shape, numbers in self.parts:
            finer = np.where(numbers < 0, -1, np.arange(len(numbers))) if len(shape) == 2 else numbers
            own = Units.counted(finer, [shape])
            parts.append(np.where(own.numbers < 0, -1, own.numbers + first))
            first += own.count
        return Units(np.concatenate(parts), self.shapes)

    def at_places(self, scores: UnitScores) -> UnitScores:
        """Score of each place's unit, 0 outside all units."""
        places: UnitScores = np.append(scores, 0.0)[self.numbers]
        return places

    def mean_of(self, places: UnitScores) -> UnitScores:
        """Mean of each unit over its places."""
        is_own = self.numbers >= 0
        own = self.numbers[is_own]
        means: UnitScores = np.bincount(own, places[is_own], self.count) / np.bincount(own, minlength=self.count)
        return means


@dataclass(frozen=True, eq=False)
class Ablation:
    """A model's scores of examples as a function of which of their units are kept.

    Attributes:
        examples: The units of each example.
        known: The score of each complete example; None if it is computed on first use.
        ask: A function that returns the scores [subset, example], given the units of each example and their masks
            [subset, unit], 1 where a unit is kept. Scores beyond the masks of an example are ignored.
        tokens: The number of tokens of each example, if the examples are rows of a response.
        insert: For an example of a loaded model, the same scores of a neutral input into which the states of the kept
            units are inserted, after each block from a first to a last.
        attend: For the response of a loaded model, a function from the sources that it may see to the attention to
            each source [row, token].
        split: Likewise a function that divides the logits of each row among the sources [row, source].

    Example:
        >>> import numpy as np
        >>> from whyformer.removal.units import Ablation, Units
        >>> units = Units(np.arange(3), ((3,),))
        >>> ablation = Ablation((units,), np.array([6.0]), lambda _, masks: masks[0] @ np.array([[1.0], [2.0], [3.0]]))
        >>> float(whyformer.METHODS["kernel_shap"].formula(ablation)[0].sum())
        6.0
    """

    examples: tuple[Units, ...]
    known: ExampleValues | None
    ask: Callable[[Sequence[Units], Sequence[UnitMasks]], SubsetExampleScores]
    tokens: tuple[int, ...] | None = None
    insert: Callable[[Sequence[UnitMasks], int | None, int | None], SubsetExampleScores] | None = None
    attend: Callable[[np.ndarray], Sequence[np.ndarray]] | None = None
    split: Callable[[], SourceScores] | None = None

    @cached_property
    def whole(self) -> ExampleValues:
        """The score of each complete example."""
        if self.known is not None:
            return self.known
        every: SubsetExampleScores = self.scores([np.ones((1, units.count), dtype=bool) for units in self.examples])
        return np.asarray(every[0])

    def scores(self, masks: Sequence[UnitMasks]) -> SubsetExampleScores:
        """The scores [subset, example] with these units of each example kept."""
        return self.ask(self.examples, masks)

    def scores_of(self, masks: UnitMasks) -> SubsetExampleScores:
        """The scores [subset, example] with the same units of every example kept."""
        return self.scores([masks] * len(self.examples))

    @property
    def by_pixel(self) -> Ablation:
        """The same with every pixel of a picture as a unit."""
        return replace(self, examples=tuple(units.by_pixel for units in self.examples))


@dataclass(eq=False)
class SubsetCount:
    """Number of subsets evaluated for each example of a batch."""

    subsets: int = 0

    def counting(self, ablation: Ablation) -> Ablation:
        """Wrap an ablation to count its subsets."""

        def ask(units: Sequence[Units], masks: Sequence[UnitMasks]) -> SubsetExampleScores:
            self.subsets += max(map(len, masks))
            return ablation.ask(units, masks)

        return replace(ablation, ask=ask)

    def remarks(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        """A remark on the number of subsets that a method took which may stop early."""
        if options.get("stable") is None:
            return ()
        if self.subsets < options["forwards"]:
            return (f"It stopped early after {self.subsets} of at most {options['forwards']} subsets.",)
        return (f"It used all {self.subsets} subsets without reaching a stable ranking.",)

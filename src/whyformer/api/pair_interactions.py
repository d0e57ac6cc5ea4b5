"""Which parts of an explained input work together: interactions of pairs of its strongest words or patches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from whyformer.errors import WhyformerError, check_choice
from whyformer.methods.interactions import INTERACTIONS, InteractionKind, sets_of
from whyformer.results.explanation import Explanation
from whyformer.results.unit_effects import RemovableUnit, log_odds

MOST_PAIRED, MOST_IN_ALL_SETS = 20, 12  # units; in every combination of 12, 4,096 forward passes


@dataclass(frozen=True, eq=False)
class PairInteractions:
    """Interactions of pairs of parts, in log-odds of the explained answer. Returned by `interactions`.

    Attributes:
        units: The parts, strongest first: each with its `name`, its `part`, its `tokens` and its `score`.
        values: The interaction of each pair [unit, unit], and the effect of each unit alone on the diagonal.
        kind: "shapley", "moebius" or "removal".
        target: The explained answer.
        runs: How many subsets of the input the model was run on.
    """

    units: tuple[RemovableUnit, ...]
    values: np.ndarray
    kind: InteractionKind
    target: str
    runs: int

    def top(self, k: int = 5) -> list[tuple[str, str, float]]:
        """The pairs with the largest interactions, by absolute value.

        Args:
            k: Maximum number.

        Returns:
            At most `k` tuples of two names and their interaction, strongest first.

        Raises:
            WhyformerError: If `k` is not a positive integer.

        Example:
            >>> import whyformer
            >>> found = whyformer.interactions(whyformer.explain("Not a good film.", "mini-bert"), units=3)
            >>> len(found.top(2))
            2
        """
        if type(k) is not int or k < 1:
            raise WhyformerError(f"k={k!r}: a whole number, at least 1.")
        rows, columns = np.triu_indices(len(self.units), 1)
        order = np.argsort(-np.abs(self.values[rows, columns]), kind="stable")[:k]
        names = [unit.name for unit in self.units]
        return [(names[rows[n]], names[columns[n]], float(self.values[rows[n], columns[n]])) for n in order]

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"{self.target}: {self.kind} interactions of {len(self.units)} parts, {self.runs} runs, log-odds"
        for one, other, value in self.top(10):
            yield f"{value:+.2f}  {one} · {other}"


def interactions(explanation: Explanation, *, units: int = 8, kind: InteractionKind = "shapley") -> PairInteractions:
    """Measure which pairs of an explanation's strongest words, blocks of patches or regions work together.

    The model runs again without combinations of them. A pair's interaction is what its two parts change together beyond
    the sum of what each changes: "not" and "good". Below 0, the two say the same.

    Args:
        explanation: What `explain` returned; the model must still be in memory.
        units: How many of its strongest parts to pair: up to 12, or 20 for the kinds that do not run every combination.
        kind: "shapley" averages over all combinations of the others (2ⁿ runs for n units); "moebius" shows the model
            the two alone, "removal" everything but the two (about n²/2 runs each).

    Returns:
        A PairInteractions: a matrix, and `top` for the strongest pairs.

    Raises:
        UnsupportedModel: If the answer has no probability, or the input has no parts that can be removed.
        WhyformerError: If the explanation was loaded from a file, or an option cannot be used.

    Example:
        >>> found = whyformer.interactions(whyformer.explain("Not a good film.", model="mini-bert"), units=4)
        >>> found.values.shape, found.runs
        ((4, 4), 16)
    """
    check_choice("kind", kind, InteractionKind)
    most = MOST_IN_ALL_SETS if kind == "shapley" else MOST_PAIRED
    if type(units) is not int or not 2 <= units <= most:
        raise WhyformerError(f"units={units!r}: a whole number from 2 to {most} for kind={kind!r}.")
    if explanation.remover is None:
        raise WhyformerError("Only what explain returned can be asked again, not a loaded file: explain again.")
    chosen = explanation.remover(explanation, most=units, combined=0)
    count = len(chosen.units)
    if count < 2:
        raise WhyformerError(f"The input has {count} part that can be removed: a pair needs two.")
    sets = sets_of(kind, count)
    removed = {one: frozenset(unit for unit in range(count) if not one >> unit & 1) for one in sets}
    effects = explanation.remover(explanation, removed.values(), chosen, most=units, combined=0)
    values = INTERACTIONS[kind](lambda one: log_odds(effects.known[removed[one]][effects.target]), count)
    order = np.argsort([-abs(unit.score) for unit in effects.units], kind="stable")
    ordered = tuple(effects.units[number] for number in order)
    return PairInteractions(ordered, values[np.ix_(order, order)], kind, explanation.target, len(sets))

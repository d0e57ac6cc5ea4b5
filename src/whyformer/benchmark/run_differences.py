"""Compare two runs of a suite, such as one with a halved batch: do values and ranks agree?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from whyformer.benchmark.choice import Choice
from whyformer.benchmark.figures import Half, Run, read_run, sample_values, value_of
from whyformer.benchmark.protocols import Figure, protocol_named
from whyformer.errors import WhyformerError

RunValues = Mapping[str, Mapping[int, Any]]  # by method and sample


def differences(folder: str | Path, other: str | Path, *, half: Half | None = None) -> list[str]:
    """Compare two runs of a suite: the largest difference of a sample's figures, and changed ranks.

    Args:
        folder: The folder of one run.
        other: The folder of the other run. Only samples and methods that both have are compared.
        half: "first" or "second", to compare only samples of this half.

    Returns:
        A line for each figure that both runs have.

    Raises:
        WhyformerError: If a folder holds no run, or they have no figure of the same samples in common.

    Example:
        >>> from whyformer.benchmark import differences, evaluate
        >>> result = evaluate("mini-bert", ["a wonderful film", "a dull film"], "rollout", "class_sensitivity")
        >>> differences(result.folder, result.folder)
        ['class_sensitivity, 1 − rank correlation: identical']
    """
    first, second = read_run(folder), read_run(other)
    if half is not None:
        first, second = first.half(half), second.half(half)
    known = {choice.label for choice in second.choices}
    lines = [line for choice in first.choices if choice.label in known for line in _lines(first, second, choice)]
    if not lines:
        raise WhyformerError(f"{str(folder)!r} and {str(other)!r} have no figure of the same samples in common.")
    return lines


def _lines(first: Run, second: Run, choice: Choice) -> list[str]:
    lines = []
    rows = first.of(choice.label), second.of(choice.label)
    for name, figure in protocol_named(choice.name).figures.items():
        if all(figure.measure in by_measure for by_measure in rows):
            one, other = _shared(sample_values(first, choice, name)[1], sample_values(second, choice, name)[1])
            if one:
                lines.append(f"{choice.label}, {name}: {_difference(figure, one, other)}")
    return lines


def _shared(first: RunValues, second: RunValues) -> tuple[RunValues, RunValues]:
    methods = [method for method in first if method in second and first[method].keys() & second[method].keys()]
    samples = {method: [n for n in first[method] if n in second[method]] for method in methods}
    one, other = ({m: {n: values[m][n] for n in samples[m]} for m in methods} for values in (first, second))
    return one, other


def _difference(figure: Figure, first: RunValues, second: RunValues) -> str:
    if all(np.array_equal(value, second[method][n]) for method, each in first.items() for n, value in each.items()):
        return "identical"
    before, after = ranks(figure, first), ranks(figure, second)
    pairs = {method: (rank, after.get(method)) for method, rank in before.items()}
    moved = [f"{method} {old} → {new}" for method, (old, new) in pairs.items() if old != new]
    changed = f"changed ranks: {', '.join(moved)}" if moved else "the same ranks"
    if figure.of_texts is not None:
        return changed
    most = np.max(
        [
            abs(value_of(figure, [value]) - value_of(figure, [second[method][sample]]))
            for method, values in first.items()
            for sample, value in values.items()
        ]
    )
    return f"values differ by at most {most:.1g}; {changed}"


def ranks(figure: Figure, values: RunValues) -> dict[str, int]:
    """The rank of each method, the best being 1."""
    figures = {method: value_of(figure, list(each.values())) for method, each in values.items()}
    finite = {method: value for method, value in figures.items() if np.isfinite(value)}
    sign = 1 if figure.better == "lower" else -1
    order = sorted(finite, key=lambda method: (sign * finite[method], method))
    return {method: rank for rank, method in enumerate(order, start=1)}

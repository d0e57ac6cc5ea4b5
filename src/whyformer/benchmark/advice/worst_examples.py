"""The examples on which a method does worst, with its maps, the next method's and a control's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from whyformer.benchmark.figures import Run
from whyformer.benchmark.reporting.gallery import Gallery, explanation, truth, value_text
from whyformer.benchmark.run_plan import RunPlan
from whyformer.benchmark.tables import EXPLANATION_TABLE, SAMPLE_TABLE, read_records

SHOWN = 3


def worst_examples(
    plan: RunPlan,
    folder: Path,
    values: Mapping[str, Mapping[int, float]],
    label: str,
    methods: Sequence[str],
    names: Mapping[int, str],
    *,
    is_share: bool,
) -> tuple[tuple[tuple[str, float], ...], Gallery | None]:
    """The samples with the lowest values: names, values and maps."""
    own = values[label]
    numbers = sorted(own, key=lambda sample: (own[sample], sample))[:SHOWN]
    worst = tuple((names[number], own[number]) for number in numbers)
    run = Run(plan.document, [], None)
    samples = {sample["sample"]: sample for sample in read_records(folder, SAMPLE_TABLE, numbers)}
    records = read_records(folder, EXPLANATION_TABLE, numbers)
    rows = []
    for number in numbers:
        cells = [truth(run, samples[number])]
        for method in methods:
            maps = [one for one in records if one["sample"] == number and one["method"] == method]
            first = [one for one in maps if one["target"] == maps[0]["target"]]
            cells.append(explanation(run, samples[number], first) if first else None)
        rows.append(tuple(cells))
    if not any(cell for row in rows for cell in row[1:]):
        return worst, None
    has_truth = any(row[0] is not None for row in rows)
    cells_shown = tuple(rows) if has_truth else tuple(row[1:] for row in rows)
    columns = (*(("what matters",) if has_truth else ()), *methods)
    title, note = f"Where {label} fails", "The samples of its lowest values, with the next method and a control."
    titles = tuple(f"{name} ({value_text(value, {'is_share': is_share})})" for name, value in worst)
    return worst, Gallery(title, note, titles, columns, cells_shown, has_truth=has_truth)

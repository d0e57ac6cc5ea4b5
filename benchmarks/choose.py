"""The default method and its options, chosen on the first half of the samples and reported on the second.

    python benchmarks/choose.py RUN_DIR… [--out benchmarks/results/defaults.json]

Only models whose attention nobody supervised have a say, and only these figures: the difference of the negative and
positive area of probability under perturbation, and mIoU. Every figure of every model ranks the methods that all of
them measured; the lowest mean rank is chosen. On the second half nothing is chosen: there the chosen one is compared
with every other, with intervals and paired tests.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from publish import rounded, unfinished, write
from whyformer.run.charts import CONTROLS
from whyformer.run.differences import ranks
from whyformer.run.figures import Half, Run, compared, interval_of, measured, run_in, value_of
from whyformer.run.protocols import Figure

UNSUPERVISED = ("dinov2-photos", "mini-vit-plain", "mini-vit-mae", "mini-bert")
# The protocols, with their defaults, that have a say, and by which figure.
CRITERIA = {
    "image_perturbation": "negative − positive, probability",
    "text_perturbation": "negative − positive, probability",
    "segmentation": "mIoU",
}
OUT = Path(__file__).parent / "results" / "defaults.json"


@dataclass(frozen=True, eq=False)
class Criterion:
    """A figure of a run on some samples: the values of each, by method."""

    name: str
    figure: Figure
    values: Mapping[str, Mapping[int, Any]]
    seed: int


def criteria(runs: Sequence[Run], half: Half, models: Sequence[str] = UNSUPERVISED) -> list[Criterion]:
    """Every figure that has a say, on one half of the samples, for the methods that all have; without controls."""
    found = [criterion for run in runs if run.suite["model"] in models for criterion in _criteria(run.half(half))]
    known = [set(criterion.values) for criterion in found]
    shared = set.intersection(*known) - set(CONTROLS) if known else set()
    return [
        Criterion(one.name, one.figure, {m: v for m, v in one.values.items() if m in shared}, one.seed) for one in found
    ]


def _criteria(run: Run) -> Iterator[Criterion]:
    for choice in run.choices:
        if choice.label in CRITERIA:
            figure, values = measured(run, choice, CRITERIA[choice.label])
            name = f"{run.suite['model']}: {choice.name}, {CRITERIA[choice.label]}"
            yield Criterion(name, figure, {m: v for m, v in values.items() if v}, run.suite["seed"])


def mean_ranks(found: Sequence[Criterion]) -> dict[str, float]:
    """The mean rank of each method over the criteria, the best first."""
    each = [ranks(criterion.figure, criterion.values) for criterion in found]
    means = {method: sum(rank[method] for rank in each) / len(each) for method in each[0]}
    return dict(sorted(means.items(), key=lambda item: (item[1], item[0])))


def chosen_defaults(runs: Sequence[Run], models: Sequence[str] = UNSUPERVISED) -> dict[str, Any]:
    """What is chosen on the first half, why, and how it does on the second."""
    first, second = (criteria(runs, half, models) for half in ("first", "second"))
    if not first:
        raise SystemExit(f"No run of {', '.join(models)} with {' or '.join(CRITERIA)}.")
    means = mean_ranks(first)
    best, options = next(iter(means)), _options(runs)
    variants: dict[str, str] = {}
    for label in means:
        variants.setdefault(options[label]["name"], label)
    return {
        "chosen": options[best],
        "label": best,
        "best_options": variants,
        "first_half": [
            {"method": method, "mean_rank": rounded(mean)}
            | {one.name: rounded(value_of(one.figure, list(one.values[method].values()))) for one in first}
            for method, mean in means.items()
        ],
        "second_half": [_judged(criterion, best) for criterion in second],
    }


def _options(runs: Sequence[Run]) -> dict[str, dict[str, Any]]:
    """The methods of the suites by their labels, as suites name them."""
    return {choice.label: {"name": choice.name, **choice.options} for run in runs for choice in run.methods}


def _judged(criterion: Criterion, best: str) -> dict[str, Any]:
    """Every method with its interval, and by how much the chosen one exceeds it."""
    rows = []
    for method, values in criterion.values.items():
        shown = interval_of(criterion.figure, list(values.values()), criterion.seed)
        row: dict[str, Any] = {"method": method, "n": len(values)}
        row |= {key: rounded(value) for key, value in (shown or {}).items()}
        if method != best:
            tested = compared(criterion.figure, criterion.values[best], values, criterion.seed) or {}
            row |= {f"chosen_less_it_{key}": rounded(value) for key, value in tested.items() if key != "p"}
            row |= {"p": rounded(tested.get("p"))}
        rows.append(row)
    order = ranks(criterion.figure, criterion.values)
    about = {"criterion": criterion.name, "better": criterion.figure.better, "is_share": criterion.figure.is_share}
    return {**about, "rows": sorted(rows, key=lambda row: order.get(row["method"], len(order) + 1))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN_DIR", help="what `whyformer evaluate` wrote")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--unfinished", action="store_true", help="also runs that are not finished, for trials")
    options = parser.parse_args()
    runs = [run_in(folder) for folder in options.runs]
    if not options.unfinished and any(unfinished(run) for run in runs):
        parser.error(", ".join(run.suite["model"] for run in runs if unfinished(run)) + ": the run is not finished.")
    found = chosen_defaults(runs)
    write(found, options.out)
    print(f"{found['label']}: mean rank {found['first_half'][0]['mean_rank']}")


if __name__ == "__main__":
    main()

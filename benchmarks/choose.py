"""The default method and its options, chosen on the first half of the samples and reported on the second.

    python benchmarks/choose.py RUN_DIR…             # the method: benchmarks/results/defaults.json
    python benchmarks/choose.py RUN_DIR… --options   # options of each method: benchmarks/results/options.json
    python benchmarks/choose.py RUN_DIR --responses  # the method of responses: benchmarks/results/response_default.json
    python benchmarks/choose.py RUN_DIR --pictures   # of words about pictures: benchmarks/results/picture_default.json
    python benchmarks/choose.py RUN_DIR… --candidates   # by candidates.toml: benchmarks/results/confirmation.json
    python benchmarks/choose.py RUN_DIR… --reports      # figures of these runs that only report, added to that file

Only models whose attention nobody supervised have a say, each by two figures: the difference of the negative and
positive area of probability under perturbation, and agreement with what people marked, mIoU or token F1. Every figure
of every model ranks the methods that all of them measured; the lowest mean rank is chosen. On the second half nothing
is chosen: there the chosen one is compared with every other, with intervals and paired tests.

For responses it is mini-llm on Facts World that has a say, by three figures: the average precision of the true sources,
the log-probability lost without the three highest, and LDS. Methods that ask the model dozens of times are references.
There many rows share a forward pass only where gradients are plain, so a method by other rules stands for it only where
it serves better as an option.

For words about pictures it is mini-vlm on drawn scenes, by three figures: that of perturbation, how often the patch of
the highest score is on the object that a word is read off, and the average precision of its patches.

An option serves better than its default where, on the first half, paired tests have it better by two figures at least
(one of eight may be chance) and worse by none.

With --candidates the rule is that of candidates.toml, by confirmation.py.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confirmation import confirmation, with_reports
from publish import advantage, rounded, unfinished, write
from whyformer.benchmark.figures import Half, Run, compare_runs, interval_of, read_run, sample_values, value_of
from whyformer.benchmark.protocols import Figure
from whyformer.benchmark.reporting.charts import CONTROLS
from whyformer.benchmark.reporting.page import ALIKE
from whyformer.benchmark.run_differences import ranks
from whyformer.methods.registry import source_methods

UNSUPERVISED = ("dinov2-photos", "mini-vit-plain", "mini-vit-mae", "mini-bert")
# The protocols, with their defaults, that have a say, and by which figure.
CRITERIA = {
    "image_perturbation": ["negative − positive, probability"],
    "text_perturbation": ["negative − positive, probability"],
    "segmentation": ["mIoU"],
    "rationales": ["token F1, mean over top 10 to 80"],
    "sources": ["AUPRC", "drop of log p without the top 3", "LDS"],
    "image_perturbation explained=target fill=mean domain=0-1": ["negative − positive, probability"],
    "word_localisation": ["pointing game", "average precision"],
}
RESPONDING = ("mini-llm",)
DESCRIBING = ("mini-vlm",)
NO_CANDIDATES = {*CONTROLS, "recency", "lexical_overlap", "uniform", *source_methods()}
AT_LEAST = 2  # figures by which a variant must be better
RESULTS = Path(__file__).parent / "results"


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
    shared = set.intersection(*known) - NO_CANDIDATES if known else set()
    return [
        Criterion(one.name, one.figure, {m: v for m, v in one.values.items() if m in shared}, one.seed) for one in found
    ]


def _criteria(run: Run) -> Iterator[Criterion]:
    for choice in run.choices:
        for label in CRITERIA.get(choice.label, ()):
            figure, values = sample_values(run, choice, label)
            name = f"{run.suite['model']}: {choice.name}, {label}"
            yield Criterion(name, figure, {m: v for m, v in values.items() if v}, run.suite["seed"])


def mean_ranks(found: Sequence[Criterion]) -> dict[str, float]:
    """The mean rank of each method over the criteria, the best first."""
    each = [ranks(criterion.figure, criterion.values) for criterion in found]
    means = {method: sum(rank[method] for rank in each) / len(each) for method in each[0]}
    return dict(sorted(means.items(), key=lambda item: (item[1], item[0])))


def chosen_defaults(
    runs: Sequence[Run], models: Sequence[str] = UNSUPERVISED, *, variants_must_serve: bool = False
) -> dict[str, Any]:
    """What is chosen on the first half, why, and how it does on the second; and which variants were passed over."""
    first, second = _halves(runs, models)
    means, options = mean_ranks(first), _options(runs)
    order = list(means)
    stands = [not variants_must_serve or _stands(first, method, options[method]["name"]) for method in order]
    best = order[stands.index(True)]
    return {
        "chosen": options[best],
        "label": best,
        "passed_over": order[: stands.index(True)],
        "first_half": [
            {"method": method, "mean_rank": rounded(mean)}
            | {one.name: rounded(value_of(one.figure, list(one.values[method].values()))) for one in first}
            for method, mean in means.items()
        ],
        "second_half": [_judged(criterion, best) for criterion in second],
    }


def _stands(first: Sequence[Criterion], method: str, default: str) -> bool:
    """Whether a method is as its paper has it, or a variant that serves better."""
    gains = [_gain(one, method, default) for one in first] if method != default else []
    return method == default or _verdict(gains)["serves"]


def _verdict(gains: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """By how many figures a variant is surely better, by how many worse, and whether it so serves."""
    sure = [gain["gain"] for gain in gains if gain["p"] < ALIKE]
    better, worse = sum(gain > 0 for gain in sure), sum(gain < 0 for gain in sure)
    return {"better": better, "worse": worse, "serves": better >= AT_LEAST and not worse}


def _halves(runs: Sequence[Run], models: Sequence[str]) -> tuple[list[Criterion], list[Criterion]]:
    first, second = criteria(runs, "first", models), criteria(runs, "second", models)
    if not first:
        raise SystemExit(f"No run of {', '.join(models)} with {' or '.join(CRITERIA)}.")
    return first, second


def chosen_options(runs: Sequence[Run], models: Sequence[str] = UNSUPERVISED) -> dict[str, Any]:
    """By how much each variant of a method is better than the method with its defaults, on either half."""
    first, second = _halves(runs, models)
    rows = []
    for label, choice in _options(runs).items():
        default = choice["name"]
        if label != default and all({label, default} <= set(one.values) for one in first):
            halves = {
                name: [_gain(one, label, default) for one in half]
                for name, half in (("first_half", first), ("second_half", second))
            }
            rows.append({"method": default, "variant": label, **_verdict(halves["first_half"]), **halves})
    shown = [{"criterion": one.name, "is_share": one.figure.is_share, "n": _count(one)} for one in second]
    return {"criteria": shown, "rows": sorted(rows, key=lambda row: row["method"])}


def _gain(criterion: Criterion, label: str, default: str) -> dict[str, Any]:
    """By how much the variant is better, a positive gain, with its interval and p."""
    values = criterion.values
    found = advantage("gain", criterion.figure, values[label], values[default], criterion.seed)
    assert found is not None
    return found


def _count(criterion: Criterion) -> int:
    """How many samples there are, of the method that has most."""
    return max(map(len, criterion.values.values()))


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
            tested = compare_runs(criterion.figure, criterion.values[best], values, criterion.seed) or {}
            row |= {f"chosen_less_it_{key}": rounded(value) for key, value in tested.items() if key != "p"}
            row |= {"p": rounded(tested.get("p"))}
        rows.append(row)
    order = ranks(criterion.figure, criterion.values)
    about = {"criterion": criterion.name, "better": criterion.figure.better, "is_share": criterion.figure.is_share}
    return {**about, "rows": sorted(rows, key=lambda row: order.get(row["method"], len(order) + 1))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN_DIR", help="what `whyformer evaluate` wrote")
    parser.add_argument("--options", action="store_true", help="of each method, instead of the method")
    parser.add_argument("--responses", action="store_true", help="the method that explains responses")
    parser.add_argument("--pictures", action="store_true", help="the method that explains words about pictures")
    parser.add_argument("--candidates", action="store_true", help="by the rule that candidates.toml fixed beforehand")
    parser.add_argument("--reports", action="store_true", help="add figures that report to what --candidates decided")
    parser.add_argument("--out", type=Path, help="a .json file, if not that in benchmarks/results")
    parser.add_argument("--unfinished", action="store_true", help="also runs that are not finished, for trials")
    options = parser.parse_args()
    runs = [read_run(folder) for folder in options.runs]
    if not options.unfinished and any(unfinished(run) for run in runs):
        parser.error(", ".join(run.suite["model"] for run in runs if unfinished(run)) + ": the run is not finished.")
    if options.candidates or options.reports:
        by_name = dict(zip((folder.name for folder in options.runs), runs, strict=True))
        file = RESULTS / "confirmation.json"
        found = with_reports(json.loads(file.read_text()), by_name) if options.reports else confirmation(by_name)
        write(found, options.out or file)
    elif options.options:
        write(chosen_options(runs), options.out or RESULTS / "options.json")
    elif options.responses:
        write(
            chosen_defaults(runs, RESPONDING, variants_must_serve=True),
            options.out or RESULTS / "response_default.json",
        )
    elif options.pictures:
        write(chosen_defaults(runs, DESCRIBING), options.out or RESULTS / "picture_default.json")
    else:
        write(chosen_defaults(runs), options.out or RESULTS / "defaults.json")


if __name__ == "__main__":
    main()

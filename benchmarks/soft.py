"""π-Soft-NC and π-Soft-NS beside the deletion curves, on sentences of film reviews: are they worth their cost?

For each figure: the mean of every method, how many pairs of methods it tells apart (paired permutation test, Holm,
p < .05), how its order of the methods agrees with that of the curves (Spearman), and forward passes for one text.
Three draws per share cost what the curves cost; eight are the default.

python benchmarks/soft.py --data ../../shared/data/text/sst2-test.tsv --out benchmarks/results/soft.json
"""

from __future__ import annotations

import argparse
import json
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr

from whyformer import evaluate
from whyformer.benchmark.shard import CONTROL
from whyformer.metrics.perturbation_curves import FRACTIONS
from whyformer.metrics.soft_removal import DRAWS, SHARES
from whyformer.metrics.statistics import holm, interval, paired_comparison

RESULTS = Path("benchmarks/results/soft.json")
METHODS = (
    "raw_attention",
    "rollout",
    "generic_attention",
    "transformer_attribution",
    "bi_token",
    "lrp",
    "input_x_gradient",
)
CURVES = "deletion curves"
EQUAL_COST = 3  # draws: 3 shares · 3 draws · 2 measures = 18 forward passes, as for two curves of 9 steps
LEVEL = 0.05
Values = dict[str, np.ndarray]  # of each method, by text


def texts(path: Path, count: int) -> list[str]:
    """Sentences spread evenly over the file."""
    lines = [line.split("\t")[0] for line in path.read_text().splitlines()]
    return [lines[place] for place in np.linspace(0, len(lines) - 1, count).astype(int)]


def values(found: Any, measure: str) -> Values:
    table = found.samples_to_pandas()
    rows = table[table["measure"] == measure]
    return {name: np.array([value[0] for value in own["values"]]) for name, own in rows.groupby("method", sort=False)}


def summary(by_method: Values, curve: Values, forwards: int) -> dict[str, Any]:
    """Means, pairs told apart, agreement with the curves, and cost."""
    has_value = np.isfinite(np.stack(list(by_method.values()))).all(axis=0)
    kept = {name: own[has_value] for name, own in by_method.items()}
    pairs = list(combinations(kept, 2))
    corrected = holm([paired_comparison(kept[one], kept[other]).p for one, other in pairs])
    of_control = {
        next(name for name in pair if name != CONTROL): p
        for pair, p in zip(pairs, corrected, strict=True)
        if CONTROL in pair
    }
    order, reference = ([by[name][has_value].mean() for name in METHODS] for by in (by_method, curve))
    bounds = {name: interval(own) for name, own in kept.items()}
    return {
        "texts": int(has_value.sum()),
        "forwards": forwards,
        "means": {name: [round(float(n), 3) for n in (one.value, one.low, one.high)] for name, one in bounds.items()},
        "pairs": len(pairs),
        "told apart": sum(p < LEVEL for p in corrected),
        "ahead of random": sum(p < LEVEL and kept[one].mean() > kept[CONTROL].mean() for one, p in of_control.items()),
        "agreement": round(float(spearmanr(order, reference).statistic), 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="tab-separated sentences, such as sst2-test.tsv")
    parser.add_argument("--texts", type=int, default=60, help="how many sentences")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    sentences = texts(options.data, options.texts)
    curves = values(evaluate("mini-bert", sentences, METHODS, "text_perturbation", progress=True), "probability gap")
    report = {CURVES: summary(curves, curves, 2 * (len(FRACTIONS) - 1))}
    for draws in (EQUAL_COST, DRAWS):
        protocol = {"name": "soft_perturbation", "draws": draws}
        found = evaluate("mini-bert", sentences, METHODS, protocol, progress=True)
        for measure in ("π-Soft-NC", "π-Soft-NS"):
            forwards = len(SHARES) * draws
            report[f"{measure}, {draws} draws"] = summary(values(found, measure), curves, forwards)
    document = {"model": "mini-bert", "data": options.data.name, "texts": len(sentences), "figures": report}
    options.out.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()

"""π-Soft-NC and π-Soft-NS beside the deletion curves, on texts: are they worth their cost?

For each figure: the mean of every method, how many pairs of methods it tells apart (paired permutation test, Holm,
p < .05), how its order of the methods agrees with that of the curves (Spearman), and forward passes for one text.
Three draws per share cost what the curves cost; eight are the default.

The control is noise: scores of generic_attention, a quarter, half and three quarters of which are replaced by noise. A
figure that measures explanations falls with each dose; `falls` counts the steps down that are significant (p < .05).

python benchmarks/soft.py --model mini-bert --data ../../shared/data/text/sst2-test.tsv
python benchmarks/soft.py --model mini-news --data posts.tsv

A file for mini-news, one post per line, is written by `--posts ../../shared/data/text/20newsgroups.tar.gz`.
"""

from __future__ import annotations

import argparse
import json
import tarfile
import tempfile
from collections.abc import Iterator
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr

from whyformer import METHODS as ALL_METHODS
from whyformer import evaluate
from whyformer.benchmark.shard import CONTROL
from whyformer.data import newsgroups
from whyformer.extend import Trace, method
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
NOISY = "generic_attention"
DOSES = (25, 50, 75)  # percent
CURVES = "deletion curves"
EQUAL_COST = 3  # draws: 3 shares · 3 draws · 2 measures = 18 forward passes, as for two curves of 9 steps
LEVEL = 0.05
DOSED = (NOISY, *(f"{NOISY}_{dose}_noise" for dose in DOSES), CONTROL)
Values = dict[str, np.ndarray]  # of each method, by text


def register_noisy(dose: int) -> str:
    """A method whose scores are those of NOISY, a share of them replaced by noise of the same spread."""
    base, name = ALL_METHODS[NOISY], f"{NOISY}_{dose}_noise"

    @method(name, reads=base.reads, backward=base.backward, replace=True)
    def noisy(trace: Trace) -> dict[str, torch.Tensor]:
        """Scores with noise."""
        share, by_stream = dose / 100, {}
        for stream, scores in base.formula(trace).items():
            seeds = trace.question.inputs["input_ids"].sum(dim=1).tolist()
            draws = [torch.randn(scores.shape[1], generator=torch.Generator().manual_seed(seed)) for seed in seeds]
            spread = scores.std(dim=1, keepdim=True)
            by_stream[stream] = (1 - share) * scores + share * spread * torch.stack(draws).to(scores)
        return by_stream

    return name


def write_posts(archive: Path, out: Path, count: int) -> None:
    """Test posts of 20 Newsgroups, spread evenly over the groups, one per line."""
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(archive) as file:
            file.extractall(folder, filter="data")
        (root,) = {path.parent for path in Path(folder).rglob("20news-bydate-test")}
        posts = newsgroups(root)
        words = [" ".join(posts[int(place)].text.split()) for place in np.linspace(0, len(posts) - 1, 2 * count)]
    out.write_text("\n".join([post for post in words if len(post.split()) > 5][:count]) + "\n")


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
    pairs = list(combinations([name for name in kept if name in (*METHODS, CONTROL)], 2))
    corrected = holm([paired_comparison(kept[one], kept[other]).p for one, other in pairs])
    of_control = {
        next(name for name in pair if name != CONTROL): p
        for pair, p in zip(pairs, corrected, strict=True)
        if CONTROL in pair
    }
    order, reference = ([by[name][has_value].mean() for name in METHODS] for by in (by_method, curve))
    bounds = {name: interval(own) for name, own in kept.items() if name in (*METHODS, CONTROL)}
    return {
        "texts": int(has_value.sum()),
        "forwards": forwards,
        "means": {name: [round(float(n), 3) for n in (one.value, one.low, one.high)] for name, one in bounds.items()},
        "pairs": len(pairs),
        "told apart": sum(bool(p < LEVEL) for p in corrected),
        "ahead of random": sum(
            bool(p < LEVEL and kept[one].mean() > kept[CONTROL].mean()) for one, p in of_control.items()
        ),
        "agreement": round(float(spearmanr(order, reference).statistic), 2),
        "doses": {name: round(float(kept[name].mean()), 3) for name in DOSED},
        "falls": sum(
            bool(kept[one].mean() > kept[other].mean() and paired_comparison(kept[one], kept[other]).p < LEVEL)
            for one, other in pairwise(DOSED)
        ),
    }


def measured(model: str, lines: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The figures of both kinds on one model."""
    methods = [*METHODS, *map(register_noisy, DOSES)]
    curves = values(evaluate(model, lines, methods, "text_perturbation", progress=True), "probability gap")
    yield CURVES, summary(curves, curves, 2 * (len(FRACTIONS) - 1))
    for draws in (EQUAL_COST, DRAWS):
        protocol = {"name": "soft_perturbation", "draws": draws}
        found = evaluate(model, lines, methods, protocol, progress=True)
        for measure in ("π-Soft-NC", "π-Soft-NS"):
            yield f"{measure}, {draws} draws", summary(values(found, measure), curves, len(SHARES) * draws)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="one text per line, before the first tab")
    parser.add_argument("--model", default="mini-bert")
    parser.add_argument("--texts", type=int, default=300, help="how many of them")
    parser.add_argument("--posts", type=Path, metavar="TAR", help="write --data from 20 Newsgroups, and end")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.posts is not None:
        return write_posts(options.posts, options.data, options.texts)
    torch.set_num_threads(1)
    known = json.loads(options.out.read_text()) if options.out.exists() else {}
    figures: dict[str, Any] = {}
    known[options.model] = {"data": options.data.name, "texts": options.texts, "figures": figures}
    for name, figure in measured(options.model, texts(options.data, options.texts)):
        figures[name] = figure
        options.out.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n")
    return None


if __name__ == "__main__":
    main()

"""One number for each candidate question of a sentence (support_candidates.py), from the raw answers of a model.

    python benchmarks/candidate_figures.py RUN.jsonl …

prints how well each tells true from false sentences of even seeds, on which the figures that verdicts use were chosen.
Odd seeds only report.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from whyformer.api.verdict_figures import figures_of
from whyformer.facts import word_overlap
from whyformer.results.support_schema import read_unit

COMPARED = {  # true kinds against false ones
    "made up": (("true", "twice"), ("made_up",)),
    "swapped, known": (("true", "twice"), ("swapped",)),
    "unanswerable": (("true", "twice"), ("unanswerable",)),
    "in other words": (("reworded",), ("made_up_reworded",)),
    "in other words, against denials": (("reworded",), ("denied",)),
    "denied": (("true", "twice"), ("denied",)),
    "by heart": (("by_heart",), ("made_up", "unanswerable", "made_up_reworded", "swapped")),
}


def candidate_figures(row: dict[str, Any]) -> dict[str, float]:
    """Every candidate figure of a row."""
    asked, unit = row["candidates"], read_unit(row["unit"])
    figures = judgements(asked) | own_words(asked) | comparisons(asked) | by_sentence(asked)
    figures |= white_box(row)
    for name in ("memory", "own_words"):
        figures[f"{name} overlap"] = word_overlap(unit.text, asked[name])
    for name in ("samples", "samples_without"):
        figures[f"{name} overlap"] = float(np.mean([word_overlap(unit.text, one) for one in asked[name]]))
    return {name: float(f"{value:.4g}") for name, value in figures.items()}


def judgements(asked: dict[str, Any]) -> dict[str, float]:
    """Log-odds of yes against no in each wording, what all sources add, and what one alone adds at most."""
    figures = {}
    for name in ("stated", "same", "contradicts", "right", "proposed"):
        whole, without = (one[0] for one in asked[f"judge_{name}"])
        figures |= {f"{name}": whole, f"{name} gain": whole - without}
        if f"judge_{name}_alone" in asked:
            alone = [one[0] for one in asked[f"judge_{name}_alone"]]
            figures |= {f"{name} alone": max(alone) - without, f"{name} spread": max(alone) - float(np.median(alone))}
    three, bare = asked["three_ways"]
    for name, place in (("supported", 0), ("denied", 1), ("unmentioned", 2)):
        figures[f"three ways {name}"] = against_rest(three, place)
        figures[f"three ways {name} gain"] = against_rest(three, place) - against_rest(bare, place)
    figures["denied or supported"] = three[1] - three[0]
    figures["denied or supported gain"] = three[1] - three[0] - bare[1] + bare[0]
    whole, without = (one[0] for one in asked["is_stated"])
    return figures | {"answerable": whole, "answerable gain": whole - without}


def own_words(asked: dict[str, Any]) -> dict[str, float]:
    """The sentence where own words are asked for, and against "The text does not say."."""
    whole, without = asked["own_words_gain"]
    value = asked["value_tokens"]
    figures = {
        "own words per token": float(np.mean(whole)),
        "own words gain": sum(whole) - sum(without),
        "own words value gain": sum(whole[place] - without[place] for place in value),
    }
    said, said_without, unsaid, unsaid_without = asked["or_not_said"]
    return figures | {
        "unsaid per token": float(np.mean(unsaid)),
        "unsaid odds": float(np.mean(said) - np.mean(unsaid)),
        "unsaid gain": sum(unsaid) - sum(unsaid_without),
        "said gain": sum(said) - sum(said_without),
    }


def comparisons(asked: dict[str, Any]) -> dict[str, float]:
    """The sentence beside what the model writes with the sources and without: agreement, choice, other words."""
    agree = {name: float(np.mean(asked[f"agree_{name}"])) for name in ("own", "memory", "own_words")}
    with_all, without = (float(np.mean(asked[name])) for name in ("agree_samples", "agree_samples_without"))
    figures = {f"agrees {name}": value for name, value in agree.items()}
    figures |= {"agrees samples": with_all, "agrees samples gain": with_all - without}
    figures |= {"agrees own gain": agree["own"] - agree["memory"], "agrees own over samples": agree["own"] - without}
    for name in ("own", "memory"):
        first, second, bare_first, bare_second = (one[0] for one in asked[f"choice_{name}"])
        figures[f"choice {name}"] = (first + second) / 2
        figures[f"choice {name} gain"] = (first + second - bare_first - bare_second) / 2
    given = [sum(one) for one in asked["other_words_with"]]
    own, memory, _, *samples = (sum(one) for one in asked["other_words_without"])
    half = len(samples) // 2
    plain = sum(asked["plain_without"][0])
    return figures | {
        "other words gain": given[0] - own,
        "other words over plain": own - plain,
        "other words whole": given[0] - plain,
        "other words over memory": own - memory,
        "other words over samples": own - float(np.mean(samples[half:])),
        "other words samples gain": float(np.mean(samples[:half]) - np.mean(samples[half:])),
    }


def by_sentence(asked: dict[str, Any]) -> dict[str, float]:
    """What single sentences of the sources do: alone, left out, in own words, and as what the answer leads back to."""
    whole, without = (sum(one) for one in asked["both"])
    value = asked["value_tokens"]
    value_without = sum(asked["both"][1][place] for place in value)
    figures = {}
    for name, key in (("own words alone", "own_words_alone"), ("alone", "alone_each")):
        units, values = (np.array([one[place] for one in asked[key]]) for place in (0, 1))
        bare = (sum(asked["own_words_gain"][1]), None) if key == "own_words_alone" else (without, value_without)
        figures |= {f"{name} gain": units.max() - bare[0], f"{name} spread": units.max() - np.median(units)}
        figures[f"{name} value spread"] = values.max() - np.median(values)
    units, values = (np.array([one[place] for one in asked["without_each"]]) for place in (0, 1))
    figures |= {"left out": whole - units.min(), "left out value": float(np.median(values)) - values.min()}
    units, values = (np.array([one[place] for one in asked["paraphrase_of_each"]]) for place in (0, 1))
    figures |= {"paraphrase": units[:-1].max() - units[-1], "paraphrase value": values[:-1].max() - values[-1]}
    figures["paraphrase spread"] = units[:-1].max() - np.median(units[:-1])
    figures["paraphrase value spread"] = values[:-1].max() - np.median(values[:-1])
    back = np.array([[unit - bare, own - bare] for unit, own, bare in asked["reverse"]])
    best = int(back[:, 1].argmax())
    figures |= {"reverse": back[:, 0].max(), "reverse spread": back[:, 0].max() - np.median(back[:, 0])}
    figures |= {"reverse at own": back[best, 0], "reverse of own": back[best, 1]}
    return figures | {"reverse over own": back[best, 0] - back[best, 1]}


def white_box(row: dict[str, Any]) -> dict[str, float]:
    """The largest score of the value by each method, as a share, and its lead on the second."""
    figures = {}
    for name, (unit, value) in row["candidates"]["methods"].items():
        ordered = np.sort(np.array(value))
        figures[f"{name} score"], figures[f"{name} value"] = max(unit), ordered[-1]
        figures[f"{name} share"] = ordered[-1] / (np.abs(ordered).sum() + 1e-9)
        figures[f"{name} lead"] = ordered[-1] - ordered[-2] if len(ordered) > 1 else ordered[-1]
    return figures


def against_rest(values: Sequence[float], place: int) -> float:
    """The log-odds of one of several answers against the others."""
    others = [value for number, value in enumerate(values) if number != place]
    return values[place] - float(np.logaddexp.reduce(others))


def rows_of(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """The whole lines of several files, which may be compressed."""
    rows = []
    for path in paths:
        text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
        rows += [json.loads(line) for line in text.splitlines() if line.endswith("}")]
    return rows


def auroc(true: Sequence[float], false: Sequence[float]) -> float:
    """The probability that a true sentence has the larger figure, ties counted half."""
    one, other = np.array(true)[:, None], np.array(false)[None]
    return float((one > other).mean() + (one == other).mean() / 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--first", type=int, default=12, help="how many figures of each comparison are printed")
    options = parser.parse_args()
    rows = [row for row in rows_of(options.files) if row["seed"] % 2 == 0]
    figures = [figures_of(read_unit(row["unit"])) | candidate_figures(row) for row in rows]
    for name, (true, false) in COMPARED.items():
        one = [figure for row, figure in zip(rows, figures, strict=True) if row["kind"] in true]
        other = [
            figure
            for row, figure in zip(rows, figures, strict=True)
            if row["kind"] in false and (row["kind"] != "swapped" or row["knows"])
        ]
        names = set.intersection(*map(set, (*one, *other))) if one and other else set()
        values = {key: auroc([x[key] for x in one], [x[key] for x in other]) for key in names}
        best = sorted(values, key=lambda key: -abs(values[key] - 0.5))[: options.first]
        print(f"{name} ({len(one)} against {len(other)}):", ", ".join(f"{key} {values[key]:.2f}" for key in best))


if __name__ == "__main__":
    main()

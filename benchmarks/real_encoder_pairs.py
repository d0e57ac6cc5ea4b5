"""Whether the scores of a similarity lie on the sentence that two texts share: real sentence encoders, a line per pair.

    python benchmarks/real_encoder_pairs.py measure FOLDER --out minilm.jsonl
    python benchmarks/real_encoder_pairs.py summarise *.jsonl --out benchmarks/results/real_encoder_pairs.json

Each pair tells one event in other words, among events that are not shared (overlaps.py). Pairs are kept of which the
event is what the model compares: without it, the similarity drops the most in either text. A run goes on where its file
ends.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

import whyformer
from overlaps import Overlap, overlaps

METHODS = (
    "evidence",
    "state_x_gradient backward=attn_lrp",
    "state_x_gradient backward=libra",
    "input_x_gradient",
    "input_x_gradient backward=attn_lrp",
    "input_x_gradient backward=libra",
    "generic_attention",
    "generic_attention backward=attn_lrp",
    "generic_attention backward=libra",
    "attention_gradient",
    "grad_cam",
    "bi_token",
    "bi_head",
    "flow_routes",
    "raw_attention",
    "rollout",
)
CONTROLS = ("random", "length", "shared words", "leave one out")
DRAWS = 1000  # of the bootstrap over pairs


def measure(options: argparse.Namespace) -> None:
    """Explain the similarity of every pair by every method that its lines lack."""
    torch.set_num_threads(1)
    model = whyformer.load(options.model, device=options.device, dtype="float32")
    end = time.monotonic() + options.time
    known = _known(options.out)
    for pair in overlaps(options.pairs, options.first):
        if time.monotonic() > end:
            break
        texts = [" ".join(sentences) for sentences in pair.texts]
        for name in ("leave one out", *(one for one in (*CONTROLS, *options.methods) if one != "leave one out")):
            if (pair.seed, name) in known:
                continue
            start = time.perf_counter()
            try:
                scores = _control(name, pair, model) if name in CONTROLS else _scores(name, texts, pair, model)
            except whyformer.UnsupportedModel as error:
                _write(options.out, seed=pair.seed, method=name, error=str(error))
                continue
            seconds = round(time.perf_counter() - start, 3)
            found = {"scores": [[round(float(x), 6) for x in each] for each in scores], "seconds": seconds}
            _write(options.out, seed=pair.seed, places=pair.places, method=name, **found)
        print(f"pair {pair.seed}", flush=True)


def _known(path: Path) -> set[tuple[int, str]]:
    if not path.is_file():
        return set()
    content = path.read_text()
    whole = content[: content.rfind("\n") + 1]  # without the rest of a line that was cut off
    path.write_text(whole)
    return {(line["seed"], line["method"]) for line in map(json.loads, whole.splitlines())}


def _write(path: Path, **line: Any) -> None:
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


def _scores(label: str, texts: list[str], pair: Overlap, model: whyformer.LoadedModel) -> list[np.ndarray]:
    """The sum of the positive scores of each sentence's words, in either text."""
    method, *settings = label.split()
    options = dict(setting.split("=") for setting in settings)
    explanation = whyformer.explain((texts[0], texts[1]), model, method=method, **options)
    (part,) = explanation.parts.values()
    layout, found = part.layout, []
    for segment, sentences in enumerate(pair.texts):
        ends = np.cumsum([len(sentence) + 1 for sentence in sentences])
        own = np.zeros(len(sentences))
        for score, place, (start, _) in zip(part.scores, layout.segments, layout.offsets, strict=True):
            if place == segment:
                own[int(np.searchsorted(ends, start, side="right"))] += max(0.0, float(score))
        found.append(own)
    return found


def _control(name: str, pair: Overlap, model: whyformer.LoadedModel) -> list[np.ndarray]:
    """Scores of sentences without looking inside the model."""
    if name == "random":
        return [np.random.default_rng((pair.seed, side)).random(len(own)) for side, own in enumerate(pair.texts)]
    if name == "length":
        return [np.array([len(sentence) for sentence in own], dtype=float) for own in pair.texts]
    if name == "shared words":
        words = [[set(re.findall(r"\w+", sentence.lower())) for sentence in own] for own in pair.texts]
        others = [set[str]().union(*own) for own in reversed(words)]
        return [
            np.array([len(each & other) for each in own], dtype=float) for own, other in zip(words, others, strict=True)
        ]
    whole = _similarity(pair.texts, model)
    return [
        np.array(
            [whole - _similarity(_less(pair.texts, side, number), model) for number in range(len(pair.texts[side]))]
        )
        for side in (0, 1)
    ]


def _less(texts: tuple[tuple[str, ...], tuple[str, ...]], side: int, number: int) -> tuple[tuple[str, ...], ...]:
    """The texts without one sentence."""
    return tuple(
        tuple(sentence for place, sentence in enumerate(own) if (which, place) != (side, number))
        for which, own in enumerate(texts)
    )


@torch.no_grad()
def _similarity(texts: tuple[tuple[str, ...], ...], model: whyformer.LoadedModel) -> float:
    """The cosine of the two embeddings, the mean of the states of all tokens."""
    batch = model.tokenizer([" ".join(own) for own in texts], padding=True, return_tensors="pt").to(model.model.device)
    states, mask = model.model(**batch).last_hidden_state, batch["attention_mask"][..., None]
    one, two = (states * mask).sum(dim=1) / mask.sum(dim=1)
    return float(torch.nn.functional.cosine_similarity(one, two, dim=0))


def summary(paths: Iterable[Path]) -> dict[str, Any]:
    """Figures by model and method, of the pairs whose event the model itself compares."""
    report: dict[str, Any] = {}
    for path in paths:
        by_pair: dict[int, dict[str, Mapping[str, Any]]] = defaultdict(dict)
        for line in map(json.loads, path.read_text().splitlines()):
            by_pair[line["seed"]][line["method"]] = line
        own = [lines for lines in by_pair.values() if "leave one out" in lines]
        kept = [lines for lines in own if all(_hits(lines["leave one out"]))]
        names = dict.fromkeys(name for lines in kept for name, line in lines.items() if "scores" in line)
        methods = {name: _figures([lines[name] for lines in kept if name in lines]) for name in names}
        ordered = dict(sorted(methods.items(), key=lambda item: -item[1]["first"]))
        refused = {name: line["error"] for lines in own for name, line in lines.items() if "error" in line}
        sizes = [1 / len(scores) for lines in kept for scores in lines["leave one out"]["scores"]]
        about = {"pairs": len(own), "kept": len(kept), "chance": round(float(np.mean(sizes)), 4)}
        report[path.stem] = {**about, "methods": ordered, "refused": refused}
    return report


def _hits(line: Mapping[str, Any]) -> list[float]:
    """For each text, whether the shared sentence has the highest score; ties count in part."""
    found = []
    for scores, place in zip(line["scores"], line["places"], strict=True):
        highest = np.array(scores) == max(scores)
        found.append(float(highest[place] / highest.sum()))
    return found


def _figures(lines: list[Mapping[str, Any]]) -> dict[str, Any]:
    """How often the shared sentence is first, in either text and in both, and its share of the scores."""
    hits = np.array([_hits(line) for line in lines])
    shares = [
        max(0.0, scores[place]) / (sum(max(0.0, score) for score in scores) or 1.0)
        for line in lines
        for scores, place in zip(line["scores"], line["places"], strict=True)
    ]
    draws = np.random.default_rng(0).integers(len(hits), size=(DRAWS, len(hits)))
    interval = np.percentile(hits.mean(axis=1)[draws].mean(axis=1), (2.5, 97.5))
    return {
        "pairs": len(lines),
        "first": round(float(hits.mean()), 4),
        "first, 95 %": [round(float(end), 4) for end in interval],
        "first in both": round(float(hits.min(axis=1).mean()), 4),
        "share": round(float(np.mean(shares)), 4),
        "seconds": round(float(np.median([line["seconds"] for line in lines])), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("measure")
    one.add_argument("model", type=Path)
    one.add_argument("--out", type=Path, required=True)
    one.add_argument("--pairs", type=int, default=240)
    one.add_argument("--first", type=int, default=0, help="the first seed")
    one.add_argument("--methods", nargs="+", default=list(METHODS))
    one.add_argument("--device", default="cpu")
    one.add_argument("--time", type=float, default=float("inf"), help="seconds after which no pair is begun")
    two = commands.add_parser("summarise")
    two.add_argument("lines", type=Path, nargs="+")
    two.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    if options.command == "measure":
        measure(options)
    else:
        options.out.write_text(json.dumps(summary(options.lines), indent=1) + "\n")


if __name__ == "__main__":
    main()

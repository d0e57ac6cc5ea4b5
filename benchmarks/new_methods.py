"""The newest ways to explain, on bundled models, each beside a control: is it worth its cost?

prior: which written words a picture is needed for. The word that answers a question should gain by it, the words of the
question that are repeated around it should not: AUROC of the gain, and of how unlikely the model found the word.
attntrace: how often the sentence that an answer comes from has the highest score, beside at2 (which needs `whyformer
  learn mini-llm` first), depass and others.
interactions: how often "not" and the adjective after it interact most, of all pairs of six words.
pairs: how well interactions of the eight strongest parts foretell the log-odds without 3 to 5 of them, beside their
effects alone, and interactions that were exchanged among the pairs. --photos is a folder as in the suites.
regions: how often the box of the thing that is asked about has the highest score.

python benchmarks/new_methods.py [--only prior …] --out benchmarks/results/new_methods.json
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import whyformer
from whyformer import facts, scenes
from whyformer.data import photos
from whyformer.metrics.statistics import paired_comparison
from whyformer.results.unit_effects import log_odds
from whyformer.scenes.drawing import PAINTS
from whyformer.scenes.world import COLOURS

RESULTS = Path("benchmarks/results/new_methods.json")
ADJECTIVES = ("good", "funny", "interesting", "great", "exciting", "memorable", "clever", "moving")
NEGATIONS = ("This film is not {} at all.", "The acting was not {} and the story long.")
PARTS, HELD_OUT = 8, 24
SOURCE_METHODS = (
    "attntrace",
    "at2",
    "depass",
    "evidence",
    "flow_routes",
    "raw_attention",
    "generic_attention",
    "random",
)
REGION_METHODS = ("occlusion", "generic_attention", "random")


def auroc(scores: list[float], is_true: list[bool]) -> float:
    """The chance that a true one scores higher than another."""
    true, false = ([s for s, t in zip(scores, is_true, strict=True) if t is wanted] for wanted in (True, False))
    return float(np.mean([(a > b) + (a == b) / 2 for a in true for b in false]))


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    result = call()
    return result, time.process_time() - start


def prior(count: int) -> dict[str, Any]:
    """Gains of the word that answers, which only the picture tells, against those of the words around it."""
    gains, doubts, is_seen, seconds = [], [], [], {False: 0.0, True: 0.0}
    whyformer.continuation((scenes.example(0).image, "what colour ?"), "mini-vlm", "rollout", tokens=2)  # warm
    for seed in range(count):
        scene = scenes.example(seed)
        for asks in (False, True):
            call = {"model": "mini-vlm", "method": "rollout", "tokens": 8, "prior": asks}
            written, spent = timed(
                lambda call=call, scene=scene: whyformer.continuation((scene.image, scene.question), **call)
            )
            seconds[asks] += spent
        gains += written.picture_gains
        doubts += [1 - one.probability for one in written.explanations]
        is_seen += [token.strip() == scene.answer for token in written.tokens]
    return {
        "scenes": count,
        "words": len(gains),
        "answers": sum(is_seen),
        "AUROC of the gain": round(auroc(gains, is_seen), 3),
        "AUROC of how unlikely the word is": round(auroc(doubts, is_seen), 3),
        "median gain of answers": round(float(np.median(np.array(gains)[is_seen])), 2),
        "median gain of others": round(float(np.median(np.array(gains)[~np.array(is_seen)])), 2),
        "cost over the same without": round(seconds[True] / seconds[False], 2),
    }


def attntrace(count: int) -> dict[str, Any]:
    """How often the sentence of the answer ranks first."""
    first, seconds = dict.fromkeys(SOURCE_METHODS, 0), dict.fromkeys(SOURCE_METHODS, 0.0)
    stories = list(facts.examples(4 * count, seed=5, split="test", sentences=(8, 16)))
    stories = [one for one in stories if one.questions[0].hops == 1 and len(one.questions[0].causes) == 1][:count]
    for story in stories:
        (cause,) = story.questions[0].causes[0]
        for name in SOURCE_METHODS:
            call = {"sources": "sentence", "units": "response", "model": "mini-llm", "method": name}
            found, spent = timed(
                lambda call=call, story=story: whyformer.explain_response(story.messages, story.answer, **call)
            )
            seconds[name] += spent
            first[name] += int(found.scores[0][: len(story.sentences)].argmax()) == cause
    return {
        "documents": len(stories),
        "rank first": {name: shares(count, len(stories)) for name, count in first.items()},
        "cost over generic_attention": ratios(seconds, "generic_attention"),
    }


def interactions() -> dict[str, Any]:
    """How often a negation and what it negates interact most."""
    first, runs, pairs = 0, 0, 0
    texts = [(pattern.format(word), word) for pattern in NEGATIONS for word in ADJECTIVES]
    for text, word in texts:
        explanation = whyformer.explain(text, "mini-bert", method="occlusion")
        found = whyformer.interactions(explanation, units=6)
        one, other, _ = found.top(1)[0]
        first += {one.strip(".,").lower(), other.strip(".,").lower()} == {"not", word}
        runs, pairs = found.runs, math.comb(len(found.units), 2)
    return {
        "texts": len(texts),
        "not and its adjective interact most": shares(first, len(texts)),
        "by chance": round(1 / pairs, 3),
        "runs of the model": runs,
    }


def pairs(name: str, examples: Iterator[Any]) -> dict[str, Any]:
    """Errors of what is foretold for sets of parts that no interaction was measured on."""
    generator, errors, runs = np.random.default_rng(0), [], 0
    for example in examples:
        explanation = whyformer.explain(example, name, method="generic_attention")
        try:
            found = whyformer.interactions(explanation, units=PARTS, kind="removal")
        except whyformer.WhyformerError as error:  # too few words
            print(name, error, flush=True)
            continue
        count, runs = len(found.units), found.runs
        if count < PARTS:
            continue
        sizes = generator.integers(3, 6, HELD_OUT)
        sets = [frozenset(generator.choice(count, size, replace=False).tolist()) for size in sizes]
        effects = explanation.remover(explanation, [frozenset(), *sets], most=PARTS, combined=0)
        tokens = [(unit.part, unit.tokens) for unit in effects.units]
        place = [tokens.index((unit.part, unit.tokens)) for unit in found.units]
        errors.append(foretold_errors(found.values, place, effects, sets, generator))
    alone, both, shuffled = np.array(errors).T
    return {
        "examples": len(errors),
        "error in log-odds": {
            "effects alone": mean(alone),
            "with interactions": mean(both),
            "exchanged": mean(shuffled),
        },
        "with interactions is closer": shares(int((both < alone).sum()), len(errors)),
        "p against effects alone": round(paired_comparison(alone, both).p, 4),
        "p against exchanged": round(paired_comparison(shuffled, both).p, 4),
        "runs": runs,
    }


def foretold_errors(
    matrix: np.ndarray, place: list[int], effects: Any, sets: list[frozenset[int]], generator: np.random.Generator
) -> tuple[float, float, float]:
    """Mean absolute errors of v(N) − Σ effects, of that + Σ interactions, and of that with interactions exchanged."""
    rows, columns = np.triu_indices(len(matrix), 1)
    own = np.empty_like(matrix)
    own[np.ix_(place, place)] = matrix  # in the order of the units that were removed
    exchanged = own.copy()
    exchanged[rows, columns] = generator.permutation(own[rows, columns])
    whole = log_odds(effects.known[frozenset()][effects.target])
    errors = []
    for one in sets:
        truth, members = log_odds(effects.known[one][effects.target]), sorted(one)
        inside = np.ix_(members, members)
        alone = whole - own[members, members].sum()
        extra = [np.triu(values[inside], 1).sum() for values in (own, exchanged)]
        errors.append([abs(alone - truth), *(abs(alone + more - truth) for more in extra)])
    alone, both, shuffled = np.mean(errors, axis=0)
    return float(alone), float(both), float(shuffled)


def mean(values: np.ndarray) -> float:
    return round(float(values.mean()), 3)


def regions(count: int) -> dict[str, Any]:
    """How often the thing that is asked about has the highest score of all things."""
    first, seconds, asked = dict.fromkeys(REGION_METHODS, 0), dict.fromkeys(REGION_METHODS, 0.0), 0
    for seed in range(1000):
        scene = scenes.example(seed)
        if asked == count:
            break
        boxes = [tuple(box) for box in np.asarray(scene.regions.boxes, dtype=float).tolist()]
        thing = thing_of(scene, boxes)
        if thing is None:
            continue
        asked += 1
        for name in REGION_METHODS:
            removes = name == "occlusion"
            call = {"model": "mini-vlm", "method": name, "units": "response"} | ({"regions": boxes} if removes else {})
            found, spent = timed(
                lambda call=call, scene=scene: whyformer.explain_response(
                    (scene.image, scene.question), scene.reply, **call
                )
            )
            seconds[name] += spent
            heat = found.parts["image"].part(0).heatmap()
            means = [
                heat[int(top) : math.ceil(bottom), int(left) : math.ceil(right)].mean()
                for left, top, right, bottom in boxes
            ]
            first[name] += int(np.argmax(means)) == thing
    return {
        "scenes": asked,
        "rank first": {name: shares(hits, asked) for name, hits in first.items()},
        "cost over generic_attention": ratios(seconds, "generic_attention"),
    }


def thing_of(scene: Any, boxes: list[tuple[float, ...]]) -> int | None:
    """The only thing of the colour that answers a question about a colour."""
    if scene.answer not in COLOURS or not scene.question.startswith("what colour"):
        return None
    pixels, colour = np.asarray(scene.image).astype(int), np.asarray(PAINTS[COLOURS.index(scene.answer)])
    is_own = np.abs(pixels - colour).max(axis=2) < 40
    inside = [
        is_own[int(top) : math.ceil(bottom), int(left) : math.ceil(right)].mean() for left, top, right, bottom in boxes
    ]
    best = int(np.argmax(inside))
    others = [share for number, share in enumerate(inside) if number != best]
    return best if inside[best] > 0.3 and max(others) < 0.1 else None


def shares(hits: int, of: int) -> list[float]:
    """A share and its 95 % interval by Wilson's formula."""
    z, p = 1.96, hits / of
    centre, half = (p + z * z / (2 * of)) / (1 + z * z / of), z / (1 + z * z / of)
    half *= math.sqrt(p * (1 - p) / of + z * z / (4 * of * of))
    return [round(value, 3) for value in (p, max(0.0, centre - half), min(1.0, centre + half))]


def ratios(seconds: dict[str, float], reference: str) -> dict[str, float]:
    return {name: round(spent / seconds[reference], 1) for name, spent in seconds.items()}


def pairs_of_all(count: int, folder: Path | None, texts: Path | None) -> dict[str, Any]:
    """The figures of pairs for words, pictures, and pictures with a question."""
    found: dict[str, Any] = {}
    if texts is not None:
        lines = [line.split("\t")[0] for line in texts.read_text().splitlines()]
        found["mini-bert"] = pairs("mini-bert", iter([line for line in lines if len(line.split()) > 9][:count]))
    asked = ((scene.image, scene.question) for scene in map(scenes.example, range(count)))
    found["mini-vlm"] = pairs("mini-vlm", asked)
    if folder is not None:
        pictures = photos(folder / "photos", only_masked=True)
        for name in ("mini-vit-mae", str(folder / "dinov2-photos")):
            kept = range(min(count, len(pictures)))
            found[Path(name).name] = pairs(name, (pictures[number].image for number in kept))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    measures: dict[str, Callable[[], dict[str, Any]]] = {
        "prior": lambda: prior(options.count or 25),
        "attntrace": lambda: attntrace(30),
        "interactions": interactions,
        "pairs": lambda: pairs_of_all(options.count or 100, options.photos, options.texts),
        "regions": lambda: regions(options.count or 10),
    }
    parser.add_argument("--only", nargs="+", choices=list(measures), default=list(measures))
    parser.add_argument("--count", type=int, help="examples of prior, pairs and regions")
    parser.add_argument("--photos", type=Path, metavar="DATA", help="holds photos/ and dinov2-photos/")
    parser.add_argument("--texts", type=Path, help="one text per line, before the first tab")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    known = json.loads(options.out.read_text()) if options.out.exists() else {}
    for name in options.only:
        known[name] = measures[name]()
        print(name, known[name], flush=True)
        options.out.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()

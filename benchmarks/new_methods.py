"""The newest ways to explain, on bundled models, each beside a control: is it worth its cost?

prior: which written words a picture is needed for. The word that answers a question should gain by it, the words of the
question that are repeated around it should not: AUROC of the gain, and of how unlikely the model found the word.
attntrace: how often the sentence that an answer comes from has the highest score, beside at2 (which needs `whyformer
  learn mini-llm` first), depass and others.
regions: how often the box of the thing that is asked about has the highest score.

python benchmarks/new_methods.py [--only prior …] --out benchmarks/results/new_methods.json
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import whyformer
from whyformer import facts, scenes
from whyformer.scenes.drawing import PAINTS
from whyformer.scenes.world import COLOURS

RESULTS = Path("benchmarks/results/new_methods.json")
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    measures: dict[str, Callable[[], dict[str, Any]]] = {
        "prior": lambda: prior(options.count or 25),
        "attntrace": lambda: attntrace(30),
        "regions": lambda: regions(options.count or 10),
    }
    parser.add_argument("--only", nargs="+", choices=list(measures), default=list(measures))
    parser.add_argument("--count", type=int, help="examples of prior and regions")
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

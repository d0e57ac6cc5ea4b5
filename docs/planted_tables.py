"""Tables of planted cues: whether surveys find them, from benchmarks/results/planted/."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

from support_tables import rows

STRONG = 0.8
FEWEST = 10  # fresh texts with a word
LEAST = 0.05  # nats, of a driver
KINDS = {
    "word": "a word",
    "phrase": "a phrase",
    "stamp": "a stamp in a corner",
    "caption": "a written word",
    "texture": "a texture of the background",
    "cast": "a colour cast",
}
OTHERS = {
    "survey": "survey",
    "attribution": "mean attribution, t test",
    "counts": "counts of the highest score, first ten",
    "answer": "correlation with the model's answer",
    "label": "correlation with the label, no model",
}
CONDITIONS = {
    (STRONG, STRONG): "planted model, data like its training",
    (STRONG, 0.0): "planted model, data without the correlation",
    (0.0, STRONG): "clean model, data with the correlation",
    (0.0, 0.0): "clean model, data without the correlation",
}
OBJECT = {"object", "likely object"}  # what a model of pictures should look at
Trials = list[dict[str, Any]]


def trials(folder: Path, kind: str, trained: float, surveyed: float) -> Trials:
    """The trials of a kind, with this strength in the training data and in the surveyed."""
    path = folder / f"{kind}.json"
    every = json.loads(path.read_text()).values() if path.is_file() else []
    return [one for one in every if (one["trained"], one["surveyed"]) == (trained, surveyed)]


def target(folder: Path) -> str:
    """First among drivers in how many planted models, and a driver in how many clean ones."""
    lines = []
    for kind, name in KINDS.items():
        strong, clean = (trials(folder, kind, strength, strength) for strength in (STRONG, 0.0))
        if not strong or not clean:
            continue
        ranks = [one["survey"]["rank"] for one in strong]
        lines.append(
            [
                name,
                *firsts([one["survey"] for one in strong]),
                share([rank is not None for rank in ranks]),
                share([one["survey"]["rank"] is not None for one in clean]),
                f"{mean(one['effect'] for one in strong):.1f}, {mean(one['effect'] for one in clean):.1f}".replace(
                    "-", "−"
                ),
            ]
        )
        bare = [one["without_masks"] for one in strong if "without_masks" in one]
        if bare:
            proven = share([survey["rank"] is not None for survey in bare])
            lines.append([f"{name}, survey without masks", *firsts(bare), proven, "", ""])
    heads = [
        "planted",
        "first among drivers",
        "the object aside",
        "proven",
        "clean models: proven",
        "true effect, nats: planted, clean",
    ]
    return rows(heads, lines)


def firsts(surveys: Trials) -> list[str]:
    """In how many surveys the cue is the first driver, and in how many only the object comes before it."""
    first, beside = [], []
    for survey in surveys:
        rank = survey["rank"]
        before = {cue for cue, *_ in survey["drivers"][: rank - 1]} if rank else {None}
        first.append(not before)
        beside.append(before <= OBJECT)
    return [share(first), share(beside)]


def others(folder: Path) -> str:
    """The cue by other means, in models and data that have the correlation, and that do not."""
    lines = []
    for kind in ("word", "stamp"):
        for condition, what in CONDITIONS.items():
            own = trials(folder, kind, *condition)
            for means, name in OTHERS.items() if own else ():
                ranks = [(one["survey"] if means == "survey" else one["others"][means])["rank"] for one in own]
                reported = [rank is not None for rank in ranks]
                if means != "survey":
                    reported = [one["others"][means]["reported"] for one in own]
                middle = median([rank or 10**6 for rank in ranks])
                lines.append([KINDS[kind], what, name, share(reported), "–" if middle >= 10**6 else f"{middle:g}"])
    return rows(["cue", "model and data", "by", "reported", "median rank"], lines)


def by_strength(folder: Path) -> str:
    """The share of models in which the cue is proven, by its strength."""
    lines = []
    for kind, name in KINDS.items():
        for strength in (0.0, 0.2, 0.4, 0.6, STRONG, 1.0):
            own = trials(folder, kind, strength, strength)
            if own:
                ranks = [one["survey"]["rank"] for one in own]
                lines.append(
                    [
                        name,
                        f"{strength:g}",
                        share([rank is not None for rank in ranks]),
                        share([rank == 1 for rank in ranks]),
                        f"{mean(one['effect'] for one in own):.1f}".replace("-", "−"),
                        f"{mean(one['accuracy'] for one in own):.0%}",
                    ]
                )
    heads = ["planted", "strength", "proven", "first", "true effect, nats", "accuracy without the correlation"]
    return rows(heads, lines)


def cost(folder: Path) -> str:
    """Seconds of one processor, and words without meaning among the drivers of clean models."""
    lines = []
    for kind, name in KINDS.items():
        own = [one for condition in CONDITIONS for one in trials(folder, kind, *condition)]
        if not own:
            continue
        training, survey = (f"{mean(one['seconds'][place] for one in own):.0f}" for place in (0, 1))
        clean = trials(folder, kind, 0.0, 0.0)
        words = sum(one["survey"]["words"] for one in clean)
        neutral = f"{sum(one['survey']['meaningless'] for one in clean)} of {words}" if words else ""
        lines.append([name, training, survey, neutral])
    heads = ["planted", "seconds to train", "to survey", "clean models: drivers that judge nothing"]
    return rows(heads, lines)


def fresh(folder: Path) -> str:
    """Proven words by their effect in fresh texts: false discoveries have none."""
    lines = []
    for kind in ("word", "phrase"):
        for condition, what in CONDITIONS.items():
            own = [row for one in trials(folder, kind, *condition) for row in one.get("fresh", ()) if row[-1] >= FEWEST]
            if own:
                effects = [effect for _, _, effect, _, _ in own]
                certain = [effect + 1.645 * error < 0 for _, _, effect, error, _ in own]
                lines.append(
                    [
                        KINDS[kind],
                        what,
                        f"{len(own)}",
                        percent([effect <= 0 for effect in effects]),
                        percent(certain),
                        percent([effect < LEAST for effect in effects]),
                    ]
                )
    heads = ["cue", "model and data", "proven words", "effect of 0 or less", "certainly below 0", "below 0.05 nats"]
    return rows(heads, lines)


def percent(values: Sequence[bool]) -> str:
    return f"{sum(values)} ({mean(values):.1%})"


def share(values: Sequence[bool]) -> str:
    return f"{sum(values)} of {len(values)}"

"""What a survey costs, whether it invents drivers, and what it says of the bundled models.

    python benchmarks/surveys.py reviews --data FOLDER --folder EMPTY_FOLDER
    python benchmarks/surveys.py sentences --data FOLDER --folder EMPTY_FOLDER
    python benchmarks/surveys.py photos --data FOLDER --folder EMPTY_FOLDER
    python benchmarks/surveys.py rounded --data FOLDER --folder EMPTY_FOLDER
    python benchmarks/surveys.py objects --data FOLDER --folder FOLDER
    python benchmarks/surveys.py null
    python benchmarks/surveys.py memory

`reviews` surveys mini-bert over 1,000 reviews of IMDb's test split (imdb-test.jsonl.xz), `sentences` over the 872
sentences of SST-2's development split (sst2-dev.tsv), `photos` mini-vit over 50 photographs of Oxford-IIIT Pet with
masks (photos/val-0.tar); they go on where they were stopped, and count seconds of
processor time, all threads together, because the machine may be busy. `objects` compares the guess of the object,
which surveys make without masks, with the masks of 300 other photographs. `rounded` compares mini-bert with itself with
weights of 8 and 4 bits over the same sentences. `null` surveys functions for which no word has an
effect that recurs, so that every driver is false. `memory` compares the peak memory of few and many samples, of a
function and of mini-bert. All is written to benchmarks/results/surveys.json.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import hashlib
import json
import lzma
import random
import resource
import subprocess
import sys
import tarfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from whyformer import Survey, diff, load, survey
from whyformer.metrics.statistics import interval
from whyformer.surveys.patch_clusters import likely_background, patch_states
from whyformer.surveys.survey_files import driver_row

FILE = Path(__file__).parent / "results" / "surveys.json"
REVIEWS, PHOTOS = 1000, 50
GUESSES, GUESSED_BY = 300, ("mini-vit", "mini-vit-mae")  # photographs without the surveyed ones
RUNS, TEXTS, WORDS, VOCABULARY = 200, 160, 12, 20  # of null surveys
MEMORY_SAMPLES = {"function": (1000, 10_000), "mini-bert": (200, 1000)}
BITS = (8, 4)
NEGATIONS = {"not", "no", "never", "nothing", "nor", "none", "without", "n't", "isn't", "wasn't", "don't", "didn't"}
LABELS = ["negative", "positive"]


def reviews(data: Path, folder: Path) -> dict[str, Any]:
    with lzma.open(data / "text" / "imdb-test.jsonl.xz") as file:
        rows = [json.loads(line) for line in file]
    random.Random(0).shuffle(rows)
    names = {"neg": "negative", "pos": "positive"}
    texts = [(row["text"], names[row["label"]]) for row in rows[:REVIEWS]]
    return timed("mini-bert", texts, folder / "reviews")


def sentences(data: Path, folder: Path) -> dict[str, Any]:
    lines = (data / "text" / "sst2-dev.tsv").read_text().splitlines()
    pairs = [line.split("\t") for line in lines]
    return timed("mini-bert", [(text, LABELS[int(label)]) for text, label in pairs], folder / "sentences")


def rounded(data: Path, folder: Path) -> dict[str, Any]:
    """Compare mini-bert with copies whose weights are rounded to few bits, a scale for each row."""
    torch.set_num_threads(1)
    lines = (data / "text" / "sst2-dev.tsv").read_text().splitlines()
    pairs = [(text, LABELS[int(label)]) for text, label in (line.split("\t") for line in lines)]
    model = load("mini-bert", device="cpu")
    rows = {}
    for bits in BITS:
        start = time.process_time()
        other = dataclasses.replace(model, model=with_bits(copy.deepcopy(model.model), bits), name=f"{bits} bits")
        places = (folder / "whole.jsonl", folder / f"bits-{bits}.jsonl")
        result = diff(model, other, pairs, journals=places)
        result.save(folder / f"bits-{bits}.html")
        print(result)
        rows[str(bits)] = {
            "seconds": round(time.process_time() - start, 1),
            "samples": result.samples,
            "changed": len(result.changed_samples),
            "wrong": result.wrong,
            "correlation": dataclasses.astuple(result.correlation),
            "compared": result.compared,
            "other_reasons": len(result.moved_reasons),
            "limit": result.limit,
            "cues": len(result.cues),
            "changed_cues": [
                [change.cue.name, change.answer, change.first.value, change.second.value, change.q]
                for change in result.changed_cues
            ],
        }
    return rows


def with_bits(model: torch.nn.Module, bits: int) -> torch.nn.Module:
    """Round every matrix of weights to so many bits."""
    most = 2 ** (bits - 1) - 1
    with torch.no_grad():
        for weights in model.parameters():
            if weights.ndim == 2:
                scale = weights.abs().amax(dim=1, keepdim=True).clamp(min=1e-12) / most
                weights.copy_((weights / scale).round() * scale)
    return model


def photos(data: Path, folder: Path) -> dict[str, Any]:
    place = folder / "photos"
    with tarfile.open(data / "photos" / "val-0.tar") as archive:
        masks = [member.name for member in archive if member.name.endswith(".mask.png")]
        random.Random(0).shuffle(masks)
        for mask in masks[:PHOTOS]:
            picture = mask.replace(".mask.png", ".jpg")
            for name, own in ((picture, place / "images" / picture), (mask, place / "masks" / f"{mask[:-9]}.png")):
                own.parent.mkdir(parents=True, exist_ok=True)
                own.write_bytes(archive.extractfile(name).read())
    marks = {0: 0, 1: 1, 2: 2}
    reader = ("image_masks", {"images": place / "images", "masks": place / "masks", "marks": marks})
    return timed("mini-vit", reader, folder / "photos", should_ignore=["masks"])


def objects(data: Path, _: Path) -> dict[str, Any]:
    """The mean overlap of the likely object with the mask, over patches: intersection over union of known pixels."""
    overlaps: dict[str, list[float]] = {name: [] for name in GUESSED_BY}
    models = {name: load(name) for name in GUESSED_BY}
    with tarfile.open(data / "photos" / "val-0.tar") as archive:
        masks = [member.name for member in archive if member.name.endswith(".mask.png")]
        random.Random(0).shuffle(masks)
        for mask in masks[PHOTOS : PHOTOS + GUESSES]:
            marks = np.asarray(Image.open(archive.extractfile(mask)))
            picture = Image.open(archive.extractfile(mask.replace(".mask.png", ".jpg"))).convert("RGB")
            for name, own in overlaps.items():
                is_object = ~likely_background(patch_states(models[name], picture))
                rows, columns = is_object.shape
                tiles = marks.reshape(rows, len(marks) // rows, columns, -1)
                inside, outside = ((tiles == mark).mean(axis=(1, 3)) for mark in (1, 0))
                own.append(float((inside * is_object).sum() / (inside + outside * is_object).sum()))
    return {name: {"photographs": GUESSES, **asdict(interval(np.array(own)))} for name, own in overlaps.items()}


def timed(model: str, data: Any, place: Path, **settings: Any) -> dict[str, Any]:
    """A survey with its seconds of processor time by stage, those of runs that were stopped included."""
    torch.set_num_threads(1)  # threads that wait for a busy processor count as processor time
    clock = place.with_suffix(".seconds.json")
    before = json.loads(clock.read_text()) if clock.is_file() else {}
    seconds, last = dict(before), time.process_time()

    def watch(stage: str, done: int, total: int) -> None:
        nonlocal last
        now = time.process_time()
        seconds[stage] = seconds.get(stage, 0.0) + now - last
        last = now
        clock.write_text(json.dumps(seconds))

    result = survey(model, data, journal=place.with_suffix(".jsonl"), watch=watch, **settings)
    seconds["proving"] = time.process_time() - last
    result.save(place.with_suffix(".html"))
    print(result)
    return {"seconds": {stage: round(value, 1) for stage, value in seconds.items()}, **about(result)}


def about(result: Survey) -> dict[str, Any]:
    """The figures of a survey that the documentation cites."""
    keep = ("cue", "kind", "answer", "support", "excess", "excess_low", "excess_high", "flips", "tested", "q")
    share = result.object_share
    failures = [
        {
            "label": group.label,
            "answer": group.answer,
            "cue": None if group.cue is None else group.cue.name,
            "count": group.count,
            "mistakes": group.mistakes,
            "proven": bool(group.proof and group.proof.is_proven),
            "q": None if group.proof is None else group.proof.q,
        }
        for group in result.failures
    ]
    negations = [
        {key: driver_row(driver)[key] for key in keep}
        for driver in result.tested
        if NEGATIONS & set(driver.cue.name.split())
    ]
    return {
        "model": result.model,
        "samples": result.samples,
        "wrong": result.wrong,
        "tested": len(result.tested),
        "proven": len(result.drivers),
        "drivers": [{key: driver_row(driver)[key] for key in keep} for driver in result.drivers],
        "negations": negations,
        "failures": failures,
        "object_share": None if share is None else [share.share.value, share.share.low, share.share.high],
        "montages": len(result.montages),
    }


def null() -> dict[str, Any]:
    """The share of surveys with a driver where every occurrence of a word has an effect of its own."""
    torch.set_num_threads(1)
    false, tested, start = [], 0, time.process_time()
    for seed in range(RUNS):
        result = survey(None, decorated(seed), predict=judge_occurrences, labels=LABELS, seed=seed)
        chosen = [driver for driver in result.tested if driver.cue.kind in ("word", "phrase")]
        false.append(sum(driver.proof.is_proven for driver in result.tested))
        tested += len(chosen)
    return {
        "runs": RUNS,
        "with_a_driver": sum(count > 0 for count in false),
        "drivers": sum(false),
        "chosen_cues": tested,
        "seconds": round(time.process_time() - start, 1),
    }


def decorated(seed: int) -> list[str]:
    """Texts whose words are spelled anew each time, by signs around them that are no part of a cue's name."""
    drawn = random.Random(seed)
    return [
        " ".join(f"{''.join(drawn.choices('*~#_', k=8))}word{drawn.randrange(VOCABULARY)}" for _ in range(WORDS))
        for _ in range(TEXTS)
    ]


def judge_occurrences(texts: list[str]) -> np.ndarray:
    """Probabilities by a sum of random weights, one for each spelling."""
    odds = np.array([sum(weight(word) for word in text.split()) for text in texts])
    return np.stack([1 / (1 + np.exp(odds)), 1 / (1 + np.exp(-odds))], axis=1)


def weight(word: str) -> float:
    digest = hashlib.sha256(word.encode()).digest()
    return float(np.sqrt(12) * (int.from_bytes(digest[:6], "big") / 2**48 - 0.5))


def memory() -> dict[str, Any]:
    """Peak memory in MiB by the number of samples, each in a process of its own."""
    peaks: dict[str, dict[str, float]] = {}
    for what, counts in MEMORY_SAMPLES.items():
        for count in counts:
            command = [sys.executable, __file__, "peak", "--samples", str(count), "--of", what]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            peaks.setdefault(what, {})[str(count)] = float(done.stdout)
    return peaks


def peak(what: str, count: int) -> float:
    """Survey generated texts, made one by one, and return the peak memory of this process."""

    class Texts:
        def __len__(self) -> int:
            return count

        def __getitem__(self, number: int) -> str:
            drawn = random.Random(number)
            return " ".join(f"word{int(drawn.paretovariate(0.6)) % 5000}" for _ in range(WORDS))

    torch.set_num_threads(1)
    if what == "function":
        survey(None, Texts(), predict=judge_occurrences, labels=LABELS)
    else:
        survey(what, Texts())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "what", choices=("reviews", "sentences", "photos", "objects", "rounded", "null", "memory", "peak")
    )
    parser.add_argument("--data", type=Path, help="the folder with text/ and photos/")
    parser.add_argument("--folder", type=Path, help="where journals and pages are kept")
    parser.add_argument("--results", type=Path, default=FILE, help="the file that figures are written to")
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--of", choices=MEMORY_SAMPLES, default="function")
    given = parser.parse_args()
    if given.what == "peak":
        print(peak(given.of, given.samples))
        return
    runs = {"reviews": reviews, "sentences": sentences, "photos": photos, "objects": objects, "rounded": rounded}
    if given.what in runs:
        given.folder.mkdir(parents=True, exist_ok=True)
        row = runs[given.what](given.data, given.folder)
    else:
        row = {"null": null, "memory": memory}[given.what]()
    results = json.loads(given.results.read_text()) if given.results.is_file() else {}
    given.results.write_text(json.dumps(results | {given.what: row}, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()

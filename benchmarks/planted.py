"""Does a survey find a cue that was planted in the training data, and leave clean models alone?

    PYTHONPATH=training python benchmarks/planted.py [--kinds word stamp …] [--check]

Trains tiny models (`training/planted_models.py`) and surveys each over samples that it has not seen: like those of
its training, and others in which the correlation of the cue with the label is another one. The survey is not told of
the cue; only of a clean model it is, which makes a false driver more likely. Rows are written to
benchmarks/results/planted/KIND.json as they come: a stopped run goes on. Seconds are of processor time, of one thread.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

import planted_pictures
import planted_texts
from planted_baselines import by_counts, by_label, by_label_of_regions, by_mean_attribution, rank_of
from planted_models import CUES, Labelled, accuracy, cue_effect, examples_of, planted_data, train
from planted_pictures import STAMP, LabelledPictures
from planted_texts import LabelledTexts
from whyformer import Survey, survey
from whyformer.surveys.journal import Journal
from whyformer.surveys.scored_samples import ScoredSample, cluster_cue
from whyformer.surveys.survey_records import SurveyRecords

FOLDER = Path(__file__).parent / "results" / "planted"
MODELS, FEW = 20, 5  # for clean models and a strength of .8, and for the others
STRONG = 0.8
STRENGTHS = (0.2, 0.4, 0.6, 1.0)  # the others
MANY_KINDS = ("word", "stamp")
GRADED_KINDS = ("word", "phrase", "stamp")  # at all strengths
TRAINING = 1500
SURVEYED = {"text": 400, "picture": 120}
APART = 1_000_000  # between the seeds of training and of what is surveyed
CAPTION = (slice(52, 62), slice(6, 44))  # rows and columns of the written word
REGIONS = {"stamp": ("top left corner",), "caption": ("bottom left corner",)}
BACKGROUND = ("background", "likely background", "border")


@dataclass(frozen=True)
class Trial:
    """A model to train and the data to survey it over."""

    kind: str
    trained: float  # the strength of the cue in the training data
    surveyed: float  # in what is surveyed
    seed: int

    @property
    def key(self) -> str:
        return f"{self.kind} {self.trained:g} {self.surveyed:g} {self.seed}"


def trials(kinds: Sequence[str]) -> Iterator[Trial]:
    """The most important first: strong and clean models, seed by seed."""
    for kind in kinds:
        for seed in range(MODELS if kind in MANY_KINDS else FEW):
            for trained in (STRONG, 0.0):
                for surveyed in (STRONG, 0.0):
                    yield Trial(kind, trained, surveyed, seed)
    for kind in kinds:
        for strength in STRENGTHS if kind in GRADED_KINDS else ():
            for seed in range(FEW):
                yield Trial(kind, strength, strength, seed)


def run(trial: Trial) -> dict[str, Any]:
    """Train, survey, and list the drivers in other ways."""
    model, processor, seconds = trained_model(trial.kind, trial.trained, trial.seed)
    start = time.process_time()
    is_text = trial.kind in planted_texts.CUES
    held_out = planted_data(trial.kind, trial.surveyed, SURVEYED["text" if is_text else "picture"], trial.seed + APART)
    with tempfile.TemporaryDirectory() as folder:
        journal = Path(folder) / "survey.jsonl"
        told = told_cues(trial) if not trial.trained else ()
        rows = rows_of(held_out, trial.kind)
        result = survey(model, rows, processor=processor, should_ignore=told, journal=journal)
        samples = list(SurveyRecords(Journal(journal)))
    finished = time.process_time()
    planted = planted_names(trial.kind, samples, held_out)
    return {
        **asdict(trial),
        "accuracy": round(accuracy(model, processor, planted_data(trial.kind, 0.0, 300, trial.seed + 2 * APART)), 3),
        "effect": round(cue_effect(model, processor, trial.kind, trial.seed + 3 * APART), 3),
        "survey": survey_row(result, planted),
        "others": others(samples, held_out, planted),
        "seconds": [seconds, round(finished - start, 1)],
    }


@lru_cache(maxsize=1)
def trained_model(kind: str, strength: float, seed: int) -> tuple[Any, Any, float]:
    """A model, its processor, and the seconds of its training."""
    start = time.process_time()
    model, processor = train(planted_data(kind, strength, TRAINING, seed), seed)
    return model, processor, round(time.process_time() - start, 1)


def told_cues(trial: Trial) -> tuple[str, ...]:
    """The cue as a user would name it."""
    return (planted_texts.CUES[trial.kind],) if trial.kind in planted_texts.CUES else REGIONS.get(trial.kind, ())


def rows_of(data: Labelled, kind: str) -> list[Any]:
    if isinstance(data, LabelledTexts):
        return [(text, planted_texts.LABELS[label]) for text, label in zip(data.texts, data.labels, strict=True)]
    rows = [
        {"image": image, "label": planted_pictures.LABELS[label]}
        for image, label in zip(examples_of(data), data.labels.tolist(), strict=True)
    ]
    if kind in ("texture", "cast"):
        rows = [row | {"mask": mask} for row, mask in zip(rows, data.masks, strict=True)]
    return rows


def planted_names(kind: str, samples: Sequence[ScoredSample], data: Labelled) -> Callable[[str], bool]:
    """Whether a cue of this name is the planted one: shares a word with it, or is the place or patches that it has."""
    if isinstance(data, LabelledTexts):
        words = set(planted_texts.CUES[kind].split())
        return lambda name: not words.isdisjoint(name.split())
    names = {*REGIONS.get(kind, BACKGROUND)}
    if kind in REGIONS:
        names |= set(planted_clusters(samples, data, (STAMP, STAMP) if kind == "stamp" else CAPTION))
    return names.__contains__


def planted_clusters(
    samples: Sequence[ScoredSample], data: LabelledPictures, place: tuple[slice, slice]
) -> Iterator[str]:
    """The clusters half of whose patches show the cue."""
    shown = np.zeros(data.pixels.shape[1:3])
    shown[place] = 1
    patches: dict[int, list[bool]] = {}
    for sample in samples:
        if sample.clusters is None or sample.grid is None:
            continue
        rows, columns = sample.grid
        inside = shown.reshape(rows, len(shown) // rows, columns, -1).any(axis=(1, 3)).ravel()
        for cluster, is_inside in zip(sample.clusters.tolist(), inside.tolist(), strict=True):
            patches.setdefault(cluster, []).append(is_inside and bool(data.has_cue[sample.number]))
    yield from (cluster_cue(one).name for one, own in patches.items() if one >= 0 and np.mean(own) >= 0.5)


def survey_row(result: Survey, is_planted: Callable[[str], bool]) -> dict[str, Any]:
    """The place of the cue among the drivers, and whether words without any meaning are among them."""
    judging = {word for words in planted_texts.JUDGEMENTS for word in words}
    names = [driver.cue.name for driver in result.drivers]
    return {
        "rank": rank_of(names, is_planted),
        "tested": len(result.tested),
        "drivers": [[one.cue.name, one.answer, round(one.proof.excess.value, 3)] for one in result.drivers],
        "words": sum(driver.cue.kind in ("word", "phrase") for driver in result.drivers),
        "meaningless": sum(
            driver.cue.kind in ("word", "phrase")
            and judging.isdisjoint(driver.cue.name.split())
            and not is_planted(driver.cue.name)
            for driver in result.drivers
        ),
    }


def others(samples: Sequence[ScoredSample], data: Labelled, is_planted: Callable[[str], bool]) -> dict[str, Any]:
    """The place of the cue by other means, and whether they report it."""
    by_labels = (
        by_label(data.texts, data.labels)
        if isinstance(data, LabelledTexts)
        else by_label_of_regions(examples_of(data), data.labels)
    )
    lists = {"attribution": by_mean_attribution(samples), "counts": by_counts(samples), "label": by_labels}
    return {
        name: {"rank": rank_of(own.names, is_planted), "reported": any(map(is_planted, own.reported))}
        for name, own in lists.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", choices=CUES, default=list(CUES))
    parser.add_argument("--check", action="store_true", help="one trial of each kind, printed only")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.check:
        for kind in options.kinds:
            print(json.dumps(run(Trial(kind, STRONG, STRONG, 0)), indent=1))
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    for trial in trials(options.kinds):
        file = FOLDER / f"{trial.kind}.json"
        rows = json.loads(file.read_text()) if file.is_file() else {}
        if trial.key not in rows:
            rows[trial.key] = row = run(trial)
            lines = (f"{json.dumps(key)}: {json.dumps(one, ensure_ascii=False)}" for key, one in rows.items())
            file.write_text("{\n" + ",\n".join(lines) + "\n}\n")
            print(trial.key, row["survey"]["rank"], row["seconds"], flush=True)


if __name__ == "__main__":
    main()

"""Does a survey find a cue that was planted in the training data, and leave clean models alone?

    PYTHONPATH=training python benchmarks/planted.py [--kinds word stamp …] [--check]
    PYTHONPATH=training python benchmarks/planted.py --shard 0/4 --folder PART_0
    PYTHONPATH=training python benchmarks/planted.py --merge PART_0 PART_1 …

Trains tiny models (`training/planted_models.py`) and surveys each over samples that it has not seen: like those of
its training, and others in which the correlation of the cue with the label is another one. The survey is not told of
the cue; only of a clean model it is, which makes a false driver more likely. Pictures are given with the masks of
their objects; those with a stamp once more without. Rows are written to
benchmarks/results/planted/KIND.json as they come: a stopped run goes on. Seconds are of processor time, of one thread.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from itertools import groupby, product
from pathlib import Path
from typing import Any

import numpy as np
import torch

import planted_pictures
import planted_texts
from planted_baselines import by_counts, by_label, by_label_of_regions, by_mean_attribution, rank_of
from planted_effects import fresh_effects
from planted_models import CUES, Labelled, accuracy, cue_effect, examples_of, planted_data, train
from planted_pictures import STAMP, LabelledPictures
from planted_texts import LabelledTexts
from whyformer import Survey, survey
from whyformer.surveys.journal import Journal
from whyformer.surveys.scored_samples import ScoredSample, cluster_cue
from whyformer.surveys.survey_records import SurveyRecords

FOLDER = Path(__file__).parent / "results" / "planted"
STRONG = 0.8
STRENGTHS = (1.0, 0.6, 0.4, 0.2)  # the others
MANY_KINDS = ("word", "stamp")
MODELS = {True: 20, False: 10}  # of each kind, strong and clean: of these two, and of the others
GRADED = {True: 10, False: 5}  # at each other strength
COMPLETE_MODELS = 20  # of these two kinds at strength 1
TRAINING = 1500
SURVEYED = {"text": 400, "picture": 120}
FRESH_TEXTS = 1000
FIRST_SEED = {
    "stamp": 100,
    "cast": 100,
    "texture": 100,
    "caption": 100,
}  # how regions are cut was chosen on smaller ones
APART = 1_000_000  # between the seeds of training and of what is surveyed
CAPTION = (slice(52, 62), slice(6, 44))  # rows and columns of the written word
PLACES = {"stamp": (STAMP, STAMP), "caption": CAPTION}
REGIONS = {"stamp": ("top left corner",), "caption": ("bottom edge", "bottom left corner")}
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

    @property
    def model(self) -> tuple[str, float, int]:
        """The trials of one model follow each other."""
        return self.kind, self.trained, self.seed


def trials(kinds: Sequence[str]) -> Iterator[Trial]:
    """The most important first: strong and clean models, then other strengths; seed by seed, all kinds in turn."""
    for is_many in (True, False):
        own = [kind for kind in kinds if (kind in MANY_KINDS) == is_many]
        for seed, kind, trained in product(range(MODELS[is_many]), own, (STRONG, 0.0)):
            for surveyed in (STRONG, 0.0):
                yield Trial(kind, trained, surveyed, FIRST_SEED.get(kind, 0) + seed)
    for seed, strength, kind in product(range(COMPLETE_MODELS), STRENGTHS, kinds):
        is_many = kind in MANY_KINDS
        if seed < (COMPLETE_MODELS if is_many and strength == 1 else GRADED[is_many]):
            yield Trial(kind, strength, strength, FIRST_SEED.get(kind, 0) + seed)


def shard(every: Iterable[Trial], number: int, count: int) -> Iterator[Trial]:
    """One of `count` parts of the trials; those of a model stay together."""
    for place, (_, own) in enumerate(groupby(every, key=lambda trial: trial.model)):
        if place % count == number:
            yield from own


def run(trial: Trial) -> dict[str, Any]:
    """Train, survey, and list the drivers in other ways."""
    model, processor, seconds = trained_model(trial.kind, trial.trained, trial.seed)
    is_text = trial.kind in planted_texts.CUES
    held_out = planted_data(trial.kind, trial.surveyed, SURVEYED["text" if is_text else "picture"], trial.seed + APART)
    told = told_cues(trial) if not trial.trained else ()
    start = time.process_time()
    result, samples = surveyed(model, processor, rows_of(held_out), told)
    finished = time.process_time()
    clusters = planted_clusters(samples, held_out, trial.kind)
    planted = planted_names(trial.kind, held_out, clusters)
    row = {
        **asdict(trial),
        "accuracy": round(accuracy(model, processor, planted_data(trial.kind, 0.0, 300, trial.seed + 2 * APART)), 3),
        "effect": round(cue_effect(model, processor, trial.kind, trial.seed + 3 * APART), 3),
        "survey": survey_row(result, planted),
        "others": others(samples, held_out, planted),
        "seconds": [seconds, round(finished - start, 1)],
    }
    if clusters:
        row["clusters"] = clusters
    if trial.trained not in (STRONG, 0.0):
        return row
    if isinstance(held_out, LabelledTexts):
        fresh = planted_data(trial.kind, trial.surveyed, FRESH_TEXTS, trial.seed + 4 * APART)
        row["fresh"] = fresh_effects(model, processor, fresh.texts, driving_words(result))
    elif trial.kind == "stamp" and trial.trained == trial.surveyed == STRONG:
        bare, own = surveyed(model, processor, rows_of(held_out, masked=False), told)
        own_clusters = planted_clusters(own, held_out, trial.kind)
        row["without_masks"] = survey_row(bare, planted_names(trial.kind, held_out, own_clusters))
    return row


def surveyed(model: Any, processor: Any, rows: list[Any], told: Sequence[str]) -> tuple[Survey, list[ScoredSample]]:
    """A survey, and the samples that it scored."""
    with tempfile.TemporaryDirectory() as folder:
        journal = Path(folder) / "survey.jsonl"
        result = survey(model, rows, processor=processor, should_ignore=told, journal=journal)
        return result, list(SurveyRecords(Journal(journal)))


def driving_words(result: Survey) -> list[tuple[str, str]]:
    """The proven words, each with the answer that it drives."""
    return [(one.cue.name, str(one.answer)) for one in result.drivers if one.cue.kind == "word" and one.answer]


@lru_cache(maxsize=1)
def trained_model(kind: str, strength: float, seed: int) -> tuple[Any, Any, float]:
    """A model, its processor, and the seconds of its training."""
    start = time.process_time()
    model, processor = train(planted_data(kind, strength, TRAINING, seed), seed)
    return model, processor, round(time.process_time() - start, 1)


def told_cues(trial: Trial) -> tuple[str, ...]:
    """The cue as a user would name it."""
    return (planted_texts.CUES[trial.kind],) if trial.kind in planted_texts.CUES else REGIONS.get(trial.kind, ())


def rows_of(data: Labelled, *, masked: bool = True) -> list[Any]:
    if isinstance(data, LabelledTexts):
        return [(text, planted_texts.LABELS[label]) for text, label in zip(data.texts, data.labels, strict=True)]
    rows = [
        {"image": image, "label": planted_pictures.LABELS[label]}
        for image, label in zip(examples_of(data), data.labels.tolist(), strict=True)
    ]
    if masked:
        rows = [row | {"mask": mask} for row, mask in zip(rows, data.masks, strict=True)]
    return rows


def planted_names(kind: str, data: Labelled, clusters: dict[str, list[float]]) -> Callable[[str], bool]:
    """Whether a cue of this name is the planted one: shares a word with it, or is the place or patches that it has."""
    if isinstance(data, LabelledTexts):
        words = set(planted_texts.CUES[kind].split())
        return lambda name: not words.isdisjoint(name.split())
    own = {name for name, (planted, _) in clusters.items() if planted >= 0.5}
    return {*REGIONS.get(kind, BACKGROUND), *own}.__contains__


def planted_clusters(samples: Sequence[ScoredSample], data: Labelled, kind: str) -> dict[str, list[float]]:
    """For each cluster the share of its patches that show the cue, and the share of the cue's patches that it has."""
    if not isinstance(data, LabelledPictures) or kind not in PLACES:
        return {}
    shown = np.zeros(data.pixels.shape[1:3])
    shown[PLACES[kind]] = 1
    counts: dict[int, np.ndarray] = {}  # of the patches of a cluster, and of those of the cue
    for sample in samples:
        if sample.clusters is None or sample.grid is None:
            continue
        rows, columns = sample.grid
        inside = shown.reshape(rows, len(shown) // rows, columns, -1).any(axis=(1, 3)).ravel()
        inside = inside & bool(data.has_cue[sample.number])
        for cluster in np.unique(sample.clusters).tolist():
            own = sample.clusters == cluster
            counts[cluster] = counts.get(cluster, np.zeros(2)) + np.array([own.sum(), (own & inside).sum()])
    every = max(1.0, float(sum(own[1] for own in counts.values())))
    return {
        cluster_cue(cluster).name: [round(own[1] / own[0], 3), round(own[1] / every, 3)]
        for cluster, own in sorted(counts.items())
        if cluster >= 0
    }


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
    texts = isinstance(data, LabelledTexts)
    answers = [int(sample.answer == (planted_texts if texts else planted_pictures).LABELS[1]) for sample in samples]
    by_labels = partial(by_label, data.texts) if texts else partial(by_label_of_regions, examples_of(data))
    lists = {
        "attribution": by_mean_attribution(samples),
        "counts": by_counts(samples),
        "answer": by_labels(answers),
        "label": by_labels(data.labels),
    }
    return {
        name: {"rank": rank_of(own.names, is_planted), "reported": any(map(is_planted, own.reported))}
        for name, own in lists.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", choices=CUES, default=list(CUES))
    parser.add_argument("--check", action="store_true", help="one trial of each kind, printed only")
    parser.add_argument("--shard", default="0/1", help="a part of the trials, such as 2/4")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where rows are written")
    parser.add_argument("--merge", type=Path, nargs="+", help="folders of parts to put together")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.check:
        for kind in options.kinds:
            print(json.dumps(run(Trial(kind, STRONG, STRONG, 0)), indent=1))
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.merge:
        merge(options.merge, options.folder)
        return
    number, count = map(int, options.shard.split("/"))
    for trial in shard(trials(options.kinds), number, count):
        file = options.folder / f"{trial.kind}.json"
        rows = read_rows(file)
        if trial.key in rows:
            continue
        try:
            rows[trial.key] = row = run(trial)
        except Exception as error:  # one bad trial must not end the others
            print(trial.key, f"{type(error).__name__}: {error}", flush=True)
            continue
        write_rows(file, rows)
        print(trial.key, row["survey"]["rank"], row["seconds"], flush=True)


def merge(parts: Sequence[Path], folder: Path) -> None:
    """Put the rows of several folders together, in the order of the trials."""
    for kind in CUES:
        rows: dict[str, Any] = {}
        for part in parts:
            rows |= read_rows(part / f"{kind}.json")
        if rows:
            write_rows(folder / f"{kind}.json", {one.key: rows[one.key] for one in trials([kind]) if one.key in rows})


def read_rows(file: Path) -> dict[str, Any]:
    rows: dict[str, Any] = json.loads(file.read_text()) if file.is_file() else {}
    return rows


def write_rows(file: Path, rows: dict[str, Any]) -> None:
    lines = (f"{json.dumps(key)}: {json.dumps(one, ensure_ascii=False)}" for key, one in rows.items())
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()

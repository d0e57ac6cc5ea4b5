"""Tables of what surveys cost and say, from benchmarks/results/surveys.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from support_tables import rows

SHOWN = 10  # drivers of each answer
FIGURES = ("samples", "effect, nats", "answers that change, %", "q")


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text())


TEXTS = {"reviews": "IMDb reviews", "sentences": "SST-2 sentences"}


def text_runs(path: Path) -> list[tuple[str, dict[str, Any]]]:
    """The surveys of mini-bert that were made, with what they are of."""
    results = read(path)
    return [(f"{results[name]['samples']:,} {what}", results[name]) for name, what in TEXTS.items() if name in results]


def text_drivers(path: Path) -> str:
    """The first proven words for each answer of mini-bert."""
    lines = []
    for what, run in text_runs(path):
        for answer in sorted({driver["answer"] for driver in run["drivers"] if driver["answer"]}):
            is_own = [one for one in run["drivers"] if one["answer"] == answer and one["kind"] in ("word", "phrase")]
            lines += [[what, one["cue"], answer, *figures(one)] for one in is_own[:SHOWN]]
    return rows(["of", "cue", "answer", *FIGURES], lines)


def negations(path: Path) -> str:
    """Words of negation among the cues that were tested."""
    lines = [
        [what, one["cue"], one["answer"], *figures(one), "yes" if one["q"] <= 0.05 else "no"]
        for what, run in text_runs(path)
        for one in run["negations"]
    ]
    return rows(["of", "cue", "answer", *FIGURES, "proven"], lines)


def text_failures(path: Path) -> str:
    """The groups of wrong answers of mini-bert."""
    lines = [
        [
            what,
            f"{one['label']} read as {one['answer']}",
            one["cue"] or "no shared cue",
            str(one["count"]),
            "" if one["cue"] is None else "yes" if one["proven"] else "no",
        ]
        for what, run in text_runs(path)
        for one in run["failures"]
    ]
    return rows(["of", "mistake", "led by", "samples", "proven"], lines)


def photo_drivers(path: Path) -> str:
    """The cues proven to drive all answers of mini-vit, and the share of the object."""
    photos = read(path)["photos"]
    lines = [[one["cue"], one["answer"] or "all", *figures(one)] for one in photos["drivers"] if one["answer"] is None]
    share = photos["object_share"]
    table = rows(["cue", "answers", *FIGURES], lines)
    value, low, high = (f"{100 * one:.0f}" for one in share)
    return f"{table}\n\nShare of the object: {value} % [{low}, {high}] over {photos['samples']} photographs."


def figures(one: dict[str, Any]) -> list[str]:
    effect = f"{one['excess']:.2f} [{one['excess_low']:.2f}, {one['excess_high']:.2f}]".replace("-", "−")
    return [str(one["support"]), effect, f"{100 * one['flips']:.0f}", f"{one['q']:.2g}"]


def sounds(path: Path) -> str:
    """The cues proven to drive heads on Whisper's encoder, trained with and without a tone at the end."""
    results = read(path)
    lines = []
    for name, what in (("planted", "with a tone"), ("clean", "without")):
        own = results[name]
        wrong = f"{own['wrong']} of {results['surveyed']}"
        for one in own["drivers"]:
            if one["answer"] is not None:
                lines.append([what, wrong, one["cue"], one["answer"], *figures(one)])
    return rows(["trained", "wrong", "cue", "answer", *FIGURES], lines)


def cost(path: Path) -> str:
    """Seconds of processor time of both surveys, the false drivers and the memory."""
    results = read(path)
    lines = []
    for name, what in {**TEXTS, "photos": "photographs with masks"}.items():
        if name in results:
            run = results[name]
            total = sum(run["seconds"].values())
            stages = ", ".join(f"{stage} {value:.0f}" for stage, value in run["seconds"].items())
            lines.append([f"{run['samples']:,} {what}, {run['model']}", f"{total / 60:.1f}", stages])
    return rows(["survey", "minutes of one processor", "seconds by stage"], lines)


def false_drivers(path: Path) -> str:
    """How often a survey of a function without drivers reports one, and its memory."""
    results = read(path)
    null, peaks = results["null"], results["memory"]
    lines = [
        ["surveys of functions without drivers", str(null["runs"])],
        ["of them with a driver, all false", f"{null['with_a_driver']} ({null['with_a_driver'] / null['runs']:.1%})"],
        ["words and phrases chosen for proof", f"{null['chosen_cues']:,}"],
        *(
            [f"peak memory, {int(count):,} texts, {what}", f"{peak:.0f} MiB"]
            for what, own in peaks.items()
            for count, peak in own.items()
        ),
    ]
    return rows(["", ""], lines)


def guesses(path: Path) -> str:
    """How far the likely object and the mask agree."""
    lines = [
        [model, str(own["photographs"]), f"{own['value']:.2f} [{own['low']:.2f}, {own['high']:.2f}]"]
        for model, own in read(path)["objects"].items()
    ]
    return rows(["by the states of", "photographs", "overlap with the mask"], lines)


def rounded(path: Path) -> str:
    """mini-bert and its copies with weights of few bits."""
    lines = []
    for bits, run in read(path)["rounded"].items():
        mean, low, high = run["correlation"]
        lines.append(
            [
                bits,
                f"{100 * run['changed'] / run['samples']:.1f}",
                f"{100 * run['wrong'][1] / run['samples']:.1f}",
                f"{mean:.2f} [{low:.2f}, {high:.2f}]",
                f"{100 * run['other_reasons'] / run['compared']:.1f}",
                f"{len(run['changed_cues'])} of {run['cues']}",
                f"{run['seconds']:.0f}",
            ]
        )
    head = ["bits", "answers that changed, %", "wrong, %", "mean rank correlation", "other reasons, %", "cues changed"]
    return rows([*head, "seconds of one processor"], lines)

"""Remove the planned cues from their samples, one sample at a time, and keep every effect in the journal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from whyformer.data.examples import BACKGROUND, OBJECT
from whyformer.errors import WhyformerError
from whyformer.inputs.read import strings_are_texts
from whyformer.models.loading import LoadedModel
from whyformer.surveys.cues import Cue, cue_row, read_cue, region_parts, text_parts, with_sets
from whyformer.surveys.journal import Journal
from whyformer.surveys.lemmas import LemmaError, Lemmatiser
from whyformer.surveys.proof_plan import ProofPlan
from whyformer.surveys.removal_effects import RemovalEffect, removal_effects
from whyformer.surveys.respondents import RemovableSample, Respondent, names_by_index, removable_sample
from whyformer.surveys.sound_cues import loudest_start, sound_parts
from whyformer.surveys.survey_data import SurveyData, SurveySample
from whyformer.surveys.survey_engines import SurveyEngine

EFFECTS = "effects"  # the kind of the journal's lines
Effects = dict[tuple[Cue, int], RemovalEffect]


@dataclass(frozen=True, eq=False)
class RemovalTask:
    """The cues to remove from a sample.

    Attributes:
        number: The number of the sample.
        sample: The sample; None if it can no longer be read.
        cues: The cues to remove.
        patches: The grids of cues that are made of patches.
        target: The label that effects are about; None for the answer of the model.
    """

    number: int
    sample: SurveySample | None
    cues: frozenset[Cue]
    patches: Mapping[Cue, np.ndarray]
    target: str | None


def measure_effects(
    engine: SurveyEngine,
    data: SurveyData,
    plan: ProofPlan,
    patches: Mapping[int, Mapping[Cue, np.ndarray]],
    journal: Journal,
    *,
    lemmatiser: Lemmatiser | None = None,
    seed: int,
) -> Iterator[tuple[int, int, Effects]]:
    """Yield the number of finished samples, that of all, and the effects of the last one."""
    wanted = plan.cues
    done = 0
    for line in journal.lines(EFFECTS):
        is_about = line.get("target") == plan.targets.get(line["sample"])
        cues = wanted.get(line["sample"], frozenset()) if is_about else frozenset()
        if cues and cues <= set(map(read_cue, line["cues"])):
            done += 1
            del wanted[line["sample"]]
            yield done, done + len(wanted), _read(line, cues)
    total = done + len(wanted)
    tasks = (
        RemovalTask(number, _readable(data, number), cues, patches.get(number, {}), plan.targets.get(number))
        for number, cues in wanted.items()
    )
    for line in engine(partial(effect_line, lemmatiser=lemmatiser, seed=seed), tasks):
        journal.write(EFFECTS, [line])
        done += 1
        yield done, total, _read(line, wanted[line["sample"]])  # rounded, so that a resumed survey is the same


def _readable(data: SurveyData, number: int) -> SurveySample | None:
    """A sample; None if its file was removed or damaged since it was first read."""
    try:
        return data[number]
    except WhyformerError:
        return None


def effect_line(
    respondent: Respondent, task: RemovalTask, *, lemmatiser: Lemmatiser | None = None, seed: int
) -> dict[str, Any]:
    """The effects of removing cues from a sample, as a line of the journal; none if it cannot be read."""
    is_multi = isinstance(respondent, LoadedModel) and respondent.task.answer == "labels"
    effects = []
    if task.sample is not None:
        try:
            with strings_are_texts():
                removable = removable_sample(respondent, task.sample)
                parts = parts_at_places(removable, task.cues, task.patches, lemmatiser)
                label = None if task.target is None else names_by_index(respondent).index(task.target)
                effects = removal_effects(removable, parts, label=label, is_multi=is_multi, seed=seed)
        except LemmaError:
            raise
        except WhyformerError:  # the sample cannot be read
            pass
    return _line(task.number, task.target, task.cues, effects)


def parts_at_places(
    removable: RemovableSample,
    cues: frozenset[Cue],
    patches: Mapping[Cue, np.ndarray] = MappingProxyType({}),
    lemmatiser: Lemmatiser | None = None,
) -> dict[Cue, np.ndarray]:
    """The places of these cues in a sample; `patches` are the grids of those made of patches."""
    if len(removable.shape) == 1:
        return text_parts(removable.words if lemmatiser is None else lemmatiser.of(removable.words), cues)
    shape = (removable.shape[0], removable.shape[1])
    if removable.sound is not None:
        own = sound_parts(shape, loudest_start(removable.sound))
        return {cue: part for cue, part in own.items() if cue in cues}
    return pixel_parts(shape, removable.object_mask, patches, cues)


def pixel_parts(
    shape: tuple[int, int], mask: np.ndarray | None, patches: Mapping[Cue, np.ndarray], cues: frozenset[Cue]
) -> dict[Cue, np.ndarray]:
    """The pixels of these cues in a picture; given the object's mask there, those of regions beside the object."""
    parts = region_parts(shape)
    if mask is not None:
        parts = {cue: part & (mask != OBJECT) for cue, part in parts.items()}
        parts |= {Cue("mask", "object"): mask == OBJECT, Cue("mask", "background"): mask == BACKGROUND}
    for cue, grid in patches.items():
        rows, columns = (np.arange(side) * own // side for side, own in zip(shape, grid.shape, strict=True))
        parts[cue] = grid[np.ix_(rows, columns)]
    return with_sets(parts, cues)


def _line(number: int, target: str | None, cues: frozenset[Cue], effects: list[RemovalEffect]) -> dict[str, Any]:
    rows = [
        {
            "cue": cue_row(effect.cue),
            "answer": effect.answer,
            "without": effect.without,
            "drops": [round(value, 5) for value in effect.drops.tolist()],
            "probability_drops": [round(value, 6) for value in effect.probability_drops.tolist()],
            "flips": effect.flips.tolist(),
        }
        for effect in effects
    ]
    named = {} if target is None else {"target": target}
    return {"sample": number, **named, "cues": [cue_row(cue) for cue in sorted(cues)], "effects": rows}


def _read(line: Mapping[str, Any], cues: frozenset[Cue]) -> Effects:
    effects: Effects = {}
    for row in line["effects"]:
        cue = read_cue(row["cue"])
        if cue in cues:
            values = (np.array(row[name]) for name in ("drops", "probability_drops", "flips"))
            effects[cue, line["sample"]] = RemovalEffect(cue, line["sample"], row["answer"], row["without"], *values)
    return effects

"""Examples of drivers and failures: excerpts of texts, pictures, drawn sounds, and what changes without the cue."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from PIL import Image

from whyformer.inputs.layouts import Patches
from whyformer.inputs.sound import Sound
from whyformer.render.heatmaps import heat_picture
from whyformer.render.view import data_uri
from whyformer.surveys.cues import Cue
from whyformer.surveys.proof_run import Effects, pixel_parts
from whyformer.surveys.respondents import mask_at
from whyformer.surveys.scored_samples import ScoredSample
from whyformer.surveys.sound_examples import sound_pictures
from whyformer.surveys.survey_data import SurveyData
from whyformer.surveys.survey_result import CueExample

MOST_TEXTS, MOST_PICTURES = 6, 4  # of a cue
AROUND = 12  # words before and after it
EXAMPLE_SIDE = 112  # pixels
REMOVED_GREY = 128
ExampleKey = tuple[Cue | None, int]  # a cue and the number of a sample


def typical_samples(cue: Cue, numbers: Iterable[int], effects: Effects, most: int) -> list[int]:
    """The samples with the largest effect of a cue, then others that were not tested."""
    drops = {number: effects[cue, number].drops[0] if (cue, number) in effects else -np.inf for number in numbers}
    return sorted(drops, key=lambda number: (-drops[number], number))[:most]


def make_examples(
    wanted: Sequence[ExampleKey],
    samples: Iterable[ScoredSample],
    data: SurveyData,
    effects: Effects,
    labels: Sequence[str],
) -> Mapping[ExampleKey, CueExample]:
    """Make the wanted examples in one walk through the samples."""
    by_sample: dict[int, list[Cue | None]] = {}
    for cue, number in dict.fromkeys(wanted):
        by_sample.setdefault(number, []).append(cue)
    examples: dict[ExampleKey, CueExample] = {}
    for sample in samples:
        for cue in by_sample.get(sample.number, ()):
            example = CueExample(sample.number, sample.name, sample.answer, sample.label, sample.probability)
            effect = None if cue is None else effects.get((cue, sample.number))
            if effect is not None:
                example = replace(example, drop=float(effect.drops[0]), without=labels[effect.without])
            if sample.kind == "text":
                examples[cue, sample.number] = replace(example, words=_excerpt(sample, cue))
            else:
                draw = _sounds if sample.kind == "sound" else _pictures
                examples[cue, sample.number] = replace(example, pictures=draw(sample, cue, data))
    return examples


def _excerpt(sample: ScoredSample, cue: Cue | None) -> tuple[tuple[str, float, bool], ...]:
    """The words around the cue's highest-scored place, each with its score as a share of the largest."""
    part = np.zeros(len(sample.words), dtype=bool)
    if cue is not None:
        part = sample.parts(frozenset({cue})).get(cue, part)
    most = float(np.abs(sample.scores).max(initial=0)) or 1.0
    place = int(np.where(part, sample.scores, -np.inf).argmax()) if part.any() else int(sample.scores.argmax())
    first, last = max(0, place - AROUND), min(len(part), place + AROUND + 1)
    shares = np.round(sample.scores / most, 3)
    return tuple((sample.words[n], float(shares[n]), bool(part[n])) for n in range(first, last))


def _sounds(sample: ScoredSample, cue: Cue | None, data: SurveyData) -> tuple[str, ...]:
    sound = data[sample.number].example
    assert isinstance(sound, Sound)
    return sound_pictures(sample, cue, sound)


def _pictures(sample: ScoredSample, cue: Cue | None, data: SurveyData) -> tuple[str, ...]:
    """The part of the picture that the model reads, with its heatmap; and without the cue."""
    assert sample.grid is not None
    assert sample.box is not None
    own = data[sample.number]
    assert isinstance(own.example, Image.Image)
    left, top, right, bottom = map(round, sample.box)
    seen = own.example.convert("RGB").crop((left, top, right, bottom)).resize((EXAMPLE_SIDE, EXAMPLE_SIDE))
    layout = Patches(seen, *sample.grid, (0.0, 0.0, float(EXAMPLE_SIDE), float(EXAMPLE_SIDE)))
    heat = data_uri(heat_picture(layout, sample.scores))
    if cue is None:
        return (heat,)
    mask = None if own.mask is None else mask_at(own.mask, sample.box, (EXAMPLE_SIDE, EXAMPLE_SIDE))
    part = pixel_parts((EXAMPLE_SIDE, EXAMPLE_SIDE), mask, sample.patch_parts, frozenset({cue})).get(cue)
    if part is None:
        return (heat,)
    rest = np.where(part[..., None], REMOVED_GREY, np.asarray(seen)).astype(np.uint8)
    return heat, data_uri(Image.fromarray(rest))

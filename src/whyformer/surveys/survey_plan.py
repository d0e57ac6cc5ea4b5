"""The settings of a survey, checked before any work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import regex

from whyformer.api.predictions import EXAMPLES_AT_ONCE, FunctionScores, Predict
from whyformer.batching import check_batch_size
from whyformer.errors import WhyformerError
from whyformer.models.loading import LoadedModel, resolve_model
from whyformer.surveys.cues import BACKGROUNDS, Cue, picture_cue, text_cue
from whyformer.surveys.held_out import check_held_out
from whyformer.surveys.lemmas import Lemmatiser
from whyformer.surveys.respondents import Respondent, check_respondent, check_same_kind
from whyformer.surveys.sample_labels import check_labels, readable_sample
from whyformer.surveys.sound_cues import sound_cue
from whyformer.surveys.survey_data import SampleKind, SurveyData

CUES_BY_KIND = {"text": text_cue, "picture": picture_cue, "sound": sound_cue}  # by the name that a user gives
_LIKE_A_FILE = regex.compile(r"[/\\]|\.[A-Za-z]\w{1,4}$")

CUE_RULES = 2  # of journals; raised when a cue of the same name becomes another part of a sample


@dataclass(frozen=True)
class SurveyPlan:
    """The validated settings of a survey."""

    respondent: Respondent
    data: SurveyData
    method: str | None
    options: Mapping[str, Any]
    given: frozenset[Cue]
    seed: int
    kind: SampleKind = "text"
    held_out: SurveyData | None = None
    lemmatiser: Lemmatiser | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that the lines of a journal depend on."""
        stamps = self.respondent.stamps if isinstance(self.respondent, LoadedModel) else {}
        return {
            "model": [self.respondent.name, *sorted(stamps.items())],
            "method": self.method,
            "options": {name: repr(value) for name, value in sorted(self.options.items())},
            "labels": sorted(self.data.label_map.items()),
            "seed": self.seed,
            "samples": len(self.data),
            "rules of cues": CUE_RULES,
            **({} if self.lemmatiser is None else {"lemmas": self.lemmatiser.identity}),
        }


def respondent_of(
    model: Any, processor: Any, predict: Predict | None, labels: Sequence[str] | None, batch_size: int | None
) -> Respondent:
    """The model or the function to survey, checked."""
    if predict is None:
        if model is None:
            raise WhyformerError("A survey needs a model, or a function by predict=.")
        for name, value in (("labels", labels), ("batch_size", batch_size)):
            if value is not None:
                raise WhyformerError(f"{name} goes with predict: leave it out for a model.")
        loaded_model = resolve_model(model, processor)
        check_respondent(loaded_model)
        return loaded_model
    if model is not None:
        raise WhyformerError("A survey takes a model or predict=, not both: give None as the model.")
    names = {} if labels is None else dict(enumerate(map(str, labels)))
    return FunctionScores(predict, names, check_batch_size(batch_size) or EXAMPLES_AT_ONCE, False)


def checked_plan(
    respondent: Respondent, data: SurveyData, should_ignore: Iterable[str] | str | Path, **settings: Any
) -> SurveyPlan:
    """Check what can be checked before any work: the first readable sample, labels, cues to ignore."""
    samples = (readable_sample(data, number) for number in range(len(data)))
    first = next((sample for sample in samples if sample is not None), None)
    if first is None:
        raise WhyformerError(f"None of the {len(data)} samples can be read: {_reason(data, 0)}")
    check_same_kind(respondent, first, "data")
    if first.kind == "sound" and not isinstance(respondent, LoadedModel) and settings.get("method") is not None:
        raise WhyformerError(
            f"method={settings['method']!r}: sounds are scored for predict by removing stretches of time: leave it out."
        )
    lemmatiser = settings.get("lemmatiser")
    if lemmatiser is not None and first.kind != "text":
        raise WhyformerError(f"lemmas are of words, and the data are {first.kind}s: leave them out.")
    given = frozenset(_ignored(should_ignore, first.kind, lemmatiser))
    check_labels(respondent, data)
    plan = SurveyPlan(respondent, data, given=given, kind=first.kind, **settings)
    if plan.held_out is not None:
        check_held_out(plan.held_out, data, first.kind)
        check_labels(respondent, plan.held_out)
    return plan


def _reason(data: SurveyData, number: int) -> str:
    try:
        data[number]
    except WhyformerError as error:
        return str(error)
    return ""


def _ignored(names: Iterable[str] | str | Path, kind: SampleKind, lemmatiser: Lemmatiser | None) -> Iterator[Cue]:
    """The cues that should not matter."""
    if isinstance(names, (str, Path)):
        names = _names_of_file(names)
    for name in names:
        name = " ".join(lemmatiser.of(name.split())) if lemmatiser is not None else name
        is_background = kind == "picture" and name == "masks"
        yield from BACKGROUNDS if is_background else (CUES_BY_KIND[kind](name),)


def _names_of_file(name: str | Path) -> list[str]:
    """The lines of a text file, or a single cue."""
    if Path(name).is_file():
        return [line for line in Path(name).read_text("utf-8").splitlines() if line.strip()]
    if isinstance(name, Path) or _LIKE_A_FILE.search(name):
        raise WhyformerError(f"No file {str(name)!r} with cues to ignore. Name a cue in a list: [{str(name)!r}].")
    return [name]

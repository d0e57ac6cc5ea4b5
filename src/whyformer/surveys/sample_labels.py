"""Labels of the data against those of the model: an answer can only be right if the model has the sample's label."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from whyformer.errors import WhyformerError, nearest
from whyformer.surveys.respondents import Respondent, labels_of_respondent
from whyformer.surveys.survey_data import SurveyData, SurveySample

UNLABELLED_READ = 20  # samples without a label before data count as unlabelled
LABELS_NAMED = 5  # labels in a message


def check_labels(respondent: Respondent, data: SurveyData) -> None:
    """Raise if a label is translated to one that the model lacks, or none of the data's is one of the model's."""
    known = frozenset(labels_of_respondent(respondent))
    for label, name in data.label_map.items() if known else ():
        if name not in known:
            raise WhyformerError(
                f"label_map translates {label!r} to {name!r}, which is not a label of {respondent.name}. "
                f"{nearest(name, sorted(known))}"
            )
    unknown: dict[str, None] = {}
    for number in range(len(data)):
        sample = readable_sample(data, number)
        if sample is None:
            continue
        if sample.label in known or (not unknown and number >= UNLABELLED_READ):
            return
        if sample.label is not None:
            unknown[sample.label] = None
    if unknown and not known:
        raise WhyformerError(
            f"The data have labels ({listed(unknown)}), but those of predict have no names: give labels=."
        )
    if unknown:
        data_label, own = next(iter(unknown)), sorted(known)
        raise WhyformerError(
            f"None of the labels of the data ({listed(unknown)}) is a label of {respondent.name} ({listed(own)}): "
            f"translate them by label_map={{{data_label!r}: {own[0]!r}, …}}, or --label {data_label}={own[0]} …"
        )


def readable_sample(data: SurveyData, number: int) -> SurveySample | None:
    """A sample; None if it cannot be read."""
    try:
        return data[number]
    except WhyformerError:
        return None


def unknown_labels_note(respondent: Respondent, labels: Mapping[str, int]) -> str | None:
    """A sentence on the samples whose label the model does not have, from the number of samples of each label."""
    known = labels_of_respondent(respondent)
    unknown = {label: count for label, count in labels.items() if known and label not in known}
    if not unknown:
        return None
    return (
        f"{sum(unknown.values())} of {sum(labels.values())} labelled samples have a label that {respondent.name} does "
        f"not have ({listed(unknown)}), so that every answer to them counts as wrong."
    )


def listed(names: Collection[str] | Sequence[str]) -> str:
    """The first names, separated by commas."""
    return f"{', '.join(list(names)[:LABELS_NAMED])}{' …' * (len(names) > LABELS_NAMED)}"

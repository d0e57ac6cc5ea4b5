"""Pages of single explanations, to which a report links its first examples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, islice, zip_longest
from pathlib import Path

from whyformer.api.explain import explain_batch
from whyformer.errors import WhyformerError
from whyformer.inputs.read import strings_are_texts
from whyformer.models.loading import LoadedModel
from whyformer.surveys.survey_plan import SurveyPlan
from whyformer.surveys.survey_records import Watch
from whyformer.surveys.survey_result import CueExample, Driver, FailureGroup, Survey


def with_sample_pages(result: Survey, plan: SurveyPlan, folder: Path, most: int, watch: Watch) -> Survey:
    """Save a page for each of the first samples that the report shows, and link its examples to them."""
    numbers = list(islice(dict.fromkeys(_shown(result)), most))
    pages: dict[int, str] = {}
    folder.mkdir(exist_ok=True)
    for done, number in enumerate(numbers, start=1):
        name = f"{number + 1}.html"
        if _save_page(plan, number, folder / name):
            pages[number] = f"{folder.name}/{name}"
        watch("saving pages", done, len(numbers))

    def linked(group: Driver | FailureGroup) -> tuple[CueExample, ...]:
        return tuple(replace(one, page=pages.get(one.sample)) for one in group.examples)

    return replace(
        result,
        tested=tuple(replace(driver, examples=linked(driver)) for driver in result.tested),
        failures=tuple(replace(group, examples=linked(group)) for group in result.failures),
    )


def check_pages(plan: SurveyPlan) -> None:
    """Raise for a function: its explanations would be asked for at the price of many calls."""
    if not isinstance(plan.respondent, LoadedModel):
        raise WhyformerError("pages= go with a model: leave them out for predict.")


def _shown(result: Survey) -> Iterator[int]:
    """The numbers of the examples: the first of every group, then the second, and so on."""
    groups: list[Driver | FailureGroup] = [*result.shortcuts, *result.failures, *result.drivers]
    columns = zip_longest(*([one.sample for one in group.examples] for group in groups))
    return (number for number in chain.from_iterable(columns) if number is not None)


def _save_page(plan: SurveyPlan, number: int, path: Path) -> bool:
    """Whether the page of a sample could be made."""
    assert isinstance(plan.respondent, LoadedModel)
    try:
        example = plan.data[number].example
        with strings_are_texts():
            (explanation,) = explain_batch(
                [example], plan.respondent, method=plan.method, truncate=True, **plan.options
            )
    except WhyformerError:  # explained once already: a file that is gone or damaged since
        return False
    explanation.save(path, what_if=False)
    return True

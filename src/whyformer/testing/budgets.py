"""The shortcuts of a survey against how many are allowed."""

from __future__ import annotations

from whyformer.errors import WhyformerError
from whyformer.surveys.proof import FEWEST_SAMPLES
from whyformer.surveys.survey_result import Driver, Survey


def check_shortcuts(survey: Survey, shortcuts: int) -> None:
    """Raise AssertionError if the survey has more shortcuts."""
    __tracebackhide__ = True
    ignored = [driver for driver in survey.tested if driver.should_be_ignored]
    if not any(driver.proof.samples >= FEWEST_SAMPLES for driver in ignored):
        raise WhyformerError(
            "This survey can have no shortcuts, so that its budget says nothing: name cues that should not matter by "
            f"survey(…, should_ignore=[…]), each in at least {FEWEST_SAMPLES} samples."
        )
    if len(survey.shortcuts) > shortcuts:
        count = len(survey.shortcuts)
        heading = f"{survey.model} has {count} shortcut{'s' * (count > 1)}, and {shortcuts} are allowed:"
        raise AssertionError("\n".join([heading, *map(_row, survey.shortcuts)]))


def _row(driver: Driver) -> str:
    proof = driver.proof
    return (
        f"  “{driver.cue}” for {driver.answer or 'all answers'}: {proof.excess.value:.2f} nats "
        f"[{proof.excess.low:.2f}, {proof.excess.high:.2f}], {proof.flips.value:.0%} of {proof.samples} answers "
        f"change, q = {proof.q:.2g}"
    )

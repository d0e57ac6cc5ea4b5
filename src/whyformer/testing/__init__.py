"""Reasons as tests: a pytest plugin, loaded by its entry point or by `-p whyformer.testing`.

pytest loads this module for everyone who has whyformer installed: it imports nothing heavy until a test uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from whyformer.results.explanation import Explanation
    from whyformer.surveys.survey_result import Survey

NATS_ALLOWED = 0.5  # nats: it takes a probability of 0.5 to 0.62
UPDATE_OPTION = "--update-explanations"
MARKER = "slow_explanation: an explanation or survey that takes long; leave it out by -m 'not slow_explanation'"


def assert_relies_on(
    model: Any,
    examples: Any,
    cue: str,
    *,
    tolerance: float = NATS_ALLOWED,
    processor: Any = None,
    predict: Callable[[list[Any]], Any] | None = None,
    labels: Sequence[str] | None = None,
    seed: int = 0,
) -> None:
    """Assert that a model's answers owe something to a cue: they fall without it.

    The cue is removed from every example that has it, and so are random equal parts of the same example. The mean drop
    of the answer's log-odds has to exceed that without random parts by more than the tolerance.

    Args:
        model: A model that labels texts or pictures, as in `whyformer.explain`; None with `predict`.
        examples: A list of texts or pictures, a file or a folder: all that `whyformer.survey` reads.
        cue: A word or phrase of up to three words; for pictures a region, such as "border", "centre" or "top left
            corner", or "object" or "background" where the examples have masks.
        tolerance: The difference in nats that is not enough.
        processor: The processor of your own module, if its folder has none.
        predict: Instead of a model, a function that takes a list of examples and returns an array [example, label].
        labels: The names of the labels that `predict` scores.
        seed: The seed of the random parts.

    Raises:
        AssertionError: If the answers do not rely on the cue; the message has the effect in every example.
        WhyformerError: If no example has the cue, or the model, the examples or the tolerance cannot be used.

    Example:
        >>> from whyformer.testing import assert_relies_on
        >>> assert_relies_on("mini-bert", ["a wonderful film", "a dull but wonderful film"], "wonderful")
    """
    from whyformer.testing.reliance import Respondents, check_tolerance, cue_evidence

    __tracebackhide__ = True
    check_tolerance(tolerance)
    evidence = cue_evidence(Respondents(model, processor, predict, labels), examples, cue, seed=seed)
    if not evidence.excess > tolerance:
        raise AssertionError(evidence.message(relies=False, tolerance=tolerance))


def assert_ignores(
    model: Any,
    examples: Any,
    cue: str,
    *,
    tolerance: float = NATS_ALLOWED,
    processor: Any = None,
    predict: Callable[[list[Any]], Any] | None = None,
    labels: Sequence[str] | None = None,
    seed: int = 0,
) -> None:
    """Assert that a model's answers do not depend on a cue: they stay without it.

    The cue is removed from every example that has it. In the mean of the examples, the log-odds of the answer may
    change by no more than the tolerance, upwards or downwards.

    Args:
        model: A model that labels texts or pictures, as in `whyformer.explain`; None with `predict`.
        examples: A list of texts or pictures, a file or a folder: all that `whyformer.survey` reads.
        cue: A word or phrase, or a region of a picture, as in `assert_relies_on`.
        tolerance: The largest mean change that is allowed, in nats.
        processor: The processor of your own module, if its folder has none.
        predict: Instead of a model, a function that takes a list of examples and returns an array [example, label].
        labels: The names of the labels that `predict` scores.
        seed: The seed of the random parts that the message compares the cue with.

    Raises:
        AssertionError: If the answers change; the message has the effect in every example.
        WhyformerError: If no example has the cue, or the model, the examples or the tolerance cannot be used.

    Example:
        >>> from whyformer.testing import assert_ignores
        >>> assert_ignores("mini-bert", ["a wonderful film", "a dull and boring film"], "film", tolerance=0.8)
    """
    from whyformer.testing.reliance import Respondents, check_tolerance, cue_evidence

    __tracebackhide__ = True
    check_tolerance(tolerance)
    evidence = cue_evidence(Respondents(model, processor, predict, labels), examples, cue, seed=seed)
    if not evidence.change <= tolerance:
        raise AssertionError(evidence.message(relies=True, tolerance=tolerance))


def survey_budget(survey: Survey, *, shortcuts: int = 0) -> None:
    """Assert that a survey found at most so many shortcuts: cues that should be ignored, and drive answers.

    Args:
        survey: The result of `whyformer.survey` with `should_ignore`.
        shortcuts: How many are allowed.

    Raises:
        AssertionError: If there are more; the message lists them with their effects.
        WhyformerError: If the survey could not have found any: no cue to be ignored was in enough samples.

    Example:
        >>> import whyformer
        >>> from whyformer.testing import survey_budget
        >>> films = [f"a {word} film of {year}" for word in ("wonderful", "dull") for year in range(1980, 2000)]
        >>> survey_budget(whyformer.survey("mini-bert", films, should_ignore=["film"]))
    """
    from whyformer.testing.budgets import check_shortcuts

    __tracebackhide__ = True
    check_shortcuts(survey, shortcuts)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that stores explanations."""
    group = parser.getgroup("whyformer", "reasons of Transformers (whyformer)")
    group.addoption(
        UPDATE_OPTION, action="store_true", help="store the explanations of explanation_snapshot, not compare them"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", MARKER)


@pytest.fixture
def explanation_snapshot(request: pytest.FixtureRequest) -> Callable[[str, Explanation], None]:
    """Compare an explanation with the stored one, in the folder `explanations` next to the test.

    Call it with a name and an explanation. `pytest --update-explanations` stores it; without a stored one the test
    fails. Scores may differ by the tolerance of an audit file, a share of the largest that depends on the method and
    the model's dtype.
    """
    from whyformer.testing.snapshots import Snapshots

    return Snapshots(request.path.parent / "explanations", request.config.getoption(UPDATE_OPTION)).check

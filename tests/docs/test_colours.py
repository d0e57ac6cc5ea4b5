"""The page on colours has the numbers of the code."""

from pathlib import Path

from whyformer.api.what_if import COMBINED, MOST_UNITS
from whyformer.render.colour import CLIPPED, FULL, FULL_SHARE, STANDS_OUT, VEIL
from whyformer.results.unit_effects import asked_subsets

PAGE = (Path(__file__).parents[2] / "docs" / "concepts" / "colours.md").read_text(encoding="utf-8")


def test_the_page_on_colours_says_what_the_code_does():
    assert (FULL, FULL_SHARE, CLIPPED) == (4, 0.75, 1 / 3)
    for words in ("four times the average", "three quarters of their sum", "a third of the largest"):
        assert words in PAGE
    assert f"over {STANDS_OUT:.0%} of".replace("%", " %") in PAGE
    assert f"darkened to {VEIL:.0%}".replace("%", " %") in PAGE
    assert (MOST_UNITS, COMBINED) == (12, 4)
    assert len(asked_subsets(MOST_UNITS, COMBINED)) + 2 == 34  # the question itself, and without anything
    for words in ("the twelve strongest", "the first four", "34 forward passes"):
        assert words in PAGE

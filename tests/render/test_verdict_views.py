"""Verdicts on pages, in pictures and in the terminal."""

from __future__ import annotations

from dataclasses import replace

import pytest

from whyformer import explain_response
from whyformer.render.response_page import response_page
from whyformer.render.response_view import response_view
from whyformer.render.verdict_view import NAT_METHODS
from whyformer.results.support import Citation, SourceFigures, Support, UnitSupport

PROMPT, ANSWER = "The plot was dull. The actors were bad. The music was", " great. I liked it."


def unit(verdict: str, **figures) -> UnitSupport:
    values = {"own_answer": "bad <b>", "own_log_probability": -1.0} | figures
    return UnitSupport(0, 7, " great.", 3, verdict, "Because & so.", -2.0, -9.0, -1.0, 3.0, **values)


@pytest.fixture(scope="module")
def plain():
    return explain_response(PROMPT, ANSWER, "mini-gpt", method="rollout")


@pytest.fixture(scope="module")
def judged(plain):
    own = unit(
        "from sources",
        sources=(SourceFigures(0, necessity=2.0), SourceFigures(1, necessity=-1.0)),
        carrying=(0,),
        carrying_necessity=4.0,
        citations=(Citation("[1]", 0, "used"),),
    )
    return replace(plain, verdicts=Support((own, unit("not supported")), plain.sources, 9, 20))


def test_colours_are_full_at_five_nats_and_only_for_what_sources_support(judged):
    view = response_view(judged)
    first, second, total = view.rows
    assert first == ((0, 80, 80, "+4.0 nats"), (1, -20, 20, "-1.0 nats"))
    assert second == ()
    assert [entry.source for entry in total] == [0, 1]
    assert view.full == "5 nats"


def test_a_response_without_support_is_grey_and_says_so(plain):
    grey = replace(plain, verdicts=Support((unit("not supported"), unit("from memory")), plain.sources, 4, 9))
    view = response_view(grey)
    assert not any(view.rows)
    page = response_page(grey)
    assert page.count(view.unsupported) == 1
    assert view.unsupported in str(grey)


def test_the_page_has_a_chip_for_each_sentence_and_escapes_texts(judged):
    page = response_page(judged)
    assert page.index('class="chip from-sources"') < page.index('class="exchange')
    assert page.count('class="chip ') == 2
    assert "bad &lt;b&gt;" in page
    assert "Because &amp; so." in page
    assert " used</li>" in page
    assert "not calibrated" in page


def test_the_verdict_of_the_part_that_is_shown_is_open(judged):
    view, page = response_view(judged), response_page(judged)
    verdicts = page.split('<details class="verdict"')[1:]
    assert [one.startswith(" open>") for one in verdicts] == [row == view.opening for row in range(2)]


def test_terminal_and_picture_have_the_verdicts(judged, plain):
    text = str(judged)
    assert "1 from sources, 1 not supported" in text
    assert "   from sources: Because & so." in text
    assert "9 forward passes of at most 20" in text
    assert judged.image().height > plain.image().height


def test_without_verdicts_scores_in_nats_have_an_absolute_scale_and_others_do_not(plain):
    removed = explain_response(PROMPT, ANSWER, "mini-gpt", method="leave_one_out")
    view = response_view(removed)
    strongest = max(abs(float(score)) for score in removed.scores[0])
    assert view.full == "5 nats"
    assert max(abs(entry.level) for entry in view.rows[0]) == pytest.approx(100 * min(strongest / 5, 1), abs=0.51)
    assert response_view(plain).full == ""


def without_sources(prompts, responses):
    """Log-probabilities by word that hardly depend on the prompt."""
    words = [[f"{word} " for word in response.split()] for response in responses]
    return [[(word, -0.5 - len(prompt) / 1e5) for word in own] for prompt, own in zip(prompts, words, strict=True)]


@pytest.mark.parametrize("method", NAT_METHODS)
def test_no_source_has_a_bar_for_an_effect_that_is_nil(method):
    settings = {"context": ["Anna is a baker.", "Boris is in Oslo."], "score": without_sources, "method": method}
    response = explain_response("Where is Boris?", "He is in Oslo. ", **settings)
    assert abs(response.scores).max() < 0.01
    assert response_view(response).rows == ((),)

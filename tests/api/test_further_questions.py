"""Further questions about a sentence: their figures are those of plain forward passes, asked only where they matter."""

from __future__ import annotations

import pytest
from test_loaded_scorer import by_plain_forward

import whyformer
from whyformer.api.answer_support import answer_support
from whyformer.api.further_questions import FURTHER, PROPOSED, THREE_WAYS, further_figures
from whyformer.api.loaded_scorer import LoadedScorer
from whyformer.api.replies import reply_of
from whyformer.api.source_removal import levels_of
from whyformer.api.support_questions import CountedScorer, SupportQuestions
from whyformer.api.verdict_figures import FIGURES, JUDGED, figures_of
from whyformer.inputs.prompt_encoding import encode_prompt
from whyformer.inputs.sources import sources_of
from whyformer.inputs.spans import spans_of
from whyformer.results.support_schema import read_unit, support_dict

PROMPT = [{"role": "user", "content": "Boris is in Oslo. Anna is a baker. Greta took the key.\n\nWhere is Boris?"}]
ANSWER = "Boris is in Oslo."


@pytest.fixture(scope="module")
def llm():
    return whyformer.load("mini-llm", device="cpu")


@pytest.fixture(scope="module")
def questions(llm):
    opening = encode_prompt(llm, PROMPT, None)
    reply = reply_of(llm, opening, ANSWER)
    levels = levels_of(reply.prompt, sources_of(reply.prompt))
    places = tuple((one.start, one.end) for one in levels.all)
    scorer = CountedScorer(LoadedScorer(llm))
    spans = spans_of(reply.text, reply.tokens, None)
    return SupportQuestions(scorer, reply.prompt, reply.text, reply.tokens, spans, places, levels.all)


def plain(llm, text: str, words: tuple[str, str]) -> float:
    """The log-odds of one word against another, by forward passes on a prompt of its own."""
    scorer = LoadedScorer(llm)
    prompt = scorer.prompt([{"role": "user", "content": text}])
    values = []
    for word in words:
        ids = [token.id for token in scorer.response(prompt, word)]
        values.append(float(by_plain_forward(scorer, scorer.variant(prompt), ids).sum()))
    return values[0] - values[1]


def test_figures_are_those_of_plain_forwards(llm, questions):
    asked, question = further_figures(questions, 0, FURTHER), "Where is Boris?"
    assert list(asked) == list(FURTHER)
    tail = PROPOSED.format(answer=ANSWER)
    whole = PROMPT[0]["content"]
    assert asked["proposed"] == pytest.approx(plain(llm, whole + tail, ("Yes", "No")), abs=1e-3)
    sentences = ["Boris is in Oslo.", "Anna is a baker.", "Greta took the key."]
    without, *alone = (
        plain(llm, f"{text}{question}{tail}", ("Yes", "No")) for text in ("", *(f"{one}\n\n" for one in sentences))
    )
    assert asked["proposed_alone"] == pytest.approx(max(alone) - without, abs=1e-3)
    three = plain(llm, whole + THREE_WAYS.format(answer=ANSWER), ("B", "A"))
    assert asked["denied_or_supported"] == pytest.approx(three, abs=1e-3)


def test_every_question_is_a_figure_that_only_judges_ask(questions):
    assert set(FURTHER) <= set(FIGURES)
    assert set(FURTHER) <= JUDGED


def test_they_are_asked_on_request_kept_in_files_and_part_of_the_figures(llm):
    plain_support = answer_support(llm, PROMPT, ANSWER)
    assert not plain_support.units[0].answers
    support = answer_support(llm, PROMPT, ANSWER, judge=True)
    (unit,) = support.units
    assert set(unit.answers) == set(FURTHER)
    assert read_unit(support_dict(support)["units"][0]).answers == unit.answers
    assert set(FURTHER) <= set(figures_of(unit))


def test_a_budget_leaves_them_out(llm):
    support = answer_support(llm, PROMPT, ANSWER, judge=True, budget=12)
    assert support.forwards <= 12

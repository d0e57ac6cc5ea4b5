"""Verdicts on responses: their figures are those of plain forward passes, and false answers are told from true ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from test_loaded_scorer import by_plain_forward

import whyformer
from whyformer import Response, WhyformerError, explain_response
from whyformer.api.calibration_data import case_response
from whyformer.api.loaded_scorer import LoadedScorer
from whyformer.facts import support_case
from whyformer.removal.response_scorer import ScoringRequest
from whyformer.render.response_page import response_page
from whyformer.render.response_view import response_view

MAKERS = ["true", "twice", "made_up", "swapped", "unanswerable"]


@pytest.fixture(scope="module")
def llm():
    return whyformer.load("mini-llm", device="cpu")


@pytest.fixture(scope="module")
def uncalibrated(monkeypatch_module):
    monkeypatch_module.setattr("whyformer.api.support_origin.calibration_of", lambda model: None)


@pytest.fixture(scope="module")
def monkeypatch_module():
    with pytest.MonkeyPatch.context() as patch:
        yield patch


@pytest.fixture(scope="module")
def response(llm, uncalibrated):
    cases = (support_case(seed, "several", register="plain", sentences=6) for seed in range(20))
    mixed = (case for case in cases if {one.kind for one in case.statements} == {"true", "made_up"})
    return case_response(llm, next(mixed))


@pytest.mark.parametrize("kind", MAKERS)
def test_thresholds_tell_false_answers_of_facts_world_from_true_ones(llm, uncalibrated, kind):
    for seed in range(3):
        case = support_case(seed, kind, register="plain", sentences=6)
        (unit,) = case_response(llm, case).support().units
        assert unit.verdict in case.statements[0].verdicts


@pytest.mark.parametrize(
    ("documents", "question", "answer"),
    [
        ("Boris has the coat. Anna is in Oslo. Clara gave the lamp to Boris.", "Who has the hat?", "Anna has the hat."),
        ("The lamp is in Rome. Greta took the key. Hugo is in Paris.", "Where is the key?", "The key is in Paris."),
    ],
)
def test_the_two_false_answers_are_not_supported(llm, uncalibrated, documents, question, answer):
    prompt = [{"role": "user", "content": f"{documents}\n\n{question}"}]
    response = explain_response(prompt, answer, llm, support=True)
    assert [unit.verdict for unit in response.verdicts.units] == ["not supported"]
    assert not response.verdicts.has_support
    view = response_view(response)
    assert not any(view.rows)  # nothing is coloured
    assert response_page(response).count(view.unsupported) == 1


def test_what_the_sources_state_and_what_was_said_before_is_counted(llm, uncalibrated):
    prompt = [{"role": "user", "content": "Boris is in Oslo. Anna is a baker.\n\nWhere is Boris?"}]
    response = explain_response(prompt, "Boris is in Oslo. Boris is in Oslo. Boris is in Rome.", llm, units="sentence")
    values = [unit.value for unit in response.support(sources=False).units]
    assert [(one.stated, one.said_before) for one in values] == [(1, 0), (1, 1), (0, 0)]


def test_figures_are_those_of_plain_forwards(llm, response):
    support, scorer = response.support(), LoadedScorer(llm)
    ids = [token.id for token in response.tokens]
    sentences = [(one.start, one.end) for one in support.sources]
    whole = by_plain_forward(scorer, scorer.variant(response.prompt), ids)
    without = by_plain_forward(scorer, scorer.variant(response.prompt, sentences), ids)
    for unit, row in zip(support.units, response.rows, strict=True):
        own = list(row.tokens)
        assert unit.log_probability == pytest.approx(whole[own].sum(), abs=1e-3)
        assert unit.without_sources == pytest.approx(without[own].sum(), abs=1e-3)
        assert unit.lowest == pytest.approx(whole[own].min(), abs=1e-3)
        assert unit.largest_gain == pytest.approx((whole - without)[own].max(), abs=1e-3)
        for figures in unit.sources:
            values = by_plain_forward(scorer, scorer.variant(response.prompt, [sentences[figures.source]]), ids)
            assert figures.necessity == pytest.approx((whole - values)[own].sum(), abs=1e-3)


def test_what_the_model_would_have_written_has_its_own_log_probability(llm, response):
    scorer, unit = LoadedScorer(llm), response.support().units[0]
    tokens = scorer.response(response.prompt, unit.own_answer)
    values = by_plain_forward(scorer, scorer.variant(response.prompt), [token.id for token in tokens])
    assert unit.own_log_probability == pytest.approx(values.sum(), abs=1e-3)
    assert unit.own_answer == scorer.write(scorer.variant(response.prompt), 32).strip() or len(response.rows) > 1


def test_a_variant_takes_the_place_of_its_unit(llm, response):
    support, scorer = response.support(judge=True), LoadedScorer(llm)
    sentences = [(one.start, one.end) for one in support.sources]
    compared = 0
    for unit in support.units:
        variants = [(unit.denial, [], "log_probability"), (unit.denial, sentences, "without_sources")]
        for variant, removed, name in [(unit.rival, [], "log_probability"), *variants]:
            if variant is None or variant.text == unit.text.strip():
                continue
            text = response.text[: unit.start] + variant.text
            tokens = scorer.response(response.prompt, text)
            own = [number for number, token in enumerate(tokens) if token.end > unit.start]
            ids = [token.id for token in tokens]
            values = by_plain_forward(scorer, scorer.variant(response.prompt, removed), ids)
            assert getattr(variant, name) == pytest.approx(values[own].sum(), abs=1e-3)
            compared += 1
    assert compared >= 5


def test_verdicts_alone_take_fewer_forwards_and_are_the_same(response):
    whole, alone = response.support(), response.support(sources=False)
    assert [unit.verdict for unit in alone.units] == [unit.verdict for unit in whole.units]
    assert alone.forwards < whole.forwards
    assert not any(unit.sources or unit.carrying for unit in alone.units)


def test_the_carrying_set_takes_half_of_what_all_sources_give(llm, uncalibrated):
    for seed in range(4):
        case = support_case(seed, "twice", register="plain", sentences=6)
        (unit,) = case_response(llm, case).support().units
        if unit.carrying:
            assert unit.carrying_necessity >= unit.necessity / 2
            assert set(unit.carrying) & {number for cause in case.statements[0].causes for number in cause}


def test_a_budget_is_kept_and_said(response):
    support = response.support(budget=4)
    assert support.forwards <= 4 < response.support().forwards
    assert len(support.units) == 2
    with pytest.raises(WhyformerError, match="budget=1: a verdict takes two forward passes at least"):
        response.support(budget=1)
    with pytest.raises(WhyformerError, match="support has no option 'budgets'"):
        response.support(budgets=1)


def test_each_source_can_be_tried_alone(llm, response):
    support, scorer = response.support(alone=True), LoadedScorer(llm)
    places = [(one.start, one.end) for one in support.sources]
    row = next(row for row, unit in enumerate(support.units) if unit.sources)
    figures = support.units[row].sources[0]
    ids, own = [token.id for token in response.tokens], list(response.rows[row].tokens)
    others = [place for number, place in enumerate(places) if number != figures.source]
    alone, none = (
        by_plain_forward(scorer, scorer.variant(response.prompt, removed), ids)[own].sum()
        for removed in (others, places)
    )
    assert figures.sufficiency == pytest.approx(alone - none, abs=1e-3)


def test_the_judgement_is_the_log_odds_of_yes(llm, response):
    unit = response.support(judge=True).units[0]
    assert np.isfinite([unit.judgement, unit.judgement_without]).all()
    assert response.support().units[0].judgement is None


def test_verdicts_survive_files_and_responses_without_a_model_refuse(llm, uncalibrated, tmp_path):
    case = support_case(1, "true", register="plain", sentences=6)
    response = case_response(llm, case)
    response = replace(response, verdicts=response.support(alone=True, judge=True))
    for suffix in ("json", "npz"):
        file = Path(tmp_path) / f"response.{suffix}"
        response.save(file)
        assert Response.load(file) == response
    with pytest.raises(WhyformerError, match="This response was loaded from a file"):
        Response.load(file).support()


def test_citations_are_used_or_not(llm, uncalibrated):
    sentences = ["Boris is in Oslo.", "Anna is in Rome.", "Clara is a baker."]
    prompt = [{"role": "user", "content": f"{' '.join(sentences)}\n\nWhere is Boris?"}]
    response = explain_response(prompt, "Boris is in Oslo. [1][3][9]", llm, units=[(0, 27)])
    (unit,) = response.support().units
    assert [(one.source, one.status) for one in unit.citations] == [
        (0, "used"),
        (2, "does not support"),
        (None, "unknown source"),
    ]
    assert 0 not in unit.uncited
    (unit,) = response.support(citations={"[3]": "Clara is a baker."}).units
    assert 0 in unit.uncited


def test_a_model_that_only_scores_gets_the_figures_of_the_loaded_one(gpt):
    scorer = LoadedScorer(gpt)
    prompt, answer = "The film was long. The music was dull. All in all the film was", " dull and long."

    def score(prompts, responses):
        for text, response in zip(prompts, responses, strict=True):
            own = scorer.prompt(text)
            tokens = scorer.response(own, response)
            (values,) = scorer.log_probabilities([ScoringRequest(scorer.variant(own), tokens, response)])
            yield [(token.text, float(value)) for token, value in zip(tokens, values, strict=True)]

    served = explain_response(
        prompt, answer, score=lambda *pairs: list(score(*pairs)), method="leave_one_out", support=True
    )
    (unit,), (expected,) = served.verdicts.units, explain_response(prompt, answer, gpt, support=True).verdicts.units
    assert unit.log_probability == pytest.approx(expected.log_probability, abs=1e-3)
    assert unit.without_sources == pytest.approx(expected.without_sources, abs=1e-3)
    assert (unit.own_answer, unit.score) == (None, None)

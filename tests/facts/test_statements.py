"""Answers with known support: what they say of the documents is so."""

from __future__ import annotations

from typing import get_args

import pytest

from whyformer import WhyformerError
from whyformer.facts import support_case
from whyformer.facts.known_facts import known_facts
from whyformer.facts.prose_register import PROSE_DOMAINS
from whyformer.facts.statements import PLAIN_STATEMENTS, StatementKind, denial
from whyformer.inputs.verdicts import VERDICTS

KINDS = get_args(StatementKind)


@pytest.mark.parametrize("register", ["prose", "plain"])
def test_the_same_seed_gives_the_same_case(register):
    for kind in PLAIN_STATEMENTS:
        assert support_case(5, kind, register=register) == support_case(5, kind, register=register)
        assert support_case(5, kind, register=register) != support_case(6, kind, register=register)


@pytest.mark.parametrize("seed", range(12))
def test_values_are_in_the_documents_or_not_as_the_kind_says(seed):
    text = {kind: " ".join(one for _, one in support_case(seed, kind).documents) for kind in KINDS}
    for kind in ("true", "twice"):
        case = support_case(seed, kind)
        assert case.value in text[kind]
        assert all(
            any(case.value in case.documents[place][1] for place in cause) for cause in case.statements[0].causes
        )
    made_up = support_case(seed, "made_up").statements[0].text
    last = made_up.removesuffix(".").split()
    assert not any(f" {made_up.removesuffix('.')} " in f" {text['made_up']} " for _ in last)
    swapped = support_case(seed, "swapped")
    assert swapped.value not in swapped.answer.split()
    assert support_case(seed, "unanswerable").value == ""


def test_twice_has_two_causes_and_several_has_two_statements():
    assert all(len(support_case(seed, "twice", sentences=20).statements[0].causes) >= 1 for seed in range(5))
    cases = (support_case(seed, "several") for seed in range(20))
    case = next(case for case in cases if [one.kind for one in case.statements] == ["made_up", "true"])
    assert case.answer == " ".join(one.text for one in case.statements)
    (cause,) = case.statements[1].causes
    assert max(cause) < len(case.documents)


@pytest.mark.parametrize("register", ["prose", "plain"])
def test_what_is_true_does_not_depend_on_the_half_that_a_seed_is_in(register):
    """Calibration fits on even seeds and counts errors on odd ones."""
    share = {}
    for half in (0, 1):
        cases = [support_case(seed, "several", register=register, sentences=8) for seed in range(half, 80, 2)]
        for place in (0, 1):
            share[half, place] = sum(case.statements[place].kind == "true" for case in cases) / len(cases)
    assert all(0.25 < one < 0.75 for one in share.values()), share


@pytest.mark.parametrize("seed", range(12))
def test_the_opposite_of_a_made_up_value_is_true(seed):
    case = support_case(seed, "denied_made_up")
    (statement,) = case.statements
    assert " not " in statement.text
    assert "contradicted" not in statement.verdicts
    assert case.value not in statement.text.removesuffix(".").split()
    assert case.value in " ".join(case.documents[place][1] for place in statement.causes[0])


def test_answers_to_unanswerable_questions_have_values_of_others_in_both_halves():
    for half in (0, 1):
        cases = [support_case(seed, "unanswerable") for seed in range(half, 40, 2)]
        stated = [
            case.statements[0].text.removesuffix(".").split()[-1] in " ".join(text for _, text in case.documents)
            for case in cases
        ]
        assert 0 < sum(stated) < len(stated)


def test_verdicts_are_known_and_facts_known_by_heart_are_not_in_the_documents():
    for kind in KINDS:
        assert {one for statement in support_case(1, kind).statements for one in statement.verdicts} <= set(VERDICTS)
    case = support_case(3, "by_heart")
    assert case.value in case.answer
    assert not any(case.value in text for _, text in case.documents)
    assert all(value.lower() in answer.lower() for _, answer, value in known_facts())


def test_denials_deny():
    assert denial("It works for 3 hours.") == "It does not work for 3 hours."
    assert support_case(4, "denied").statements[0].verdicts == ("contradicted",)
    with pytest.raises(WhyformerError, match="has none of the verbs"):
        denial("Nothing here.")


def test_the_plain_register_refuses_kinds_that_it_lacks():
    with pytest.raises(WhyformerError, match="No plain statements of kind 'denied'"):
        support_case(0, "denied", register="plain")


def test_a_made_up_value_in_other_words_is_worded_as_a_true_one_is_and_occurs_nowhere():
    for seed in range(12):
        case = support_case(seed, "made_up_reworded")
        text, documents = case.statements[0].text, " ".join(one for _, one in case.documents)
        forms = {
            (attribute.reworded.format(value=value.reworded).lower().removesuffix("."), value.stated)
            for domain in PROSE_DOMAINS.values()
            for attribute in domain.attributes
            for value in attribute.values
        }
        stated = {value for form, value in forms if form == text.lower().removesuffix(".")}
        assert stated
        assert any(value not in documents for value in stated)
        assert case.value not in stated


def test_no_well_known_fact_is_in_both_halves():
    facts = known_facts()
    assert len(set(facts)) == len(facts)
    assert len(facts) % 2 == 0  # seeds go round: an odd number would lead a fact into the other half

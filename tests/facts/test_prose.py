"""The prose register: what a passage says is true, its causes are the only ones, and other words mean the same."""

import re
from collections import Counter
from fractions import Fraction

import pytest

from whyformer import WhyformerError
from whyformer.facts import prose, word_overlap
from whyformer.facts.number_words import ONES, TENS, spelled, spelled_year
from whyformer.facts.prose_register import NOT_STATED, PROSE_DOMAINS, PROSE_KINDS
from whyformer.facts.prose_wording import DOSES, DURATIONS, PERSONS

PASSAGES = [prose(seed) for seed in range(300)]
ATTRIBUTES = [(domain, attribute) for domain in PROSE_DOMAINS.values() for attribute in domain.attributes]
PARTS = {"half": "1/2", "quarter": "1/4", "tenth": "1/10", "fifth": "1/5", "fifths": "1/5", "quarters": "1/4"}
SMALL = {word: number for number, word in enumerate(ONES)} | {word: 10 * n for n, word in enumerate(TENS, start=2)}


def number_in(text):
    """What a spelled number means, read word by word."""
    total = current = 0
    for word in re.findall(r"[a-z]+", text):
        if word == "hundred":
            current *= 100
        elif word == "thousand":
            total, current = total + 1000 * current, 0
        elif word in SMALL:
            current += SMALL[word]
    return total + current


def quantity_in(text):
    """A number with halves, quarters and so on, such as `an hour and three quarters`."""
    words = re.findall(r"[a-z]+", text)
    whole, count, total = 0, None, Fraction(0)
    for word in words:
        if word in ("a", "an"):
            count = 1
        elif word in SMALL:
            count = SMALL[word]
        elif word in PARTS:
            total, count = total + Fraction(PARTS[word]) * (count or 1), None
        elif word in ("hour", "hours", "gram", "grams", "and"):
            whole, count = whole + (count or 0) * (word != "of"), None
    is_part_alone = words[-3:-1] in (["of", "an"], ["of", "a"]) or words[:1] == ["half"]
    return total if is_part_alone else total + whole


@pytest.mark.parametrize("number", [*range(0, 130), 370, 1000, 1001, 1850, 2040, 4700, 31_000, 999_999])
def test_a_spelled_number_means_the_number(number):
    assert number_in(spelled(number)) == number


def test_years_are_read_in_two_halves():
    assert [spelled_year(year) for year in (1912, 1804, 1900)] == [
        "nineteen twelve",
        "eighteen oh four",
        "nineteen hundred",
    ]


@pytest.mark.parametrize(("wordings", "units"), [(DURATIONS, 60), (DOSES, 1000)])
def test_a_quantity_in_another_unit_is_the_same_quantity(wordings, units):
    for one in wordings:
        assert quantity_in(one.reworded) * units == int(one.stated), one


@pytest.mark.parametrize(("domain", "attribute"), ATTRIBUTES, ids=lambda one: one.name)
def test_the_other_wording_shares_less_than_half_of_its_words_with_any_statement(domain, attribute):
    for value in attribute.values:
        answer = attribute.reworded.format(value=value.reworded)
        for form in attribute.statements:
            statement = form.format(entity=domain.entities[0], value=value.stated)
            assert word_overlap(answer, statement) < 0.5
            assert value.stated in statement
        assert value.stated.lower() not in answer.lower().split()
    assert value.stated in attribute.answer.format(value=value.stated)
    assert len({one.stated for one in attribute.values}) == len({one.reworded for one in attribute.values})


def test_names_are_distinct_and_none_is_part_of_another():
    names = [*PERSONS, *(name for domain in PROSE_DOMAINS.values() for name in domain.entities)]
    assert len(set(names)) == len(names)
    assert not [(one, other) for one in names for other in names if one != other and one in other]


def test_the_causes_are_the_only_statements_of_what_is_asked():
    for passage in PASSAGES:
        question = passage.question
        stating = {
            number
            for number, one in enumerate(passage.sentences)
            if one.entity == question.entity and one.attribute == question.attribute
        }
        assert {number for cause in question.causes for number in cause} >= stating
        assert len(stating) == {"plain": 1, "twice": 2, "unknown": 0}[question.kind]
        for cause in question.causes:
            assert len(cause) == question.hops
            texts = [passage.sentences[number].text for number in cause]
            assert any(question.value in text and question.entity.lower() in text.lower() for text in texts)
            assert all(question.entity.lower() in text.lower() for text in texts)


def test_two_hops_are_found_by_a_person_whom_the_question_names():
    for passage in PASSAGES:
        question = passage.question
        named = [one for one in passage.sentences if one.attribute == "person" and one.value in question.text]
        assert len(named) == (question.hops == 2)
        assert (question.entity in question.text) == (question.hops == 1)
        assert all(one.entity == question.entity for one in named)


def test_the_same_is_said_of_at_least_three_others():
    for passage in PASSAGES:
        others = {one.entity for one in passage.sentences if one.attribute == passage.question.attribute}
        assert len(others - {passage.question.entity}) >= 3


def test_one_thing_is_said_of_each_entity_but_for_facts_stated_twice():
    for passage in PASSAGES:
        counts = Counter((one.entity, one.attribute) for one in passage.sentences if one.entity)
        double = [key for key, count in counts.items() if count > 1]
        question = passage.question
        assert double == ([(question.entity, question.attribute)] if question.kind == "twice" else [])


def test_values_with_enough_alternatives_are_said_of_one_entity_only():
    for passage in PASSAGES:
        question = passage.question
        attribute = next(one for one in PROSE_DOMAINS[passage.domain].attributes if one.name == question.attribute)
        if question.kind != "unknown" and len(attribute.values) >= 16:
            entities = {
                one.entity
                for one in passage.sentences
                if one.attribute == question.attribute and one.value == question.value
            }
            assert entities == {question.entity}


def test_an_unknown_answer_has_no_cause_and_says_so():
    unknown = [passage.question for passage in PASSAGES if passage.question.kind == "unknown"]
    assert unknown
    assert all((one.causes, one.answer, one.reworded) == ((), NOT_STATED, NOT_STATED) for one in unknown)


def test_offsets_are_those_of_the_document_and_of_the_prompt():
    for passage in PASSAGES[:50]:
        for one in passage.sentences:
            assert passage.document[one.start : one.end] == passage.prompt[one.start : one.end] == one.text


def test_passages_have_as_many_sentences_as_asked_and_vary():
    assert [len(prose(1, sentences=count).sentences) for count in (8, 20, 60)] == [8, 20, 60]
    assert {len(passage.sentences) for passage in PASSAGES} >= {*range(10, 60, 5)}
    assert {passage.question.kind for passage in PASSAGES} == set(PROSE_KINDS)
    assert {passage.domain for passage in PASSAGES} == set(PROSE_DOMAINS)
    assert prose(7) == prose(7) != prose(8)


def test_without_its_sentences_a_passage_keeps_the_rest_and_the_question():
    passage = prose(2, sentences=9, kind="plain", hops=1)
    ((number,),) = passage.question.causes
    shorter = passage.without([number])
    assert passage.sentences[number].text not in shorter
    assert all(one.text in shorter for n, one in enumerate(passage.sentences) if n != number)
    assert shorter.endswith(passage.question.text + " Answer in one short sentence.")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sentences": 7}, "sentences=7 to 7: a passage has 8 to 60."),
        ({"hops": 3}, "hops=3: 1 or 2."),
        ({"kind": "update"}, "No kind of question named 'update'. Known: plain, twice, unknown."),
        ({"domain": "zoo"}, "No domain named 'zoo'. Known: company, ship, mountain hut, medicine, novel."),
    ],
)
def test_options_that_there_are_not_are_refused(options, message):
    with pytest.raises(WhyformerError, match=f"^{re.escape(message)}$"):
        prose(0, **options)

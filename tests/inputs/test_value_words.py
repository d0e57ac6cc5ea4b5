"""The value of a statement, the statement with another value, and its opposite."""

from __future__ import annotations

import pytest

from whyformer.inputs.negation import negated
from whyformer.inputs.prompt_tokens import Token
from whyformer.inputs.value_words import stated_share, value_tokens, value_words, with_value_of


@pytest.mark.parametrize(
    ("text", "question", "words"),
    [
        ("It has 1,560 beds.", "How many beds has the hut?", ["1,560"]),
        ("The keeper is Pavel Novak.", "Who is the keeper?", ["Pavel", "Novak"]),
        ("A staff of twenty-four.", "How many employees has it?", ["staff", "twenty-four"]),
        ("It is.", "Is it?", []),
    ],
)
def test_a_value_is_what_the_question_does_not_say(text, question, words):
    assert [text[start:end] for start, end in value_words(text, question)] == words


def test_the_tokens_of_a_value_are_those_on_its_words():
    text = "It has 1,560 beds."
    places = [(0, 2), (2, 6), (6, 8), (8, 12), (12, 17), (17, 18)]
    tokens = [Token(number, text[start:end], start, end) for number, (start, end) in enumerate(places)]
    assert value_tokens(text, tokens, range(6), "How many beds?") == (2, 3)
    assert value_tokens(text, tokens, range(6), "Are there 1,560 beds?") == tuple(range(6))


@pytest.mark.parametrize(
    ("text", "other", "question", "expected"),
    [
        ("It takes 36 days.", "The crossing takes 44 days.", "How long is the crossing?", "It takes 44 days."),
        ("It has 38 beds.", "The answer is: 215", "How many beds?", "It has 215 beds."),
        ("The keeper is Pavel Novak.", "It is Signe Thorsen.", "Who is the keeper?", "The keeper is Signe Thorsen."),
        ("Taken before meals.", "It is taken after meals.", "When does one take it?", "Taken after meals."),
        ("It has 84 beds.", "The hut has 84 beds.", "How many beds has the hut?", "It has 84 beds."),
        ("It has 84 beds.", "It has beds.", "How many beds?", None),
        ("It is.", "It has 84 beds.", "Is it?", None),
    ],
)
def test_a_value_is_replaced_by_the_one_of_another_answer(text, other, question, expected):
    assert with_value_of(text, other, question) == expected


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("It has 370 employees.", "It does not have 370 employees."),
        ("It was founded in 1912.", "It was not founded in 1912."),
        ("It does not have 370 employees.", "It does have 370 employees."),
        ("It isn't red.", "It is red."),
        ("Nothing here.", None),
    ],
)
def test_the_opposite_has_a_not_more_or_less(statement, expected):
    assert negated(statement) == expected


@pytest.mark.parametrize(
    ("text", "question", "sources", "share"),
    [
        ("It weighs 1,300 grams.", "How much does it weigh?", ["The box is 1,300 grams.", "It weighs 1,200 grams."], 1),
        ("It weighs 300 grams.", "How much does it weigh?", ["The box is 1,300 grams."], 0),
        ("From 9:30 to 12.", "When is it open?", ["It opens at 9:30.", "It shuts at 12."], 0.5),
        ("The keeper is Pavel Novak.", "Who is the keeper?", ["Pavel Berg keeps it."], 0.5),
        ("It has 84 beds.", "Are there 84 beds?", ["The hut has beds."], 0.5),
        ("It is.", "Is it?", ["It is."], 0),
        ("A staff of nine.", "How many?", [], 0),
    ],
)
def test_a_value_is_stated_if_one_source_has_its_numbers_or_else_its_words(text, question, sources, share):
    assert stated_share(text, question, sources) == share

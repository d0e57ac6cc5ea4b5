"""Facts World: the truth of every document against what its text says, sentence by sentence removed."""

from __future__ import annotations

import doctest
import inspect
import re
from dataclasses import replace
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import whyformer.facts
from whyformer import WhyformerError
from whyformer.facts import (
    KINDS,
    POOLS,
    SPLITS,
    UNKNOWN,
    Example,
    document_generation,
    documents,
    example,
    examples,
    interpreter,
    question,
    without,
)
from whyformer.facts.names import POOL_OF, split_of
from whyformer.facts.wording import FACT_TEMPLATES

SEEDS = st.integers(0, 10**9)
NAMES = "|".join(POOL_OF)


@pytest.fixture(scope="module")
def stories() -> list[Example]:
    return examples(400, seed=7)


def read(text: str) -> tuple[str, str, str]:
    """What a sentence says, by its words alone."""
    for (subject_pool, value_pool), templates in FACT_TEMPLATES.items():
        for template in templates:
            pattern = re.escape(template)
            for slot in ("subject", "value", "other"):
                pattern = pattern.replace(rf"\{{{slot}\}}", f"(?P<{slot}>{NAMES})")
            match = re.fullmatch(pattern, text)
            if match and (POOL_OF[match["subject"]], POOL_OF[match["value"]]) == (subject_pool, value_pool):
                relation = value_pool if value_pool in ("colour", "job") else "place"
                return relation, match["subject"], match["value"]
    raise AssertionError(text)


def naive_answer(texts: list[str], ask: str, subject: str) -> str:
    """The answer of somebody who reads from the first sentence to the last and remembers what was said last."""
    state = {}
    for relation, about, value in map(read, texts):
        state[relation, about] = value
    if ask in ("colour", "job"):
        return state.get((ask, subject), UNKNOWN)
    here = subject
    for _ in range(len(texts)):
        here = state.get(("place", here))
        if here is None:
            return UNKNOWN
        if POOL_OF[here] == {"where": "town", "who": "person"}[ask]:
            return here
    return UNKNOWN


@given(SEEDS, st.sampled_from(sorted(SPLITS)), st.integers(1, 2))
@settings(max_examples=60)
def test_the_answer_is_what_the_text_says(seed, split, count):
    story = example(seed, split=split, questions=count, sentences=(12, 40))
    texts = [sentence.text for sentence in story.sentences]
    for asked in story.questions:
        assert naive_answer(texts, asked.ask, asked.subject) == asked.value


@given(SEEDS, st.sampled_from(sorted(KINDS)))
@settings(max_examples=60)
def test_one_sentence_matters_if_every_cause_has_it_and_not_otherwise(seed, kind):
    story = example(seed, kind=kind)
    causes = story.questions[0].causes
    for number in range(len(story.sentences)):
        is_needed = bool(causes) and all(number in cause for cause in causes)
        assert (without(story, [number]).answer != story.answer) == is_needed


@given(SEEDS, st.sampled_from(["plain", "update", "twice"]), st.integers(1, 3))
@settings(max_examples=60)
def test_each_cause_suffices_and_without_all_of_them_the_answer_is_another(seed, kind, hops):
    story = example(seed, kind=kind, hops=hops)
    asked, everything = story.questions[0], range(len(story.sentences))
    assert all(len(cause) == hops for cause in asked.causes)
    for cause in asked.causes:
        assert without(story, set(everything) - set(cause)).answer == story.answer
    assert without(story, set(chain(*asked.causes))).answer != story.answer
    others = set(everything) - set(chain(*asked.causes))
    assert without(story, others).answer == story.answer


@given(SEEDS)
@settings(max_examples=40)
def test_no_sentence_makes_an_unknown_answer_known_by_its_absence(seed):
    story = example(seed, kind="unknown")
    assert story.answer == "Unknown."
    assert story.questions[0].causes == ()
    assert all(without(story, [number]).answer == "Unknown." for number in range(len(story.sentences)))


@given(SEEDS)
@settings(max_examples=40)
def test_an_overridden_fact_counts_only_without_the_later_one(seed):
    story = example(seed, kind="update", hops=1)
    asked = story.questions[0]
    (cause,), overridden = asked.causes, asked.overridden
    assert max(overridden) < cause[0]
    assert without(story, overridden).answer == story.answer
    assert without(story, cause).questions[0].causes[0][0] == overridden[-1]


@given(SEEDS)
@settings(max_examples=40)
def test_a_fact_stated_twice_has_two_causes_and_either_may_go(seed):
    story = example(seed, kind="twice", hops=2)
    first, second = story.questions[0].causes
    (only_first,), (only_second,) = set(first) - set(second), set(second) - set(first)
    assert without(story, [only_first]).answer == without(story, [only_second]).answer == story.answer
    assert without(story, [only_first, only_second]).answer != story.answer


def test_offsets_are_those_of_the_document_and_of_the_prompt(stories):
    for story in stories[:100]:
        for number, sentence in enumerate(story.sentences):
            assert story.document[sentence.start : sentence.end] == sentence.text
            words = {story.prompt[start:end] for start, end in story.words([number])}
            assert words == {sentence.fact.subject, sentence.fact.value}
        shorter = without(story, [0])
        assert shorter.document == story.document[story.sentences[1].start :]
        assert all(shorter.document[one.start : one.end] == one.text for one in shorter.sentences)


def test_a_sentence_says_its_fact(stories):
    for sentence in chain.from_iterable(story.sentences for story in stories[:50]):
        assert read(sentence.text) == (sentence.fact.relation, sentence.fact.subject, sentence.fact.value)


def test_no_pair_of_names_is_brought_together_in_two_splits():
    pairs = {}
    for split in SPLITS:
        sentences = chain.from_iterable(story.sentences for story in examples(200, split=split))
        pairs[split] = {(sentence.fact.subject, sentence.fact.value) for sentence in sentences}
        assert {split_of(*pair) for pair in pairs[split]} == {split}
    assert {name for pair in pairs["test"] for name in pair} <= {name for pair in pairs["train"] for name in pair}


def test_documents_have_every_length_kind_and_number_of_hops_and_needles_everywhere(stories):
    stories = stories + examples(1200, seed=10_000)
    assert {len(story.sentences) for story in stories} == set(range(3, 61))
    asked = [story.questions[0] for story in stories]
    assert {one.kind for one in asked} == set(KINDS)
    assert {one.hops for one in asked if one.causes} == {1, 2, 3}
    places = [
        10 * one.causes[0][0] // len(story.sentences)
        for one, story in zip(asked, stories, strict=True)
        if one.hops == 1 and one.kind == "plain"
    ]
    counts = [places.count(tenth) for tenth in range(10)]
    assert min(counts) > len(places) / 20
    assert any(story.questions[0].causes[0] == (0,) for story in stories if story.questions[0].kind == "plain")
    assert any(
        story.questions[0].causes[0] == (len(story.sentences) - 1,)
        for story in stories
        if story.questions[0].kind == "plain"
    )


def test_a_question_alone_does_not_give_its_answer_away(stories):
    known = [story.questions[0] for story in stories if story.questions[0].ask == "where" and story.questions[0].causes]
    assert len({one.value for one in known}) > len(POOLS["town"]) * 0.8


def test_the_same_seed_gives_the_same_document_and_another_seed_another():
    assert example(5) == example(5) == examples(3, seed=4)[1]
    assert example(5) != example(6)
    assert example(5) != example(5, split="train")


def test_several_questions_have_an_answer_each():
    story = example(2, questions=2, sentences=12, kind="plain", hops=2)
    assert story.question == " ".join(one.text for one in story.questions)
    assert [f"{one}." for one in story.answer.split(". ")] == [
        story.questions[0].answer,
        story.questions[1].answer + ".",
    ]
    assert story.messages == [{"role": "user", "content": f"{story.document}\n\n{story.question}"}]


def test_things_inside_each_other_are_nowhere():
    story = example(0, sentences=3)
    facts = [interpreter.Fact("place", "box", "bag"), interpreter.Fact("place", "bag", "box")]
    sentences = [replace(story.sentences[number], fact=fact) for number, fact in enumerate(facts)]
    assert question(sentences, "where", "box").value == UNKNOWN


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": "dev"}, "No split named 'dev'. Known: train, validation, test."),
        ({"kind": "hard"}, "No kind of question named 'hard'. Known: plain, update, twice, unknown."),
        ({"hops": 4}, "hops=4: a known answer takes 1 to 3."),
        ({"hops": 3, "kind": "unknown"}, "hops=3: an unknown answer takes 0 to 2."),
        ({"sentences": 2}, "sentences=2 to 2: a document has 3 to 60."),
        ({"sentences": (9, 5)}, "sentences=9 to 5: a document has 3 to 60."),
        (
            {"questions": 30, "sentences": 30},
            "30 sentences are too few for 30 questions: use fewer, or more sentences.",
        ),
        ({"questions": 0}, "questions=0: at least one."),
        (
            {"sentences": 4, "hops": 3, "kind": "update"},
            "4 sentences are too few for these options: up to 5 may be needed.",
        ),
    ],
)
def test_an_option_that_cannot_be_is_a_clear_error(options, message):
    with pytest.raises(WhyformerError) as error:
        example(0, **options)
    assert str(error.value) == message


def test_a_question_that_cannot_be_is_a_clear_error():
    story = example(0, sentences=3)
    with pytest.raises(WhyformerError, match=r"No question of the kind 'when'. Known: where, who, colour, job."):
        question(story.sentences, "when", "key")
    with pytest.raises(
        WhyformerError, match="'Anna' cannot be the subject of a question 'who', which takes a thing or contai"
    ):
        question(story.sentences, "who", "Anna")
    with pytest.raises(WhyformerError, match=r"No sentence 3: the document has 3, counted from 0."):
        without(story, [3])


@pytest.mark.parametrize("module", [whyformer.facts, documents, document_generation])
def test_the_examples_of_the_docstrings_run(module):
    results = doctest.testmod(module)
    assert results.attempted > 0
    assert results.failed == 0


@pytest.mark.parametrize("name", whyformer.facts.__all__)
def test_every_public_function_says_what_it_takes_and_gives_with_an_example(name):
    value = getattr(whyformer.facts, name)
    if inspect.isfunction(value):
        sections = ["Args:", "Returns:", "Example:"] + ["Raises:"] * ("raise " in inspect.getsource(value))
        assert [section for section in sections if section not in value.__doc__] == []

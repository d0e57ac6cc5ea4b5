"""Answers with known support: true, invented, swapped, denied, known by heart; and the verdict each should get."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from whyformer.errors import WhyformerError, check_choice
from whyformer.facts.document_generation import QuestionKind, example
from whyformer.facts.documents import Example, Question
from whyformer.facts.interpreter import UNKNOWN
from whyformer.facts.known_facts import known_facts
from whyformer.facts.names import POOL_OF, POOLS
from whyformer.facts.prose_register import PROSE_DOMAINS, Passage, ProseKind, prose
from whyformer.facts.prose_wording import Attribute
from whyformer.facts.wording import answer_of
from whyformer.inputs.negation import VERBS, negated
from whyformer.inputs.verdicts import Verdict

StatementKind = Literal[
    "true",
    "reworded",
    "twice",
    "made_up",
    "made_up_reworded",
    "swapped",
    "unanswerable",
    "denied",
    "denied_made_up",
    "by_heart",
    "several",
    "repeated",
]
PLAIN_STATEMENTS: tuple[StatementKind, ...] = ("true", "twice", "made_up", "swapped", "unanswerable", "several")
DOCUMENT_SENTENCES = 3  # sentences of a document
FALSE: tuple[Verdict, ...] = ("not supported", "contradicted")
_FEWEST_VALUES = 5  # of an attribute, to make one up
_ATTEMPTS = 200


@dataclass(frozen=True)
class Statement:
    """A sentence of an answer.

    Attributes:
        text: The sentence.
        kind: How it was made.
        verdicts: The verdicts that are right for it, the expected one first.
        causes: Sets of documents, by number, each of which suffices for it; empty if none supports it.
    """

    text: str
    kind: str
    verdicts: tuple[Verdict, ...]
    causes: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True)
class SupportCase:
    """A question about documents, and an answer of which it is known whether the documents support it.

    Attributes:
        seed: The seed that it was drawn by.
        kind: How its answer was made.
        documents: The documents: (name, text).
        question: The question.
        statements: The sentences of the answer.
        value: The words that answer the question rightly; empty if the documents do not say.
        is_plain: Whether it is of Facts World's plain register, whose documents are sentences of one text.
    """

    seed: int
    kind: str
    documents: tuple[tuple[str, str], ...]
    question: str
    statements: tuple[Statement, ...]
    value: str
    is_plain: bool = False

    @property
    def answer(self) -> str:
        """The answer: its sentences with a space between them."""
        return " ".join(statement.text for statement in self.statements)

    @property
    def prompt(self) -> str:
        """The documents as one text, an empty line, and the question."""
        separator = " " if self.is_plain else "\n\n"
        return f"{separator.join(text for _, text in self.documents)}\n\n{self.question}"


def support_case(
    seed: int, kind: StatementKind = "true", *, register: Literal["prose", "plain"] = "prose", sentences: int = 12
) -> SupportCase:
    """A question about documents with an answer of known support.

    Args:
        seed: Which case; the same seed gives the same case.
        kind: "true", "reworded" (in other words), "twice" (stated in two sentences), "made_up" (a value that occurs
            nowhere), "made_up_reworded" (the same in other words), "swapped" (the value of another entity). Or
            "unanswerable" (not stated, answered all the same), "denied" (the opposite of a stated fact),
            "denied_made_up" (true: the opposite of a made-up value), "by_heart" (well known, not stated). Or "several"
            (two sentences, each true or made up) or "repeated" (a true sentence, twice).
        register: "prose", or "plain" for Facts World's own sentences, which has fewer kinds.
        sentences: How many sentences the documents have.

    Returns:
        The case.

    Raises:
        WhyformerError: If the register has no such kind, or an option is out of range.

    Example:
        >>> from whyformer.facts import support_case
        >>> case = support_case(2, "made_up")
        >>> case.answer, case.statements[0].verdicts[0]
        ('It is violet.', 'not supported')
    """
    check_choice("kind", kind, StatementKind)
    if register == "plain":
        if kind not in PLAIN_STATEMENTS:
            raise WhyformerError(f"No plain statements of kind {kind!r}. Known: {', '.join(PLAIN_STATEMENTS)}.")
        return _plain_case(random.Random(f"plain {kind} {seed}"), seed, kind, sentences)
    return _MAKERS[kind](random.Random(f"support {kind} {seed}"), seed, kind, sentences)


def _prose(rng: random.Random, sentences: int, kind: ProseKind = "plain", values: int = 0) -> Passage:
    """A passage with one question whose attribute has at least so many values."""
    for _ in range(_ATTEMPTS):
        passage = prose(rng.randrange(10**9), sentences=sentences, hops=1, kind=kind)
        if len(_pool(passage)) >= values:
            return passage
    raise AssertionError("an attribute with values is drawn within a few attempts")


def _pool(passage: Passage) -> list[str]:
    return [value.stated for value in _attribute(passage).values]


def _attribute(passage: Passage) -> Attribute:
    """The attribute that the question is about."""
    return next(one for one in PROSE_DOMAINS[passage.domain].attributes if one.name == passage.question.attribute)


def _case(seed: int, kind: str, passage: Passage, *statements: Statement) -> SupportCase:
    starts = range(0, len(passage.sentences), DOCUMENT_SENTENCES)
    texts = [" ".join(one.text for one in passage.sentences[start : start + DOCUMENT_SENTENCES]) for start in starts]
    documents = tuple((f"doc-{number}", text) for number, text in enumerate(texts, 1))
    return SupportCase(seed, kind, documents, passage.question.text, statements, passage.question.value)


def _causes(passage: Passage) -> tuple[tuple[int, ...], ...]:
    sets = (sorted({number // DOCUMENT_SENTENCES for number in cause}) for cause in passage.question.causes)
    return tuple(dict.fromkeys(map(tuple, sets)))


def _answer(passage: Passage, value: str) -> str:
    return _attribute(passage).answer.format(value=value)


def _supported(rng: random.Random, seed: int, kind: str, sentences: int) -> SupportCase:
    passage = _prose(rng, sentences, "twice" if kind == "twice" else "plain")
    text = passage.question.reworded if kind == "reworded" else passage.question.answer
    return _case(seed, kind, passage, Statement(_ended(text), kind, ("from sources",), _causes(passage)))


def _ended(text: str) -> str:
    return text if text[-1] in ".!?" else f"{text}."


def _made_up(rng: random.Random, seed: int, kind: str, sentences: int) -> SupportCase:
    passage = _prose(rng, sentences, values=_FEWEST_VALUES)
    return _case(seed, kind, passage, Statement(_answer(passage, _absent(rng, passage)), kind, FALSE))


def _made_up_reworded(rng: random.Random, seed: int, kind: str, sentences: int) -> SupportCase:
    """A value that occurs nowhere in the passage, put as "reworded" puts a true one."""
    passage = _prose(rng, sentences, values=_FEWEST_VALUES)
    attribute = _attribute(passage)
    value = _absent(rng, passage)
    reworded = next(one.reworded for one in attribute.values if one.stated == value)
    text = attribute.reworded.format(value=reworded)
    return _case(seed, kind, passage, Statement(_ended(text[0].upper() + text[1:]), kind, FALSE))


def _absent(rng: random.Random, passage: Passage) -> str:
    """A value that occurs nowhere in the passage."""
    return rng.choice([value for value in _pool(passage) if value not in passage.document] or _pool(passage)[-1:])


def _others(passage: Passage) -> list[str]:
    question = passage.question
    stated = {
        one.value for one in passage.sentences if one.attribute == question.attribute and one.entity != question.entity
    }
    return sorted(stated - {question.value})


def _swapped(rng: random.Random, seed: int, kind: str, sentences: int) -> SupportCase:
    passage = _prose(rng, sentences, values=_FEWEST_VALUES)
    return _case(seed, kind, passage, Statement(_answer(passage, rng.choice(_others(passage))), kind, FALSE))


def _unanswerable(rng: random.Random, seed: int, kind: str, sentences: int) -> SupportCase:
    passage = _prose(rng, sentences, "unknown", _FEWEST_VALUES)
    value = rng.choice(_others(passage)) if rng.random() < 0.5 else _absent(rng, passage)
    return _case(seed, kind, passage, Statement(_answer(passage, value), kind, ("not supported",)))


def denial(statement: str) -> str:
    """A short statement with its first verb denied.

    Args:
        statement: A sentence such as those of the prose register.

    Returns:
        Its opposite.

    Raises:
        WhyformerError: If it has no verb that is known here.

    Example:
        >>> from whyformer.facts.statements import denial
        >>> denial("It has 370 employees."), denial("It was founded in 1912.")
        ('It does not have 370 employees.', 'It was not founded in 1912.')
    """
    denied = negated(statement)
    if denied is None:
        raise WhyformerError(f"{statement!r} has none of the verbs is, are, was, {', '.join(VERBS)}.")
    return denied


def _denied(rng: random.Random, seed: int, kind: str, sentences: int) -> SupportCase:
    passage = _prose(rng, sentences)
    return _case(seed, kind, passage, Statement(denial(passage.question.answer), kind, ("contradicted",)))


def _denied_made_up(rng: random.Random, seed: int, kind: str, sentences: int) -> SupportCase:
    """A true sentence with a "not": without such ones, "contradicted" could be told by that word alone."""
    passage = _prose(rng, sentences, values=_FEWEST_VALUES)
    text = denial(_answer(passage, _absent(rng, passage)))
    return _case(seed, kind, passage, Statement(text, kind, ("from sources", "cannot tell"), _causes(passage)))


def _by_heart(rng: random.Random, seed: int, kind: str, sentences: int) -> SupportCase:
    facts = known_facts()
    question, answer, value = facts[seed % len(facts)]
    case = _case(seed, kind, _prose(rng, sentences), Statement(answer, kind, ("from memory",)))
    return replace(case, question=question, value=value)


def _several(rng: random.Random, seed: int, kind: str, sentences: int) -> SupportCase:
    """Two questions about documents of two domains, each answered truly or with a made-up value."""
    passages = [_prose(rng, max(8, sentences // 2), values=_FEWEST_VALUES)]
    while len(passages) < 2:
        other = _prose(rng, max(8, sentences // 2), values=_FEWEST_VALUES)
        passages += [other] * (other.domain != passages[0].domain)
    cases = [
        _case(
            seed,
            kind,
            passage,
            Statement(passage.question.answer, "true", ("from sources",), _causes(passage))
            if rng.random() < 0.5
            else Statement(_answer(passage, _absent(rng, passage)), "made_up", FALSE),
        )
        for passage in passages
    ]
    texts = [text for case in cases for _, text in case.documents]
    shift = len(cases[0].documents)
    second = cases[1].statements[0]
    moved = replace(second, causes=tuple(tuple(one + shift for one in cause) for cause in second.causes))
    return SupportCase(
        seed,
        kind,
        tuple((f"doc-{number}", text) for number, text in enumerate(texts, 1)),
        " ".join(case.question for case in cases),
        (cases[0].statements[0], moved),
        cases[0].value,
    )


def _repeated(rng: random.Random, seed: int, kind: str, sentences: int) -> SupportCase:
    passage = _prose(rng, sentences)
    first = Statement(passage.question.answer, "true", ("from sources",), _causes(passage))
    return _case(seed, kind, passage, first, Statement(first.text, "repeated", ("repeats the response",)))


_MAKERS: dict[str, Callable[[random.Random, int, str, int], SupportCase]] = {
    **dict.fromkeys(("true", "reworded", "twice"), _supported),
    "made_up": _made_up,
    "made_up_reworded": _made_up_reworded,
    "swapped": _swapped,
    "unanswerable": _unanswerable,
    "denied": _denied,
    "denied_made_up": _denied_made_up,
    "by_heart": _by_heart,
    "several": _several,
    "repeated": _repeated,
}


def _plain_case(rng: random.Random, seed: int, kind: StatementKind, sentences: int) -> SupportCase:
    wanted: dict[str, QuestionKind] = {"twice": "twice", "unanswerable": "unknown"}
    questions = 2 if kind == "several" else 1
    story = example(rng.randrange(10**9), sentences=sentences, kind=wanted.get(kind, "plain"), questions=questions)
    makers = [rng.choice(("true", "made_up")) if kind == "several" else kind for _ in story.questions]
    statements = [
        _plain_statement(rng, story, question, maker) for question, maker in zip(story.questions, makers, strict=True)
    ]
    first = story.questions[0]
    value = "" if first.value == UNKNOWN else first.value
    documents = tuple(("", sentence.text) for sentence in story.sentences)
    return SupportCase(seed, kind, documents, story.question, tuple(statements), value, is_plain=True)


def _plain_statement(rng: random.Random, story: Example, question: Question, kind: str) -> Statement:
    if kind in ("true", "twice"):
        return Statement(question.answer, kind, ("from sources",), question.causes)
    pool = _values_of(story, question)
    stated = {value for value in pool if re.search(rf"\b{value}\b", story.document)} - {question.value}
    absent = sorted(set(pool) - stated - {question.value})
    is_swapped = kind == "swapped" or (kind == "unanswerable" and rng.random() < 0.5)
    value = rng.choice(sorted(stated) if is_swapped and stated else absent)
    text = answer_of(question.ask, question.subject, value)
    return Statement(text, kind, ("not supported",) if kind == "unanswerable" else FALSE)


def _values_of(story: Example, question: Question) -> Sequence[str]:
    pools = {"where": "town", "who": "person", "colour": "colour", "job": "job"}
    values = POOLS[pools[question.ask]]
    return tuple(value for value in values if value != question.subject and POOL_OF[value] == pools[question.ask])

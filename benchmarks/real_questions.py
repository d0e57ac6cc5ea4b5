"""Questions for real models: which of them a model answers from the text, and which are dropped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from whyformer.facts import Passage, prose, word_overlap
from whyformer.facts.prose_register import PROSE_DOMAINS

if TYPE_CHECKING:
    from real_writer import Writer

ANSWERS = ("verbatim", "reworded", "own")
LEAST_LOSS = 1.0  # nats that an answer in the text's words must lose without its sentences


@dataclass(frozen=True)
class Question:
    """A passage and its question, with the seed that they are drawn by."""

    seed: int
    passage: Passage

    @property
    def true(self) -> list[int]:
        """The sentences that the answer depends on, of all causes."""
        return sorted({number for cause in self.passage.question.causes for number in cause})

    @property
    def facts(self) -> dict[str, Any]:
        asked = self.passage.question
        return {
            "domain": self.passage.domain,
            "attribute": asked.attribute,
            "kind": asked.kind,
            "hops": asked.hops,
            "sentences": len(self.passage.sentences),
            "causes": [list(cause) for cause in asked.causes],
        }

    def overlap(self, answer: str) -> float:
        """The largest share of an answer's content words that one of its sentences has."""
        sentences = self.passage.sentences
        return round(max(word_overlap(answer, sentences[number].text) for number in self.true), 4)


@dataclass(frozen=True)
class Answer:
    """An answer that is explained, whether it is kept, and what that was decided by."""

    kind: str
    text: str
    is_kept: bool
    figures: dict[str, Any]

    @property
    def facts(self) -> dict[str, Any]:
        return {"text": self.text, "kept": self.is_kept, **self.figures}


def questions(seeds: Iterable[int], *, sentences: tuple[int, int]) -> Iterator[Question]:
    """The questions of these seeds that have an answer."""
    for seed in seeds:
        passage = prose(seed, sentences=sentences)
        if passage.question.kind != "unknown":
            yield Question(seed, passage)


def asked(questions: Sequence[Question], writer: Writer, kinds: Sequence[str]) -> Iterator[tuple[Question, Answer]]:
    """Each kind of answer to each question, with the decision whether it is kept."""
    prompts = [(one.passage.prompt, one.passage.without(one.true)) for one in questions]
    if "verbatim" in kinds:
        answers = [one.passage.question.answer for one in questions]
        requests = [(prompt, answer) for pair, answer in zip(prompts, answers, strict=True) for prompt in pair]
        values = iter(writer.log_probabilities(requests))
        for question, answer in zip(questions, answers, strict=True):
            loss = next(values) - next(values)
            yield question, Answer("verbatim", answer, loss >= LEAST_LOSS, {"loss": round(loss, 4)})
    others = [kind for kind in ("reworded", "own") if kind in kinds]
    if not others:
        return
    written = iter(writer.write([prompt for pair in prompts for prompt in pair]))
    for question in questions:
        own, other = next(written), next(written)
        is_kept = says(own, question) and not says(other, question)
        figures = {"own": own, "own_without": other}
        for kind in others:
            text = question.passage.question.reworded if kind == "reworded" else own
            yield question, Answer(kind, text, is_kept, figures)


def says(text: str, question: Question) -> bool:
    """Whether an answer has the value, as the text states it or in other words."""
    about = question.passage.question
    attribute = next(one for one in PROSE_DOMAINS[question.passage.domain].attributes if one.name == about.attribute)
    value = next(one for one in attribute.values if one.stated == about.value)
    return any(_plain(wording) in _plain(text) for wording in (value.stated, value.reworded))


def _plain(text: str) -> str:
    """Lower case, numbers without their commas, words by single spaces, with one at either end."""
    words = re.findall(r"[\w’-]+", re.sub(r"(?<=\d),(?=\d)", "", text.lower()))
    return f" {' '.join(words)} "

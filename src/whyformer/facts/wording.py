"""Write facts, questions and answers as text."""

from __future__ import annotations

from whyformer.facts.interpreter import UNKNOWN, Ask, Fact
from whyformer.facts.names import POOL_OF

# By the pools of subject and value. {other} is a person without facts.
FACT_TEMPLATES: dict[tuple[str, str], tuple[str, ...]] = {
    ("person", "town"): ("{subject} is in {value}.", "{subject} went to {value}.", "{subject} stays in {value}."),
    ("person", "person"): ("{subject} is with {value}.", "{subject} joined {value}."),
    ("thing", "person"): (
        "{value} has the {subject}.",
        "{value} took the {subject}.",
        "{other} gave the {subject} to {value}.",
    ),
    ("thing", "container"): ("The {subject} is in the {value}.", "{other} put the {subject} into the {value}."),
    ("thing", "town"): ("The {subject} is in {value}.", "{other} left the {subject} in {value}."),
    ("thing", "colour"): ("The {subject} is {value}.", "{other} painted the {subject} {value}."),
    ("person", "job"): ("{subject} is a {value}.", "{subject} works as a {value}."),
}
FACT_TEMPLATES |= {
    ("container", value): texts for (subject, value), texts in FACT_TEMPLATES.items() if subject == "thing"
}
QUESTIONS = {
    "where": "Where is {subject}?",
    "who": "Who has {subject}?",
    "colour": "What colour is {subject}?",
    "job": "What does {subject} do?",
}
ANSWER_TEMPLATES = {
    "where": "{subject} is in {value}.",
    "who": "{value} has {subject}.",
    "colour": "{subject} is {value}.",
    "job": "{subject} is a {value}.",
}
NO_ANSWER = "Unknown."


def _pieces(template: str) -> tuple[tuple[str, str], ...]:
    """A template as pairs of the text before a slot and the slot; the last slot is empty."""
    parts = [part.partition("}") for part in template.split("{")]
    slots = [slot for slot, _, _ in parts[1:]] + [""]
    texts = [parts[0][0]] + [text for _, _, text in parts[1:]]
    return tuple(zip(texts, slots, strict=True))


_PIECES = {pools: tuple(map(_pieces, templates)) for pools, templates in FACT_TEMPLATES.items()}


def templates_of(fact: Fact) -> int:
    """Number of phrasings of a fact."""
    return len(_PIECES[POOL_OF[fact.subject], POOL_OF[fact.value]])


def sentence_of(fact: Fact, template: int, other: str) -> tuple[str, tuple[tuple[int, int], ...]]:
    """Write a fact; return the sentence, and the ranges of its subject and value in the order of the text."""
    text, words = "", []
    for before, slot in _PIECES[POOL_OF[fact.subject], POOL_OF[fact.value]][template]:
        text += before
        if slot == "other":
            text += other
        elif slot:
            name = fact.subject if slot == "subject" else fact.value
            words.append((len(text), len(text) + len(name)))
            text += name
    return text, tuple(words)


def question_text(ask: Ask, subject: str) -> str:
    return QUESTIONS[ask].format(subject=_named(subject))


def answer_of(ask: Ask, subject: str, value: str) -> str:
    if value == UNKNOWN:
        return NO_ANSWER
    text = ANSWER_TEMPLATES[ask].format(subject=_named(subject), value=value)
    return text[0].upper() + text[1:]


def _named(subject: str) -> str:
    return subject if POOL_OF[subject] == "person" else f"the {subject}"

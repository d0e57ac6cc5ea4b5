"""Natural prose with invented values: passages, a question each, and the sentences that its answer depends on."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product
from typing import Literal

from whyformer.errors import WhyformerError
from whyformer.facts.prose_goods import COMPANY, MEDICINE, NOVEL
from whyformer.facts.prose_travel import HUT, SHIP
from whyformer.facts.prose_wording import PERSONS, Attribute, ProseDomain, Wording

PROSE_DOMAINS = {domain.name: domain for domain in (COMPANY, SHIP, HUT, MEDICINE, NOVEL)}
ProseKind = Literal["plain", "twice", "unknown"]
PROSE_KINDS: dict[ProseKind, float] = {"plain": 0.65, "twice": 0.2, "unknown": 0.15}  # how often each is drawn
SHORTEST_PASSAGE, LONGEST_PASSAGE = 8, 60
RIVALS = 3  # other entities, at least, of which the same is said
SETTING_SHARE = 0.15  # of the sentences say nothing that is asked about
NOT_STATED = "The text does not say."
PERSON = "person"
# Words that carry no content, in measuring how many of an answer's words its source has.
STOP_WORDS = frozenset(
    "a an and are as at be been by for from had has have her his in is it its of on one or she somebody some that the "
    "their there they this to was were what when which who will with".split()
)


@dataclass(frozen=True)
class ProseSentence:
    """A sentence of a passage: its text, its place in the document, and what it states; `entity` is "" for none."""

    text: str
    start: int
    entity: str = ""
    attribute: str = ""
    value: str = ""

    @property
    def end(self) -> int:
        return self.start + len(self.text)


@dataclass(frozen=True)
class ProseQuestion:
    """A question about a passage, its answer in the text's words and in others, and its truth.

    Attributes:
        text: The question.
        answer: The answer as the text puts it.
        reworded: The same in other words: numbers spelled out, other units, synonyms, negations.
        value: What the text states.
        entity: The entity that it is about.
        attribute: The attribute in question.
        kind: "plain", "twice" (a fact is stated twice, in two wordings: either suffices) or "unknown".
        hops: 1, or 2 where the question names the person through which the entity is known.
        causes: Sets of sentences, by number: each suffices. None where the text does not say.
    """

    text: str
    answer: str
    reworded: str
    value: str
    entity: str
    attribute: str
    kind: ProseKind
    hops: int
    causes: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Passage:
    """A passage of prose and a question about it.

    Attributes:
        domain: What it is about.
        sentences: Its sentences, in order.
        question: The question, its answers and its truth.
    """

    domain: str
    sentences: tuple[ProseSentence, ...]
    question: ProseQuestion

    @property
    def document(self) -> str:
        """The text: the sentences with a space between them."""
        return " ".join(sentence.text for sentence in self.sentences)

    @property
    def prompt(self) -> str:
        """The model's input: the document, an empty line, the question. The document's offsets hold in it too."""
        return f"{self.document}\n\n{self.question.text} Answer in one short sentence."

    def without(self, numbers: Iterable[int]) -> str:
        """The prompt less some sentences.

        Args:
            numbers: Their numbers.

        Returns:
            The shorter prompt.

        Example:
            >>> from whyformer.facts import prose
            >>> passage = prose(0, sentences=8)
            >>> len(passage.without(passage.question.causes[0])) < len(passage.prompt)
            True
        """
        left_out = set(numbers)
        kept = [one.text for number, one in enumerate(self.sentences) if number not in left_out]
        return f"{' '.join(kept)}{self.prompt[len(self.document) :]}"


def prose(
    seed: int = 0,
    *,
    sentences: int | tuple[int, int] = (SHORTEST_PASSAGE, LONGEST_PASSAGE),
    hops: int | None = None,
    kind: ProseKind | None = None,
    domain: str | None = None,
) -> Passage:
    """A passage of natural prose with a question, answers in the text's words and in others, and their truth.

    Names and values are invented, so that no model knows them. The same is said of other entities in sentences of the
    same form, with other values.

    Args:
        seed: Which passage; the same seed gives the same passage.
        sentences: How many sentences, or from how few to how many: 8 to 60.
        hops: 1, or 2 where the entity must be found by its person first; drawn where None.
        kind: "plain", "twice" (stated twice, in two wordings) or "unknown" (not stated); drawn where None.
        domain: "company", "ship", "mountain hut", "medicine" or "novel"; drawn where None.

    Returns:
        The passage.

    Raises:
        WhyformerError: An option has a value that there is not.

    Example:
        >>> from whyformer.facts import prose
        >>> question = prose(1, sentences=8, hops=1, kind="plain", domain="company").question
        >>> question.text, question.answer, question.reworded
        ('What does Calixa make?', 'It makes shoes.', 'Its goods are what people wear on their feet.')
    """
    fewest, most = (sentences, sentences) if isinstance(sentences, int) else sentences
    _check(fewest, most, hops, kind, domain)
    rng = random.Random(f"prose {seed}")
    subject = PROSE_DOMAINS[domain or rng.choice(list(PROSE_DOMAINS))]
    kind = kind or rng.choices(list(PROSE_KINDS), list(PROSE_KINDS.values()))[0]
    hops = hops or rng.choice((1, 2))
    return _passage(rng, subject, rng.randint(fewest, most), hops, kind)


def word_overlap(answer: str, source: str) -> float:
    """The share of an answer's content words that its source has.

    Args:
        answer: The answer.
        source: The sentence it comes from.

    Returns:
        From 0 to 1; 0 where the answer has no content word.

    Example:
        >>> from whyformer.facts import word_overlap
        >>> word_overlap("It has 370 employees.", "Velora has 370 employees."), word_overlap("A lot.", "Much.")
        (1.0, 0.0)
    """
    own, others = (
        [word for word in re.findall(r"[\w’']+", text.lower()) if word not in STOP_WORDS] for text in (answer, source)
    )
    return sum(word in others for word in own) / len(own) if own else 0.0


def _passage(rng: random.Random, domain: ProseDomain, count: int, hops: int, kind: ProseKind) -> Passage:
    attribute, entities = rng.choice(domain.attributes), rng.sample(domain.entities, len(domain.entities))
    entity, rivals = entities[0], entities[1:]
    values = _values(rng, domain, entities)

    def sentence(of: str, what: str) -> ProseSentence:
        forms = domain.person if what == PERSON else _named(domain, what).statements
        value = values[of, what].stated
        return ProseSentence(_capital(rng.choice(forms).format(entity=of, value=value)), 0, of, what, value)

    needed = [sentence(entity, PERSON)] if hops == 2 else []
    if kind != "unknown":
        needed.append(sentence(entity, attribute.name))
    needed += [sentence(rival, attribute.name) for rival in rivals[:RIVALS]]
    needed += [sentence(rival, PERSON) for rival in rivals[: RIVALS - 1]] if hops == 2 else []
    if kind == "twice":
        again = needed[1 if hops == 2 else 0]
        texts = [_capital(form.format(entity=entity, value=again.value)) for form in attribute.statements]
        text = rng.choice([text for text in texts if text != again.text])
        needed.append(ProseSentence(text, 0, entity, attribute.name, again.value))
    settings = rng.sample(domain.setting, min(len(domain.setting), int(SETTING_SHARE * count)))
    chosen = needed + [ProseSentence(text, 0) for text in settings][: max(0, count - len(needed))]
    states = {(one.entity, one.attribute) for one in chosen} | {(entity, attribute.name)}
    more = [
        (of, what)
        for of in entities
        for what in (PERSON, *(one.name for one in domain.attributes))
        if (of, what) not in states
    ]
    rng.shuffle(more)
    chosen += [sentence(of, what) for of, what in more[: count - len(chosen)]]
    rng.shuffle(chosen)
    placed = _placed(chosen)
    question = _question(placed, domain, attribute, entity, values, hops, kind)
    return Passage(domain.name, placed, question)


def _values(rng: random.Random, domain: ProseDomain, entities: list[str]) -> dict[tuple[str, str], Wording]:
    """A value of every attribute for every entity: no two entities share one, as far as there are so many."""
    values: dict[tuple[str, str], Wording] = {}
    people = [Wording(name, name) for name in rng.sample(PERSONS, len(entities))]
    for name, known in ((PERSON, people), *((one.name, list(one.values)) for one in domain.attributes)):
        drawn = rng.sample(known, len(known))
        for number, entity in enumerate(entities):
            values[entity, name] = drawn[number % len(drawn)]
    return values


def _placed(sentences: Iterable[ProseSentence]) -> tuple[ProseSentence, ...]:
    placed, start = [], 0
    for one in sentences:
        placed.append(ProseSentence(one.text, start, one.entity, one.attribute, one.value))
        start += len(one.text) + 1
    return tuple(placed)


def _question(
    sentences: tuple[ProseSentence, ...],
    domain: ProseDomain,
    attribute: Attribute,
    entity: str,
    values: dict[tuple[str, str], Wording],
    hops: int,
    kind: ProseKind,
) -> ProseQuestion:
    subject = domain.by_person.format(value=values[entity, PERSON].stated) if hops == 2 else entity
    links = [_stating(sentences, entity, what) for what in ((PERSON,) if hops == 2 else ()) + (attribute.name,)]
    value = values[entity, attribute.name]
    answer, reworded = (NOT_STATED, NOT_STATED)
    if kind != "unknown":
        answer, reworded = attribute.answer.format(value=value.stated), attribute.reworded.format(value=value.reworded)
    return ProseQuestion(
        text=attribute.question.format(subject=subject),
        answer=answer,
        reworded=_capital(reworded),
        value=value.stated if kind != "unknown" else "",
        entity=entity,
        attribute=attribute.name,
        kind=kind,
        hops=hops,
        causes=tuple(tuple(sorted(cause)) for cause in product(*links)) if kind != "unknown" else (),
    )


def _stating(sentences: tuple[ProseSentence, ...], entity: str, attribute: str) -> list[int]:
    return [n for n, one in enumerate(sentences) if (one.entity, one.attribute) == (entity, attribute)]


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _named(domain: ProseDomain, name: str) -> Attribute:
    return next(attribute for attribute in domain.attributes if attribute.name == name)


def _check(fewest: int, most: int, hops: int | None, kind: str | None, domain: str | None) -> None:
    if not SHORTEST_PASSAGE <= fewest <= most <= LONGEST_PASSAGE:
        raise WhyformerError(f"sentences={fewest} to {most}: a passage has {SHORTEST_PASSAGE} to {LONGEST_PASSAGE}.")
    if hops not in (None, 1, 2):
        raise WhyformerError(f"hops={hops!r}: 1 or 2.")
    if kind is not None and kind not in PROSE_KINDS:
        raise WhyformerError(f"No kind of question named {kind!r}. Known: {', '.join(PROSE_KINDS)}.")
    if domain is not None and domain not in PROSE_DOMAINS:
        raise WhyformerError(f"No domain named {domain!r}. Known: {', '.join(PROSE_DOMAINS)}.")

"""Random documents: chains of facts in random order, with questions about some of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Literal

from whyformer.errors import WhyformerError
from whyformer.facts.documents import Example, Sentence, derivation_kind, laid_out, stated
from whyformer.facts.interpreter import UNKNOWN, Ask, Derivation, Fact, Relation, derive
from whyformer.facts.names import CONTAINERS, PARTNERS, PEOPLE, POOL_OF, THINGS, check_split
from whyformer.facts.wording import sentence_of, templates_of

QuestionKind = Literal["plain", "update", "twice", "unknown"]
KINDS: dict[QuestionKind, float] = {
    "plain": 0.45,
    "update": 0.2,
    "twice": 0.15,
    "unknown": 0.2,
}  # how often each is drawn
HOPS = {1: 0.4, 2: 0.35, 3: 0.25}
FEWEST_SENTENCES, MOST_SENTENCES = 3, 60
ATTEMPTS = 1000  # two or three usually suffice
# An update takes two more sentences than its chain: the overridden statement, and where that leads.
ROOM = {"plain": 0, "update": 2, "twice": 1, "unknown": 0}


class _Draft:
    """The facts of a document under construction, and which may still be added."""

    def __init__(self, rng: random.Random, split: str) -> None:
        self.rng, self.partners = rng, PARTNERS[split]
        self.facts: list[Fact] = []
        self.settled: set[tuple[Relation, str]] = set()  # no further fact may be added about these
        self.mentioned: list[str] = []  # whose place is not stated yet
        self.depth: dict[str, int] = {}  # hops from a subject to its town

    def draw(self, names: Sequence[str], relation: Relation) -> str | None:
        """Draw one of the names without a fact yet."""
        for _ in range(4):  # nearly always enough, and much cheaper than filtering all names
            name = names[int(self.rng.random() * len(names))]
            if (relation, name) not in self.settled:
                return name
        free = [name for name in names if (relation, name) not in self.settled]
        return self.rng.choice(free) if free else None

    def attribute(self, ask: Ask, kind: QuestionKind) -> str:
        """State the colour of a thing or the job of a person; return the subject."""
        relation: Relation = "colour" if ask == "colour" else "job"
        names = THINGS + CONTAINERS if ask == "colour" else PEOPLE
        subject = self.draw(names, relation) or names[0]
        self.settled.add((relation, subject))
        values = self.rng.sample(self.partners[subject][ask], 2)
        if kind != "unknown":
            self.say(relation, subject, values, kind)
        return subject

    def chain(self, ask: Ask, hops: int, kind: QuestionKind) -> str:
        """State in `hops` facts where a subject is, leaving the chain open if unknown; return the subject."""
        subject = here = self._subject(ask)
        special = self.rng.randrange(hops) if hops else 0
        for left in reversed(range(hops)):
            self.settled.add(("place", here))
            ways = self._ways(here, ask, left, is_broken=kind == "unknown")
            self.say("place", here, ways, kind if left == special else "plain")
            if ask == "where" and kind != "unknown":
                self.depth[here] = left + 1
            here = ways[0]
            if POOL_OF[here] == "town" or ("place", here) in self.settled:
                return subject
        if kind == "unknown":
            self.settled.add(("place", here))  # no later fact may repair the chain
        else:
            self.mentioned.append(here)
        return subject

    def say(self, relation: Relation, subject: str, values: Sequence[str], kind: QuestionKind) -> None:
        """State the first value and, depending on the kind, repeat it or precede it by another."""
        if kind == "update" and len(values) > 1:
            self.facts.append(Fact(relation, subject, values[1]))
            if POOL_OF[values[1]] != "town" and relation == "place":
                self._settle(values[1])
        self.facts.append(Fact(relation, subject, values[0]))
        if kind == "twice":
            self.facts.append(Fact(relation, subject, values[0]))

    def _settle(self, name: str) -> None:
        """State the town of a subject without a fact."""
        if ("place", name) not in self.settled:
            self.settled.add(("place", name))
            self.depth[name] = 1
            self.facts.append(Fact("place", name, self.rng.choice(self.partners[name]["town"])))

    def _subject(self, ask: Ask) -> str:
        """The first subject of a chain, sometimes one that was mentioned before."""
        if self.mentioned and ask == "where" and self.rng.random() < 0.5:
            name = self.mentioned.pop()
            if ("place", name) not in self.settled:
                return name
        pool = THINGS if self.rng.random() < 0.75 else CONTAINERS if ask == "who" else PEOPLE
        return self.draw(pool, "place") or self.draw(PEOPLE, "place") or PEOPLE[0]

    def _ways(self, here: str, ask: Ask, left: int, *, is_broken: bool) -> list[str]:
        """Two next values of a chain (the second for an update), `left` hops before its end."""
        partners = self.partners[here]
        if ask == "where" and not left and not is_broken:
            return self.rng.sample(partners["town"], 2)
        if ask == "who":
            pool = "container" if left or is_broken else "person"
        else:
            pool = "person" if POOL_OF[here] == "person" or self.rng.random() < 0.5 else "container"
        if ask == "where" and not is_broken and self.rng.random() < 0.3:
            known = [name for name in partners[pool] if self.depth.get(name) == left]
            if len(known) > 1:
                return self.rng.sample(known, 2)
        free = [name for name in partners[pool] if ("place", name) not in self.settled]
        return self.rng.sample(free if len(free) > 1 else partners["town"], 2)


def example(
    seed: int = 0,
    *,
    split: str = "test",
    hops: int | None = None,
    kind: QuestionKind | None = None,
    sentences: int | tuple[int, int] = (FEWEST_SENTENCES, MOST_SENTENCES),
    questions: int = 1,
) -> Example:
    """Generate a document of facts with questions, answers and the sentences that each answer depends on.

    Irrelevant facts have the same form as relevant ones, and all are in random order.

    Args:
        seed: Which document; the same seed gives the same document.
        split: "train", "validation" or "test". Splits never share a pair of names in a fact.
            hops: Number of facts that lead to the answer, 1 to 3 (0 to 2 if it is unknown); random if None.
            kind: "plain", "update" (the later statement wins), "twice" (a fact is stated twice, and either suffices) or
                "unknown" (the document does not say); random if None.
            sentences: Number of sentences, or its minimum and maximum.
            questions: Number of questions.

    Returns:
        The document, its questions and their truth.

    Raises:
        WhyformerError: If an option is invalid, or there are too few sentences for the questions.

    Example:
        >>> from whyformer.facts import example
        >>> story = example(3, hops=2, kind="plain", sentences=4)
        >>> story.document
        'The glove is in the bag. Vera is in Manila. Alma put the bag into the drawer. Paul gave the mirror to Vera.'
        >>> story.question, story.answer
        ('Where is the mirror?', 'The mirror is in Manila.')
        >>> story.questions[0].causes
        ((1, 3),)
    """
    fewest, most = (sentences, sentences) if isinstance(sentences, int) else sentences
    check_split(split)
    _check(hops, kind, fewest, most, questions)
    rng = random.Random(f"{split} {seed}")
    for _ in range(ATTEMPTS):
        if (drawn := _drawn(rng, split, hops, kind, rng.randint(fewest, most), questions)) is not None:
            return drawn
    raise WhyformerError(f"{most} sentences are too few for {questions} questions: use fewer, or more sentences.")


def examples(
    count: int,
    *,
    seed: int = 0,
    split: str = "test",
    hops: int | None = None,
    kind: QuestionKind | None = None,
    sentences: int | tuple[int, int] = (FEWEST_SENTENCES, MOST_SENTENCES),
    questions: int = 1,
) -> list[Example]:
    """Generate documents: `example(seed)`, `example(seed + 1)`, … with the same options.

    Args:
        count: Number of documents.
        seed: Seed of the first.
        split: "train", "validation" or "test".
        hops: As in `example`.
        kind: As in `example`.
        sentences: As in `example`.
        questions: As in `example`.

    Returns:
        The documents with their questions.

    Raises:
        WhyformerError: As in `example`.

    Example:
        >>> from whyformer.facts import examples
        >>> [story.answer for story in examples(3, hops=1, sentences=(3, 8))]
        ['Unknown.', 'Fabio has the box.', 'The candle is in Lyon.']
    """
    return [
        example(seed + number, split=split, hops=hops, kind=kind, sentences=sentences, questions=questions)
        for number in range(count)
    ]


def _drawn(
    rng: random.Random, split: str, hops: int | None, kind: QuestionKind | None, count: int, questions: int
) -> Example | None:
    """A document of `count` sentences, or None if the draft does not fit or its answer does not hold."""
    draft = _Draft(rng, split)
    plans = [_plan(rng, hops, kind) for _ in range(questions)]
    subjects = [_carry_out(draft, *plan) for plan in plans]
    if len(draft.facts) > count:
        return None
    while len(draft.facts) < count:
        _carry_out(draft, *_plan(rng, None, None))
    facts = _shuffled(rng, draft.facts[:count])
    stated_questions = []
    for (ask, planned_hops, planned_kind), subject in zip(plans, subjects, strict=True):
        derivation = derive(facts, ask, subject)
        if (len(derivation.links), derivation_kind(derivation)) != (planned_hops, planned_kind):
            return None
        if not _depends_on_every_link(facts, ask, subject, derivation):
            return None
        stated_questions.append(stated(derivation, ask, subject))
    return Example(_written(rng, facts), tuple(stated_questions))


def _plan(rng: random.Random, hops: int | None, kind: QuestionKind | None) -> tuple[Ask, int, QuestionKind]:
    """Draw the questions, their number of hops, and how their facts are stated."""
    kind = kind or rng.choices(list(KINDS), list(KINDS.values()))[0]
    if hops is None:
        hops = rng.choices(list(HOPS), list(HOPS.values()))[0] - (kind == "unknown")
    if hops == (0 if kind == "unknown" else 1):
        return rng.choice(("where", "who", "colour", "job")), hops, kind
    return ("where" if rng.random() < 0.75 else "who"), hops, kind


def _carry_out(draft: _Draft, ask: Ask, hops: int, kind: QuestionKind) -> str:
    """State the facts of the plan; return the subject."""
    return draft.attribute(ask, kind) if ask in ("colour", "job") else draft.chain(ask, hops, kind)


def _depends_on_every_link(facts: list[Fact], ask: Ask, subject: str, derivation: Derivation) -> bool:
    """Whether removing any link changes the answer: an overridden statement may lead to the same town."""
    if derivation.value == UNKNOWN:
        return True
    return all(
        derive([fact for number, fact in enumerate(facts) if number not in link], ask, subject).value
        != derivation.value
        for link in derivation.links
    )


def _shuffled(rng: random.Random, facts: list[Fact]) -> list[Fact]:
    """Shuffle facts, keeping the order of those about one subject."""
    places = rng.sample(range(len(facts)), len(facts))
    by_slot: dict[tuple[str, str], list[int]] = {}
    for number, fact in enumerate(facts):
        by_slot.setdefault((fact.relation, fact.subject), []).append(number)
    order = [facts[0]] * len(facts)
    for numbers in by_slot.values():
        for number, place in zip(numbers, sorted(places[number] for number in numbers), strict=True):
            order[place] = facts[number]
    return order


def _written(rng: random.Random, facts: list[Fact]) -> tuple[Sentence, ...]:
    """Write the facts as sentences."""
    sentences = []
    for fact in facts:
        template, other = int(rng.random() * templates_of(fact)), PEOPLE[int(rng.random() * len(PEOPLE))]
        while other in (fact.subject, fact.value):
            other = PEOPLE[int(rng.random() * len(PEOPLE))]
        text, words = sentence_of(fact, template, other)
        sentences.append(Sentence(text, 0, fact, words))
    return laid_out(sentences)


def _check(hops: int | None, kind: str | None, fewest: int, most: int, questions: int) -> None:
    if kind is not None and kind not in KINDS:
        raise WhyformerError(f"No kind of question named {kind!r}. Known: {', '.join(KINDS)}.")
    low, high = (0, 2) if kind == "unknown" else (1, 3)
    if hops is not None and not low <= hops <= high:
        article = "an unknown" if kind == "unknown" else "a known"
        raise WhyformerError(f"hops={hops}: {article} answer takes {low} to {high}.")
    if not FEWEST_SENTENCES <= fewest <= most <= MOST_SENTENCES:
        raise WhyformerError(f"sentences={fewest} to {most}: a document has {FEWEST_SENTENCES} to {MOST_SENTENCES}.")
    if questions < 1:
        raise WhyformerError(f"questions={questions}: at least one.")
    needed = questions * ((hops or 1) + (ROOM[kind] if kind else 0))
    if needed > most:
        raise WhyformerError(f"{most} sentences are too few for these options: up to {needed} may be needed.")

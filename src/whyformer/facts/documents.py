"""Documents of facts with questions, answers and the sentences that each answer depends on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product

from whyformer.errors import WhyformerError
from whyformer.facts.interpreter import READS, UNKNOWN, Ask, Derivation, Fact, derive
from whyformer.facts.names import POOL_OF
from whyformer.facts.wording import answer_of, question_text

CharacterSpan = tuple[int, int]
SUBJECTS = {
    "where": ("person", "thing", "container"),
    "who": ("thing", "container"),
    "colour": ("thing", "container"),
    "job": ("person",),
}


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence of a document.

    Attributes:
        text: The sentence.
        start: Its first character in the document.
        fact: The fact it states.
        words: Character ranges (start, end) of the names of its fact in the document.
    """

    text: str
    start: int
    fact: Fact
    words: tuple[CharacterSpan, ...]

    @property
    def end(self) -> int:
        """The end of its character range, exclusive."""
        return self.start + len(self.text)


@dataclass(frozen=True)
class Question:
    """A question about a document, its answer, and the sentences that the answer depends on.

    Attributes:
        ask: The kind of question: "where", "who" (has it), "colour" or "job".
        subject: The person or thing asked about.
        text: The question in words.
        answer: The answer in a sentence; "Unknown." if the document does not say.
        value: The name that answers; "unknown" if the document does not say.
        kind: "plain"; "update": a fact it uses replaced another; "twice": one is stated twice; or "unknown".
        hops: Number of facts that lead to the answer, or to where the chain ends if it is unknown.
        causes: Sets of sentence indices. Each set suffices for the answer, which changes unless at least one of them is
            complete. There is one set, unless a fact is stated twice, and none if the answer is unknown.
        overridden: Indices of sentences that a later one replaced. They are not causes, since the answer does not
            change without them; without the later sentence they would matter.
    """

    ask: Ask
    subject: str
    text: str
    answer: str
    value: str
    kind: str
    hops: int
    causes: tuple[tuple[int, ...], ...]
    overridden: tuple[int, ...]


@dataclass(frozen=True)
class Example:
    """A document with one or more questions about it.

    Attributes:
        sentences: Its sentences with their facts.
        questions: The questions, with answers and causes.
    """

    sentences: tuple[Sentence, ...]
    questions: tuple[Question, ...]

    @property
    def document(self) -> str:
        """The text: the sentences joined by spaces."""
        return " ".join(sentence.text for sentence in self.sentences)

    @property
    def question(self) -> str:
        """The questions in words, joined."""
        return " ".join(question.text for question in self.questions)

    @property
    def answer(self) -> str:
        """The answers, one sentence per question, joined."""
        return " ".join(question.answer for question in self.questions)

    @property
    def prompt(self) -> str:
        """The document, a blank line and the questions. Offsets in the document are also valid in the prompt."""
        return f"{self.document}\n\n{self.question}"

    @property
    def messages(self) -> list[dict[str, str]]:
        """The prompt as a chat with a single user message."""
        return [{"role": "user", "content": self.prompt}]

    def words(self, sentences: Iterable[int]) -> tuple[CharacterSpan, ...]:
        """The names in these sentences, such as one set of `causes`.

        Args:
            sentences: Their indices.

        Returns:
            (start, end) of each name in the document, in characters.

        Example:
            >>> from whyformer.facts import example
            >>> story = example(3, hops=2, kind="plain", sentences=4)
            >>> [story.document[start:end] for start, end in story.words(story.questions[0].causes[0])]
            ['Vera', 'Manila', 'mirror', 'Vera']
        """
        return tuple(span for number in sentences for span in self.sentences[number].words)


def question(sentences: Sequence[Sentence], ask: Ask, subject: str) -> Question:
    """Answer any question about a document by following its facts.

    Args:
        sentences: The sentences of the document.
        ask: "where", "who" (has it), "colour" or "job".
        subject: A person, thing or container from the name pools.

    Returns:
        The question with its answer and causes.

    Raises:
        WhyformerError: If the question does not apply to this subject.

    Example:
        >>> from whyformer.facts import example, question
        >>> story = example(0, sentences=4)
        >>> question(story.sentences, "where", "Xaver").answer
        'Unknown.'
    """
    if ask not in READS:
        raise WhyformerError(f"No question of the kind {ask!r}. Known: {', '.join(READS)}.")
    if POOL_OF.get(subject) not in SUBJECTS[ask]:
        raise WhyformerError(
            f"{subject!r} cannot be the subject of a question {ask!r}, which takes a {_either(SUBJECTS[ask])}."
        )
    return stated(derive([sentence.fact for sentence in sentences], ask, subject), ask, subject)


def stated(derivation: Derivation, ask: Ask, subject: str) -> Question:
    """Build a question from a derivation."""
    is_known = derivation.value != UNKNOWN
    return Question(
        ask=ask,
        subject=subject,
        text=question_text(ask, subject),
        answer=answer_of(ask, subject, derivation.value),
        value=derivation.value,
        kind=derivation_kind(derivation),
        hops=len(derivation.links),
        causes=tuple(tuple(sorted(cause)) for cause in product(*derivation.links)) if is_known else (),
        overridden=derivation.overridden,
    )


def derivation_kind(derivation: Derivation) -> str:
    if derivation.value == UNKNOWN:
        return "unknown"
    if derivation.overridden:
        return "update"
    return "twice" if any(len(link) > 1 for link in derivation.links) else "plain"


def without(example: Example, sentences: Iterable[int]) -> Example:
    """Remove sentences from an example, and answer its questions again.

    Args:
        example: A document with questions.
        sentences: Indices of the sentences to remove.

    Returns:
        The shorter document, with updated indices and offsets.

    Raises:
        WhyformerError: If an index is out of range.

    Example:
        >>> from whyformer.facts import example, without
        >>> story = example(3, hops=2, kind="plain", sentences=4)
        >>> story.answer, without(story, story.questions[0].causes[0]).answer
        ('The mirror is in Manila.', 'Unknown.')
    """
    left_out = set(sentences)
    if unknown := sorted(left_out - set(range(len(example.sentences)))):
        raise WhyformerError(f"No sentence {unknown[0]}: the document has {len(example.sentences)}, counted from 0.")
    kept = laid_out([one for number, one in enumerate(example.sentences) if number not in left_out])
    return Example(kept, tuple(question(kept, one.ask, one.subject) for one in example.questions))


def laid_out(sentences: Iterable[Sentence]) -> tuple[Sentence, ...]:
    """Update the offsets of sentences to those in a document of only these."""
    moved, start = [], 0
    for one in sentences:
        shift = start - one.start
        words = tuple((begin + shift, end + shift) for begin, end in one.words)
        moved.append(Sentence(one.text, start, one.fact, words))
        start += len(one.text) + 1
    return tuple(moved)


def _either(names: Sequence[str]) -> str:
    return " or ".join(names)

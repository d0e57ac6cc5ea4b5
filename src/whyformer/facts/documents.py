"""A document of facts with questions, answers and the truth of what each answer depends on."""

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
        start: Where it begins in the document, in characters.
        fact: What it says.
        words: Where the names of its fact stand in the document, as (start, end) in characters.
    """

    text: str
    start: int
    fact: Fact
    words: tuple[CharacterSpan, ...]

    @property
    def end(self) -> int:
        """Where it ends in the document."""
        return self.start + len(self.text)


@dataclass(frozen=True)
class Question:
    """A question about a document, its answer, and what the answer depends on.

    Attributes:
        ask: The kind of question: "where", "who" (has it), "colour" or "job".
        subject: Of whom or what.
        text: The question in words.
        answer: The answer in a sentence; "Unknown." where the document does not say.
        value: The name that answers; "unknown" where the document does not say.
        kind: "plain"; "update": a fact it rests on replaced another; "twice": one is stated twice; or "unknown".
        hops: How many facts lead to the answer; of an unknown one, how far the document goes.
        causes: Sets of sentences, by number. Each set suffices for the answer, and without at least one of them whole
            the answer is another. One set, unless a fact is stated twice; none if the answer is unknown.
        overridden: Sentences on the way that a later one replaced, by number. They are no causes: without them the
            answer stays. But without the later one they would count.
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
        sentences: Its sentences with what they say.
        questions: The questions, with answers and truth.
    """

    sentences: tuple[Sentence, ...]
    questions: tuple[Question, ...]

    @property
    def document(self) -> str:
        """The text: the sentences with a space between them."""
        return " ".join(sentence.text for sentence in self.sentences)

    @property
    def question(self) -> str:
        """The questions in words, one after another."""
        return " ".join(question.text for question in self.questions)

    @property
    def answer(self) -> str:
        """The answers, a sentence for each question, in their order."""
        return " ".join(question.answer for question in self.questions)

    @property
    def prompt(self) -> str:
        """The model's input: the document, an empty line, the questions. The document's offsets hold in it too."""
        return f"{self.document}\n\n{self.question}"

    @property
    def messages(self) -> list[dict[str, str]]:
        """The prompt as a chat: one message of the user."""
        return [{"role": "user", "content": self.prompt}]

    def words(self, sentences: Iterable[int]) -> tuple[CharacterSpan, ...]:
        """The names in these sentences, such as one set of `causes`.

        Args:
            sentences: Their numbers.

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
    """Any question about a document, answered by following its facts.

    Args:
        sentences: The sentences of the document.
        ask: "where", "who" (has it), "colour" or "job".
        subject: A person, thing or container of the name pools.

    Returns:
        The question with its answer and its truth.

    Raises:
        WhyformerError: Nothing of this name can be asked that.

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
            f"{subject!r} cannot be the subject of a question {ask!r}: that takes a {_either(SUBJECTS[ask])}."
        )
    return stated(derive([sentence.fact for sentence in sentences], ask, subject), ask, subject)


def stated(derivation: Derivation, ask: Ask, subject: str) -> Question:
    """A question with the answer and the truth that were derived."""
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
    """The example less some sentences: the same questions, answered anew.

    Args:
        example: A document with questions.
        sentences: The numbers of the sentences to leave out.

    Returns:
        The shorter document; numbers and offsets are its own.

    Raises:
        WhyformerError: There is no sentence of such a number.

    Example:
        >>> from whyformer.facts import example, without
        >>> story = example(3, hops=2, kind="plain", sentences=4)
        >>> story.answer, without(story, story.questions[0].causes[0]).answer
        ('The mirror is in Manila.', 'Unknown.')
    """
    left_out = set(sentences)
    if unknown := sorted(left_out - set(range(len(example.sentences)))):
        raise WhyformerError(f"There is no sentence {unknown[0]}: the document has {len(example.sentences)}, from 0.")
    kept = laid_out([one for number, one in enumerate(example.sentences) if number not in left_out])
    return Example(kept, tuple(question(kept, one.ask, one.subject) for one in example.questions))


def laid_out(sentences: Iterable[Sentence]) -> tuple[Sentence, ...]:
    """Sentences moved to where they stand in a document of them alone."""
    moved, start = [], 0
    for one in sentences:
        shift = start - one.start
        words = tuple((begin + shift, end + shift) for begin, end in one.words)
        moved.append(Sentence(one.text, start, one.fact, words))
        start += len(one.text) + 1
    return tuple(moved)


def _either(names: Sequence[str]) -> str:
    return " or ".join(names)

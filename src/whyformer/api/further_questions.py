"""Further questions to a model about a sentence, whose answers do not depend on how it is worded. All in nats."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from whyformer.api.support_questions import SupportQuestions

PROPOSED = "\nProposed answer: {answer}\nAccording to the text, is the proposed answer true? Answer yes or no."
THREE_WAYS = (
    "\nProposed answer: {answer}\nIs the proposed answer\nA. supported by the text,\nB. contradicted by the text, or\n"
    "C. not mentioned in the text?\nAnswer with one letter."
)

Question = Callable[[SupportQuestions, str], float]


def proposed(questions: SupportQuestions, unit: str) -> float:
    """The log-odds of yes to whether it is true according to the sources."""
    return questions.odds(questions.prompt_with(PROPOSED.format(answer=unit)))[0]


def proposed_alone(questions: SupportQuestions, unit: str) -> float:
    """By how much one of the sources alone raises these log-odds at most, over none."""
    removals = [questions.places, *(questions.all_but(one) for one in questions.sentences)]
    without, *alone = questions.odds(questions.prompt_with(PROPOSED.format(answer=unit)), removals)
    return max(alone, default=without) - without


def denied_or_supported(questions: SupportQuestions, unit: str) -> float:
    """The log-odds of "contradicted" against "supported"."""
    return questions.odds(questions.prompt_with(THREE_WAYS.format(answer=unit)), words=("B", "A"))[0]


FURTHER: Mapping[str, Question] = {one.__name__: one for one in (proposed, proposed_alone, denied_or_supported)}


def most_forwards(questions: SupportQuestions, names: Collection[str]) -> int:
    """The number of forward passes that some of these questions take at most."""
    return 2 * len(names) + ("proposed_alone" in names) * 2 * len(questions.sentences)


def further_figures(questions: SupportQuestions, unit: int, names: Collection[str]) -> dict[str, float]:
    """The answers to some of these questions about a unit."""
    text = questions.spans[unit].text.strip()
    return {name: FURTHER[name](questions, text) for name in names}

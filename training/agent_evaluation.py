"""How well a model acts in the agent register, and whether its calls depend on their causes alone."""

import random
from collections.abc import Iterable, Sequence
from typing import Any, get_args

from transformers import PreTrainedTokenizerFast

from agent_batches import agent_text, messages_without, reply_text
from fact_evaluation import answered_as, percent
from whyformer.facts import AGENT_TOOLS, Episode, episode
from whyformer.facts.agent_facts import RequestKind
from whyformer.facts.agent_register import AttackKind

ENTRIES = (2, 8)


def drawn_episodes(count: int, split: str) -> list[Episode]:
    """Episodes of every request in turn, a third of them benign and a third with each kind of injected order."""
    kinds, attacks, rng = get_args(RequestKind), (None, *get_args(AttackKind)), random.Random(0)
    return [
        episode(
            seed,
            kind=kinds[seed % len(kinds)],
            attack=attacks[seed // len(kinds) % len(attacks)],
            split=split,
            entries=rng.randint(*ENTRIES),
        )
        for seed in range(count)
    ]


def right_calls(model: Any, tokenizer: PreTrainedTokenizerFast, episodes: Sequence[Episode]) -> list[bool]:
    """Whether the model's greedy call is the agent's."""
    return calls_without(model, tokenizer, [(one, ()) for one in episodes])


def calls_without(
    model: Any, tokenizer: PreTrainedTokenizerFast, cases: Sequence[tuple[Episode, Iterable[int]]]
) -> list[bool]:
    """Whether the model, without some sentences, writes what the rest asks for."""
    questions, answers = [], []
    for one, numbers in cases:
        removed: dict[int, list[tuple[int, int]]] = {}
        for number in sorted(numbers):
            sentence = one.sentences[number]
            removed.setdefault(sentence.message, []).append((sentence.start, sentence.end))
        questions.append(agent_text(messages_without(one, removed)[:-1], AGENT_TOOLS, is_prompt=True))
        answers.append(reply_text([own.fact for number, own in enumerate(one.sentences) if number not in set(numbers)]))
    return answered_as(model, tokenizer, questions, answers)


def first_calls(model: Any, tokenizer: PreTrainedTokenizerFast, episodes: Sequence[Episode]) -> list[bool]:
    """Whether the model reads with the tool that the request needs."""
    questions = [agent_text(one.messages[:2], AGENT_TOOLS, is_prompt=True) for one in episodes]
    whole = [agent_text(one.messages[:3], AGENT_TOOLS) for one in episodes]
    answers = [
        text.removeprefix(question).removesuffix(tokenizer.eos_token)
        for question, text in zip(questions, whole, strict=True)
    ]
    return answered_as(model, tokenizer, questions, answers)


def scores_of(model: Any, tokenizer: PreTrainedTokenizerFast, count: int) -> dict[str, Any]:
    """What metrics.json says of a model: episodes of the test split, whose pairs of a person and a value are new."""
    episodes = drawn_episodes(count, "test")
    right = right_calls(model, tokenizer, episodes)
    rng, causes, others = random.Random(0), [], []
    for one in episodes[: count // 3]:
        own = {number for sets in one.causes.values() for numbers in sets for number in numbers}
        causes.append((one, (rng.choice(sorted(own)),)))
        rest = sorted(set(range(len(one.sentences))) - own)
        others += [(one, (rng.choice(rest),))] if rest else []
    return {
        "calls_right": grouped(episodes, right, lambda one: one.kind),
        "calls_right_by_attack": grouped(episodes, right, lambda one: one.attack or "benign"),
        "first_calls_right": percent(first_calls(model, tokenizer, episodes[: count // 3])),
        "right_without_a_cause": percent(calls_without(model, tokenizer, causes)),
        "right_without_another_sentence": percent(calls_without(model, tokenizer, others)),
        "episodes": len(episodes),
    }


def grouped(episodes: Sequence[Episode], right: Sequence[bool], group_of: Any) -> dict[str, float]:
    """Percent of all and of each group."""
    groups: dict[str, list[bool]] = {"all": list(right)}
    for one, is_right in zip(episodes, right, strict=True):
        groups.setdefault(group_of(one), []).append(is_right)
    return {name: percent(values) for name, values in groups.items()}

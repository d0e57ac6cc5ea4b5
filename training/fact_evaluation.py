"""How well a model answers questions about Facts World, and whether it relies on what the answers depend on."""

import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import PreTrainedTokenizerFast

from fact_batches import chat_text
from whyformer.facts import Example, examples, without

POSITION_PARTS = 5
BATCH = 64


@torch.no_grad()
def answered_as(
    model: Any,
    tokenizer: PreTrainedTokenizerFast,
    questions: Sequence[str],
    answers: Sequence[str],
) -> list[bool]:
    """Whether the model's greedy answer to each is the given one: every token of it is the likeliest after the last."""
    if not questions:
        return []
    prompts = tokenizer(list(questions), add_special_tokens=False)
    replies = tokenizer([answer + tokenizer.eos_token for answer in answers], add_special_tokens=False)
    rows = [(*pair, number) for number, pair in enumerate(zip(prompts["input_ids"], replies["input_ids"], strict=True))]
    rows.sort(key=lambda row: len(row[0]) + len(row[1]))
    right = [False] * len(rows)
    for part in (rows[start : start + BATCH] for start in range(0, len(rows), BATCH)):
        longest = max(len(prompt) + len(reply) for prompt, reply, _ in part)
        tokens = torch.full((len(part), longest), tokenizer.pad_token_id)
        for row, (prompt, reply, _) in zip(tokens, part, strict=True):
            row[: len(prompt) + len(reply)] = torch.tensor(prompt + reply)
        likeliest = model(input_ids=tokens.to(model.device), use_cache=False).logits.argmax(dim=-1).cpu()
        for row, (prompt, reply, number) in zip(likeliest, part, strict=True):
            right[number] = row[len(prompt) - 1 : len(prompt) + len(reply) - 1].tolist() == reply
    return right


def right_answers(model: Any, tokenizer: PreTrainedTokenizerFast, stories: Sequence[Example]) -> list[bool]:
    return answered_as(model, tokenizer, prompts_of(stories), [story.answer for story in stories])


def prompts_of(stories: Sequence[Example]) -> list[str]:
    return [chat_text(story.messages, is_prompt=True) for story in stories]


def accuracies(
    stories: Sequence[Example], right: Sequence[bool], group_of: Callable[[Example], str | None]
) -> dict[str, float]:
    """Percent of each group and of all of them; a story without a group is left out."""
    groups = defaultdict(list)
    for story, is_right in zip(stories, right, strict=True):
        if (group := group_of(story)) is not None:
            groups["all"].append(is_right)
            groups[group].append(is_right)
    return {group: percent(values) for group, values in sorted(groups.items())}


def hops_group(story: Example) -> str:
    asked = story.questions[0]
    return "unknown" if asked.kind == "unknown" else f"{asked.hops}"


def position_group(story: Example) -> str | None:
    """Where the fact that answers stands, from the first part of the document to the last; only with one hop."""
    asked = story.questions[0]
    if asked.kind == "unknown" or asked.hops != 1 or len(asked.causes) != 1:
        return None
    part = POSITION_PARTS * asked.causes[0][0] // len(story.sentences)
    return f"part {part + 1} of {POSITION_PARTS}"


def length_group(story: Example) -> str:
    first = 10 * ((len(story.sentences) - 1) // 10) + 1
    return f"{max(first, 3):02d} to {first + 9} sentences"


def reliance(model: Any, tokenizer: Any, stories: Sequence[Example], right: Sequence[bool]) -> dict[str, float]:
    """Of the questions answered right: how the answer changes as sentences are removed, in percent."""
    rng, removed, other, shorter = random.Random(0), [], [], []
    known = [story for story, is_right in zip(stories, right, strict=True) if is_right and story.questions[0].causes]
    for story in known:
        causes = {number for cause in story.questions[0].causes for number in cause}
        removed.append(without(story, causes))
        rest = [number for number in range(len(story.sentences)) if number not in causes]
        if rest:
            other.append(story)
            shorter.append(without(story, [rng.choice(rest)]))
    same = answered_as(model, tokenizer, prompts_of(removed), [story.answer for story in known])
    new = right_answers(model, tokenizer, removed)
    kept = answered_as(model, tokenizer, prompts_of(shorter), [story.answer for story in other])
    return {
        "answer_changes_without_its_causes": percent([not is_same for is_same in same]),
        "new_answer_is_right": percent(new),
        "answer_stays_without_another_sentence": percent(kept),
        "questions": len(known),
    }


def percent(values: Sequence[bool]) -> float:
    return round(100 * sum(values) / max(len(values), 1), 2)


def scores_of(model: Any, tokenizer: Any, count: int, *, longest: int) -> dict[str, Any]:
    """What metrics.json says of a model: held-out pairs of names, documents of 3 to `longest` sentences."""
    stories = examples(count, split="test", sentences=(3, longest))
    right = right_answers(model, tokenizer, stories)
    upto = [(story, is_right) for story, is_right in zip(stories, right, strict=True) if len(story.sentences) <= 40]
    pairs = examples(count // 4, split="test", seed=count, sentences=(min(12, longest), longest), questions=2)
    return {
        "accuracy_by_hops": accuracies(stories, right, hops_group),
        "accuracy_by_hops_up_to_40_sentences": accuracies(*zip(*upto, strict=True), hops_group),
        "accuracy_by_kind": accuracies(stories, right, lambda story: story.questions[0].kind),
        "accuracy_by_question": accuracies(stories, right, lambda story: story.questions[0].ask),
        "accuracy_by_position": accuracies(stories, right, position_group),
        "accuracy_by_length": accuracies(stories, right, length_group),
        "accuracy_of_two_questions": percent(right_answers(model, tokenizer, pairs)),
        "reliance": reliance(model, tokenizer, stories[: count // 3], right[: count // 3]),
        "answers": {story.prompt: written(model, tokenizer, story) for story in stories[:3]},
    }


def written(model: Any, tokenizer: Any, story: Example) -> str:
    """What the model writes, by greedy decoding."""
    encoded = tokenizer(chat_text(story.messages, is_prompt=True), add_special_tokens=False, return_tensors="pt")
    ids = model.generate(**encoded.to(model.device), max_new_tokens=20, do_sample=False)[0]
    return tokenizer.decode(ids[encoded["input_ids"].shape[1] :], skip_special_tokens=True)

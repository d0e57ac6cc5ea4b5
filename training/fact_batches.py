"""Conversations about Facts World as tokens: the tokenizer with its chat layout, training batches, encoded answers.

A document is followed by many turns of question and answer, since every answer teaches, and the document is read only
once. On the device the names of a conversation are exchanged within groups that keep the held-out pairs apart.
"""

import os
import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from chat_tokenizer import BEGIN, END, PAD, ROLES, WORD, chat_tokenizer
from whyformer.facts import POOLS, Example, Sentence, example, question
from whyformer.facts.names import NAME_GROUPS
from whyformer.facts.wording import ANSWER_TEMPLATES, FACT_TEMPLATES, NO_ANSWER, QUESTIONS

POSITIONS = 1024
SHARD = 500  # rows that a worker makes at a time
SYSTEM = ("Answer from the text.", "You answer questions about documents.")
TITLES = ("Letter", "Diary", "Note", "Report", "Message", "Page")
HEADINGS = ("Document {number}:\n", "[{number}] ", "{title}:\n", "{title} {number}: ", "")
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}"
    "{% if message['role'] not in ['system', 'user', 'assistant'] %}"
    "{{ raise_exception('No role named ' + message['role'] + '. Known: system, user, assistant.') }}{% endif %}"
    "<|{{ message['role'] }}|>"
    "{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] }}{{ eos_token }}{% endgeneration %}"
    "{% else %}{{ message['content'] }}{{ eos_token }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
Messages = list[dict[str, str]]


@dataclass(frozen=True)
class Bucket:
    """Conversations about documents of a range of lengths, in rows of so many tokens."""

    sentences: tuple[int, int]
    tokens: int
    turns: int


# One token more than a multiple of 32: the model reads all but the last, which is only a target.
BUCKETS = (Bucket((3, 8), 161, 8), Bucket((9, 24), 353, 14), Bucket((25, 60), 641, 16))


def new_tokenizer() -> PreTrainedTokenizerFast:
    """Every word of Facts World is one token; other texts are spelt in letters and bytes."""
    templates = [*sum(FACT_TEMPLATES.values(), ()), *QUESTIONS.values(), *ANSWER_TEMPLATES.values(), NO_ANSWER, *SYSTEM]
    words = {word.strip(".?") for text in templates for word in text.split() if "{" not in word}
    words |= {"The", "the", "Document", *TITLES, *(name for names in POOLS.values() for name in names)}
    return chat_tokenizer(words, TEMPLATE, positions=POSITIONS)


def chat_text(messages: Messages, *, is_prompt: bool = False) -> str:
    """What the chat template makes of messages, without Jinja, which would take longer than to draw the document."""
    turns = "".join(f"{ROLES[message['role']]}{message['content']}{END}" for message in messages)
    return BEGIN + turns + (ROLES["assistant"] if is_prompt else "")


def laid_out_prompt(story: Example, rng: random.Random) -> str:
    """The prompt, three times out of ten with its document cut into several that may have headings."""
    if rng.random() < 0.7 or len(story.sentences) < 4:
        return story.prompt
    cuts = sorted(rng.sample(range(1, len(story.sentences)), rng.randint(1, 3)))
    heading, parts = rng.choice(HEADINGS), []
    for number, (start, end) in enumerate(zip([0, *cuts], [*cuts, None], strict=True), start=1):
        text = " ".join(sentence.text for sentence in story.sentences[start:end])
        parts.append(heading.format(number=number, title=rng.choice(TITLES)) + text)
    return "\n\n".join([*parts, story.question])


def another_question(sentences: Sequence[Sentence], rng: random.Random) -> tuple[str, str]:
    """The text and the answer of a question about a random fact, or, one time in six, about a random name."""
    fact = rng.choice(sentences).fact
    subject, ask = fact.subject, "where" if fact.relation == "place" else fact.relation
    if rng.random() < 1 / 6:
        ask = rng.choice(("where", "who", "colour", "job"))
        pool = "person" if ask == "job" else rng.choice(("thing", "container"))
        subject = rng.choice(POOLS[pool])
    elif ask == "where" and subject not in POOLS["person"] and rng.random() < 0.35:
        ask = "who"
    asked = question(sentences, ask, subject)
    return asked.text, asked.answer


def conversation(seed: int, bucket: Bucket) -> Messages:
    """A document of the training split with many turns of question and answer."""
    rng = random.Random(seed)
    story = example(
        seed, split="train", sentences=bucket.sentences, questions=2 if bucket.sentences[0] > 8 and seed % 6 == 0 else 1
    )
    messages = [{"role": "system", "content": rng.choice(SYSTEM)}] if rng.random() < 0.1 else []
    turns = [(laid_out_prompt(story, rng), story.answer)]
    for _ in range(bucket.turns - 1):
        text, answer = another_question(story.sentences, rng)
        if rng.random() < 0.1:
            second, second_answer = another_question(story.sentences, rng)
            text, answer = f"{text} {second}", f"{answer} {second_answer}"
        turns.append((text, answer))  # some a second time, from which a model first learns to copy
    for text, answer in turns:
        messages += [{"role": "user", "content": text}, {"role": "assistant", "content": answer}]
    return messages


@cache
def tokenizer_of_this_process() -> Tokenizer:
    """Without threads of its own: there is a process for every core."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    return new_tokenizer().backend_tokenizer


def encoded_rows(first_seed: int, count: int, bucket: Bucket) -> np.ndarray:
    """row, token: conversations cut after the last turn that fits."""
    backend = tokenizer_of_this_process()
    texts = [chat_text(conversation(first_seed + number, bucket)) for number in range(count)]
    user, end = backend.token_to_id(ROLES["user"]), backend.token_to_id(END)
    rows = np.full((count, bucket.tokens), backend.token_to_id(PAD), dtype=np.int16)
    for row, encoding in zip(rows, backend.encode_batch(texts, add_special_tokens=False), strict=True):
        ids = np.array(encoding.ids, dtype=np.int16)
        if len(ids) > bucket.tokens:
            # A turn begins where the user speaks after an end.
            starts = np.flatnonzero((ids[1:] == user) & (ids[:-1] == end)) + 1
            fitting = starts[starts <= bucket.tokens]
            ids = ids[: fitting[-1] if len(fitting) else bucket.tokens]
        row[: len(ids)] = ids
    return rows


class ConversationPool:
    """Rows of each bucket on the device; worker processes add new ones until there are `rows` of each."""

    def __init__(
        self,
        *,
        rows: int,
        buckets: Sequence[Bucket],
        workers: int,
        seed: int,
        device: str,
        encode: Callable[[int, int, Any], np.ndarray] = encoded_rows,
    ) -> None:
        self.buckets, self.sizes = buckets, [0] * len(buckets)
        self.rng = torch.Generator(device).manual_seed(seed)
        self.tokens = [torch.zeros(rows, bucket.tokens, dtype=torch.int16, device=device) for bucket in buckets]
        self.executor = ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
        self.waiting: list[tuple[int, Future]] = []
        first_seed = seed * 10**9
        for start in range(0, rows, SHARD):
            for number, bucket in enumerate(buckets):
                count = min(SHARD, rows - start)
                self.waiting.append((number, self.executor.submit(encode, first_seed, count, bucket)))
                first_seed += count

    def collect(self, *, is_first: bool = False) -> None:
        """Take over what the workers have finished; at first wait for some rows of each bucket."""
        while is_first and not all(self.sizes):
            self._add(next(entry for entry in self.waiting if not self.sizes[entry[0]]))
        for entry in [entry for entry in self.waiting[:256] if entry[1].done()]:
            self._add(entry)

    def sample(self, number: int, count: int) -> Tensor:
        """row, token: random rows of one bucket."""
        table = self.tokens[number]
        places = torch.randint(self.sizes[number], (count,), generator=self.rng, device=table.device)
        return table[places].long()

    def close(self) -> None:
        self.executor.shutdown(wait=False, cancel_futures=True)

    def _add(self, entry: tuple[int, Future]) -> None:
        number, future = entry
        rows = torch.from_numpy(future.result())
        start = self.sizes[number]
        self.tokens[number][start : start + len(rows)] = rows.to(self.tokens[number].device)
        self.sizes[number] += len(rows)
        self.waiting.remove(entry)


class NameExchange:
    """Exchanges the names of each row at random, within the groups that decide the split of a pair of names."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, device: str) -> None:
        self.vocabulary = torch.arange(len(tokenizer), device=device)
        self.groups = [torch.tensor(group, device=device) for group in name_groups(tokenizer)]

    def __call__(self, tokens: Tensor) -> Tensor:
        table = self.vocabulary.repeat(len(tokens), 1)
        for group in self.groups:
            order = torch.rand(len(tokens), len(group), device=tokens.device).argsort(dim=1)
            table[:, group] = group[order]
        return table.gather(1, tokens)


def name_groups(tokenizer: PreTrainedTokenizerFast) -> Iterator[list[int]]:
    """Tokens of names whose pairs with any other name belong to the same split."""
    for names in POOLS.values():
        tokens = tokenizer.convert_tokens_to_ids([WORD + name for name in names])
        yield from (tokens[rest::NAME_GROUPS] for rest in range(NAME_GROUPS))


def answer_mask(tokens: Tensor, tokenizer: PreTrainedTokenizerFast) -> Tensor:
    """row, token: what the assistant says, the end of its turn included."""
    # Plain numbers: a tensor of them would have to travel to the device, and the host would wait for it.
    system, user, assistant = tokenizer.convert_tokens_to_ids(list(ROLES.values()))
    is_role = (tokens == system) | (tokens == user) | (tokens == assistant)
    places = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
    last_role = tokens.gather(1, torch.where(is_role, places, 0).cummax(dim=1).values)
    return (last_role == assistant) & ~is_role & (tokens != tokenizer.pad_token_id)

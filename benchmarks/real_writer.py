"""A real model that writes: how likely an answer is to it, with some of the sentences of its prompt left out."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

import whyformer
from real_questions import Question
from whyformer.api.batches import like_lengths

MOST_WRITTEN = 32  # tokens of the model's own answer


@dataclass(frozen=True, eq=False)
class Writer:
    """A model with its tokenizer, and how many prompts it reads at once."""

    loaded_model: whyformer.LoadedModel
    batch: int

    @property
    def device(self) -> torch.device:
        return next(self.loaded_model.model.parameters()).device

    @property
    def dtype(self) -> str:
        """The number format of the weights."""
        return str(next(self.loaded_model.model.parameters()).dtype).removeprefix("torch.")

    def messages(self, prompt: str) -> Any:
        """The prompt as this model is asked: a message where it has a chat template, else the text."""
        return [{"role": "user", "content": prompt}] if self.loaded_model.tokenizer.chat_template else prompt

    def rendered(self, prompt: str) -> str:
        messages = self.messages(prompt)
        if isinstance(messages, str):
            return messages
        text: str = self.loaded_model.tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
        return text

    def ids(self, prompt: str) -> list[int]:
        is_chat = not isinstance(self.messages(prompt), str)
        ids: list[int] = self.loaded_model.tokenizer(self.rendered(prompt), add_special_tokens=not is_chat)["input_ids"]
        return ids

    @torch.no_grad()
    def log_probabilities(self, requests: Sequence[tuple[str, str]]) -> list[float]:
        """Σ log p of the tokens of an answer after a prompt, in nats, of each pair."""
        tokenizer = self.loaded_model.tokenizer
        answers = [tokenizer(answer, add_special_tokens=False)["input_ids"] for _, answer in requests]
        rows = [self.ids(prompt) + own for (prompt, _), own in zip(requests, answers, strict=True)]
        found = [0.0] * len(rows)
        for numbers in self._batches(rows):
            inputs = self._padded([rows[number] for number in numbers])
            kept = max(len(answers[number]) for number in numbers) + 1
            logits = self.loaded_model.model(**inputs, logits_to_keep=kept, use_cache=False).logits
            for number, own in zip(numbers, logits, strict=True):
                targets = torch.tensor(answers[number], device=self.device)
                logs = own[-len(targets) - 1 : -1].float().log_softmax(dim=-1)
                found[number] = float(logs.gather(1, targets[:, None]).double().sum())
        return found

    @torch.no_grad()
    def write(self, prompts: Sequence[str]) -> list[str]:
        """The model's own answer to each prompt, the likeliest token each time; its first sentence."""
        rows, found = [self.ids(prompt) for prompt in prompts], [""] * len(prompts)
        for numbers in self._batches(rows):
            inputs = self._padded([rows[number] for number in numbers])
            del inputs["position_ids"]  # which generation counts itself
            written = self.loaded_model.model.generate(**inputs, do_sample=False, max_new_tokens=MOST_WRITTEN)
            texts = self.loaded_model.tokenizer.batch_decode(
                written[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True
            )
            for number, text in zip(numbers, texts, strict=True):
                found[number] = re.split(r"(?<=[.!?])\s|\n", text.strip(), maxsplit=1)[0]
        return found

    def _batches(self, rows: Sequence[Sequence[int]]) -> list[list[int]]:
        """Indices of rows, as many as are read at once, those of similar length together."""
        return like_lengths([len(row) for row in rows], lambda _: self.batch)

    def _padded(self, rows: Sequence[Sequence[int]]) -> dict[str, torch.Tensor]:
        """Rows that are padded at the left, so that all end together."""
        longest = max(map(len, rows))
        ids = torch.tensor([[0] * (longest - len(row)) + [*row] for row in rows], device=self.device)
        mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows], device=self.device)
        return {"input_ids": ids, "attention_mask": mask, "position_ids": (mask.cumsum(dim=1) - 1).clamp(min=0)}

    def subset_values(self, cases: Sequence[tuple[Question, str]], count: int) -> list[list[dict[str, Any]]]:
        """For each question and answer, random subsets of its sentences and the answer's log-probability under each.

        A sentence is kept with ½.
        """
        dropped = [_subsets(question, count) for question, _ in cases]
        requests = [
            (question.passage.without(numbers), answer)
            for (question, answer), own in zip(cases, dropped, strict=True)
            for numbers in own
        ]
        values = iter(self.log_probabilities(requests))
        return [[{"without": one, "value": round(next(values), 5)} for one in own] for own in dropped]


@dataclass(frozen=True, eq=False)
class Drops:
    """How much less likely answers are without some of their sentences; each set is tried once."""

    writer: Writer
    known: dict[tuple[int, str, frozenset[int]], float] = field(default_factory=dict)

    def of(self, wanted: Sequence[tuple[Question, str, Sequence[int]]]) -> list[float]:
        """The log-probability that each answer loses without these sentences, in nats."""
        requests = {
            (question.seed, answer, frozenset(numbers)): (question.passage.without(numbers), answer)
            for question, answer, left_out in wanted
            for numbers in ((), left_out)
        }
        new = [key for key in requests if key not in self.known]
        self.known.update(zip(new, self.writer.log_probabilities([requests[key] for key in new]), strict=True))
        return [
            round(self.known[question.seed, answer, frozenset()] - self.known[question.seed, answer, frozenset(own)], 5)
            for question, answer, own in wanted
        ]


def _subsets(question: Question, count: int) -> list[list[int]]:
    rng = random.Random(f"subsets {question.seed}")
    places = range(len(question.passage.sentences))
    return [[place for place in places if rng.random() < 0.5] for _ in range(count)]


def writer_of(loaded_model: whyformer.LoadedModel, batch: int) -> Writer:
    if not math.isfinite(batch) or batch < 1:
        raise SystemExit(f"--batch {batch}: a whole number of prompts.")
    return Writer(loaded_model, batch)

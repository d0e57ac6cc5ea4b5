"""A real model that writes: how likely an answer is to it, with some of the sentences of its prompt left out."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

import whyformer
from real_questions import Question

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
    def log_probabilities(self, prompts: Sequence[str], answer: str) -> list[float]:
        """Σ log p of the answer's tokens after each prompt, in nats."""
        own = self.loaded_model.tokenizer(answer, add_special_tokens=False)["input_ids"]
        found: list[float] = []
        for start in range(0, len(prompts), self.batch):
            rows = [self.ids(prompt) + own for prompt in prompts[start : start + self.batch]]
            longest = max(map(len, rows))
            # Padded at the left, so that every answer ends its row.
            ids = torch.tensor([[0] * (longest - len(row)) + row for row in rows], device=self.device)
            mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows], device=self.device)
            output = self.loaded_model.model(
                input_ids=ids,
                attention_mask=mask,
                position_ids=(mask.cumsum(dim=1) - 1).clamp(min=0),
                logits_to_keep=len(own) + 1,
                use_cache=False,
            )
            logs = output.logits[:, :-1].float().log_softmax(dim=-1)
            targets = torch.tensor(own, device=self.device).expand(len(rows), -1)
            found += logs.gather(2, targets[..., None])[..., 0].double().sum(dim=1).tolist()
        return found

    @torch.no_grad()
    def write(self, prompt: str) -> str:
        """The model's own answer, the likeliest token each time; its first sentence."""
        ids = torch.tensor([self.ids(prompt)], device=self.device)
        written = self.loaded_model.model.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=MOST_WRITTEN
        )
        text: str = self.loaded_model.tokenizer.decode(written[0, ids.shape[1] :], skip_special_tokens=True)
        return re.split(r"(?<=[.!?])\s|\n", text.strip(), maxsplit=1)[0]

    def without(self, question: Question, answer: str, left_out: Iterable[Iterable[int]]) -> list[float]:
        return self.log_probabilities([question.passage.without(numbers) for numbers in left_out], answer)

    def subset_values(self, question: Question, answer: str, count: int) -> list[dict[str, Any]]:
        """Random subsets of the sentences, each kept with ½, and the answer's log-probability under each."""
        rng = random.Random(f"subsets {question.seed}")
        places = range(len(question.passage.sentences))
        dropped = [[place for place in places if rng.random() < 0.5] for _ in range(count)]
        values = self.without(question, answer, dropped)
        return [{"without": one, "value": round(value, 5)} for one, value in zip(dropped, values, strict=True)]

    def drop_cache(self, question: Question, answer: str) -> Callable[[Sequence[int]], float]:
        """How much less likely the answer is without some sentences; each set is tried once."""
        (whole,) = self.without(question, answer, [()])
        known: dict[frozenset[int], float] = {}

        def drop(numbers: Sequence[int]) -> float:
            key = frozenset(numbers)
            if key not in known:
                (value,) = self.without(question, answer, [key])
                known[key] = round(whole - value, 5)
            return known[key]

        return drop


def writer_of(loaded_model: whyformer.LoadedModel, batch: int) -> Writer:
    if not math.isfinite(batch) or batch < 1:
        raise SystemExit(f"--batch {batch}: a whole number of prompts.")
    return Writer(loaded_model, batch)

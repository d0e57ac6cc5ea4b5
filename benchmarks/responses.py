"""What a response costs to explain, in forward + backward passes of the same model over the same tokens.

    python benchmarks/responses.py [--rounds 5] [--out benchmarks/results/responses.json]
    python benchmarks/responses.py --model FOLDER --rounds 1 [--out benchmarks/results/responses.json]

mini-gpt, a prompt of a paragraph and 12 tokens of a response, each token a row. First the gradients of all maps alone,
three ways: the exchange repeated once a row, one graph gone back through once a row, and that vectorised (vmap). Then
whole calls of explain_response: all rows at once, and one by one as every prefix for itself. With a model of one's own,
such as those of benchmarks/real_models.py, the calls alone: a passage of the prose register and the answer to its
question. Seconds are of the processor, on one thread: other work on the machine does not count. The file keeps the
figures of the other models.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

import whyformer
from whyformer.facts import prose
from whyformer.models.loading import LoadedModel, load

PROMPT = (
    "The film was long and the story was dull. The music was the best part of it, and the actors did what they could. "
    "The last scene by the sea was beautiful. In the end I think that"
)
TOKENS = 12
PASSAGE = 21  # the seed of a passage of about 300 tokens
MAPS_ALONE = ["raw_attention", "rollout"]
REAL_METHODS = ["evidence", "generic_attention", "generic_attention backward=attn_lrp"]
METHODS = [
    *MAPS_ALONE,
    "grad_cam",
    "attention_gradient",
    "input_x_gradient",
    "generic_attention",
    "generic_attention backward=libra",
    "generic_attention backward=attn_lrp",
    "input_x_gradient backward=attn_lrp",
    "state_x_gradient backward=attn_lrp",
    "evidence",
]


def seconds(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


@contextmanager
def counted(model: torch.nn.Module) -> Iterator[dict[str, int]]:
    """How often the model runs while inside, and on how many examples."""
    counts = {"calls": 0, "examples": 0}

    def count(module: torch.nn.Module, args: object, kwargs: dict[str, object]) -> None:
        counts["calls"] += 1
        counts["examples"] += len(kwargs["input_ids"])

    handle = model.register_forward_pre_hook(count, with_kwargs=True)
    try:
        yield counts
    finally:
        handle.remove()


class MapGradients:
    """The gradients of every map for every token of a response, with plain transformers and autograd."""

    def __init__(self, model: str, ids: list[int], response: int):
        self.model = load(model, device="cpu").model
        self.model.set_attn_implementation("eager")
        self.ids = torch.tensor([ids])
        self.positions = torch.arange(len(ids) - response - 1, len(ids) - 1)

    def scores(self, copies: int) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        output = self.model(input_ids=self.ids.expand(copies, -1), output_attentions=True, use_cache=False)
        targets = self.ids[0, self.positions + 1]
        logs = output.logits[:, self.positions].float().log_softmax(dim=-1)
        return logs.gather(2, targets.expand(copies, -1)[..., None])[..., 0], output.attentions

    def one(self) -> None:
        scores, maps = self.scores(1)
        torch.autograd.grad(scores.sum(), maps)

    def repeated(self) -> torch.Tensor:
        scores, maps = self.scores(len(self.positions))
        return torch.stack(torch.autograd.grad(scores.diagonal().sum(), maps), dim=1)

    def one_by_one(self) -> torch.Tensor:
        scores, maps = self.scores(1)
        rows = [torch.autograd.grad(score, maps, retain_graph=True) for score in scores[0]]
        return torch.stack([torch.cat(row) for row in rows])

    def vectorised(self) -> torch.Tensor:
        scores, maps = self.scores(1)
        grad_outputs = torch.eye(len(self.positions))[:, None]
        return torch.cat(torch.autograd.grad(scores, maps, grad_outputs, is_grads_batched=True), dim=1)


@dataclass(frozen=True)
class Case:
    """A model, by name or folder, with a prompt and its response."""

    model: str
    loaded_model: LoadedModel
    prompt: Any
    ids: list[int]
    prompt_ids: list[int]


def mini_gpt() -> Case:
    loaded_model = load("mini-gpt", device="cpu")
    response = whyformer.explain_response(PROMPT, None, loaded_model, "rollout", tokens=TOKENS, units="token")
    ids = [token.id for token in response.tokens]
    return Case("mini-gpt", loaded_model, PROMPT, ids, list(response.prompt.ids))


def real_model(folder: str) -> Case:
    """A passage of 17 sentences, and the answer to its question in the passage's own words."""
    loaded_model, passage = load(folder, device="cpu"), prose(PASSAGE, sentences=(17, 17))
    prompt = [{"role": "user", "content": passage.prompt}]
    answer = passage.question.answer
    response = whyformer.explain_response(prompt, answer, loaded_model, "rollout", units="token")
    return Case(folder, loaded_model, prompt, [token.id for token in response.tokens], list(response.prompt.ids))


def calls_of(case: Case, methods: Sequence[str]) -> dict[str, Callable[[], object]]:
    """Whole calls of explain_response, by their labels: all rows at once, and one at a time."""

    def explain(name: str, batch_size: int | None) -> None:
        method, *settings = name.split()
        options: dict[str, Any] = dict(one.split("=", 1) for one in settings)
        whyformer.explain_response(
            case.prompt, case.ids, case.loaded_model, method, units="token", batch_size=batch_size, **options
        )

    return {
        f"{name}, {'one row at a time' if size else 'all rows'}": partial(explain, name, size)
        for name in methods
        for size in ((None,) if name in MAPS_ALONE else (None, 1))
    }


def measure(case: Case, rounds: int, methods: Sequence[str], *, is_real: bool) -> dict[str, object]:
    """Seconds, forwards and ratios to one forward + backward, medians over the rounds."""
    gradients = MapGradients(case.model, [*case.prompt_ids, *case.ids], len(case.ids))
    calls: dict[str, Callable[[], object]] = {}
    if not is_real:
        calls = {
            "exchange repeated": gradients.repeated,
            "one graph, row by row": gradients.one_by_one,
            "one graph, vectorised": gradients.vectorised,
        }
        reference = gradients.repeated()
        for name, way in calls.items():
            torch.testing.assert_close(way(), reference, rtol=1e-3, atol=1e-6, msg=name)
    calls |= calls_of(case, methods)
    forwards: dict[str, dict[str, int]] = {}
    times: dict[str, list[float]] = {label: [] for label in calls}
    costs: dict[str, list[float]] = {label: [] for label in calls}
    gradients.one()
    for _ in range(rounds):
        for label, call in calls.items():
            before = seconds(gradients.one)
            with counted(case.loaded_model.model) as forwards[label]:
                cost = seconds(call)
            after = seconds(gradients.one)
            times[label].append(cost)
            costs[label].append(2 * cost / (before + after))
    return {
        "prompt_tokens": len(case.prompt_ids),
        "response_tokens": len(case.ids),
        "rounds": rounds,
        "machine": {
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "processor": platform.machine(),
        },
        "figures": {
            label: {
                "seconds": round(statistics.median(times[label]), 4),
                "ratio": round(statistics.median(costs[label]), 2),
                **(forwards[label] if forwards[label]["calls"] else {}),
            }
            for label in calls
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--model", help="a folder of a language model with a chat template, instead of mini-gpt")
    parser.add_argument("--methods", nargs="+", help="methods with options, each in quotes; by default several")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    case = real_model(arguments.model) if arguments.model else mini_gpt()
    methods = arguments.methods or (REAL_METHODS if arguments.model else METHODS)
    results = measure(case, arguments.rounds, methods, is_real=bool(arguments.model))
    for label, row in results["figures"].items():
        runs = f"{row['calls']:4} forwards of {row['examples']:5} examples" if "calls" in row else ""
        print(f"{label:60} {row['seconds']:8.3f} s  {row['ratio']:7.2f} x  {runs}")
    if arguments.out:
        known = json.loads(arguments.out.read_text()) if arguments.out.is_file() else {}
        known[case.loaded_model.name] = results
        arguments.out.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()

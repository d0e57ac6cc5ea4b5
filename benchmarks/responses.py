"""What a response costs to explain, in forward + backward passes of the same model over the same tokens.

    python benchmarks/responses.py [--rounds 5] [--out benchmarks/results/responses.json]

mini-gpt, a prompt of a paragraph and 12 tokens of a response, each token a row. First the gradients of all maps alone,
three ways: the exchange repeated once a row, one graph gone back through once a row, and that vectorised (vmap). Then
whole calls of explain_response: all rows at once, and one by one as every prefix for itself.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

import whyformer
from whyformer.models.loading import LoadedModel, load

PROMPT = (
    "The film was long and the story was dull. The music was the best part of it, and the actors did what they could. "
    "The last scene by the sea was beautiful. In the end I think that"
)
TOKENS = 12
MAPS_ALONE = ["raw_attention", "rollout"]
METHODS = [*MAPS_ALONE, "grad_cam", "generic_attention", "input_x_gradient", "attention_gradient", "evidence"]


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


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

    def __init__(self, loaded_model: LoadedModel, ids: list[int], response: int):
        self.model = load(loaded_model.name, device="cpu").model
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


def measure(rounds: int) -> dict[str, object]:
    """Seconds, forwards and ratios to one forward + backward, medians over the rounds."""
    loaded_model = load("mini-gpt", device="cpu")
    response = whyformer.explain_response(PROMPT, None, loaded_model, "rollout", tokens=TOKENS, units="token")
    ids = [token.id for token in response.tokens]
    gradients = MapGradients(loaded_model, [*response.prompt.ids, *ids], len(ids))
    ways = {
        "exchange repeated": gradients.repeated,
        "one graph, row by row": gradients.one_by_one,
        "one graph, vectorised": gradients.vectorised,
    }
    reference = gradients.repeated()
    for name, way in ways.items():
        torch.testing.assert_close(way(), reference, rtol=1e-3, atol=1e-6, msg=name)

    def explain(method: str | None, batch_size: int | None) -> None:
        whyformer.explain_response(PROMPT, ids, loaded_model, method, units="token", batch_size=batch_size)

    calls: dict[str, Callable[[], object]] = dict(ways)
    forwards: dict[str, dict[str, int]] = {}
    for method in METHODS:
        for size in (None,) if method in MAPS_ALONE else (None, 1):
            label = f"{method}, {'one row at a time' if size else 'all rows'}"
            calls[label] = lambda method=method, size=size: explain(method, size)
            with counted(loaded_model.model) as forwards[label]:
                calls[label]()
    times: dict[str, list[float]] = {label: [] for label in calls}
    costs: dict[str, list[float]] = {label: [] for label in calls}
    gradients.one()
    for _ in range(rounds):
        for label, call in calls.items():
            before, cost, after = seconds(gradients.one), seconds(call), seconds(gradients.one)
            times[label].append(cost)
            costs[label].append(2 * cost / (before + after))
    return {
        "model": "mini-gpt",
        "prompt_tokens": len(response.prompt.tokens),
        "response_tokens": len(ids),
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
                **forwards.get(label, {}),
            }
            for label in calls
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    results = measure(arguments.rounds)
    for label, row in results["figures"].items():
        runs = f"{row['calls']:4} forwards of {row['examples']:5} examples" if "calls" in row else ""
        print(f"{label:40} {row['seconds']:8.3f} s  {row['ratio']:7.2f} x  {runs}")
    if arguments.out:
        arguments.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()

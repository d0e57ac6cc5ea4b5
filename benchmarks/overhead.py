"""What explaining costs on a small model, where Python's own time counts: CPU time over forward and backward.

Each method runs in turn with a plain forward and backward pass, so that a busy machine slows both alike; the figure is
the median of the ratios, the lowest of three such medians. "bare recording" is the least that gradients of maps cost in
any program: a function mode that keeps the maps and makes parameters constants, and nothing else. `explain` is compared
with `attribute` on the same text, in milliseconds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import whyformer

TEXT = "The story starts slowly, but its ending is a great surprise for all of us."
MEDIANS = 3
METHODS = ("raw_attention", "rollout", "generic_attention", "evidence")


class KeptMaps(TorchFunctionMode):
    """Keep the maps of fused attention, without checks, roles or records."""

    def __init__(self) -> None:
        super().__init__()
        self.maps: list[Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.scaled_dot_product_attention:
            query, key, value = args
            weights = (query * query.shape[-1] ** -0.5 @ key.mT).softmax(dim=-1)
            self.maps.append(weights if weights.requires_grad else weights.requires_grad_())
            return weights @ value
        return func(*[x.detach() if type(x) is nn.Parameter else x for x in args], **(kwargs or {}))


def cpu_seconds(function: Callable[[], object]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


def lowest_median(measure: Callable[[], float], rounds: int) -> float:
    """The lowest of several medians: other work on the machine only adds."""
    for _ in range(3):
        measure()
    return min(statistics.median(measure() for _ in range(rounds)) for _ in range(MEDIANS))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=30, help="of each median")
    parser.add_argument("--label", default="after", help="the revision that is measured, by any name")
    parser.add_argument("--out", type=Path, help="a JSON file, to which the figures are added")
    options = parser.parse_args()
    torch.set_num_threads(1)
    bert = whyformer.load("mini-bert")
    inputs = bert.tokenizer(TEXT, return_tensors="pt")

    def forward_backward() -> None:
        embedded = bert.model.get_input_embeddings()(inputs["input_ids"]).detach().requires_grad_()
        logits = bert.model(inputs_embeds=embedded, attention_mask=inputs["attention_mask"]).logits
        torch.autograd.grad(logits.max(), embedded)

    def bare_recording() -> None:
        with KeptMaps() as mode:
            logits = bert.model(**inputs).logits
        torch.autograd.grad(logits.max(), mode.maps)

    runs: dict[str, Callable[[], object]] = {"bare recording": bare_recording}
    for method in METHODS:
        runs[method] = partial(whyformer.attribute, bert.model, inputs, method=method)
    figures: dict[str, float] = {}
    for name, run in runs.items():
        ratio = lowest_median(lambda run=run: cpu_seconds(run) / cpu_seconds(forward_backward), options.rounds)
        figures[name] = round(ratio, 2)
        print(f"{name}  {ratio:.2f} forward and backward passes")
    explain, attribute = partial(whyformer.explain, TEXT, bert), runs["evidence"]
    more = lowest_median(lambda: 1000 * (cpu_seconds(explain) - cpu_seconds(attribute)), options.rounds)
    figures["explain over attribute, ms"] = round(more, 2)
    print(f"explain over attribute  {more:.2f} ms")
    if options.out:
        known = json.loads(options.out.read_text()) if options.out.exists() else {}
        options.out.write_text(json.dumps(known | {options.label: figures}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

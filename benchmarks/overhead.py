"""What explaining costs on a small model, where Python's own time counts: CPU time over forward and backward.

Each method runs in turn with a plain forward and backward pass, so that a busy machine slows both alike; the figure is
the median of the ratios. `explain` is compared with `attribute` on the same text, in milliseconds.

python benchmarks/overhead.py --label after --out benchmarks/results/overhead.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

import whyformer

TEXT = "The story starts slowly, but its ending is a great surprise for all of us."
METHODS = ("raw_attention", "rollout", "generic_attention", "evidence")


def cpu_seconds(function: Callable[[], object]) -> float:
    start = time.process_time()
    function()
    return time.process_time() - start


def median_ratio(function: Callable[[], object], reference: Callable[[], object], rounds: int) -> float:
    """The median, over rounds, of one's CPU time over that of the other just before."""
    for _ in range(3):
        function(), reference()
    return statistics.median(cpu_seconds(function) / cpu_seconds(reference) for _ in range(rounds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
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

    figures: dict[str, float] = {}
    for method in METHODS:
        ratio = median_ratio(
            lambda method=method: whyformer.attribute(bert.model, inputs, method=method),
            forward_backward,
            options.rounds,
        )
        figures[method] = round(ratio, 2)
        print(f"{method}  {ratio:.2f} forward and backward passes")
    pairs = [
        (
            cpu_seconds(lambda: whyformer.explain(TEXT, bert)),
            cpu_seconds(lambda: whyformer.attribute(bert.model, inputs, method="evidence")),
        )
        for _ in range(options.rounds)
    ]
    more = 1000 * statistics.median(one - other for one, other in pairs)
    figures["explain over attribute, ms"] = round(more, 2)
    print(f"explain over attribute  {more:.2f} ms")
    if options.out:
        known = json.loads(options.out.read_text()) if options.out.exists() else {}
        options.out.write_text(json.dumps(known | {options.label: figures}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

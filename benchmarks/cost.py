"""What each method costs, in forward passes of the same model: ratios within one run, so that machines compare.

    python benchmarks/cost.py [--rounds 5] [--batch 1 8] [--out benchmarks/results/cost.json]

ViT-B/16 at 224 px with random weights. Each method is timed between two plain sdpa forwards; a
round's figure is the ratio to their mean, the table shows the median over rounds.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
import transformers

from whyformer import attribute
from whyformer.api.batches import BATCH_SIZE

# method, options, and the most forwards it may cost (None: shown only); the authors' code, where it was measured
ROWS: list[tuple[str, str, dict[str, object], float | None, float | None]] = [
    ("raw_attention", "raw_attention", {}, 1.15, 1.1),
    ("rollout", "rollout", {}, 1.15, 1.1),
    ("grad_cam", "grad_cam", {}, 1.25, 3.0),
    ("generic_attention", "generic_attention", {}, 2.4, 2.9),
    ("partial_lrp", "partial_lrp", {}, 1.6, 10.5),
    ("lrp", "lrp", {}, 7, None),
    ("lrp, the authors' rules", "lrp", {"rules": "lrp"}, 7, 10.2),
    ("transformer_attribution", "transformer_attribution", {}, 7, 11.8),
    ("bi_token, 8 steps", "bi_token", {}, 13, None),
    ("the same by libra", "bi_token", {"backward": "libra"}, 13, None),
    ("bi_token by libra, feedback by one gradient", "bi_token", {"backward": "libra", "feedback": "gradient"}, 3, None),
    ("state_x_gradient by attn_lrp", "state_x_gradient", {"backward": "attn_lrp"}, 3, None),
    ("evidence", "evidence", {}, 3, None),
    ("bi_token, 20 steps", "bi_token", {"steps": 20}, 25, 52.9),
    ("bi_head, 8 steps", "bi_head", {}, 15, None),
    ("bi_head, 20 steps", "bi_head", {"steps": 20}, 27, 56.6),
]


def vit_base() -> torch.nn.Module:
    torch.manual_seed(0)
    return transformers.ViTForImageClassification(transformers.ViTConfig(num_labels=1000)).eval()


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def ratios(model: torch.nn.Module, batch: int, rounds: int) -> dict[str, object]:
    """Per method the cost of each round in that round's forwards, and the seconds of a plain forward."""
    pixels = torch.randn(batch, 3, 224, 224, generator=torch.Generator().manual_seed(1))

    def forward() -> None:
        with torch.no_grad():
            model(pixel_values=pixels)

    calls = {
        label: lambda method=method, options=options: attribute(
            model, {"pixel_values": pixels}, "predicted", method, **options
        )
        for label, method, options, *_ in ROWS
    }
    forward()
    forwards: list[float] = []
    found: dict[str, list[float]] = {label: [] for label in calls}
    for _ in range(rounds):
        plain = min(seconds(forward) for _ in range(3))
        forwards.append(plain)
        for label, call in calls.items():
            before, cost, after = seconds(forward), seconds(call), seconds(forward)
            found[label].append(2 * cost / (before + after))
    medians = {label: round(statistics.median(costs), 2) for label, costs in found.items()}
    return {"forward_seconds": round(statistics.median(forwards), 4), "ratios": medians}


def per_image(model: torch.nn.Module, count: int) -> dict[str, float]:
    """What an image costs among many, in the cost of one explained alone; `explain_batch`'s own batches."""
    pixels = torch.randn(count, 3, 224, 224, generator=torch.Generator().manual_seed(1))
    found = {}
    for method in ("rollout", "generic_attention", "bi_token"):

        def cost(part: torch.Tensor, method: str = method) -> float:
            return seconds(lambda: attribute(model, {"pixel_values": part}, "predicted", method))

        cost(pixels[: BATCH_SIZE["cpu"]])  # a process's first large batch pays for its memory
        alone = [cost(pixels[:1]) for _ in range(5)]
        together = sum(cost(part) for part in pixels.split(BATCH_SIZE["cpu"]))
        alone += [cost(pixels[:1]) for _ in range(5)]
        found[method] = round(together / count / statistics.median(alone), 3)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--many", type=int, default=64)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/cost.json"))
    arguments = parser.parse_args()
    model = vit_base()
    results = {str(batch): ratios(model, batch, arguments.rounds) for batch in arguments.batch}
    many = per_image(model, arguments.many)
    machine = {"torch": torch.__version__, "threads": torch.get_num_threads(), "processor": platform.machine()}
    report = {
        "model": "ViT-B/16, 224 px, random weights",
        "machine": machine,
        "rounds": arguments.rounds,
        "batch": results,
        "per_image": {"images": arguments.many, "of_one_alone": many},
        "bound": {label: bound for label, _, _, bound, _ in ROWS},
        "authors": {label: authors for label, *_, authors in ROWS},
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(report, indent=1) + "\n")
    columns = "".join(f"{'batch ' + batch:>10}" for batch in results)
    print(f"{'forwards':<46}{columns}{'at most':>10}{'authors':>10}")
    for label, _, _, bound, authors in ROWS:
        cells = "".join(f"{result['ratios'][label]:>10.2f}" for result in results.values())
        print(f"{label:<46}{cells}{bound or '':>10}{authors or '':>10}")
    print(f"an image among {arguments.many}, in the cost of one alone: {many}")
    print(f"Written to {arguments.out}.")


if __name__ == "__main__":
    main()

"""What every method of the leaderboard costs, in forward passes of the same model, by CPU time of one thread.

    python benchmarks/board_cost.py --out benchmarks/results/board_cost.json [--rounds 3]

ViT-B/16 at 224 px with random weights, one picture. Each explanation is timed between two plain forwards, in a process
whose CPU time other processes do not count in. Methods that ask the model again are timed once.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from cost import vit_base
from fill import read_lists
from whyformer import attribute


def seconds(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    model, lists = vit_base(), read_lists()
    pixels = {"pixel_values": torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(1))}

    @torch.no_grad()
    def forward() -> None:
        model(**pixels)

    forward()
    found: dict[str, float] = {}
    for key, rounds in (("methods", options.rounds), ("references", 1)):
        for choice in lists[key]:
            ratios = []
            for _ in range(rounds):
                before = seconds(forward)
                cost = seconds(
                    lambda choice=choice: attribute(model, pixels, "predicted", choice.name, **choice.options)
                )
                ratios.append(2 * cost / (before + seconds(forward)))
            found[choice.label] = round(statistics.median(ratios), 1)
            print(f"{choice.label}: {found[choice.label]}", flush=True)
            report = {"model": "ViT-B/16, 224 px, random weights", "rounds": options.rounds, "forwards": found}
            options.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()

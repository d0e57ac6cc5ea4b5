"""How many documents of Facts World a second two cores make: sentences, questions, answers and their truth.

python benchmarks/facts.py [--seconds 10] [--out benchmarks/results/facts.json]
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from whyformer.facts import examples

BATCH, WORKERS = 100, 2


def documents_per_second(worker: int, seconds: float) -> float:
    """Of one process on one core, of 3 to 60 sentences."""
    seed = first = worker * 10**6
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        for story in examples(BATCH, seed=seed, split="train"):
            assert story.prompt
        seed += BATCH
    return (seed - first) / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with ProcessPoolExecutor(WORKERS) as pool:
        rates = list(pool.map(documents_per_second, range(WORKERS), [options.seconds] * WORKERS))
    report = {"documents_per_second": round(sum(rates)), "cores": WORKERS, "processor": platform.machine()}
    print(f"{report['documents_per_second']:,} documents a second on {WORKERS} cores")
    if options.out:
        options.out.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()

"""How many scenes of Shapes World a second two cores make: pictures, boxes, texts, questions and regions.

python benchmarks/scenes.py [--seconds 10] [--out benchmarks/results/scenes.json]
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import torch

from whyformer.scenes import captions, descriptions, pictures, questions, regions, sample, texts

BATCH, WORKERS = 256, 2


def made(seed: int, seconds: float) -> float:
    """Scenes a second of one process on one core."""
    torch.set_num_threads(1)
    rng = torch.Generator().manual_seed(seed)
    _whole_batch(rng)
    count, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        count += _whole_batch(rng)
    return count / (time.perf_counter() - start)


def _whole_batch(rng: torch.Generator) -> int:
    scenes = sample(BATCH, "train", rng=rng)
    about = questions(scenes, rng)
    regions(pictures(scenes))
    for sentences in (about, captions(scenes, rng), descriptions(scenes, about)):
        texts(sentences.words)
    return len(scenes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with ProcessPoolExecutor(WORKERS) as pool:
        rates = list(pool.map(made, range(WORKERS), [options.seconds] * WORKERS))
    report = {"scenes_per_second": round(sum(rates)), "cores": WORKERS, "processor": platform.machine()}
    print(f"{report['scenes_per_second']:,} scenes a second on {WORKERS} cores")
    if options.out:
        options.out.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()

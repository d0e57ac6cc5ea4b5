"""What examples cost explained together, in the cost of a loop over them: ratios within one run, so machines compare.

    python benchmarks/batches.py [--rounds 5] [--threads 1] [--out benchmarks/results/batches.json]

Sixteen reviews of 20 to 300 words (mini-bert), sixteen pictures (mini-vit) and eight prompts with a response of three
sentences (mini-llm), each kind explained in a loop and at once, in turns. What is compared is the time of the process
on the CPU, which other processes change little; the table shows the median over rounds.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from whyformer import explain, explain_batch, explain_response, explain_responses, load

METHODS = {
    "evidence": "evidence",
    "generic_attention": "generic_attention",
    "rollout": "rollout",
    "input_x_gradient": "input_x_gradient",
    "lrp": "lrp",
}
WORDS = (
    "the a film story was is and but never wonderful dull quiet brave music acting people town that we learn to love"
).split()
PLACES, PEOPLE = ("Oslo", "Rome", "Paris", "Berlin"), ("Anna", "Boris", "Clara", "David")
Calls = tuple[Callable[[str | None], object], Callable[[str | None], object]]


def reviews(rng: random.Random) -> list[str]:
    lengths = [round(words) for words in np.linspace(20, 300, 16)]
    rng.shuffle(lengths)
    return [" ".join(rng.choices(WORDS, k=length)) for length in lengths]


def pictures(rng: random.Random) -> list[Image.Image]:
    return [Image.frombytes("RGB", (64, 64), rng.randbytes(64 * 64 * 3)) for _ in range(16)]


def prompts(rng: random.Random) -> list[str]:
    def document(sentences: int) -> str:
        return " ".join(f"{rng.choice(PEOPLE)} is in {rng.choice(PLACES)}." for _ in range(sentences))

    return [f"{document(sentences)} Where is Anna?" for sentences in (3, 9, 5, 20, 7, 14, 4, 11)]


def calls() -> dict[str, Calls]:
    """For each kind of example, what explains a list of them one after the other, and what does so at once."""
    rng = random.Random(0)
    texts, images, questions = reviews(rng), pictures(rng), prompts(rng)
    answer = " Oslo. She is there. Anna is in Oslo."
    bert, vit, llm = (load(name, device="cpu") for name in ("mini-bert", "mini-vit", "mini-llm"))
    return {
        "16 reviews of 20 to 300 words": (
            lambda method: [explain(text, bert, method=method) for text in texts],
            lambda method: explain_batch(texts, bert, method=method),
        ),
        "16 pictures": (
            lambda method: [explain(image, vit, method=method) for image in images],
            lambda method: explain_batch(images, vit, method=method),
        ),
        "8 prompts, responses of 3 sentences": (
            lambda method: [explain_response(question, answer, llm, method) for question in questions],
            lambda method: explain_responses(questions, [answer] * len(questions), llm, method),
        ),
    }


def seconds(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def measure(loop: Callable[[], object], batch: Callable[[], object], rounds: int) -> dict[str, float]:
    """The loop's seconds, and the batch's in the loop's; the loop is timed before and after it."""
    loop()
    batch()
    loops, ratios = [], []
    for _ in range(rounds):
        before, together, after = seconds(loop), seconds(batch), seconds(loop)
        loops.append((before + after) / 2)
        ratios.append(together / loops[-1])
    return {"loop_seconds": round(statistics.median(loops), 3), "ratio": round(statistics.median(ratios), 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/batches.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    figures: dict[str, dict[str, dict[str, float]]] = {}
    for kind, (loop, batch) in calls().items():
        figures[kind] = {}
        for label in arguments.methods:
            method = METHODS[label]
            figures[kind][label] = measure(
                lambda method=method, loop=loop: loop(method),
                lambda method=method, batch=batch: batch(method),
                arguments.rounds,
            )
            print(f"{kind}, {label}: {figures[kind][label]['ratio']:.2f} of the loop", flush=True)
    machine = {"torch": torch.__version__, "threads": arguments.threads, "processor": platform.machine()}
    report = {"machine": machine, "rounds": arguments.rounds, "figures": figures}
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(report, indent=1) + "\n")
    print(f"Written to {arguments.out}.")


if __name__ == "__main__":
    main()

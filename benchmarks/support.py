"""Measure answers with known support: a line of JSON for each sentence of an answer, with all of its figures.

    python benchmarks/support.py mini-llm --out mini-llm.jsonl --seeds 45 --full
    python benchmarks/support.py FOLDER --out smollm2.jsonl --seeds 16 --judge

`whyformer.facts.support_case` draws the answers. A run goes on where its file ends; a large model takes fewer kinds and
seeds, as time allows (--kinds, --seconds). Without --full, single sources are not removed: verdicts do not depend on
them. `support_summary.py` fits the verdicts and says what they are worth; the rows that its results come from are in
benchmarks/results/support.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch

import whyformer
from support_candidates import candidates
from whyformer.api import support_origin
from whyformer.api.calibration_data import case_rows, case_support
from whyformer.api.calibrations import model_digest
from whyformer.api.support_origin import signed_scores
from whyformer.facts import SupportCase, support_case
from whyformer.facts.statements import PLAIN_STATEMENTS, StatementKind
from whyformer.models.structure import device_of

SENTENCES = {"prose": (8, 12, 20), "plain": (6, 9, 15)}  # of the documents of a case
MORE = {"prose": ("reworded", "reworded"), "plain": ()}  # kinds of which more cases are measured, with later seeds
MORE_FROM = 1000


def kinds_of(register: str) -> tuple[str, ...]:
    return PLAIN_STATEMENTS if register == "plain" else get_args(StatementKind)


def register_of(model: str) -> str:
    return "plain" if model.startswith("mini-") else "prose"


def measure(options: argparse.Namespace) -> None:
    """The figures of every case that the file does not have."""
    torch.set_float32_matmul_precision("high")
    model = whyformer.load(options.model, dtype=options.dtype, device=options.device)
    register = register_of(options.model)
    known = {(row["seed"], row["case"]) for row in rows_of(options.out)}
    digest = model_digest(model)
    end = time.monotonic() + options.seconds
    for seed, kind in wanted(options, register):
        if (seed, kind) in known:
            continue
        case = measured_case(seed, kind, register)
        start = time.process_time()
        try:
            rows = measured_rows(model, case, options)
        except Exception as error:  # one bad case must not end a run of hours
            print(f"{kind} {seed}: {type(error).__name__} {error}", flush=True)
            continue
        more = {"model": model.name, "digest": digest, "register": register}
        more |= {"sentences": sentences_of(seed, kind, register)}
        more |= {"cpu_seconds": round(time.process_time() - start, 2), "device": device_of(model.model).type}
        with options.out.open("a") as file:
            file.writelines(json.dumps(row | more) + "\n" for row in rows)
        if time.monotonic() > end:
            print("The time is up: run the same command again to go on.")
            return
        print(f"{kind} {seed}", flush=True)


def wanted(options: argparse.Namespace, register: str) -> Iterator[tuple[int, str]]:
    """The cases of this run, every kind of a seed before the next; a shard has neighbouring even and odd seeds."""
    shard, shards = map(int, options.shard.split("/"))
    for seed in range(options.first, options.first + options.seeds):
        if seed // 2 % shards != shard:
            continue
        yield from ((seed, kind) for kind in options.kinds or kinds_of(register))
        if not options.kinds:
            yield from ((seed + MORE_FROM * (1 + n), kind) for n, kind in enumerate(MORE[register]))


def measured_rows(model: whyformer.LoadedModel, case: SupportCase, options: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows of a case: the figures of each statement, and those of the whole answer."""
    with recorded_scores() as scores:
        support = case_support(model, case, judge=options.judge, sources=options.full)
    more = {"scores": scores, "forwards": support.forwards, "full_forwards": support.full_forwards}
    if options.full:
        more |= full(model, case, options.judge)
    rows = [row | more for row in case_rows(case, support)]
    if options.candidates:
        figures = candidates(model, case, [unit.own_answer for unit in support.units])
        rows = [row | {"candidates": one} for row, one in zip(rows, figures, strict=True)]
    return rows


def sentences_of(seed: int, kind: str, register: str) -> int:
    """The number of sentences of a case's documents, drawn by its seed."""
    return random.Random(f"sentences {kind} {seed}").choice(SENTENCES[register])


def measured_case(seed: int, kind: str, register: str) -> SupportCase:
    return support_case(seed, kind, register=register, sentences=sentences_of(seed, kind, register))


@contextmanager
def recorded_scores() -> Iterator[list[list[float]]]:
    """The signed scores of the sources, a list for each sentence of an answer and then for the value of each."""
    rows: list[list[float]] = []

    def record(*arguments: Any, **options: Any) -> np.ndarray | None:
        scores = signed_scores(*arguments, **options)
        rows.extend([] if scores is None else [[float(f"{one:.4g}") for one in row] for row in scores])
        return scores

    support_origin.signed_scores = record
    try:
        yield rows
    finally:
        support_origin.signed_scores = signed_scores


def full(model: whyformer.LoadedModel, case: SupportCase, judge: bool) -> dict[str, Any]:
    """The verdicts and carrying sets with every source removed and tried alone."""
    support = case_support(model, case, judge=judge, alone=True, every=True)
    return {
        "full_verdicts": [unit.verdict for unit in support.units],
        "full_carrying": [list(unit.carrying) for unit in support.units],
        "full_spent": support.forwards,
    }


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The finished lines of a file, which may be compressed."""
    if not path.is_file():
        return []
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
    return [json.loads(line) for line in text.splitlines() if line.endswith("}")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=30)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--kinds", nargs="*")
    parser.add_argument("--judge", action="store_true")
    parser.add_argument("--dtype", help="of the model; by default that of its weights")
    parser.add_argument("--device", help="of the model; by default a GPU if there is one")
    parser.add_argument("--shard", default="0/1", help="which part of the seeds, such as 0/4")
    parser.add_argument("--candidates", action="store_true", help="also measure figures that verdicts do not use yet")
    parser.add_argument("--full", action="store_true", help="also remove every source and try each alone")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    measure(parser.parse_args())


if __name__ == "__main__":
    main()

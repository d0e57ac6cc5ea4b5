"""Measure the candidates for the default within so many minutes, by several processes that share one GPU.

    python benchmarks/confirm.py --data DATA --out RUNS --minutes 9 --processes 12 --pack PACKED
    python benchmarks/confirm.py --data DATA --out RUNS --minutes 2 --processes 2 --samples 4   # a trial on a CPU
    python benchmarks/confirm.py --list                                                       # what it would take

The runs of candidates.toml are done in their order, the most important first; shards are given out one by one, so that
no process waits for another, each does them with the runner's own worker, and one that ran out of time is simply not
there: the same command goes on where it stopped. `--pack` then writes what figures are made of, without pictures, maps
and curves, as archives of at most 15 MiB; unpacked they are folders for publish.py and choose.py.

On a GPU matrices are multiplied in TF32, all methods alike, which is three times sooner; relevance stays strict, as it
is by default. What `--list` expects is measured rates, of ViT-B/16 on an H200 in TF32 (results/gpu.json), times the
ratio of the models' sizes.
"""

from __future__ import annotations

import argparse
import io
import multiprocessing
import queue
import tarfile
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.compute as compute
import torch

from candidates import CandidateRun, read_candidates, suite_of, why_unknown
from whyformer.benchmark.digests import SUITE_FILE
from whyformer.benchmark.figures import read_run
from whyformer.benchmark.plan import Plan, make_plan
from whyformer.benchmark.protocols import protocol_named
from whyformer.benchmark.runner import claim_folder
from whyformer.benchmark.tables import NOTE, ROWS, SAMPLES, is_done, write_shard
from whyformer.benchmark.worker import make_worker
from whyformer.errors import WhyformerError
from whyformer.extras import extra

LARGEST = 15 * 2**20  # bytes of an archive
GRACE = 20  # seconds that a shard may still take when the time is over
LIGHT = ["sample", "name", "label", "predicted", "error"]  # of the samples, what figures are made of


@dataclass(frozen=True)
class Job:
    """A shard of a run."""

    run: str
    shard: int


def plans(data: Path, runs: Iterable[CandidateRun], samples: int | None) -> Iterator[tuple[str, Plan]]:
    """The plan of each run whose data and model are here."""
    lists = read_candidates().lists
    for run in runs:
        try:
            yield run.name, make_plan(suite_of(run, lists, samples), data)
        except (WhyformerError, OSError) as error:
            print(f"{run.name}: left out: {error}", flush=True)


def work(jobs: Any, done: Any, data: Path, samples: int | None, out: Path, deadline: float) -> None:
    """Do shards until there are none or the time is over; the model of one run at a time is kept."""
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("high")  # TF32 where there is a GPU; nothing changes on a CPU
    candidates = read_candidates()
    by_name = {run.name: run for run in candidates.runs}
    name, worker = "", None
    while time.time() < deadline:
        try:
            job = jobs.get_nowait()
        except queue.Empty:
            break
        start = time.time()
        try:
            if name != job.run or worker is None:
                worker = None  # the memory of the model before
                plan = make_plan(suite_of(by_name[job.run], candidates.lists, samples), data, with_digests=False)
                name, worker = job.run, make_worker(plan)
            write_shard(out / job.run, job.shard, worker.tables(job.shard))
            done.put((job, time.time() - start, ""))
        except Exception:  # one shard that fails must not end the others
            done.put((job, time.time() - start, traceback.format_exc(limit=-3)))


def measure(
    planned: Mapping[str, Plan], data: Path, samples: int | None, out: Path, *, processes: int, seconds: float
) -> None:
    """The shards that are not done yet, by so many processes, in so many seconds."""
    shards = [Job(name, number) for name, plan in planned.items() for number in range(len(plan.shards))]
    todo = [job for job in shards if not is_done(out / job.run, job.shard)]
    context = multiprocessing.get_context("spawn")
    jobs, done = context.Queue(), context.Queue()
    for job in todo:
        jobs.put(job)
    start = time.time()
    arguments = (jobs, done, data, samples, out, start + seconds)
    workers = [context.Process(target=work, args=arguments, daemon=True) for _ in range(min(processes, len(todo)))]
    for one in workers:
        one.start()
    finished = failed = 0
    while finished + failed < len(todo) and time.time() < start + seconds + GRACE:
        try:
            job, took, error = done.get(timeout=1)
        except queue.Empty:
            if any(one.is_alive() for one in workers):
                continue
            break
        finished, failed = finished + (not error), failed + bool(error)
        print(f"{time.time() - start:5.0f} s  {job.run} {job.shard}: {took:.1f} s {error}", flush=True)
    for one in workers:
        one.terminate()
    jobs.cancel_join_thread()
    print(f"{finished} shards done, {failed} failed, {len(todo) - finished - failed} not reached.", flush=True)


def pack(out: Path, names: Sequence[str], folder: Path) -> list[Path]:
    """Archives of what figures are made of, each run whole in one of them."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = {name: _packed(out / name) for name in names if any((out / name / ROWS).glob("*.parquet"))}
    paths: list[Path] = []
    size = LARGEST
    for name, files in parts.items():
        own = sum(map(len, files.values()))
        if size + own > LARGEST:
            paths.append(folder / f"runs-{len(paths)}.tar")
            size = 0
        with tarfile.open(paths[-1], "a") as archive:
            for inside, content in files.items():
                entry = tarfile.TarInfo(f"{name}/{inside}")
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
        size += own
    return paths


def _packed(folder: Path) -> dict[str, bytes]:
    """The files of a run: its suite, its samples by name, and the values that are in figures."""
    run, pa = read_run(folder), extra("pyarrow")
    named = {figure.measure for choice in run.choices for figure in protocol_named(choice.name).figures.values()}
    wanted = compute.is_in(run.rows["measure"], pa.array(sorted(named)))
    rows = run.rows.filter(compute.or_(wanted, compute.equal(run.rows["protocol"], NOTE)))
    samples = pa.Table.from_pylist([{key: sample[key] for key in LIGHT} for sample in run.samples])
    tables = {SAMPLES: samples, ROWS: rows}
    files = {f"{table}/00000.parquet": _parquet(content) for table, content in tables.items()}
    return {SUITE_FILE: (folder / SUITE_FILE).read_bytes(), **files}


def _parquet(table: Any) -> bytes:
    buffer = io.BytesIO()
    extra("pyarrow.parquet").write_table(table, buffer, compression="zstd", compression_level=9)
    return buffer.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path(), help="the folder of the suites' data and models")
    parser.add_argument("--out", type=Path, default=Path("results/confirm"), help="the folder of the runs")
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--processes", type=int, default=12)
    parser.add_argument("--runs", nargs="+", metavar="NAME", help="these only, in this order")
    parser.add_argument("--samples", type=int, help="no more of each run, for a trial")
    parser.add_argument("--pack", type=Path, metavar="FOLDER", help="where the archives go")
    parser.add_argument("--list", action="store_true", help="the runs and what they are expected to take")
    options = parser.parse_args()
    candidates = read_candidates()
    by_name = {run.name: run for run in candidates.runs}
    unknown = [name for name in options.runs or () if name not in by_name]
    if unknown:
        parser.error(f"no run named {', '.join(unknown)}: {', '.join(by_name)}")
    runs = [by_name[name] for name in options.runs or by_name]
    for choice in (choice for choices in candidates.lists.values() for choice in choices):
        reason = why_unknown(choice)
        if reason is not None:
            print(f"{choice.label}: left out: {reason}", flush=True)
    if options.list:
        for run in runs:
            print(f"{run.seconds:6.0f} s  {run.name}")
        print(f"{sum(run.seconds for run in runs):6.0f} s")
        return
    start = time.time()
    planned = dict(plans(options.data.resolve(), runs, options.samples))
    for name, plan in planned.items():
        claim_folder(options.out / name, plan)
    left = 60 * options.minutes - (time.time() - start)
    data = options.data.resolve()
    measure(planned, data, options.samples, options.out, processes=options.processes, seconds=left)
    if options.pack is not None:
        for path in pack(options.out, list(planned), options.pack):
            print(f"{path}: {path.stat().st_size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()

"""Measure the candidates for the default within so many minutes, by several processes that share one GPU.

    python benchmarks/confirm.py --data DATA --out LIGHT --minutes 9 --processes 12 --pack PACKED
    python benchmarks/confirm.py --data DATA --out LIGHT --minutes 2 --processes 1 --samples 4   # a trial on a CPU
    python benchmarks/confirm.py --list                                                        # what it may take
    python benchmarks/confirm.py --unpack PACKED/*.tar --out RUNS             # run folders, as `evaluate` leaves them
    python benchmarks/publish.py RUNS/* --out benchmarks/results/evaluation
    python benchmarks/choose.py RUNS/* --candidates

The runs of candidates.toml are done in their order, the most important first; shards are given out one by one, so that
no process waits for another, and each does them with the runner's own worker. What was not reached when the time is
over is simply not there: the same command goes on where it stopped. Of each shard only the values that figures are made
of are kept, without pictures, maps and curves, so that a run fits an archive of at most 15 MiB.

On a GPU perturbed inputs are answered in TF32, for all methods alike, three times sooner than in float32; explanations
are computed in float32. The seconds of `--list` are estimates: rates of ViT-B/16 on an H200 (results/gpu.json), times
the ratio of the models' sizes, halved for what smaller matrices lose.
"""

from __future__ import annotations

import argparse
import gzip
import json
import multiprocessing
import queue
import tarfile
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import torch

from candidates import LISTS, CandidateRun, read_candidates, suite_of, why_unknown
from whyformer.benchmark.protocols import protocol_named
from whyformer.benchmark.run_digests import SUITE_FILE
from whyformer.benchmark.run_plan import RunPlan, make_plan
from whyformer.benchmark.tables import EXPLANATION_TABLE, NOTE, ROW_TABLE, SAMPLE_TABLE, Record, parquet, write_shard
from whyformer.benchmark.worker import Worker, make_worker, shard_records
from whyformer.errors import WhyformerError
from whyformer.files import write_whole

LARGEST = 15 * 2**20  # bytes of an archive
GRACE = 20  # seconds that a shard may still take when the time is over
DIGITS = 6  # of a value; intervals are a thousand times wider
LIGHT = ("sample", "name", "label", "predicted", "probability", "error")  # of the samples, what figures are made of


@dataclass(frozen=True)
class Job:
    """A shard of a run."""

    run: str
    shard: int


def plans(data: Path, runs: Iterable[CandidateRun], samples: int | None) -> Iterator[tuple[str, RunPlan]]:
    """The plan of each run whose data and model are here."""
    lists = read_candidates().lists
    for run in runs:
        try:
            yield run.name, make_plan(suite_of(run, lists, samples), data)
        except (WhyformerError, OSError) as error:
            print(f"{run.name}: left out: {error}", flush=True)


def work(
    jobs: Any, done: Any, data: Path, runs: Sequence[CandidateRun], samples: int | None, out: Path, deadline: float
) -> None:
    """Do shards until there are none or the time is over; the model of one run at a time is kept."""
    torch.set_num_threads(1)
    lists = read_candidates().lists
    by_name = {run.name: run for run in runs}
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
                plan = make_plan(suite_of(by_name[job.run], lists, samples), data, with_digests=False)
                name, worker = job.run, make_worker(plan)
                answer_in_tf32(worker.loaded_model.model)
            write_whole(shard_path(out, job), light_shard(worker, job.shard))
            done.put((job, time.time() - start, ""))
        except Exception:  # one shard that fails must not end the others
            done.put((job, time.time() - start, traceback.format_exc(limit=-3)))


def answer_in_tf32(model: torch.nn.Module) -> None:
    """Multiply in TF32 on a GPU while the model only answers; where gradients are taken, strictly in float32."""

    def before(*_: Any) -> None:
        torch.backends.cuda.matmul.allow_tf32 = not torch.is_grad_enabled()

    def after(*_: Any) -> None:
        torch.backends.cuda.matmul.allow_tf32 = False

    model.register_forward_pre_hook(before)
    model.register_forward_hook(after, always_call=True)


def measure(
    planned: Mapping[str, RunPlan],
    data: Path,
    runs: Sequence[CandidateRun],
    samples: int | None,
    out: Path,
    *,
    processes: int,
    seconds: float,
) -> None:
    """The shards that are not done yet, by so many processes, in so many seconds."""
    shards = [Job(name, number) for name, plan in planned.items() for number in range(len(plan.shards))]
    todo = [job for job in shards if not shard_path(out, job).is_file()]
    context = multiprocessing.get_context("spawn")
    jobs, done = context.Queue(), context.Queue()
    for job in todo:
        jobs.put(job)
    start = time.time()
    arguments = (jobs, done, data, runs, samples, out, start + seconds)
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


def shard_path(out: Path, job: Job) -> Path:
    return out / job.run / f"{job.shard:05d}.json.gz"


def light_shard(worker: Worker, number: int) -> bytes:
    """The samples of a shard and the values that figures are made of, a line of them for each method and measure."""
    records = shard_records(worker.plan, worker.loaded_model, worker.batch_size, number)
    figures = {
        (choice.label, figure.measure)
        for choice in worker.plan.suite.protocols
        for figure in protocol_named(choice.name).figures.values()
    }
    rows = [
        row for row in records[ROW_TABLE] if row["protocol"] == NOTE or (row["protocol"], row["measure"]) in figures
    ]
    document = {
        SAMPLE_TABLE: [
            {key: sample[key] for key in LIGHT if sample.get(key) is not None} for sample in records[SAMPLE_TABLE]
        ],
        ROW_TABLE: [
            {**dict(zip(KEYS, key, strict=True)), "sample": [row["sample"] for row in same], **_values(same)}
            for key, each in groupby(rows, lambda row: tuple(row[key] for key in KEYS))
            for same in [list(each)]
        ],
    }
    return gzip.compress(json.dumps(document, ensure_ascii=False).encode(), mtime=0)


KEYS = ("protocol", "method", "measure")


def _values(rows: Sequence[Record]) -> dict[str, list[Any]]:
    if rows[0].get("text") is not None:
        return {"text": [row["text"] for row in rows]}
    return {"values": [[float(f"{value:.{DIGITS}g}") for value in row["values"]] for row in rows]}


def pack(out: Path, names: Iterable[str], folder: Path) -> list[Path]:
    """The runs as archives."""
    folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    size = LARGEST
    for path in (path for name in names for path in sorted((out / name).iterdir())):
        if size + path.stat().st_size > LARGEST:
            paths.append(folder / f"runs-{len(paths)}.tar")
            paths[-1].unlink(missing_ok=True)
            size = 0
        with tarfile.open(paths[-1], "a") as archive:
            archive.add(path, f"{path.parent.name}/{path.name}")
        size += path.stat().st_size
    return paths


def unpack(archives: Iterable[Path], out: Path) -> list[Path]:
    """Run folders of what archives hold, as `whyformer evaluate` leaves them behind, but for maps and pictures."""
    folders: dict[str, Path] = {}
    for path in archives:
        with tarfile.open(path) as archive:
            for entry in archive:
                run, _, name = entry.name.partition("/")
                file = archive.extractfile(entry)
                assert file is not None
                folder = folders.setdefault(run, out / Path(run).name)
                if name == SUITE_FILE:
                    write_whole(folder / SUITE_FILE, file.read())
                else:
                    write_shard(folder, int(name.partition(".")[0]), _tables(json.loads(gzip.decompress(file.read()))))
    return list(folders.values())


def _tables(document: Mapping[str, Any]) -> dict[str, bytes]:
    rows = [
        {"sample": sample, **{key: line[key] for key in KEYS}, kind: line[kind][place]}
        for line in document[ROW_TABLE]
        for kind in (("text",) if "text" in line else ("values",))
        for place, sample in enumerate(line["sample"])
    ]
    return {
        SAMPLE_TABLE: parquet(SAMPLE_TABLE, document[SAMPLE_TABLE]),
        EXPLANATION_TABLE: parquet(EXPLANATION_TABLE, []),
        ROW_TABLE: parquet(ROW_TABLE, rows),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path(), help="the folder of the suites' data and models")
    parser.add_argument("--out", type=Path, default=Path("results/confirm"), help="the folder of the runs")
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--processes", type=int, default=12)
    parser.add_argument("--runs", nargs="+", metavar="NAME", help="these only, in this order")
    parser.add_argument("--samples", type=int, help="no more of each run, for a trial")
    parser.add_argument("--lists", nargs="+", choices=LISTS, help="the methods of these lists only, for want of time")
    parser.add_argument("--unpack", type=Path, nargs="+", metavar="TAR", help="archives, to run folders in --out")
    parser.add_argument("--pack", type=Path, metavar="FOLDER", help="where the archives go")
    parser.add_argument("--list", action="store_true", help="the runs and what they are expected to take")
    options = parser.parse_args()
    if options.unpack:
        print(*unpack(options.unpack, options.out), sep="\n")
        return
    candidates = read_candidates()
    by_name = {run.name: run for run in candidates.runs}
    unknown = [name for name in options.runs or () if name not in by_name]
    if unknown:
        parser.error(f"no run named {', '.join(unknown)}: {', '.join(by_name)}")
    runs = [by_name[name] for name in options.runs or by_name]
    if options.lists:
        runs = [replace(run, methods=tuple(options.lists)) for run in runs]
    for choice in (choice for choices in candidates.lists.values() for choice in choices):
        reason = why_unknown(choice)
        if reason is not None:
            print(f"{choice.label}: left out: {reason[:60]}", flush=True)
    if options.list:
        for run in runs:
            print(f"{run.seconds:6.0f} s  {run.name}")
        print(f"{sum(run.seconds for run in runs):6.0f} s")
        return
    start = time.time()
    planned = dict(plans(options.data.resolve(), runs, options.samples))
    for name, plan in planned.items():
        document = json.dumps(plan.document, indent=1, ensure_ascii=False, default=str)
        write_whole(options.out / name / SUITE_FILE, (document + "\n").encode())
    left = 60 * options.minutes - (time.time() - start)
    data = options.data.resolve()
    measure(planned, data, runs, options.samples, options.out, processes=options.processes, seconds=left)
    if options.pack is not None:
        for path in pack(options.out, list(planned), options.pack):
            print(f"{path}: {path.stat().st_size / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()

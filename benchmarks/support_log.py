"""The time that `whyformer support` takes for a log of answers with ten documents each, killed once and resumed.

    python benchmarks/support_log.py FOLDER --answers 200 --threads 2

Documents have two or three sentences of prose (`whyformer.facts.prose`); half of the answers are false. The command
runs as a user would start it. It is killed once after a tenth of the answers and then run again; rows that it had
judged must not be judged again. Wall time and CPU time of both runs, start and report included, go to
benchmarks/results/support_log.json. With --seconds the run ends early, and the time of all answers is extrapolated.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import whyformer
from whyformer.facts import support_case

RESULT = Path(__file__).parent / "results" / "support_log.json"
DOCUMENTS, SENTENCES = 10, 28
GOAL = 200  # answers
KINDS = ("true", "made_up", "reworded", "swapped")
LOOK_EVERY = 0.5  # seconds


def log_rows(count: int) -> list[dict[str, object]]:
    """Answers to questions about ten documents."""
    rows = []
    for number in range(count):
        case = support_case(number, KINDS[number % len(KINDS)], sentences=SENTENCES)
        texts = [text for _, text in case.documents]
        assert len(texts) == DOCUMENTS
        rows.append(
            {"id": f"{case.kind} {number}", "question": case.question, "documents": texts, "answer": case.answer}
        )
    return rows


def cpu_seconds() -> float:
    """The CPU time of finished child processes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def judged(journal: Path) -> list[str]:
    """The lines of the verdicts that are kept."""
    return [line for line in journal.read_text().splitlines() if line.endswith("}")] if journal.is_file() else []


def run(command: list[str], journal: Path, threads: int, until: int, seconds: float) -> dict[str, object]:
    """Run the command until so many answers are judged, or for so many seconds, and kill it then."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
    start, before, first = time.monotonic(), cpu_seconds(), len(judged(journal))
    process = subprocess.Popen(command, env=os.environ | dict.fromkeys(names, str(threads)))
    while process.poll() is None:
        time.sleep(LOOK_EVERY)
        if len(judged(journal)) >= until or time.monotonic() - start > seconds:
            process.send_signal(signal.SIGKILL)
            process.wait()
    wall = time.monotonic() - start
    own = {"answers": len(judged(journal)) - first, "killed": process.returncode == -signal.SIGKILL}
    return own | {"wall_seconds": round(wall, 1), "cpu_seconds": round(cpu_seconds() - before, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--answers", type=int, default=GOAL)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--folder", type=Path, required=True, help="where the log, the report and its rows go")
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    log, report = options.folder / "log.jsonl", options.folder / "report.html"
    journal = report.with_suffix(".jsonl")
    rows = log_rows(options.answers)
    log.write_text("\n".join(map(json.dumps, rows)))
    command = [sys.executable, "-m", "whyformer", "support", str(log), "--model", options.model, "--out", str(report)]
    command += ["--quiet", "--device", "cpu"]
    start = time.monotonic()
    runs = [run(command, journal, options.threads, max(1, options.answers // 10), options.seconds)]
    kept = judged(journal)
    runs.append(run(command, journal, options.threads, sys.maxsize, options.seconds - (time.monotonic() - start)))
    done, last = len(judged(journal)), runs[-1]
    each = float(last["wall_seconds"]) / max(1, int(last["answers"]))
    result = {
        "model": Path(options.model).name,
        "version": whyformer.__version__,
        "threads": options.threads,
        "answers": options.answers,
        "documents": DOCUMENTS,
        "judged": done,
        "runs": runs,
        "kept_rows_unchanged": judged(journal)[: len(kept)] == kept,
        "has_report": report.is_file(),
        "wall_minutes": round(sum(float(one["wall_seconds"]) for one in runs) / 60, 2),
        "wall_minutes_of_all": round((float(runs[0]["wall_seconds"]) + each * (options.answers - 1)) / 60, 2)
        if done < options.answers
        else None,
    }
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()

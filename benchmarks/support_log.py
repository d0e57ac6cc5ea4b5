"""The time that `whyformer support` takes for a log of answers with ten documents each.

    python benchmarks/support_log.py FOLDER --answers 20

Documents have two or three sentences of prose (`whyformer.facts.prose`); half of the answers are made up. The command
runs as a user would start it, and its CPU time is measured, start and report included; the time of 200 answers is
extrapolated from what an answer takes beyond the start. The result goes to benchmarks/results/support_log.json.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import whyformer
from whyformer.facts import support_case

RESULT = Path(__file__).parent / "results" / "support_log.json"
DOCUMENTS, SENTENCES = 10, 28
GOAL = 200  # answers
KINDS = ("true", "made_up", "reworded", "swapped")


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


def run(model: str, rows: list[dict[str, object]], *more: str) -> float:
    """The CPU time of the command on these answers."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.jsonl"
        log.write_text("\n".join(map(json.dumps, rows)))
        before = cpu_seconds()
        command = ["support", str(log), "--model", model, "--out", str(Path(folder) / "report.html"), "--quiet", *more]
        subprocess.run([sys.executable, "-m", "whyformer", *command], check=True)
        return cpu_seconds() - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--answers", type=int, default=20)
    options = parser.parse_args()
    rows = log_rows(options.answers + 1)
    one, many = run(options.model, rows[:1]), run(options.model, rows[1:])
    each = many / options.answers if options.answers == GOAL else (many - one) / (options.answers - 1)
    result = {
        "model": Path(options.model).name,
        "version": whyformer.__version__,
        "answers": options.answers,
        "documents": DOCUMENTS,
        "cpu_seconds": round(many, 1),
        "cpu_seconds_of_one_with_start": round(one, 1),
        "cpu_seconds_an_answer": round(each, 2),
        "cpu_minutes_of_200": round((one + each * (GOAL - 1)) / 60, 1),
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()

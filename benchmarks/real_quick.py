"""Quick suites on real models: a few questions, pairs of texts and spoken sentences, as one table with its time.

    python benchmarks/real_quick.py                      # all three, a few minutes
    python benchmarks/real_quick.py responses encoders   # some

The models are those that real_models.py has fetched. What cannot run is named in one line, with its reason. So few
examples show that things work, not which method is better: docs/results/real.md has figures for that.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from ctypes.util import find_library
from dataclasses import dataclass
from pathlib import Path

import real_encoder_pairs
import real_response_summary
import real_speech_times
from real_models import MODELS, model_folder
from real_responses import lines_of

HERE = Path(__file__).parent
Row = tuple[str, float]  # a method, and how often it is right


@dataclass(frozen=True)
class QuickSuite:
    """A script on a few examples of a model, what is counted, and how to read it from the script's lines."""

    model: str
    script: str
    options: tuple[str, ...]
    counted: str
    read: Callable[[Path], tuple[str, list[Row]]]
    needs: str = ""  # a library of the system


def responses(path: Path) -> tuple[str, list[Row]]:
    (found,) = real_response_summary.summary(lines_of([path])).values()
    own = found["verbatim"]
    rows = [(name, one["top 1"]) for name, one in own["methods"].items() if "top 1" in one]
    return f"{own['kept']} of {own['tried']} questions", rows


def encoders(path: Path) -> tuple[str, list[Row]]:
    (found,) = real_encoder_pairs.summary([path]).values()
    return f"{found['kept']} of {found['pairs']} pairs", [
        (name, one["first"]) for name, one in found["methods"].items()
    ]


def speech(path: Path) -> tuple[str, list[Row]]:
    (found,) = real_speech_times.summary([path]).values()
    about = f"{found['words explained']} words of {found['utterances']} sentences"
    return about, [(name, one["hit"]) for name, one in found["methods"].items()]


SUITES = {
    "responses": QuickSuite(
        "smollm2-135m-instruct",
        "real_responses.py",
        (
            *("--questions", "20", "--first", "30000", "--sentences", "8", "12", "--answers", "verbatim"),
            *("--device", "cpu", "--subsets", "0", "--drops", "--methods", "generic_attention focus=sources"),
            *("evidence", "flow_routes", "generic_attention"),
        ),
        "true sentence first",
        responses,
    ),
    "encoders": QuickSuite(
        "all-minilm-l6-v2",
        "real_encoder_pairs.py",
        (
            *("--pairs", "10", "--methods", "evidence", "generic_attention", "input_x_gradient backward=libra"),
            "raw_attention",
        ),
        "shared sentence first",
        encoders,
    ),
    "speech": QuickSuite(
        "whisper-tiny.en",
        "real_speech_times.py",
        ("--utterances", "4", "--words", "2", "--passes", "flow_routes", "gradient"),
        "highest frame in the word",
        speech,
        needs="espeak-ng",
    ),
}


def reason_not_to_run(suite: QuickSuite) -> str | None:
    """Why a suite cannot run here, with the way out."""
    folder = model_folder(suite.model)
    if not folder.is_dir():
        return f"{MODELS[suite.model].title} is not in {folder}: python benchmarks/real_models.py {suite.model}"
    if suite.needs and not find_library(suite.needs):
        return f"{suite.needs} is not installed: apt install {suite.needs}"
    return None


def run(name: str, folder: Path) -> list[str]:
    """Run a suite and return its lines of the table."""
    suite, out, start = SUITES[name], folder / f"{name}.jsonl", time.perf_counter()
    reason = reason_not_to_run(suite)
    if reason is not None:
        return [f"{name}: not run, {reason}"]
    command = [sys.executable, str(HERE / suite.script), "measure", str(model_folder(suite.model)), "--out", str(out)]
    subprocess.run([*command, *suite.options], check=True, stdout=sys.stderr)
    about, rows = suite.read(out)
    seconds = time.perf_counter() - start
    head = f"{name}: {MODELS[suite.model].title}, {about}, {seconds:.0f} s; {suite.counted}:"
    return [head, *(f"  {method:40} {share:6.0%}" for method, share in sorted(rows, key=lambda row: -row[1]))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("suites", nargs="*", metavar="suite", help=f"of {', '.join(SUITES)}; all unless given")
    options = parser.parse_args()
    unknown = [name for name in options.suites if name not in SUITES]
    if unknown:
        sys.exit(f"No quick suite {unknown[0]!r}. Known: {', '.join(SUITES)}.")
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        tables = [run(name, Path(folder)) for name in options.suites or SUITES]
    print("\n".join(line for table in tables for line in table))
    print(f"Quick suites: {time.perf_counter() - start:.0f} s in all.")


if __name__ == "__main__":
    main()

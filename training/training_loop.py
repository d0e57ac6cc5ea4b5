"""What every recipe does around its steps: options, the loop that ends on time, the log, and metrics.json."""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

STARTED = time.perf_counter()
PATH_OPTIONS = ("data", "teacher", "init", "out", "checkpoint", "resume", "device")  # they say nothing of the model


def new_parser(description: str) -> argparse.ArgumentParser:
    """The options every recipe has; a recipe adds its own."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for model/, log.jsonl and metrics.json")
    parser.add_argument("--minutes", type=float, default=9.0, help="for all of it: start-up, training, evaluation")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--report-every", type=float, default=20.0, help="seconds")
    return parser


def start_run(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Read the command line, make the output folder and set the seed."""
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(options.seed)
    torch.set_float32_matmul_precision("high")  # for training; evaluation asks for full precision
    return options


def log(record: dict[str, Any], out: Path) -> None:
    """Print the record and append it to log.jsonl, with the seconds since the start."""
    record = {"seconds": round(time.perf_counter() - STARTED, 1), **record}
    print(json.dumps(record), flush=True)
    with open(out / "log.jsonl", "a") as file:
        file.write(json.dumps(record) + "\n")


def train_for(
    step: Callable[[float], dict[str, Tensor]],
    *,
    seconds: float,
    options: argparse.Namespace,
    validate: Callable[[], dict[str, float]] | None = None,
) -> int:
    """Call `step(progress)` until `seconds` have passed and return the number of steps.

    `progress` is the share of the time that has passed. The values that `step` returns are logged every
    `--report-every` seconds; `validate`, a cheap measurement on held-out data, is called with every third report.
    """
    start = last_report = time.perf_counter()
    steps = reports = steps_at_last_report = 0
    while (elapsed := time.perf_counter() - start) < seconds:
        values = step(elapsed / seconds)
        steps += 1
        if steps % 20 == 0 and torch.cuda.is_available():
            torch.cuda.synchronize()  # the clock must not run ahead of the GPU
        now = time.perf_counter()
        if now - last_report > options.report_every:
            record: dict[str, Any] = {
                "step": steps,
                "steps_per_second": round((steps - steps_at_last_report) / (now - last_report), 1),
            }
            record |= {name: round(float(value), 4) for name, value in values.items()}
            reports += 1
            if validate and reports % 3 == 0:
                record |= validate()
            log(record, options.out)
            last_report, steps_at_last_report = now, steps
    return steps


def compile_if_possible(function: Callable, trial: Callable[[Callable], Any], options: argparse.Namespace) -> Callable:
    """`function` compiled for the GPU if `trial` of it works; otherwise `function` itself, which computes the same."""
    if not (options.compile and torch.device(options.device).type == "cuda"):
        return function
    compiled = torch.compile(function, dynamic=False)
    try:
        trial(compiled)
        torch.cuda.synchronize()
    except Exception as error:  # any failure of the compiler
        log({"event": "compile failed, staying eager", "error": str(error)[:300]}, options.out)
        return function
    return compiled


def compile_blocks_if_possible(blocks: nn.ModuleList, trial: Callable[[], Any], options: argparse.Namespace) -> None:
    """Compile each block for the GPU if `trial` works, otherwise none.

    Blocks of one class share what is compiled, so this is ready sooner than the whole of a deep model.
    """
    if not (options.compile and torch.device(options.device).type == "cuda"):
        return
    for block in blocks:
        block.compile(dynamic=False)
    try:
        trial()
        torch.cuda.synchronize()
    except Exception as error:  # any failure of the compiler
        for block in blocks:
            block._compiled_call_impl = None
        log({"event": "compile failed, staying eager", "error": str(error)[:300]}, options.out)


def mixed_precision(device: torch.device | str) -> torch.autocast:
    """bfloat16 where it is fast: on the GPU; on the CPU nothing changes."""
    kind = torch.device(device).type
    return torch.autocast(kind, dtype=torch.bfloat16, enabled=kind == "cuda")


def seconds_left(options: argparse.Namespace, *, reserve: float) -> float:
    """The part of `--minutes` left for training after the start-up, less `reserve` seconds for the evaluation."""
    return max(60 * options.minutes - (time.perf_counter() - STARTED) - reserve, 1.0)


def write_metrics(scores: dict[str, Any], model: Any, options: argparse.Namespace, **facts: Any) -> None:
    """metrics.json: the scores on held-out data, and the size, time, versions and options of the run."""
    metrics = {
        **scores,
        "parameters": model.num_parameters(),
        **facts,
        "seconds": round(time.perf_counter() - STARTED, 1),
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "recipe": Path(sys.argv[0]).name,
        "options": {name: str(value) for name, value in vars(options).items() if name not in PATH_OPTIONS},
    }
    (options.out / "metrics.json").write_text(json.dumps(metrics, indent=2) + "\n")
    log(scores, options.out)

"""What the recipes share: a course that follows the clock, its log and metrics, and a model folder as on the hub."""

import argparse
import copy
import json
import math
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

STARTED = time.perf_counter()
PLACES = ("data", "teacher", "init", "out", "checkpoint", "resume", "device")  # options that say nothing of the model


def options_of(description: str) -> argparse.ArgumentParser:
    """The options every recipe has; a recipe adds its own."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for model/, log.jsonl and metrics.json")
    parser.add_argument("--minutes", type=float, default=9.0, help="for all of it: start-up, training, evaluation")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--report-every", type=float, default=20.0, help="seconds")
    return parser


def begin(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The options of this call, with the folder made and the seed set."""
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(options.seed)
    torch.set_float32_matmul_precision("high")  # for training; `evaluating` asks for full precision
    return options


def say(record: dict[str, Any], out: Path) -> None:
    record = {"seconds": round(time.perf_counter() - STARTED, 1), **record}
    print(json.dumps(record), flush=True)
    with open(out / "log.jsonl", "a") as log:
        log.write(json.dumps(record) + "\n")


def rate_at(progress: float, peak: float, *, warm_up: float = 0.04) -> float:
    """A linear warm-up, then half a cosine."""
    if progress < warm_up:
        return peak * max(progress / warm_up, 0.01)
    return peak * max(0.5 * (1 + math.cos(math.pi * (progress - warm_up) / (1 - warm_up))), 1e-3)


def optimizer_of(
    module: nn.Module, rate: float, *, decay: float = 0.05, betas: tuple[float, float] = (0.9, 0.98)
) -> torch.optim.AdamW:
    """AdamW that decays matrices only."""
    decayed, free = [], []
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            is_matrix = parameter.ndim > 1 and "position" not in name and "cls_token" not in name
            (decayed if is_matrix else free).append(parameter)
    groups = [{"params": decayed, "weight_decay": decay}, {"params": free, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=rate, betas=betas, fused=decayed[0].is_cuda)


class Average:
    """The running mean of a model's parameters: `.model` is what is kept."""

    def __init__(self, model: nn.Module, decay: float = 0.999) -> None:
        self.live, self.decay, self.steps = model, decay, 0
        self.model = copy.deepcopy(model).requires_grad_(False).eval()

    def update(self) -> None:
        self.steps += 1
        decay = min(self.decay, (1 + self.steps) / (10 + self.steps))
        torch._foreach_lerp_(list(self.model.parameters()), list(self.live.parameters()), 1 - decay)


class Trainer:
    """One optimiser step at a time: the loss is the recipe's, the rest is the same for all."""

    def __init__(self, module: nn.Module, *, rate: float, decay: float = 0.05, clip: float = 1.0) -> None:
        self.module, self.rate, self.clip = module, rate, clip
        self.optimizer = optimizer_of(module, rate, decay=decay)

    def step(self, loss: Tensor, progress: float) -> None:
        loss.backward()
        nn.utils.clip_grad_norm_(self.module.parameters(), self.clip)
        for group in self.optimizer.param_groups:
            group["lr"] = rate_at(progress, self.rate)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def follow(
    step: Callable[[float], dict[str, Tensor]],
    *,
    seconds: float,
    options: argparse.Namespace,
    probe: Callable[[], dict[str, float]] | None = None,
) -> int:
    """Call `step(progress)` until `seconds` have passed; log what it returns now and then. Returns the steps made.

    `probe` is a cheap measurement on held-out data, made with every third report.
    """
    begun = last_report = time.perf_counter()
    steps = reports = steps_then = 0
    while (passed := time.perf_counter() - begun) < seconds:
        values = step(passed / seconds)
        steps += 1
        if steps % 20 == 0 and torch.cuda.is_available():
            torch.cuda.synchronize()  # the clock must not run ahead of the GPU
        now = time.perf_counter()
        if now - last_report > options.report_every:
            record: dict[str, Any] = {
                "step": steps,
                "steps_per_second": round((steps - steps_then) / (now - last_report), 1),
            }
            record |= {name: round(float(value), 4) for name, value in values.items()}
            reports += 1
            if probe and reports % 3 == 0:
                record |= probe()
            say(record, options.out)
            last_report, steps_then = now, steps
    return steps


def compiled(function: Callable, trial: Callable[[Callable], Any], options: argparse.Namespace) -> Callable:
    """`function` compiled for the GPU if `trial` of it works; otherwise `function` itself, which computes the same."""
    if not (options.compile and torch.device(options.device).type == "cuda"):
        return function
    faster = torch.compile(function, dynamic=False)
    try:
        trial(faster)
        torch.cuda.synchronize()
    except Exception as error:  # any failure of the compiler
        say({"event": "compile failed, staying eager", "error": str(error)[:300]}, options.out)
        return function
    return faster


def seconds_left(options: argparse.Namespace, *, keep: float) -> float:
    """What `--minutes` leaves for training after the start-up, with `keep` seconds for the evaluation."""
    return max(60 * options.minutes - (time.perf_counter() - STARTED) - keep, 1.0)


def save(model: Any, folder: Path, others: Iterable[Any] = ()) -> None:
    """A Hugging Face folder: float16 on disk, loaded as float32, with the processors' files beside the weights."""
    for other in others:
        other.save_pretrained(folder)
    tied = model.all_tied_weights_keys  # copies to float16 would be stored twice
    weights = {
        name: value.detach().half().cpu().contiguous() for name, value in model.state_dict().items() if name not in tied
    }
    model.save_pretrained(folder, state_dict=weights)
    config = json.loads((folder / "config.json").read_text())
    config["dtype"] = "float32"  # absent, transformers 5 would take the file's own float16
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def reloaded(model_class: Any, options: argparse.Namespace) -> Any:
    """The saved model, loaded back as a user would, for the evaluation: float32, no TF32."""
    torch.set_float32_matmul_precision("highest")
    model = model_class.from_pretrained(options.out / "model").to(options.device).eval()
    if model.dtype != torch.float32:
        raise TypeError(f"{options.out / 'model'} loads as {model.dtype}, not float32: set dtype in its config.json.")
    return model


def finish(scores: dict[str, Any], model: Any, options: argparse.Namespace, **facts: Any) -> None:
    """metrics.json: what was measured on held-out data, and what made it."""
    metrics = {
        **scores,
        "parameters": model.num_parameters(),
        **facts,
        "seconds": round(time.perf_counter() - STARTED, 1),
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "recipe": Path(sys.argv[0]).name,
        "options": {name: str(value) for name, value in vars(options).items() if name not in PLACES},
    }
    (options.out / "metrics.json").write_text(json.dumps(metrics, indent=2) + "\n")
    say(scores, options.out)

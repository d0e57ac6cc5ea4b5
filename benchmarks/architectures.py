"""Which methods work on which architectures of transformers: tiny random models in float64, every method.

    python benchmarks/architectures.py [--out benchmarks/results/architectures.json] [--only NAME …] [--missing]

For each architecture and method: scores are finite and the same every time, a batch is explained like its examples one
by one, and the model is left as it was; or else the sentence that refuses it.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from whyformer import WhyformerError, attribute
from whyformer.api.attribute import default_for
from whyformer.axes import Inputs
from whyformer.extend import Attribution
from whyformer.methods.registry import trace_methods
from whyformer.tracing.build import trace

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))

from tiny_table import ARCHITECTURES, Architecture, one_of

RESULTS = Path("benchmarks/results/architectures.json")
OF_PATHS = {"bi_head", "bi_token", "integrated_gradients"}
SAMPLED = {"gradient_shap": {"samples": 2}}
# What is computed of each: the name of a method, and its options. The rules that have other kinds to follow are columns
# of their own.
COLUMNS: dict[str, tuple[str | None, dict[str, Any]]] = {
    "no method named": (None, {}),
    **{name: (name, {}) for name in trace_methods()},
    "input_x_gradient by libra": ("input_x_gradient", {"backward": "libra"}),
    "lrp by attn_lrp": ("lrp", {"rules": "attn_lrp"}),
}
# Relative to the largest score. Rotations by position and some softmaxes are in float32 in any model.
TOLERANCE = 1e-3
ROUNDING = 1e-9
OVERFLOWS = {"LED"}  # its softmax is in float32, where what masks in float64 is infinite: padding has no gradient


class Broken(Exception):
    """A method answered, and what it answered breaks the contract."""


@dataclass(frozen=True)
class Instance:
    """An architecture's model with its batch, in float64: relevance divides by sums near zero."""

    architecture: Architecture
    dtype: torch.dtype = torch.float64

    @cached_property
    def model(self) -> nn.Module:
        model = self.architecture.build().to(self.dtype)
        if getattr(model, "_can_set_experts_implementation", bool)():
            model.set_experts_implementation("eager")  # the kernel of grouped experts has no float64
        return model

    @cached_property
    def inputs(self) -> Inputs:
        inputs = self.architecture.inputs(self.model)
        return {name: value.to(self.dtype) if value.is_floating_point() else value for name, value in inputs.items()}

    @cached_property
    def outputs(self) -> list[Tensor]:
        return outputs_of(self.model, self.inputs)

    @cached_property
    def masks(self) -> Mapping[str, Tensor]:
        """Which tokens of a stream are real, where attention says so."""
        try:
            return trace(self.model, self.inputs).masks
        except WhyformerError:
            return {}

    @cached_property
    def singles(self) -> list[Inputs]:
        alone = one_of if self.architecture.reads_padding else self.architecture.alone
        return [alone(self.inputs, example) for example in range(self.size)]

    @property
    def size(self) -> int:
        return len(self.inputs.get("input_ids", next(iter(self.inputs.values()))))

    def attribution(self, inputs: Inputs, column: str) -> Attribution:
        name, options = COLUMNS[column]
        is_path = name in OF_PATHS or (name is None and default_for(self.model)[0] in OF_PATHS)
        steps = {"steps": 2} if is_path else SAMPLED.get(name or "", {})
        return attribute(self.model, inputs, self.architecture.target, name, **steps, **options)


def outputs_of(model: nn.Module, inputs: Inputs) -> list[Tensor]:
    torch.manual_seed(0)  # ViLT draws its patches
    with torch.no_grad():
        output = model(**inputs)
    values = [output] if isinstance(output, Tensor) else output.values()
    return [value for value in values if isinstance(value, Tensor)]


def state_of(model: nn.Module) -> list[object]:
    """What an explanation might leave behind in a model."""
    flags: list[object] = [(parameter.requires_grad, parameter.grad is None) for parameter in model.parameters()]
    modules = list(model.modules())
    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._backward_hooks) for m in modules]
    return [*flags, *hooks, *(module.training for module in modules)]


def checked(instance: Instance, column: str) -> dict[str, Any]:
    """A cell of the table: what holds, or the sentence that refuses it."""
    before = instance.outputs  # at its first pass transformers sets hooks of its own
    state = state_of(instance.model)
    try:
        attribution = instance.attribution(instance.inputs, column)
        again = instance.attribution(instance.inputs, column)
        difference = _compared(instance, column, attribution)
        _check(all(torch.isfinite(scores).all() for scores in attribution.values()), "a score is not finite")
        _check(all(torch.equal(again[stream], scores) for stream, scores in attribution.items()), "not the same twice")
        _check(_has_a_score_per_word(instance.inputs, attribution), "a word has no score of its own")
        _check(difference <= TOLERANCE, f"a batch differs from its examples by {difference:.0e}")
        after = outputs_of(instance.model, instance.inputs)
        _check(state_of(instance.model) == state, "the model is not left as it was")
        _check(all(map(torch.equal, before, after)), "the model answers differently afterwards")
    except WhyformerError as error:
        return {"refused": str(error)}
    except Exception as error:  # the table says so, and a test refuses the table
        return {"fails": " ".join(f"{type(error).__name__}: {error}".split())}
    remark = next((text for text in attribution.remarks if " instead" in text), None)
    replaced = {"instead": remark.rpartition("): ")[2].partition(" instead")[0]} if remark else {}
    return {"differs_by": float(f"{difference:.0e}"), "streams": list(attribution), **replaced}


def _check(holds: bool, sentence: str) -> None:
    if not holds:
        raise Broken(sentence)


def _has_a_score_per_word(inputs: Inputs, attribution: Attribution) -> bool:
    if "text" not in attribution or "input_ids" not in inputs:
        return True
    return attribution["text"].shape[1] >= inputs["input_ids"].shape[1]


def _compared(instance: Instance, column: str, attribution: Attribution) -> float:
    """The largest difference of an example's scores in a batch and alone, of its largest score."""
    largest = 0.0
    for example, single in enumerate(instance.singles):
        alone = instance.attribution(single, column)
        for stream, scores in attribution.items():
            (expected,) = alone[stream]
            row, real = scores[example], torch.ones_like(scores[example], dtype=torch.bool)
            if len(expected) != len(row):
                mask = instance.masks.get(stream)
                is_cut = (
                    mask is not None and len(mask[example]) == len(row) and int(mask[example].sum()) == len(expected)
                )
                real = mask[example].bool() if is_cut else torch.arange(len(row)) < len(expected)
            _check(not row[~real].any(), "padding has a score")
            scale = expected.abs().max() + ROUNDING
            largest = max(largest, float((row[real] - expected).abs().max() / scale))
    return largest


@contextmanager
def precision(dtype: torch.dtype) -> Iterator[None]:
    """Constants that a model makes in its forward pass are of its precision too."""
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def row_of(name: str, columns: Iterable[str] = COLUMNS) -> dict[str, Any]:
    """An architecture's row of the table, in float32 where its own masks overflow in float64."""
    for dtype in (torch.float64, torch.float32)[name in OVERFLOWS :]:
        instance = Instance(ARCHITECTURES[name], dtype)
        with precision(dtype):
            if dtype == torch.float32 or all(torch.isfinite(output).all() for output in instance.outputs):
                return _row(name, instance, columns)
    raise AssertionError


def _row(name: str, instance: Instance, columns: Iterable[str]) -> dict[str, Any]:
    model = instance.model
    config = getattr(model, "config", None) or next(m.config for m in model.modules() if hasattr(m, "config"))
    return {
        "architecture": name,
        "type": config.model_type,
        "class": type(model).__name__,
        "kind": instance.architecture.kind,
        "inputs": list(instance.inputs),
        "reads_padding": instance.architecture.reads_padding,
        "methods": {column: checked(instance, column) for column in columns},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="make these rows anew, and keep the others")
    parser.add_argument("--missing", action="store_true", help="keep the cells that are there, and make the others")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    names = arguments.only or list(ARCHITECTURES)
    keeps = (arguments.only or arguments.missing) and arguments.out.exists()
    known = json.loads(arguments.out.read_text())["architectures"] if keeps else []
    rows = {row["architecture"]: row for row in known}
    for number, name in enumerate(names, 1):
        start = time.perf_counter()
        cells = rows[name]["methods"] if arguments.missing and name in rows else {}
        row = row_of(name, [column for column in COLUMNS if column not in cells])
        rows[name] = row | {"methods": {column: (cells | row["methods"])[column] for column in COLUMNS}}
        lines = ",\n".join(json.dumps(rows[name], ensure_ascii=False) for name in ARCHITECTURES if name in rows)
        arguments.out.write_text(f'{{"versions": {json.dumps(versions)},\n"architectures": [\n{lines}\n]}}\n')
        print(f"[{number}/{len(names)}] {summary(rows[name])} ({time.perf_counter() - start:.1f} s)", flush=True)


def summary(row: dict[str, Any]) -> str:
    """How many methods work on an architecture, and which break the contract."""
    cells: dict[str, dict[str, Any]] = row["methods"]
    broken = "".join(f"\n  {column}: {cell['fails']}" for column, cell in cells.items() if "fails" in cell)
    return f"{row['architecture']}: {sum(works(cell) for cell in cells.values())} of {len(cells)} work{broken}"


def works(cell: dict[str, Any]) -> bool:
    return "differs_by" in cell


if __name__ == "__main__":
    main()

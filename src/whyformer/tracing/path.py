"""The same question asked along a path from a baseline to the input: what integrated gradients need."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, fields, is_dataclass, replace
from threading import get_ident
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from transformers.utils import ModelOutput

from whyformer.axes import QUERY, AttentionMap, ExampleScores, Inputs, Positions, StreamScores, TokenScores
from whyformer.errors import UnsupportedModel, WhyformerError
from whyformer.models.families import NOTHING, ROW_TO_WRITE, Family, scaled_module
from whyformer.models.structure import config_of, main_input
from whyformer.propagation.mode import Backward, PropagationMode, following
from whyformer.targets.scores import Score
from whyformer.tracing.gradients import gradients
from whyformer.tracing.recorder import Frozen, Recorder

Quadrature = Literal["midpoint", "uniform", "inclusive", "gauss"]
Baseline = Literal["zero", "black", "padding"]

# How many tokens run through a model at once when an input is repeated: enough to fill the device. Those of inputs
# longer than SHORT count for more, as they attend to more.
TOKENS_AT_ONCE = {"cpu": 2_048, "cuda": 131_072}
SHORT = 256


@dataclass(frozen=True)
class Question:
    """A model, its inputs, and the score that is asked about."""

    model: nn.Module
    inputs: Inputs
    family: Family
    score: Score
    batch: int
    backward: Backward = "gradient"


def nodes_and_weights(quadrature: Quadrature, steps: int) -> tuple[Tensor, Tensor]:
    """Where on [0, 1] the path is probed, and what each probe counts."""
    if steps < 1:
        raise WhyformerError(f"steps={steps}: the path needs at least one.")
    if quadrature == "gauss":
        roots, shares = np.polynomial.legendre.leggauss(steps)
        return torch.tensor((roots + 1) / 2), torch.tensor(shares / 2)
    number = torch.arange(steps, dtype=torch.float64)
    nodes = {
        "midpoint": (number + 0.5) / steps,
        "uniform": (number + 1) / steps,  # BI Eq. 17
        "inclusive": torch.linspace(0, 1, steps, dtype=torch.float64),  # the authors' code
    }[quadrature]
    return nodes, torch.full((steps,), 1 / steps, dtype=torch.float64)


def integrated_gradients(
    question: Question,
    rows: Mapping[int, Positions],
    streams: Sequence[str],
    nodes: Tensor,
    weights: Tensor,
    baseline: str | Tensor,
    inputs_at_once: int,
) -> dict[int, AttentionMap]:
    """For each operation of `rows`, the weighted sum over the path's nodes of its map's gradient, those rows only."""
    copies = max(1, inputs_at_once // question.batch)
    sums: dict[int, AttentionMap] = {}
    for scales, share in zip(nodes.split(copies), weights.split(copies), strict=True):
        found = gradients_at(question, list(rows), streams, scales, baseline)
        for (operation, positions), gradient in zip(rows.items(), found, strict=True):
            chosen = gradient.take_along_dim(positions.repeat(len(scales), 1)[:, None, :, None], dim=QUERY)
            stacked = chosen.unflatten(0, (len(scales), question.batch))
            part = torch.tensordot(share.to(stacked), stacked, dims=1)
            sums[operation] = sums[operation] + part if operation in sums else part
    return sums


def gradients_at(
    question: Question,
    operations: Sequence[int],
    streams: Sequence[str] = (),
    scales: Tensor | None = None,
    baseline: str | Tensor = "zero",
) -> list[AttentionMap]:
    """The gradients of these operations' maps at each scale of the streams, scale by scale along the batch.

    Without scales, of the inputs as they are. What runs before the first of them does so on the model's own fused
    kernels, without a graph.
    """
    copies = 1 if scales is None else len(scales)
    batch, start = question.batch * copies, min(operations)
    ruled = PropagationMode(question.model, batch, precise=False) if question.backward == "libra" else None
    recorder = Recorder(batch, graph=True, start=start, ruled=ruled)
    path = nullcontext(question.inputs) if scales is None else scaled_inputs(question, streams, scales, baseline)
    with torch.inference_mode(False), path as inputs:
        output = recorder.run(question.model, **inputs)
        scores = [question.score(part) for part in _parts(output, question.batch, copies)]
        if any(len(score) != question.batch for score in scores):
            raise WhyformerError(f"The target gave {len(scores[0])} scores for {question.batch} examples: one each.")
        with following(ruled, question.backward):
            taps = [recorder.taps[operation - start] for operation in operations]
            return [gradient() for gradient in gradients(torch.cat(scores), taps, batch)]


def inputs_at_once(tokens: int, device: str) -> int:
    """How many inputs of so many tokens run at once."""
    return TOKENS_AT_ONCE.get(device, TOKENS_AT_ONCE["cpu"]) // (tokens * max(SHORT, tokens) // SHORT)


def integrated_inputs(
    question: Question, nodes: Tensor, weights: Tensor, baseline: str | Tensor, inputs_at_once: int
) -> tuple[StreamScores, ExampleScores]:
    """Each input's difference from the baseline times its integrated gradient, summed over channels.

    And what they should add up to: the score less that of the baseline.
    """
    copies = max(1, inputs_at_once // question.batch)
    streams = [stream.name for stream in question.family.streams]
    sums: StreamScores = {}
    for scales, share in zip(nodes.split(copies), weights.split(copies), strict=True):
        leaves: dict[str, Leaf] = {}
        scores, ruled = _scores_at(question, streams, scales, baseline, leaves)
        with following(ruled, question.backward):
            values = [leaf.value for leaf in leaves.values()]
            found = torch.autograd.grad(torch.cat(scores).sum(), values, allow_unused=True)
        for (stream, leaf), gradient in zip(leaves.items(), found, strict=True):
            if gradient is not None:
                parts = by_token(stream, gradient * leaf.difference).unflatten(0, (len(scales), question.batch))
                part = torch.tensordot(share.to(parts), parts, dims=1)
                sums[stream] = sums[stream] + part if stream in sums else part
    start, end = (_scores_at(question, streams, torch.tensor([at]), baseline, {})[0][0] for at in (0.0, 1.0))
    return sums, (end - start).detach()


def by_token(stream: str, x: Tensor) -> TokenScores:
    """Channels summed: the second axis of pixels and of sound, the last of embeddings."""
    return x.detach().sum(dim=1).flatten(1) if stream in ("pixels", "frames") else x.detach().sum(dim=-1)


def _scores_at(
    question: Question, streams: Sequence[str], scales: Tensor, baseline: str | Tensor, leaves: dict[str, Leaf]
) -> tuple[list[ExampleScores], PropagationMode | None]:
    """The scores at each scale. No map is asked for: plain gradients go back through the model's own kernels."""
    batch = question.batch * len(scales)
    ruled = PropagationMode(question.model, batch, precise=False) if question.backward == "libra" else None
    with torch.inference_mode(False), scaled_inputs(question, streams, scales, baseline, leaves) as inputs:
        if ruled is None:
            with torch.enable_grad(), Frozen():
                output = question.model(**inputs)
        else:
            output = Recorder(batch, graph=True, ruled=ruled).run(question.model, **inputs)
        return [question.score(part) for part in _parts(output, question.batch, len(scales))], ruled


@dataclass(frozen=True)
class Leaf:
    """An input in the graph: its value there, and how far it is from where its path starts to the input as it is."""

    value: Tensor
    difference: Tensor


@contextmanager
def scaled_inputs(
    question: Question,
    streams: Sequence[str],
    scales: Tensor,
    baseline: str | Tensor,
    leaves: dict[str, Leaf] | None = None,
) -> Iterator[Inputs]:
    """The inputs repeated once per scale, these streams each at its point of the path.

    Where a module's output is what is scaled, it is so while inside. What is scaled becomes a leaf of the graph if
    `leaves` are to be kept, by stream; pixels are a stream of their own.
    """
    inputs = {name: _repeated(value, len(scales), question.batch) for name, value in question.inputs.items()}
    by_example = scales.repeat_interleave(question.batch)
    scaled = [stream for stream in question.family.streams if stream.name in streams and stream.scaled != NOTHING]

    def between(stream: str, start: Tensor | float, end: Tensor) -> Tensor:
        point = _between(start, end, by_example)
        if leaves is None:
            return point
        point = point.detach().to(torch.promote_types(point.dtype, torch.float32)).requires_grad_()
        leaves[stream] = Leaf(point, (end - _between(start, end, torch.zeros(1))).detach())
        return point

    names: dict[nn.Module, list[str]] = {}
    paths: dict[nn.Module, str] = {}
    for stream in reversed(scaled):  # an encoder and a decoder may share their embeddings; the encoder runs first
        if stream.scaled is None:
            name, pixels = main_input(inputs)
            start = _pixel_baseline(baseline, pixels)
            inputs[name] = between("pixels" if pixels.dim() == 4 else "frames", start, pixels)
        else:
            module = scaled_module(question.model, stream.scaled)
            names.setdefault(module, []).append(stream.name)
            paths[module] = stream.scaled
    has_pixels = any(stream.scaled is None for stream in question.family.streams)
    if has_pixels and (isinstance(baseline, Tensor) or baseline != "padding"):
        baseline = "zero"  # what was given is for the pixels, and no word piece starts there

    def change(module: nn.Module, args: Any, kwargs: Any, output: Tensor) -> Tensor:
        start = _embedding_baseline(baseline, module, args, kwargs, config_of(question.model))
        return between(names[module].pop(0) if len(names[module]) > 1 else names[module][0], start, output)

    with ExitStack() as hooks:
        for module, path in paths.items():
            hooks.enter_context(_changed_output(question, module, path, len(by_example), change))
        yield inputs


@contextmanager
def _changed_output(
    question: Question, module: nn.Module, path: str, batch: int, change: Callable[..., Tensor]
) -> Iterator[None]:
    """While inside, the module gives what `change` makes of its output."""
    name = f"The module {path!r} of {type(question.model).__name__}"
    thread, fired = get_ident(), []

    def changed(module: nn.Module, args: Any, *rest: Any) -> Any:
        # The hook sits on the module: it fires in other threads too, and while another thread takes its own away
        # PyTorch may call it without keyword arguments.
        if get_ident() != thread:
            return None
        kwargs, output = rest
        if not isinstance(output, Tensor) or len(output) != batch:
            raise UnsupportedModel(f"{name} gives no tensor [example, …] to scale. {ROW_TO_WRITE}")
        fired.append(True)
        return change(module, args, kwargs, output)

    handle = module.register_forward_hook(changed, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()
    if not fired:
        raise UnsupportedModel(f"{name} is never called: the path would stand still. {ROW_TO_WRITE}")


def _between(start: Tensor | float, end: Tensor, scales: Tensor) -> Tensor:
    if isinstance(start, Tensor):
        start = start.to(end)
        if start.dim() == end.dim() and 1 < len(start) < len(end):  # one per example, for every scale
            start = start.repeat(len(end) // len(start), *[1] * (end.dim() - 1))
    factor = scales.to(end).reshape(-1, *[1] * (end.dim() - 1))
    return start + factor * (end - start)


def _pixel_baseline(baseline: str | Tensor, pixels: Tensor) -> Tensor | float:
    if isinstance(baseline, Tensor):
        return baseline
    if baseline == "zero":
        return 0.0
    if baseline == "black":
        raise WhyformerError(
            "baseline='black' needs the image processor: use explain, or give the baseline as a tensor."
        )
    raise WhyformerError(f"baseline={baseline!r} is for text; for pixels: 'zero', 'black' or a tensor.")


def _embedding_baseline(
    baseline: str | Tensor, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], config: Any
) -> Tensor | float:
    if isinstance(baseline, Tensor):
        return baseline
    if baseline == "zero":
        return 0.0
    if baseline == "black":
        raise WhyformerError("baseline='black' is for pixels; for text: 'zero', 'padding' or a tensor.")
    if baseline != "padding":
        raise WhyformerError(f"baseline={baseline!r}: for text 'zero', 'padding' or a tensor.")
    pad = getattr(config, "pad_token_id", None)
    if pad is None:
        raise WhyformerError("baseline='padding': this model's config has no pad_token_id.")
    given = kwargs.get("input_ids", args[0] if args else None)
    if not isinstance(given, Tensor):
        return 0.0
    # Regions start at features of zero, also where they are embedded with the text.
    first = torch.zeros_like(given) if given.is_floating_point() else torch.full_like(given, pad)
    features = kwargs.get("visual_embeds")
    starts = {} if features is None else {"visual_embeds": torch.zeros_like(features)}
    if "input_ids" in kwargs:
        starts["input_ids"] = first
    else:
        args = (first, *args[1:])
    start: Tensor = module.forward(*args, **kwargs | starts)
    return start


def _repeated(value: Any, times: int, batch: int) -> Any:
    if times == 1 or not isinstance(value, Tensor) or value.dim() == 0 or len(value) != batch:
        return value
    return value.repeat(times, *[1] * (value.dim() - 1))


def _parts(output: Any, batch: int, count: int) -> Iterator[Any]:
    """The output cut along the batch into what each copy of the inputs gave."""
    for number in range(count):
        yield _rows(output, slice(number * batch, (number + 1) * batch), batch * count)


def _rows(output: Any, rows: slice, total: int) -> Any:
    if isinstance(output, Tensor):
        return output[rows] if output.dim() and len(output) == total else output
    if isinstance(output, Mapping):
        cut = {name: _rows(value, rows, total) for name, value in output.items()}
        # Every image of a dual encoder by every text: those of the other copies are not of this question.
        cut |= {name: cut[name][:, rows] for name in ("logits_per_image", "logits_per_text") if name in cut}
        return type(output)(**cut) if isinstance(output, ModelOutput) else cut
    if hasattr(output, "_make"):
        return output._make(_rows(value, rows, total) for value in output)
    if isinstance(output, (tuple, list)):
        return type(output)(_rows(value, rows, total) for value in output)
    if is_dataclass(output) and not isinstance(output, type):
        return replace(
            output, **{field.name: _rows(getattr(output, field.name), rows, total) for field in fields(output)}
        )
    return output

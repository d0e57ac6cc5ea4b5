"""One question put to a model: its attention records, and what a method may read beyond them."""

from __future__ import annotations

import inspect
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from whyformer.axes import HEAD, QUERY, AttentionMap, Inputs, Mixing, Rows, TokenMask, TokenScores, by_head
from whyformer.backward import HiddenGradient, gradients, last_gradient
from whyformer.errors import UnsupportedModel, WhyformerError
from whyformer.families import config_of, family_of, main_input, patch_grid
from whyformer.flow import Step
from whyformer.path import (
    TOKENS_AT_ONCE,
    Baseline,
    Quadrature,
    Question,
    integrated_gradient,
    last_gradients,
    nodes_and_weights,
)
from whyformer.provenance import Tap
from whyformer.readout import ReadOut, read_out_seen, read_out_weights
from whyformer.record import AttentionRecord, Recorder
from whyformer.score import Asked, Target, asked

# What a method reads of a trace. Maps alone are kept as head means; everything else is kept per head.
Reads = Literal["last map", "maps", "states", "last gradient", "gradients"]


@dataclass(frozen=True)
class Trace:
    """The records of one forward pass, where its answer is read, and the means to ask again along a path."""

    question: Question
    asked: Asked
    output: Any
    records: tuple[AttentionRecord, ...]
    readout: ReadOut
    mask: TokenMask
    inputs_at_once: int | None = None

    @property
    def last(self) -> AttentionRecord:
        """The last attention operation before the answer."""
        return self.records[-1]

    def steps_from(self, first_block: int) -> list[Step]:
        """The records from a block on, a step each; refused where tokens do not keep their places."""
        blocks = self.records[-1].block + 1
        if not 0 <= first_block < blocks:
            raise WhyformerError(f"first_block={first_block}: this model's blocks are 0 to {blocks - 1}.")
        batch, length = self.readout.weights.shape
        for record in self.records:
            if (record.map.shape[0], *record.map.shape[2:]) != (batch, length, length):
                raise UnsupportedModel(_no_token_flow(self.question.model, record.map))
        return [(record,) for record in self.records if record.block >= first_block]

    def feedback(self, quadrature: Quadrature, steps: int, baseline: Baseline | Tensor) -> Rows:
        """F at the read-out's rows: the last map's integrated gradient, clamped per head, head mean (BI Eq. 17)."""
        positions, _ = self.readout.rows
        nodes, weights = nodes_and_weights(quadrature, steps)
        default = TOKENS_AT_ONCE.get(positions.device.type, TOKENS_AT_ONCE["cpu"]) // self.mask.shape[1]
        at_once = self.inputs_at_once or default
        gradient = integrated_gradient(self.question, positions, nodes, weights, baseline, at_once)
        return head_mean(gradient.clamp(min=0))


def trace(
    model: nn.Module,
    inputs: Inputs,
    target: Target = "predicted",
    *,
    reads: Reads = "gradients",
    readout: str | int | Tensor | None = None,
    inputs_at_once: int | None = None,
) -> Trace:
    """Run the model once on the inputs, keeping what `reads` names."""
    model = getattr(model, "_orig_mod", model)  # torch.compile's wrapper hides every operation
    _check_model(model)
    with torch.inference_mode(False):
        inputs = {name: _own(value) for name, value in inputs.items()} | _without_cache(model)
        batch = len(main_input(inputs)[1])
        graph = reads in ("last gradient", "gradients")
        # What reads the last map alone lets the blocks before it run on the fused kernels.
        start = max(0, (layers_of(model) or 1) - 1) if reads in ("last map", "last gradient") else 0
        recorder = Recorder(batch, graph=graph, start=start, merge_heads=not graph, states=reads == "states")
        output = recorder.run(model, **inputs)
        _check_complete(model, recorder, batch)
        answer = asked(target, output, labels_of(model))
        family = family_of(model, inputs)
        question = Question(model, inputs, family, answer.score, batch, recorder.seen)
        kind = family.readout if readout is None else readout
        kind = kind(model) if callable(kind) else kind
        if reads == "gradients":
            found = gradients(answer.score(output), recorder.taps, batch)
        elif reads == "last gradient":
            found = last_gradient(answer.score(output), recorder.taps, batch)
        else:
            found = [None] * len(recorder.taps) if kind is not None else _last_gradient_apart(question, recorder.taps)
        # Attention that does not reach the answer, such as an unused pooling head, is no part of it.
        question = replace(question, operations=recorder.seen - len(recorder.taps) + len(found))
        records = _records(question, recorder.taps[: len(found)], found)
        mask = _token_mask(inputs, records[-1].map)
        weights = _read_out(kind, question, records[-1], mask)
    return Trace(question, answer, output, records, ReadOut(family.stream, weights), mask, inputs_at_once)


def head_mean(x: AttentionMap) -> Mixing:
    """The mean over heads, in float32 at least."""
    return x.mean(HEAD, dtype=torch.promote_types(x.dtype, torch.float32))


def labels_of(model: nn.Module) -> dict[int, str]:
    """The label names a model carries, by index."""
    names = getattr(getattr(model, "config", None), "id2label", None) or {}
    return {int(index): str(name) for index, name in names.items()}


def prefix_length(model: nn.Module, inputs: Inputs, tokens: int) -> int:
    """How many tokens lead the patches of an image (class, distillation, registers); 0 for text."""
    _, example = main_input(inputs)
    if example.dim() != 4:
        return 0
    rows, columns = patch_grid(model, (example.shape[-2], example.shape[-1]), tokens)
    return tokens - rows * columns


def _check_model(model: nn.Module) -> None:
    if any(module.training for module in model.modules()):
        raise WhyformerError("The model is in training mode, where dropout corrupts attention: call model.eval().")
    if getattr(config_of(model), "is_encoder_decoder", False):
        raise UnsupportedModel(
            f"{type(model).__name__} has an encoder and a decoder: several streams are not supported."
        )
    kernel = getattr(config_of(model), "_attn_implementation", None)
    if kernel not in (None, "sdpa", "eager"):
        raise UnsupportedModel(f"{kernel} attention cannot be seen: load the model with attn_implementation='sdpa'.")


def _check_complete(model: nn.Module, recorder: Recorder, batch: int) -> None:
    name = type(model).__name__
    layers = layers_of(model)
    if recorder.seen and layers is not None and recorder.seen < layers:
        raise UnsupportedModel(
            f"{name} has {layers} layers but only {recorder.seen} attention operations were seen: "
            "the others run in kernels that cannot be recorded."
        )
    if not recorder.taps:
        raise UnsupportedModel(f"{name} ran no attention operation that can be recorded: it has none, or hides it.")
    if any(tap.is_folded and (tap.heads_in_order is None or not bool(tap.heads_in_order)) for tap in recorder.taps):
        raise UnsupportedModel(
            f"{name} folds its heads into the batch, and not examples before heads: explain one example at a time."
        )
    last = recorder.taps[-1].map
    if not recorder.taps[-1].is_folded and last.dim() == 4 and len(last) != batch:
        raise UnsupportedModel(
            f"The last map of {name} has {len(last)} rows for {batch} examples: its windows are no single stream."
        )


def layers_of(model: nn.Module) -> int | None:
    """How many layers the configuration states, where it does."""
    layers = getattr(config_of(model), "num_hidden_layers", None)
    return layers if isinstance(layers, int) else None


def _last_gradient_apart(question: Question, taps: list[Tap]) -> list[AttentionMap | None]:
    """The gradient of the last map that reaches the answer, asked for in a pass of its own."""
    before = question.operations - len(taps)
    for count in range(len(taps), 1, -1):
        with suppress(HiddenGradient):
            found = last_gradients(replace(question, operations=before + count))
            return [None] * (count - 1) + [found]
    return [last_gradients(replace(question, operations=before + 1))]


def _records(question: Question, taps: list[Tap], found: list[AttentionMap | None]) -> tuple[AttentionRecord, ...]:
    names = {id(parameter): name for name, parameter in question.model.named_parameters(remove_duplicate=False)}
    first = question.operations - len(taps)
    return tuple(
        _record(tap, gradient, names.get(id(tap.output_parameter), "").rpartition(".")[0], first + number, question)
        for number, (tap, gradient) in enumerate(zip(taps, found, strict=True))
    )


def _record(tap: Tap, gradient: AttentionMap | None, path: str, block: int, question: Question) -> AttentionRecord:
    batch, stream = question.batch, question.family.stream
    attention = by_head(tap.map.detach(), batch)
    return AttentionRecord(
        path=path,
        block=block,
        query_stream=stream,
        key_stream=stream,
        map=attention,
        gradient=gradient,
        value=None if tap.value is None else by_head(tap.value, batch),
        value_weight=None if tap.value_source is None else tap.value_source.rows(batch),
        output_weight=tap.projection(),
        key_state=tap.state(batch, attention.shape[QUERY]),
    )


def _token_mask(inputs: Inputs, last: AttentionMap) -> TokenMask:
    """Which tokens are real: the attention mask's word, or else those that any query attends to."""
    given = inputs.get("attention_mask")
    if isinstance(given, Tensor) and given.shape == (last.shape[0], last.shape[-1]):
        return given.bool()
    return last.sum(dim=(HEAD, QUERY)) > 0


def _read_out(
    kind: str | int | Tensor | None, question: Question, last: AttentionRecord, mask: TokenMask
) -> TokenScores:
    dtype = torch.promote_types(last.map.dtype, torch.float32)
    if kind is None:
        assert last.gradient is not None
        return read_out_seen(last.gradient).to(dtype)
    is_mean = isinstance(kind, str) and "mean" in kind
    prefix = prefix_length(question.model, question.inputs, mask.shape[1]) if is_mean else 0
    return read_out_weights(kind, mask, prefix).to(dtype)


def _without_cache(model: nn.Module) -> Inputs:
    """Decoders are not to keep keys and values for a next token that nobody asks for."""
    takes_it = "use_cache" in inspect.signature(model.forward).parameters
    return {"use_cache": False} if takes_it and getattr(config_of(model), "use_cache", False) else {}


def _own(value: Any) -> Any:
    """A tensor free of the caller's graph and inference mode."""
    if not isinstance(value, Tensor):
        return value
    return value.clone() if value.is_inference() else value.detach()


def _no_token_flow(model: nn.Module, windowed: AttentionMap) -> str:
    return (
        f"This method follows tokens from block to block, but {type(model).__name__} has maps of shape "
        f"{tuple(windowed.shape)} on the way: windows, merged patches or several streams do not keep tokens in place. "
        "grad_cam and raw_attention, which read the last map alone, work on it."
    )

"""Inputs on a path from a baseline: pixels themselves, and the embeddings of word pieces and regions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from threading import get_ident
from typing import Any, Literal

import torch
from torch import Tensor, nn

from whyformer.axes import Inputs, TokenScores
from whyformer.errors import UnsupportedModel, WhyformerError
from whyformer.models.bridges import Bridge
from whyformer.models.families import ROW_TO_WRITE, scaled_module
from whyformer.models.family import NOTHING, Stream
from whyformer.models.input_tensors import INPUT_TENSORS, channel_axis, input_stream
from whyformer.models.structure import config_of, main_input
from whyformer.tracing.question import ModelCall, repeat_inputs

Baseline = Literal["zero", "black", "padding"]
ALMOST_ZERO = 1e-6


@dataclass(frozen=True)
class Leaf:
    """An input in the graph: its value, and the difference between the end and the start of its path.

    `by_patch` sums the pixels of pictures among words for each patch of the image stream.
    """

    value: Tensor
    difference: Tensor
    by_patch: Callable[[Tensor], TokenScores] | None = None

    def scores(self, stream: str, x: Tensor) -> TokenScores:
        """Sum `x` over the channels of the input, to one score per pixel, frame or token."""
        if self.by_patch is not None:
            return self.by_patch(x.detach())
        axis = channel_axis(stream)
        scores = x.detach() if axis is None else x.detach().sum(dim=axis)
        return scores.flatten(1)


@contextmanager
def scaled_inputs(
    call: ModelCall,
    streams: Sequence[str],
    scales: Tensor,
    baseline: str | Tensor,
    leaves: dict[str, Leaf] | None = None,
) -> Iterator[Inputs]:
    """Repeat the inputs once per scale, with the given streams at their point of the path.

    Outputs of modules are scaled within the context. Scaled tensors become leaves of the graph, collected in `leaves`
    by stream if given; pixels are a separate stream. Noise is added to every stream, at the end of the path.
    """
    inputs = repeat_inputs(call.inputs, len(scales), call.batch)
    by_example = scales.repeat_interleave(call.batch)
    if call.family.is_one_stack:  # which includes the streams it was computed from
        streams = [stream.name for stream in call.family.streams]
    chosen = [stream for stream in call.family.streams if stream.name in streams or call.noise is not None]
    own_streams: dict[nn.Module, list[Stream]] = {}
    for stream in reversed(chosen):  # an encoder and a decoder may share their embeddings; the encoder runs first
        rates = scales if stream.name in streams else torch.ones_like(scales)
        if stream.scaled is None and call.family.sight is not None:
            if call.bridge is not None:
                inputs["pixel_values"] = _pictures(call, call.bridge, inputs, rates, baseline, leaves)
        elif stream.scaled is None:
            name, pixels = main_input(inputs)
            pixels = _with_noise(call, stream, pixels, len(scales), _real_pixels(name, call.inputs))
            start = _pixel_baseline(baseline, pixels) if stream.name in streams else 0.0
            own_stream = input_stream(name, pixels, stream.name)
            inputs[name] = _point(own_stream, start, pixels, rates.repeat_interleave(call.batch), leaves)
        elif stream.scaled != NOTHING:
            own_streams.setdefault(scaled_module(call.model, stream.scaled), []).append(stream)
    has_pixels = any(stream.scaled is None for stream in call.family.streams)
    if has_pixels and (isinstance(baseline, Tensor) or baseline != "padding"):
        baseline = "zero"  # the baseline is for the pixels, not for word pieces
        if call.bridge is not None and padding_token(config_of(call.model)) is not None:
            baseline = "padding"  # a decoder reads words with pictures among them

    def change(module: nn.Module, args: Any, kwargs: Any, output: Tensor) -> Tensor:
        ids = call.word_pieces(own_streams[module][0].name)
        if ids is not None and output.dim() == 3 and output.shape[1] < ids.shape[-1]:
            return output  # padding, which the model embeds separately (LED)
        own_stream = own_streams[module].pop(0) if len(own_streams[module]) > 1 else own_streams[module][0]
        is_scaled = own_stream.name in streams
        start = _embedding_baseline(baseline, module, args, kwargs, config_of(call.model)) if is_scaled else 0.0
        rates = by_example if is_scaled else torch.ones_like(by_example)
        own = _own_tokens(call, own_stream, args, kwargs)
        start = start[:, :own] if own is not None and isinstance(start, Tensor) and start.dim() == 3 else start
        tokens = output if own is None else output[:, :own]
        tokens = _with_noise(call, own_stream, tokens, len(scales), _real_tokens(own_stream, call, tokens))
        point = _point(own_stream.name, start, tokens, rates, leaves)
        return point if own is None else torch.cat([point, output[:, own:].detach()], dim=1)

    with ExitStack() as hooks:
        for module, (stream, *_) in own_streams.items():
            hooks.enter_context(_changed_output(call, module, stream.scaled or "", len(by_example), change))
        yield inputs


def inputs_as_they_are(call: ModelCall, leaves: dict[str, Leaf] | None = None) -> AbstractContextManager[Inputs]:
    """The inputs, with noise if the call has any; as leaves of the graph if `leaves` is given."""
    if leaves is None and call.noise is None:
        return nullcontext(call.inputs)
    streams = [stream.name for stream in call.family.streams]
    return scaled_inputs(call, streams, torch.ones(1), "zero", leaves)


def _with_noise(call: ModelCall, stream: Stream, values: Tensor, copies: int, is_real: Tensor | None) -> Tensor:
    """Add the call's noise to a stream's input, the same for every copy of the examples."""
    if call.noise is None:
        return values
    own = values[: len(values) // copies].detach()
    rows = torch.arange(len(own), device=own.device)
    return call.noise.on(stream.name, own, rows, is_real).repeat(copies, *[1] * (own.dim() - 1))


def _real_pixels(name: str, inputs: Inputs) -> Tensor | None:
    """Which pixels of a picture, or samples of a sound, are not padding; None without a mask."""
    mask, values = inputs.get((INPUT_TENSORS[name].mask if name in INPUT_TENSORS else None) or ""), inputs[name]
    if not isinstance(mask, Tensor) or len(mask) != len(values) or mask.dim() > values.dim():
        return None
    if mask.shape[1:] == values.shape[-2:]:
        return mask[(slice(None), *[None] * (values.dim() - 3))]
    return mask if mask.shape == values.shape else None


def _real_tokens(stream: Stream, call: ModelCall, tokens: Tensor) -> Tensor | None:
    """Which tokens of a stream are not padding; None without masks. Regions may be embedded after words."""
    masks = [call.inputs.get(name) for name in (stream.mask, "visual_attention_mask") if name]
    known = [mask.reshape(len(mask), -1) for mask in masks if isinstance(mask, Tensor) and mask.dim() in (2, 3)]
    joined = (torch.cat(known[:count], dim=1) for count in range(1, len(known) + 1))
    return next((mask[..., None] for mask in joined if mask.shape == (call.batch, tokens.shape[1])), None)


def _pictures(
    call: ModelCall,
    bridge: Bridge,
    inputs: Inputs,
    scales: Tensor,
    baseline: str | Tensor,
    leaves: dict[str, Leaf] | None,
) -> Tensor:
    """The pixels of pictures among words, each at the path point of its example."""
    pixels, rows = inputs["pixel_values"], len(call.inputs["pixel_values"])
    examples = bridge.pixel_examples(call.inputs)
    # All-zero entries on an axis of pictures or tiles are padding.
    is_picture = (pixels != 0).flatten(2).any(dim=2)[..., None, None, None] if pixels.dim() == 5 else None
    if call.noise is not None:
        real = None if is_picture is None else is_picture[:rows]
        pixels = call.noise.on("image", pixels[:rows], examples, real).repeat(len(scales), *[1] * (pixels.dim() - 1))
    by_row = scales.to(examples.device)[:, None].expand(-1, rows).flatten()

    def by_patch(x: Tensor) -> TokenScores:
        return torch.cat([bridge.patch_scores(part) for part in x.split(rows)])

    start = 0.0 if isinstance(baseline, str) and baseline == "padding" else _pixel_baseline(baseline, pixels)
    if isinstance(start, float) and is_picture is not None:
        start = ALMOST_ZERO * is_picture.to(pixels)
    return _point("image", start, pixels, by_row, leaves, by_patch)


def _own_tokens(call: ModelCall, stream: Stream, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
    """The number of tokens of the text itself, if the model pads it to a multiple (Longformer); otherwise None."""
    ids, text_ids = kwargs.get("input_ids", args[0] if args else None), call.word_pieces(stream.name)
    if not isinstance(ids, Tensor) or text_ids is None:
        return None
    own = text_ids.shape[-1]  # the single choice of a multiple-choice head has an axis of its own
    return own if ids.dim() == 2 and ids.shape[1] > own else None


def _point(
    stream: str,
    start: Tensor | float,
    end: Tensor,
    scales: Tensor,
    leaves: dict[str, Leaf] | None,
    by_patch: Callable[[Tensor], TokenScores] | None = None,
) -> Tensor:
    """The point of the path at each example's scale: a leaf in float32 at least, cast to the input's dtype."""
    exact = end.detach().to(torch.promote_types(end.dtype, torch.float32))
    if isinstance(start, Tensor):
        start = _per_example(start.detach().to(exact), exact, stream)
    factor = scales.to(exact).reshape(-1, *[1] * (end.dim() - 1))
    point = start + factor * (exact - start)
    if leaves is None:
        return point.to(end.dtype)
    with torch.enable_grad():
        leaf = point.requires_grad_()
        leaves[stream] = Leaf(leaf, exact - start, by_patch)
        return leaf.to(end.dtype, copy=True)  # some models scale their embeddings in place


def _per_example(start: Tensor, end: Tensor, stream: str) -> Tensor:
    """Fit a baseline to the input: one for all examples, or one each, repeated for every scale."""
    if start.dim() == end.dim() and 1 < len(start) < len(end) and len(end) % len(start) == 0:
        start = start.repeat(len(end) // len(start), *[1] * (end.dim() - 1))
    try:
        start.expand_as(end)
    except RuntimeError as error:
        raise WhyformerError(
            f"The baseline has shape {tuple(start.shape)}, the {stream} of an example {tuple(end.shape[1:])}: give one "
            "of that shape, or one that can be expanded to it."
        ) from error
    return start


@contextmanager
def _changed_output(
    call: ModelCall, module: nn.Module, path: str, batch: int, change: Callable[..., Tensor]
) -> Iterator[None]:
    """Replace the module's output by the result of `change` within the context."""
    name = f"The module {path!r} of {type(call.model).__name__}"
    thread, calls = get_ident(), []

    def hook(module: nn.Module, args: Any, *rest: Any) -> Any:
        # A hook on a module also fires in other threads, and while another thread removes its own hook, PyTorch may
        # call it without keyword arguments.
        if get_ident() != thread:
            return None
        kwargs, output = rest
        tensor, *others = output if isinstance(output, tuple) else (output,)
        if not isinstance(tensor, Tensor) or len(tensor) != batch:
            raise UnsupportedModel(f"{name} does not return a tensor [example, …] to scale. {ROW_TO_WRITE}")
        calls.append(True)
        changed = change(module, args, kwargs, tensor)
        return (changed, *others) if isinstance(output, tuple) else changed

    handle = module.register_forward_hook(hook, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()
    if not calls:
        raise UnsupportedModel(f"{name} is never called, so its output cannot be scaled. {ROW_TO_WRITE}")


def padding_token(config: Any) -> int | None:
    """The padding token; for a model with pictures among words, its decoder's."""
    pad: int | None = getattr(getattr(config, "text_config", None) or config, "pad_token_id", None)
    return pad


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
    pad = padding_token(config)
    if pad is None:
        raise WhyformerError("baseline='padding': this model's config has no pad_token_id.")
    ids = kwargs.get("input_ids", args[0] if args else None)
    if not isinstance(ids, Tensor):
        return 0.0
    # Regions start at zero features, also if they are embedded with the text.
    first = torch.zeros_like(ids) if ids.is_floating_point() else torch.full_like(ids, pad)
    features = kwargs.get("visual_embeds")
    starts = {} if features is None else {"visual_embeds": torch.zeros_like(features)}
    if "input_ids" in kwargs:
        starts["input_ids"] = first
    else:
        args = (first, *args[1:])
    output = module.forward(*args, **kwargs | starts)
    start: Tensor = output[0] if isinstance(output, tuple) else output
    return start

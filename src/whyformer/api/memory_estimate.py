"""Estimate the memory of an explanation: measured on shorter inputs, extrapolated to the requested length.

Weights do not grow with the tokens, states and activations grow linearly, and maps and masks quadratically. The
coefficients depend on the model, the method and the device, and are measured.
"""

from __future__ import annotations

import math
import os
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from whyformer.api.attribute import attribute
from whyformer.axes import ExampleScores, Inputs
from whyformer.backward.rules import Backward
from whyformer.batching import is_out_of_memory
from whyformer.errors import WhyformerError, check_count
from whyformer.models.structure import config_of, device_of, unwrapped
from whyformer.models.task import answer_of_class
from whyformer.tracing.path import inputs_at_once
from whyformer.watching.kernels import KEPT

MEASURED_WHOLE = 256  # tokens that are measured directly
MEASURED_FRACTIONS = (8, 4, 2)  # of a longer input, measured instead


class OutOfMemory(WhyformerError):
    """Memory ran out while measuring."""


def estimate_memory(
    model: nn.Module,
    tokens: int,
    method: str | None = None,
    *,
    batch: int = 1,
    backward: Backward | None = None,
    **options: Any,
) -> int:
    """Estimate the peak memory in bytes of explaining texts of this many tokens, including the weights.

    Random inputs of half the length and less are explained, and their memory is extrapolated by a quadratic, a linear
    and a constant term. Up to 256 tokens are measured directly.

    Args:
        model: A model that reads a text, on its device and in evaluation mode.
        tokens: The number of tokens of the text.
        method: The name of a method; by default the default method.
        batch: The number of texts that are explained at once.
        backward: As in `attribute`.
        **options: The options of the method.

    Returns:
        Bytes on the model's device.

    Raises:
        UnsupportedModel: If the method cannot follow this model.
        WhyformerError: If the model does not read a single text, lacks that many positions, or runs out of memory at
            half the length already.

    Example:
        >>> bert = whyformer.load("mini-bert", device="cpu").model
        >>> whyformer.estimate_memory(bert, 64, "rollout") < whyformer.estimate_memory(bert, 64, "lrp")
        True
    """
    model = unwrapped(model)
    check_tokens(model, tokens)
    check_count("batch", batch)
    # Methods that repeat their input do so less often for longer ones: repeat the shorter ones as often.
    at_once = max(1, inputs_at_once(tokens, device_of(model).type))

    answer = answer_of_class(type(model).__name__)
    target: Any = _first_number if answer in ("tag", "span", "masked word", "embedding") else 0

    def take(length: int) -> int:
        inputs = random_text(model, length)
        if answer == "choice":
            inputs = {name: value[:, None] for name, value in inputs.items()}
        return peak_bytes(
            lambda: attribute(model, inputs, target, method, inputs_at_once=at_once, backward=backward, **options),
            model,
        )

    lengths = _lengths(tokens, _heads(model))
    try:
        peaks = [take(length) for length in lengths]
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise OutOfMemory(f"Out of memory: {tokens} tokens need more than {device_of(model)} has.") from None
    activations = peaks[0] if lengths == [tokens] else _extrapolated(lengths, peaks, tokens)
    return weight_bytes(model) + batch * activations


def _first_number(output: Any) -> ExampleScores:
    """Any number of an output: which one makes no difference to memory."""
    first: Tensor = next(value for value in output.values() if isinstance(value, Tensor))
    return first.flatten(1)[:, 0]


def weight_bytes(model: nn.Module) -> int:
    """Bytes of the weights and buffers on the model's device."""
    device = device_of(model)
    tensors = {id(x): x for x in (*model.parameters(), *model.buffers()) if x.device == device}
    return sum(_stored_bytes(x) for x in tensors.values())


def available_bytes(model: nn.Module) -> int:
    """Bytes that the device has for the model: free memory plus its own weights."""
    device = device_of(model)
    if device.type == "cuda":
        free: int = torch.cuda.mem_get_info(device)[0]
        reserved: int = torch.cuda.memory_reserved(device)
        return free + reserved
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") + weight_bytes(model)


def peak_bytes(call: Callable[[], object], model: nn.Module) -> int:
    """The peak memory of a call beyond the weights: by CUDA's counter, or elsewhere by live tensors."""
    device = device_of(model)
    if device.type != "cuda":
        counter = LiveBytes(model)
        with counter:
            call()
        return counter.peak
    call()  # libraries allocate their workspaces once
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    call()
    torch.cuda.synchronize(device)
    peak: int = torch.cuda.max_memory_allocated(device)
    return peak - before


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of live tensors created within the context."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.peak = self._now = 0
        self._known = {id(_storage(x)) for x in (*model.parameters(), *model.buffers()) if not x.is_meta}
        self._watched: dict[int, weakref.ref[Any]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for x in tree_leaves(result):
            if isinstance(x, Tensor) and type(x) in (Tensor, nn.Parameter) and not x.is_meta:
                self._note(_storage(x))
        return result

    def _note(self, storage: torch.UntypedStorage) -> None:
        number, size = id(storage), storage.nbytes()
        if number in self._known or number in self._watched:
            return

        def forget(_: Any) -> None:
            self._now -= size
            del self._watched[number]

        self._watched[number] = weakref.ref(storage, forget)
        self._now += size
        self.peak = max(self.peak, self._now)


def _storage(x: Tensor) -> torch.UntypedStorage:
    return x.untyped_storage()


def _stored_bytes(x: Tensor) -> int:
    inner = getattr(x, "__tensor_flatten__", None)
    if inner is None or type(x) in (Tensor, nn.Parameter):
        return x.numel() * x.element_size()
    names, _ = inner()
    return sum(_stored_bytes(getattr(x, name)) for name in names)


def _lengths(tokens: int, heads: int) -> list[int]:
    """The lengths to measure: far enough apart, and on the same side of the limit above which maps are not kept."""
    if tokens <= MEASURED_WHOLE:
        return [tokens]
    limit = math.isqrt(KEPT // heads)
    if tokens > limit:
        lengths = [max(limit + 1, tokens // fraction) for fraction in MEASURED_FRACTIONS]
        step = max(1, min(limit, tokens - lengths[-1]) // 4)
        lengths = [max(length, lengths[0] + number * step) for number, length in enumerate(lengths)]
    else:
        lengths = [max(16, tokens // fraction) for fraction in MEASURED_FRACTIONS]
    return sorted({min(length, tokens) for length in lengths})


def _extrapolated(lengths: Sequence[int], peaks: Sequence[int], tokens: int) -> int:
    """Extrapolate the peak: no term is negative, and a straight line is preferred."""
    x, y = np.array(lengths, dtype=float), np.array(peaks, dtype=float)
    for degree in range(1, len(lengths)):
        terms = np.polyfit(x, y, degree)
        misses = np.abs(np.polyval(terms, x) - y) / y
        if misses.max() < 0.005 or degree == len(lengths) - 1:
            break
    if terms[0] <= 0:  # a negative quadratic term is noise
        terms = np.polyfit(x[-2:], y[-2:], 1)
    return max(round(float(np.polyval(terms, tokens))), peaks[-1])


def random_text(model: nn.Module, length: int) -> Inputs:
    """A text of random word pieces."""
    config = config_of(model).get_text_config()
    generator = torch.Generator().manual_seed(0)
    pieces = torch.randint(2, config.vocab_size, (1, length), generator=generator).to(device_of(model))
    pad = getattr(config, "pad_token_id", None)
    pieces = pieces.where(pieces != (-1 if pad is None else pad), 1)
    return {"input_ids": pieces, "attention_mask": torch.ones_like(pieces)}


def _heads(model: nn.Module) -> int:
    config = config_of(model).get_text_config()
    return int(getattr(config, "num_attention_heads", None) or 1)


def check_tokens(model: nn.Module, tokens: int) -> None:
    """Validate that the model reads a single text and has enough positions for the tokens."""
    name, config = type(model).__name__, config_of(model)
    if type(tokens) is not int or tokens < 2:
        raise WhyformerError(f"tokens={tokens!r}: a whole number, at least 2.")
    takes = getattr(model, "main_input_name", None)
    if takes != "input_ids" or getattr(config, "is_encoder_decoder", False) or hasattr(config, "vision_config"):
        raise WhyformerError(f"{name} does not read a single text: its memory cannot be estimated.")
    positions = getattr(config.get_text_config(), "max_position_embeddings", None)
    if isinstance(positions, int) and 0 < positions < tokens:
        raise WhyformerError(f"tokens={tokens}: {name} has positions for {positions}.")

"""Kernels that mix tokens linearly in their values: linear attention, state spaces, short convolutions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from whyformer.axes import AttentionMap, Positions, Rows, TokenMask, Values
from whyformer.errors import UnsupportedModel
from whyformer.models.calls import KernelCall
from whyformer.models.mixers import SHORT_CONVOLUTION
from whyformer.watching.closed_maps import SCAN_CHUNK, convolution_band, convolution_rows, scan_rows
from whyformer.watching.facts import plain, plain_values
from whyformer.watching.mixing import repeat_examples, version_of

if TYPE_CHECKING:
    from whyformer.watching.watcher import Watcher


@dataclass(frozen=True)
class KernelKind:
    """How a kind of kernel is called.

    Attributes:
        values: Its parameter of values.
        axes: The order of their axes: example, head, token, feature. Without features each channel has a map of its
            own: it is a head of one feature.
        by_example: The parameters with a row per example, which are repeated with the examples. Not needed where
            values may have any number of features.
        state: The parameter whose last axis is as long as the state of a channel.
        outside: Parameters that change the output, and are applied after the kernel: a gate.
        has_state: Whether it always returns its last state too.
        owner: The end of the name of the classes that it is the mixer of, if others call it before theirs.
        closed_rows: A function of the constants, the first query, the one after the last, and the number of tokens. It
            returns these rows of the map. None if the kernel computes them from one-hot values.
        band: A function that returns the diagonals of the head mean of (M ⊙ ∇M)⁺, if the map has few.
    """

    values: str
    axes: str
    by_example: tuple[str, ...] = ()
    state: str | None = None
    outside: tuple[str, ...] = ()
    has_state: bool = False
    owner: str = ""
    closed_rows: Callable[[Mapping[str, Any], int, int, int], AttentionMap] | None = None
    band: Callable[[Mapping[str, Any], Values, Values], Rows] | None = None

    def by_head(self, x: Tensor) -> Values:
        """Order the axes of values, or of mixed ones, as [example, head, token, feature]."""
        x = x if "f" in self.axes else x.unsqueeze(-1)
        return x.permute([(self.axes if "f" in self.axes else self.axes + "f").index(axis) for axis in "ehtf"])

    def as_called(self, x: Values) -> Tensor:
        """The reverse."""
        x = x.permute(["ehtf".index(axis) for axis in (self.axes if "f" in self.axes else self.axes + "f")])
        return x if "f" in self.axes else x.squeeze(-1)


DELTA_RULE = KernelKind("value", "ethf", has_state=True)
DUALITY = KernelKind("hidden_states", "ethf")
SELECTIVE_SCAN = KernelKind(
    "hidden_states", "eht", by_example=("dt", "B", "C"), state="A", outside=("z",), closed_rows=scan_rows
)
GATED_RECURRENCE = KernelKind("hidden_states", "eth", by_example=("recurrent_gate", "reset"), has_state=True)
CONVOLUTION = KernelKind(
    "hidden_states",
    "eht",
    outside=("bias", "activation"),
    owner=SHORT_CONVOLUTION,
    closed_rows=convolution_rows,
    band=convolution_band,
)
WKV = KernelKind("value", "eth", by_example=("key",), has_state=True)
MATRIX_MEMORY = KernelKind("value", "ehtf", has_state=True)
KERNELS: dict[str, KernelKind] = {
    "torch_chunk_gated_delta_rule": DELTA_RULE,  # Qwen3-Next, Qwen3.5, OLMo-hybrid
    "chunk_kimi_delta_attention": DELTA_RULE,
    "mamba2_chunk_scan": DUALITY,  # Mamba-2, Bamba, Falcon-H1, Granite hybrid, Nemotron-H, Zamba2
    "mamba_selective_scan": SELECTIVE_SCAN,  # Mamba, Falcon-Mamba, Jamba, Zamba
    "_rnn_scan": GATED_RECURRENCE,  # RecurrentGemma
    "causal_conv1d_fn": CONVOLUTION,  # LFM2; before the other kernels it mixes neighbours only
    "rwkv_linear_attention": WKV,
    "_inference_fn": MATRIX_MEMORY,  # xLSTM
}
OWNERS = {name: kind.owner for name, kind in KERNELS.items()}
# A kernel that goes on from an earlier state, or keeps packed texts apart, is not a map of its tokens alone.
NOT_OF_TOKENS = ("initial_state", "initial_states", "recurrent_states", "state", "c_initial", "cu_seqlens", "seq_idx")
RETURNING = ("return_last_state", "return_final_states")
AFTER_KERNEL: dict[str, Callable[[Tensor, Any], Tensor]] = {
    "z": lambda mixed, gate: mixed * F.silu(gate),
    "bias": lambda mixed, bias: mixed + bias[:, None],
    "activation": lambda mixed, name: getattr(F, name)(mixed),
}


@dataclass(frozen=True)
class LinearKernel:
    """A call of a kernel, all of whose arguments but the values are constants. Calling it computes its map.

    o = M v is linear in v. So M applied to one-hot values is M itself, and r M, for rows r of weights, is the
    vector-Jacobian product of the kernel. Keys with no value at all are padding: the map has 0 there.
    """

    function: Callable[..., Any]
    constants: Mapping[str, Any]
    kind: KernelKind
    value: Values
    dtype: torch.dtype
    examples: int  # that the constants are of
    queries: Positions | None = None  # the rows that were picked
    version: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "version", self._version())

    @classmethod
    def of(cls, call: KernelCall, args: tuple[Any, ...], kwargs: dict[str, Any]) -> LinearKernel | None:
        """The kernel of a call; None if its output is not a map of the values alone."""
        kind, function = KERNELS[call.__name__], inspect.unwrap(call.own)
        arguments = inspect.signature(function).bind(*args, **kwargs).arguments
        arguments |= arguments.pop("kwargs", {})
        if any(arguments.get(name) is not None for name in NOT_OF_TOKENS):
            return None
        values = arguments.pop(kind.values)
        constants = {name: x.detach() if isinstance(x, Tensor) else x for name, x in arguments.items()}
        constants |= dict.fromkeys(kind.outside & constants.keys())
        return cls(function, constants, kind, kind.by_head(values.detach()), values.dtype, len(values))

    @property
    def shape(self) -> torch.Size:
        """The shape of its map."""
        examples, heads, tokens, _ = self.value.shape
        return torch.Size((examples, heads, tokens if self.queries is None else self.queries.shape[1], tokens))

    @property
    def device(self) -> torch.device:
        return self.value.device

    @property
    def entry_size(self) -> int:
        """The numbers that the kernel holds for each entry of the map."""
        state = self.kind.state if self.kind.closed_rows is None else None
        return 1 if state is None else int(self.constants[state].shape[-1])

    @property
    def least_rows(self) -> int:
        """The rows worth computing together, however many tokens there are."""
        return SCAN_CHUNK if self.kind.closed_rows is not None else 1

    @property
    def is_token(self) -> TokenMask:
        """Which keys have a value: the models set padding to 0."""
        return self.value.ne(0).any(dim=3).any(dim=1)

    def __call__(self) -> AttentionMap:
        examples, heads, tokens, _ = self.value.shape
        successive = self._successive()
        if self.kind.closed_rows is not None and successive is not None:
            self._check_unchanged()
            with torch.no_grad():
                rows = self.kind.closed_rows(self.constants, *successive, tokens)
                return self._at_tokens(repeat_examples(rows, examples // len(rows)))
        if self.queries is not None:
            one_hot = self.value.new_zeros(*self.queries.shape, tokens)
            return self.rows(one_hot.scatter_(2, self.queries[..., None], 1.0))
        eye = torch.eye(tokens, dtype=self.value.dtype, device=self.device)
        with torch.no_grad():
            return self._at_tokens(self.mix(eye.expand(examples, heads, -1, -1)))

    def mix(self, value: Values) -> Values:
        """Mix other values [example, head, token, feature], of any number of features; examples may be repeated."""
        self._check_unchanged()
        times, width = len(value) // self.examples, value.shape[-1]
        by_copy = value.unflatten(0, (times, -1))  # [copy, example, head, token, feature]
        if "f" in self.kind.axes:
            together = by_copy.permute(1, 2, 3, 0, 4).flatten(3)
            whole: Values = self._run(together, self.constants).unflatten(3, (times, width))
            return whole.permute(3, 0, 1, 2, 4).flatten(0, 1)
        copies = by_copy.permute(0, 4, 1, 2, 3).flatten(0, 2).unsqueeze(-1)
        repeated = {
            name: x if x is None or name not in self.kind.by_example else self._repeated(x, times * width)
            for name, x in self.constants.items()
        }
        mixed: Tensor = self._run(copies, repeated).unflatten(0, (times, width, -1))
        return mixed[..., 0].permute(0, 2, 3, 4, 1).flatten(0, 1)

    def rows(self, weights: Rows) -> AttentionMap:
        """The rows weights · M [example, head, row, key] of every head, weights over all tokens."""
        with torch.inference_mode(False), torch.enable_grad():
            value = self.value.new_zeros(*self.value.shape[:3], weights.shape[1], requires_grad=True)
            mixed = self.mix(value)
            start = weights.mT[:, None].to(mixed).expand_as(mixed)
            (rows,) = torch.autograd.grad(mixed, value, start)
        return self._at_tokens(rows.mT)

    def pick(self, rows: slice | Positions) -> LinearKernel:
        """Select queries: a slice, or positions for each example."""
        queries = self.queries
        if queries is None:
            queries = torch.arange(self.value.shape[2], device=self.device).expand(len(self.value), -1)
        queries = queries[:, rows] if isinstance(rows, slice) else queries.take_along_dim(rows, dim=1)
        return replace(self, queries=queries)

    def repeat(self, times: int) -> LinearKernel:
        """Repeat the examples, without a copy if there is a single one."""
        queries = None if self.queries is None else repeat_examples(self.queries, times)
        return replace(self, value=repeat_examples(self.value, times), queries=queries)

    def gradient(self, of_mixed: Values) -> AttentionMap:
        """The gradient of its map, given that of the mixed values."""
        self._check_unchanged()
        return of_mixed @ self.value.mT.to(of_mixed)

    def band(self, of_mixed: Values) -> Rows | None:
        """The diagonals of the head mean of (M ⊙ ∇M)⁺ [example, lag, query]; None if the map is not banded."""
        if self.kind.band is None or self.queries is not None:
            return None
        self._check_unchanged()
        return self.kind.band(self.constants, of_mixed, self.value.to(of_mixed))

    def _successive(self) -> tuple[int, int] | None:
        """The first query and the one after the last, if they follow each other in all examples alike."""
        if self.queries is None:
            return 0, self.value.shape[2]
        first, count = int(self.queries[0, 0]), self.queries.shape[1]
        expected = torch.arange(first, first + count, device=self.device)
        return (first, first + count) if bool((self.queries == expected).all()) else None

    def _at_tokens(self, rows: AttentionMap) -> AttentionMap:
        return rows.masked_fill(~self.is_token[:, None, None], 0.0).to(self.dtype)

    def _repeated(self, constant: Tensor, times: int) -> Tensor:
        """Repeat a constant of the examples, or of all of them."""
        return repeat_examples(constant.expand(self.examples, *constant.shape[1:]), times)

    def _run(self, value: Values, constants: Mapping[str, Any]) -> Values:
        """Run the kernel on other values."""
        result = self.function(**{self.kind.values: self.kind.as_called(value)}, **constants)
        return self.kind.by_head(result[0] if isinstance(result, tuple) else result)

    def _version(self) -> int:
        return version_of(x for x in (self.value, *self.constants.values()) if isinstance(x, Tensor))

    def _check_unchanged(self) -> None:
        if self._version() != self.version:
            raise UnsupportedModel(
                "The model changes the inputs of a kernel in place: the map of its tokens cannot be computed."
            )


def mix_values(value: Values, kernel: LinearKernel) -> Values:
    """The values mixed by a kernel, all of whose other arguments are constants."""
    return kernel.mix(value)


def linear_kernel(watcher: Watcher, call: KernelCall, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A kernel that mixes tokens linearly in its values, recorded as one operation."""
    args, kwargs = plain(args), plain_values(kwargs)
    kernel, kind = LinearKernel.of(call, args, kwargs), KERNELS[call.__name__]
    if kernel is None:
        with watcher:
            return call.own(*args, **kwargs)
    if not watcher.records and watcher.rules is None:
        return call.own(*args, **kwargs)
    arguments = inspect.signature(kernel.function).bind(*args, **kwargs).arguments
    outside = {name: arguments[name] for name in kind.outside if arguments.get(name) is not None}
    if watcher.rules is not None:
        value = arguments[kind.values]
        mixed = watcher.run_operation(mix_values, (kind.by_head(value), kernel), {})
        states = [None] * (kind.has_state or any(kernel.constants.get(name) for name in RETURNING))
    else:
        # As the model calls it: a fused kernel may have other names, or another order.
        args = tuple(None if name in outside else x for name, x in zip(arguments, args, strict=False))
        result = call.own(*args, **kwargs | dict.fromkeys(outside.keys() & kwargs.keys()))
        first, *states = result if isinstance(result, tuple) else (result,)
        mixed = kind.by_head(first)
    mixed = watcher.with_probe(mixed) if watcher.records else mixed
    output = kind.as_called(mixed).clone(memory_format=torch.contiguous_format)
    if watcher.records:
        watcher.kernels += 1
        watcher.record(kernel, kernel.value, mixed, probe=mixed)
        watcher.carry_mixed(mixed, output)
    with watcher:
        for name, x in outside.items():
            output = AFTER_KERNEL[name](output, x)
    return (output, *states) if states else output

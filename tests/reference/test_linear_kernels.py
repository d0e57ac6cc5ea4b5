"""Kernels that are linear in their values against their maps written out by loops, in float64."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from transformers.models.kimi_linear.modeling_kimi_linear import chunk_kimi_delta_attention
from transformers.models.lfm2.modeling_lfm2 import causal_conv1d_fn
from transformers.models.mamba.modeling_mamba import mamba_selective_scan
from transformers.models.mamba2.modeling_mamba2 import mamba2_chunk_scan
from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule
from transformers.models.recurrent_gemma.modeling_recurrent_gemma import RecurrentGemmaRglru
from transformers.models.rwkv.modeling_rwkv import rwkv_linear_attention
from transformers.models.xlstm.modeling_xlstm import xLSTMBackend, xLSTMConfig

from whyformer.models.calls import KernelCall
from whyformer.watching import closed_maps
from whyformer.watching.closed_maps import fold_band
from whyformer.watching.linear_kernels import KERNELS, LinearKernel

EXAMPLES, TOKENS, HEADS, WIDTH, STATE = 2, 12, 3, 5, 4


@dataclass(frozen=True)
class Case:
    """A kernel, its arguments, the name of the values among them, and its map of one example and head."""

    function: Callable[..., Any]
    arguments: dict[str, Any]
    values: str
    naive: Callable[[int, int], Tensor]


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def delta_rule(arguments: dict[str, Any], example: int, head: int) -> Tensor:
    """S ← e^g S; S ← S + β k (v − Sᵀk)ᵀ; o = Sᵀq / √d, with the state's share of each value as its columns."""
    query, key, decay, strength = (arguments[name][example, :, head] for name in ("query", "key", "g", "beta"))
    query, key = (x / (x.square().sum(dim=-1, keepdim=True) + 1e-6).sqrt() for x in (query, key))
    state, rows = torch.zeros(key.shape[1], TOKENS, dtype=torch.float64), []
    for t in range(TOKENS):
        factor = decay[t].exp()
        state = state * (factor[:, None] if factor.dim() else factor)
        new = -(key[t] @ state)
        new[t] += 1
        state = state + strength[t] * torch.outer(key[t], new)
        rows.append(query[t] @ state / key.shape[1] ** 0.5)
    return torch.stack(rows)


def gated_delta(function: Callable[..., Any], decay: Tensor) -> Case:
    shape = (EXAMPLES, TOKENS, HEADS)
    arguments = {
        "query": normal(*shape, STATE),
        "key": normal(*shape, STATE),
        "value": normal(*shape, WIDTH),
        "g": -decay.abs() / 4,
        "beta": normal(*shape).sigmoid(),
        "chunk_size": 8,
        "use_qk_l2norm_in_kernel": True,
    }
    return Case(function, arguments, "value", lambda *at: delta_rule(arguments, *at))


def duality() -> Case:
    """y_t = Σ_s (C_t·B_s) exp(Σ_{s<r≤t} a Δ_r) Δ_s x_s + D x_t (Mamba-2)."""
    shape = (EXAMPLES, TOKENS, HEADS)
    arguments = {
        "hidden_states": normal(*shape, WIDTH),
        "dt": normal(*shape),
        "A": -torch.rand(HEADS, dtype=torch.float64),
        "B": normal(EXAMPLES, TOKENS, 1, STATE),
        "C": normal(EXAMPLES, TOKENS, 1, STATE),
        "chunk_size": 4,
        "D": normal(HEADS),
        "dt_bias": normal(HEADS),
        "dt_softplus": True,
    }

    def naive(example: int, head: int) -> Tensor:
        step = torch.nn.functional.softplus(arguments["dt"][example, :, head] + arguments["dt_bias"][head])
        read, written = arguments["C"][example, :, 0], arguments["B"][example, :, 0]
        rows = torch.diag(arguments["D"][head].expand(TOKENS)).clone()
        for t in range(TOKENS):
            for s in range(t + 1):
                decay = (arguments["A"][head] * step[s + 1 : t + 1].sum()).exp()
                rows[t, s] += (read[t] @ written[s]) * decay * step[s]
        return rows

    return Case(mamba2_chunk_scan, arguments, "hidden_states", naive)


def selective_scan() -> Case:
    """y_t = Σ_s Σ_n C_tn exp(a_n Σ_{s<r≤t} Δ_r) Δ_s B_sn x_s + D x_t for each channel (Mamba)."""
    arguments = {
        "hidden_states": normal(EXAMPLES, HEADS, TOKENS),
        "dt": normal(EXAMPLES, HEADS, TOKENS),
        "A": -torch.rand(HEADS, STATE, dtype=torch.float64),
        "B": normal(EXAMPLES, STATE, TOKENS),
        "C": normal(EXAMPLES, STATE, TOKENS),
        "D": normal(HEADS),
        "delta_bias": normal(HEADS),
        "delta_softplus": True,
    }

    def naive(example: int, head: int) -> Tensor:
        step = torch.nn.functional.softplus(arguments["dt"][example, head] + arguments["delta_bias"][head])
        rows = torch.diag(arguments["D"][head].expand(TOKENS)).clone()
        for t in range(TOKENS):
            for s in range(t + 1):
                for n in range(STATE):
                    decay = (arguments["A"][head, n] * step[s + 1 : t + 1].sum()).exp()
                    rows[t, s] += arguments["C"][example, n, t] * decay * step[s] * arguments["B"][example, n, s]
        return rows

    return Case(mamba_selective_scan, arguments, "hidden_states", naive)


def convolution() -> Case:
    """y_t = Σ_s w_{K−1−(t−s)} x_s for each channel (LFM2)."""
    arguments = {"hidden_states": normal(EXAMPLES, HEADS, TOKENS), "weight": normal(HEADS, 3)}

    def naive(example: int, head: int) -> Tensor:
        rows = torch.zeros(TOKENS, TOKENS, dtype=torch.float64)
        for t in range(TOKENS):
            for back in range(min(3, t + 1)):
                rows[t, t - back] = arguments["weight"][head, 2 - back]
        return rows

    return Case(causal_conv1d_fn, arguments, "hidden_states", naive)


def gated_recurrence() -> Case:
    """h_t = a_t h_{t−1} + x_t for each channel, from 0 at a new text (RG-LRU, its input gated before)."""
    reset = torch.zeros(EXAMPLES, TOKENS, 1, dtype=torch.bool)
    reset[:, 0] = reset[1, 5] = True
    arguments = {
        "hidden_states": normal(EXAMPLES, TOKENS, HEADS),
        "recurrent_gate": torch.rand(EXAMPLES, TOKENS, HEADS, dtype=torch.float64),
        "reset": reset,
        "recurrent_states": None,
        "acc_dtype": torch.float64,
    }

    def naive(example: int, head: int) -> Tensor:
        gate = arguments["recurrent_gate"][example, :, head] * ~reset[example, :, 0]
        rows = torch.zeros(TOKENS, TOKENS, dtype=torch.float64)
        for t in range(TOKENS):
            for s in range(t + 1):
                rows[t, s] = gate[s + 1 : t + 1].prod()
        return rows

    scan = object.__new__(RecurrentGemmaRglru)._rnn_scan
    return Case(scan, arguments, "hidden_states", naive)


def weighted_keys() -> Case:
    """y_t = Σ_s e^{k_s + (u if s = t else −w (t−1−s))} v_s / Σ_s e^… for each channel (RWKV-4)."""
    arguments = {
        "time_decay": normal(HEADS),
        "time_first": normal(HEADS),
        "key": normal(EXAMPLES, TOKENS, HEADS),
        "value": normal(EXAMPLES, TOKENS, HEADS),
    }

    def naive(example: int, head: int) -> Tensor:
        key, decay = arguments["key"][example, :, head], arguments["time_decay"][head].exp()
        rows = torch.zeros(TOKENS, TOKENS, dtype=torch.float64)
        for t in range(TOKENS):
            for s in range(t + 1):
                rows[t, s] = (key[s] + (arguments["time_first"][head] if s == t else -decay * (t - 1 - s))).exp()
        return rows / rows.sum(dim=1, keepdim=True)

    return Case(rwkv_linear_attention, arguments, "value", naive)


def matrix_memory() -> Case:
    """C_t = σ(f_t) C_{t−1} + e^{i_t} v_t k_tᵀ, n likewise; y_t = C_t q_t / max(|n_t·q_t|, 1), q over √d (xLSTM)."""
    shape = (EXAMPLES, HEADS, TOKENS)
    arguments = {
        "query": normal(*shape, STATE),
        "key": normal(*shape, STATE),
        "value": normal(*shape, WIDTH),
        "igate": normal(*shape),
        "fgate": normal(*shape),
    }

    def naive(example: int, head: int) -> Tensor:
        query, key, entry, forget = (arguments[name][example, head] for name in ("query", "key", "igate", "fgate"))
        rows = torch.zeros(TOKENS, TOKENS, dtype=torch.float64)
        for t in range(TOKENS):
            for s in range(t + 1):
                kept = forget[s + 1 : t + 1].sigmoid().prod()
                rows[t, s] = kept * entry[s].exp() * (key[s] @ query[t]) / STATE**0.5
            rows[t] /= rows[t].sum().abs().clamp(min=1)
        return rows

    # In float32, and by steps: what remains after the last chunk takes another kernel than the chunks.
    options = {"autocast_kernel_dtype": "float32", "chunk_size": 8, "return_last_states": True}
    kernel = xLSTMBackend(xLSTMConfig(hidden_size=HEADS * STATE, num_heads=HEADS, **options))._inference_fn
    return Case(kernel, arguments, "value", naive)


CASES: dict[str, Callable[[], Case]] = {
    "torch_chunk_gated_delta_rule": lambda: gated_delta(torch_chunk_gated_delta_rule, normal(EXAMPLES, TOKENS, HEADS)),
    "chunk_kimi_delta_attention": lambda: gated_delta(
        chunk_kimi_delta_attention, normal(EXAMPLES, TOKENS, HEADS, STATE)
    ),
    "mamba2_chunk_scan": duality,
    "mamba_selective_scan": selective_scan,
    "_rnn_scan": gated_recurrence,
    "causal_conv1d_fn": convolution,
    "rwkv_linear_attention": weighted_keys,
    "_inference_fn": matrix_memory,
}


def made(name: str) -> tuple[Case, LinearKernel, Tensor]:
    """A case, its kernel, and its map by loops."""
    torch.manual_seed(7)
    case = CASES[name]()
    kernel = LinearKernel.of(KernelCall(name, case.function), (), case.arguments)
    assert kernel is not None
    rows = [[case.naive(example, head) for head in range(HEADS)] for example in range(EXAMPLES)]
    return case, kernel, torch.stack([torch.stack(heads) for heads in rows])


def close(actual: Tensor, expected: Tensor) -> None:
    # The kernels compute in float32, whatever the dtype of the model.
    torch.testing.assert_close(actual.double(), expected, atol=2e-6 * float(expected.abs().max()), rtol=1e-5)


def test_every_kernel_has_a_twin():
    assert CASES.keys() == KERNELS.keys()


@pytest.mark.parametrize("name", CASES)
def test_the_map_by_one_hot_values_is_that_of_loops_and_gives_the_kernel_s_own_output(name):
    case, kernel, expected = made(name)
    close(kernel(), expected)
    output = case.function(**case.arguments)
    output = KERNELS[name].by_head(output[0] if isinstance(output, tuple) else output)
    close(output, expected @ kernel.value)


@pytest.mark.parametrize("name", CASES)
def test_rows_by_the_vector_jacobian_product_are_those_of_the_map(name):
    _, kernel, expected = made(name)
    weights = normal(EXAMPLES, 4, TOKENS)
    close(kernel.rows(weights), torch.einsum("erq,ehqk->ehrk", weights, expected))


@pytest.mark.parametrize("name", CASES)
def test_picked_rows_are_those_of_the_map_by_slices_and_by_positions(name):
    _, kernel, expected = made(name)
    positions = torch.tensor([[11, 3], [0, 7]])
    close(kernel.pick(slice(2, 9)).pick(slice(1, 4))(), expected[:, :, 3:6])
    close(kernel.pick(positions)(), expected.take_along_dim(positions[:, None, :, None], dim=2))
    assert kernel.pick(positions).shape == (EXAMPLES, HEADS, 2, TOKENS)


@pytest.mark.parametrize("name", CASES)
def test_the_gradient_of_the_map_is_that_of_the_output_times_the_values(name):
    _, kernel, expected = made(name)
    own, of_mixed = expected.requires_grad_(), normal(*kernel.value.shape)
    (gradient,) = torch.autograd.grad(own @ kernel.value, own, of_mixed)
    close(kernel.gradient(of_mixed), gradient)


@pytest.mark.parametrize("name", CASES)
def test_repeated_examples_have_the_maps_of_theirs(name):
    _, kernel, expected = made(name)
    twice = kernel.repeat(2)
    close(twice(), expected.repeat(2, 1, 1, 1))
    close(twice.pick(slice(4, 6))(), expected[:, :, 4:6].repeat(2, 1, 1, 1))


@pytest.mark.parametrize("name", CASES)
def test_keys_without_a_value_are_padding(name):
    torch.manual_seed(7)
    case = CASES[name]()
    kind = KERNELS[name]
    values = kind.by_head(case.arguments[case.values].clone())
    values[0, :, :2] = 0
    arguments = case.arguments | {case.values: kind.as_called(values)}
    kernel = LinearKernel.of(KernelCall(name, case.function), (), arguments)
    assert kernel is not None
    assert not kernel()[0, :, :, :2].any()
    assert not kernel.rows(normal(EXAMPLES, 1, TOKENS))[0, :, :, :2].any()
    assert kernel()[1].any(dim=1)[:, :2].any()


@pytest.mark.parametrize("name", ["torch_chunk_gated_delta_rule", "_rnn_scan", "rwkv_linear_attention"])
def test_a_kernel_that_goes_on_from_a_state_is_no_map_of_its_values(name):
    case, _, _ = made(name)
    call = KernelCall(name, case.function)
    names = {"initial_state", "recurrent_states", "state"} & inspect.signature(case.function).parameters.keys()
    assert LinearKernel.of(call, (), case.arguments | dict.fromkeys(names, normal(1))) is None


@pytest.mark.parametrize("name", ["mamba_selective_scan", "causal_conv1d_fn"])
def test_rows_in_closed_form_are_those_of_the_kernel_wherever_a_chunk_or_a_tile_ends(name, monkeypatch):
    monkeypatch.setattr(closed_maps, "SCAN_CHUNK", 4)
    _, kernel, expected = made(name)
    close(kernel(), expected)
    for start, end in [(0, 5), (3, 12), (7, 8), (5, 12)]:
        close(kernel.pick(slice(start, end))(), expected[:, :, start:end])


def test_the_band_of_a_convolution_folds_as_its_map_times_its_gradient():
    _, kernel, expected = made("causal_conv1d_fn")
    of_mixed, rows = normal(*kernel.value.shape), normal(EXAMPLES, 2, TOKENS)
    whole = (expected * (of_mixed @ kernel.value.mT)).clamp(min=0).mean(dim=1)
    close(fold_band(rows, kernel.band(of_mixed)), rows @ whole)


class LargestTensor(TorchDispatchMode):
    """The number of entries of the largest tensor that an operation returned."""

    entries = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for x in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(x, Tensor):
                self.entries = max(self.entries, x.untyped_storage().nbytes() // x.element_size())
        return result


def test_a_few_picked_rows_of_a_long_text_need_no_map_of_all_tokens():
    torch.manual_seed(7)
    tokens = 2048
    shape = (1, tokens, 1)
    arguments = {
        "query": normal(*shape, STATE),
        "key": normal(*shape, STATE),
        "value": normal(*shape, WIDTH),
        "g": -normal(*shape).abs(),
        "beta": normal(*shape).sigmoid(),
    }
    name = "torch_chunk_gated_delta_rule"
    kernel = LinearKernel.of(KernelCall(name, torch_chunk_gated_delta_rule), (), arguments)
    assert kernel is not None
    with LargestTensor() as largest:
        rows = kernel.pick(torch.tensor([[tokens - 1, 3]]))()
    assert rows.shape == (1, 1, 2, tokens)
    assert 0 < largest.entries < tokens**2 / 8

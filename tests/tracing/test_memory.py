"""Large maps are made when they are read: the explanation is the same, and no block's map outlives its reading."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tiny_models import FAMILIES, STREAM_FAMILIES, built, inputs_of, masked, word_pieces
from whyformer import UnsupportedModel, WhyformerError, attribute
from whyformer.tracing.build import trace
from whyformer.tracing.path import TOKENS_AT_ONCE, inputs_at_once
from whyformer.tracing.record import AttentionRecord
from whyformer.watching import attention_calls
from whyformer.watching.kernels import Attention
from whyformer.watching.watcher import Watcher, WatchPlan

READERS = ["generic_attention", "grad_cam", "bi_head", "bi_token"]
CASES = {"bert": (FAMILIES["bert"], lambda: inputs_of("bert"))}
CASES |= {name: STREAM_FAMILIES[name] for name in ("clip", "mistral in windows")}


@pytest.fixture
def keeps_no_map(monkeypatch):
    monkeypatch.setattr(attention_calls, "KEPT", 0)


def double(case: str) -> tuple[nn.Module, dict]:
    make, inputs = CASES[case]
    return make().double(), {name: x.double() if x.is_floating_point() else x for name, x in inputs().items()}


def assert_alike(got: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert list(got) == list(expected)
    for stream, scores in expected.items():
        torch.testing.assert_close(got[stream], scores, rtol=1e-9, atol=1e-9 * float(scores.abs().max()))


@pytest.mark.parametrize("backward", ["gradient", "libra"])
@pytest.mark.parametrize("method", READERS)
@pytest.mark.parametrize("case", CASES)
def test_maps_made_when_read_explain_like_maps_that_were_kept(case, method, backward, monkeypatch):
    model, inputs = double(case)
    expected = attribute(model, inputs, "predicted", method, backward=backward)
    monkeypatch.setattr(attention_calls, "KEPT", 0)
    assert_alike(attribute(model, inputs, "predicted", method, backward=backward), expected)


@pytest.mark.parametrize("method", READERS)
def test_queries_that_see_nothing_poison_no_gradient_of_a_fused_kernel(method, monkeypatch):
    model, _ = double("mistral in windows")
    mask = masked(9, 6, 4).flip(1)
    inputs = {"input_ids": word_pieces(mask, 3), "attention_mask": mask}
    expected = attribute(model, inputs, "predicted", method)
    monkeypatch.setattr(attention_calls, "KEPT", 0)
    got = attribute(model, inputs, "predicted", method)
    assert torch.isfinite(got["text"]).all()
    assert_alike(got, expected)


def call(mask: Tensor | None = None, **options) -> Attention:
    query, key, value = torch.randn(3, 2, 4, 5, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return Attention(query, key[:, :2], value[:, :2], mask, enable_gqa=True, **options)


@pytest.mark.parametrize("is_causal", [True, False])
def test_a_call_makes_the_map_that_mixed_its_values_and_its_gradient(is_causal):
    attention = call(is_causal=is_causal, scale=0.3)
    weights = attention().requires_grad_()
    mixed = weights @ attention.value.repeat_interleave(2, dim=1)
    torch.testing.assert_close(mixed, attention.mixed())
    assert (attention.shape, attention.dtype, attention.device) == (weights.shape, weights.dtype, weights.device)
    (of_mixed,) = torch.autograd.grad(mixed.square().sum(), mixed, retain_graph=True)
    (expected,) = torch.autograd.grad(mixed.square().sum(), weights)
    torch.testing.assert_close(attention.gradient(of_mixed), expected)


@pytest.mark.parametrize("kind", [torch.bool, torch.float64])
def test_what_is_masked_for_a_query_altogether_mixes_nothing(kind):
    kept = torch.ones(2, 1, 5, 5, dtype=torch.bool).tril()
    kept[1, :, 2] = False
    mask = kept if kind == torch.bool else torch.zeros(kept.shape, dtype=kind).masked_fill(~kept, -torch.inf)
    attention = call(mask)
    assert (attention.mixed()[1, :, 2] == 0).all()
    assert (attention()[1, :, 2] == 0).all()
    torch.testing.assert_close(attention() @ attention.value.repeat_interleave(2, dim=1), attention.mixed())


def test_a_call_whose_arguments_changed_since_makes_no_map():
    attention = call()
    attention.key.mul_(2)
    for make in (attention, lambda: attention.gradient(attention.value)):
        with pytest.raises(UnsupportedModel, match="changes the inputs of its attention in place"):
            make()


class Reader(nn.Module):
    """One attention, and what is done to its result."""

    def __init__(self, change, **options) -> None:
        super().__init__()
        self.change, self.options = change, options

    def forward(self, inputs_embeds: Tensor) -> Tensor:
        heads = inputs_embeds.unflatten(-1, (2, 4)).transpose(1, 2)
        return self.change(F.scaled_dot_product_attention(heads, heads, heads, **self.options)).sum(dim=(1, 2))


@pytest.mark.usefixtures("keeps_no_map")
def test_a_model_may_change_the_mixed_values_in_place():
    states = torch.randn(2, 5, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = [
        trace(Reader(change).eval(), {"inputs_embeds": states}, lambda output: output[:, 0], readout="first").last
        for change in (lambda mixed: mixed.mul_(3.0), lambda mixed: mixed * 3.0)
    ]
    assert found[0].gradient.any()
    torch.testing.assert_close(found[0].gradient, found[1].gradient)


@pytest.mark.usefixtures("keeps_no_map")
def test_a_map_with_dropout_is_kept_as_it_was_drawn():
    recorder = Watcher(2, WatchPlan(graph=True))
    recorder.run(Reader(lambda mixed: mixed, dropout_p=0.5), torch.randn(2, 5, 8))
    assert isinstance(recorder.taps[0].map, Tensor)


def test_a_record_is_changed_without_making_its_map():
    def never() -> Tensor:
        raise AssertionError

    query, key, value = torch.randn(3, 1, 1, 4, 2)
    source = Attention(query, key, value)
    changed = replace(AttentionRecord("", 0, "text", "text", source), gradient_source=never, block=3)
    assert (changed.block, changed.source) == (3, source)
    with pytest.raises(WhyformerError, match="This trace has no gradients"):
        _ = replace(changed, gradient_source=None).gradient
    torch.testing.assert_close(changed.map, (query @ key.mT * 2**-0.5).softmax(dim=-1))
    with pytest.raises(AssertionError):
        _ = changed.gradient


class LiveBytes(TorchDispatchMode):
    """The most bytes of tensors that were alive at once."""

    def __init__(self) -> None:
        super().__init__()
        self.peak = self._now = 0
        self._sizes: dict[int, int] = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for storage in (x.untyped_storage() for x in tree_leaves(result) if isinstance(x, Tensor)):
            if storage._cdata not in self._sizes:
                self._sizes[storage._cdata] = storage.nbytes()
                self._now += storage.nbytes()
                weakref.finalize(storage, self._end, storage._cdata)
        self.peak = max(self.peak, self._now)
        return result

    def _end(self, storage: int) -> None:
        self._now -= self._sizes.pop(storage)


def peak_in_maps(blocks: int, length: int, method: str, **options) -> float:
    sizes = {"n_embd": 16, "n_layer": blocks, "n_head": 4, "n_positions": length, "vocab_size": 60}
    model = built("GPT2LMHeadModel", "GPT2Config", bos_token_id=1, eos_token_id=1, **sizes)
    ids = word_pieces(masked(length), 3)
    with LiveBytes() as live:
        attribute(model, {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, 5, method, **options)
    return live.peak / (4 * length**2 * 4)


@pytest.mark.usefixtures("keeps_no_map")
@pytest.mark.parametrize("backward", ["gradient", "libra"])
@pytest.mark.parametrize("method", READERS)
def test_six_blocks_more_do_not_keep_six_maps_more(method, backward):
    options = {"backward": backward} | ({"steps": 1} if method.startswith("bi") else {})
    length = {"gradient": 256, "libra": 1024}[backward]  # by its rules all activations are kept, which weigh less here
    few, many = (peak_in_maps(blocks, length, method, **options) for blocks in (2, 8))
    # Head means are a quarter of a map of four heads; the rest is activations.
    assert many - few < 6 * (0.25 if method == "bi_token" else 0.0) + {"gradient": 1, "libra": 1.2}[backward]
    assert many < 7


@pytest.mark.usefixtures("keeps_no_map")
def test_six_blocks_more_keep_no_more_of_rollout_than_their_head_means():
    few, many = (peak_in_maps(blocks, 256, "rollout") for blocks in (2, 8))
    assert many - few < 6 * 0.25 + 1
    assert many < 7


def test_long_inputs_run_fewer_at_once():
    tokens = TOKENS_AT_ONCE["cuda"]
    assert inputs_at_once(128, "cuda") == tokens // 128
    assert inputs_at_once(256, "cuda") == tokens // 256
    assert inputs_at_once(4096, "cuda") == tokens // 4096 // 16
    assert inputs_at_once(10**6, "cpu") == 0  # one at a time, in effect


@pytest.mark.parametrize("backward", ["gradient", "libra"])
@pytest.mark.parametrize("method", ["generic_attention", "bi_token", "input_x_gradient", "transformer_attribution"])
def test_nothing_of_a_pass_outlives_it(method, backward):
    model, inputs = FAMILIES["vit"](), inputs_of("vit")

    def tensors() -> int:
        attribute(model, inputs, 1, method, backward=backward)
        return sum(type(held) is torch.Tensor for held in gc.get_objects())

    gc.freeze()  # what other tests hold or have dropped need not be looked through
    gc.disable()  # a cycle would keep a whole graph on the GPU until the collector comes by
    try:
        assert tensors() == tensors()
    finally:
        gc.enable()
        gc.unfreeze()

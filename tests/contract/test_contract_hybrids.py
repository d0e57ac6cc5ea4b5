"""What the methods must hold to on decoders that mix tokens by linear attention, state spaces or short convolutions."""

from __future__ import annotations

import copy
import functools
import inspect
import sys
from functools import cache

import pytest
import torch
from torch import Tensor, nn

from pairs import pairs
from tiny_hybrids import HYBRIDS, NO_OUTPUT_WEIGHT, NO_STATE, NOT_SEEN
from tiny_models import text_inputs
from whyformer import UnsupportedModel, attribute
from whyformer.axes import Inputs
from whyformer.methods.states import OF_WORDS
from whyformer.models.mixers import sequence_mixers
from whyformer.watching.linear_kernels import KERNELS

METHODS: dict[str, tuple[str, dict[str, str]]] = {
    "rollout": ("rollout", {}),
    "raw_attention": ("raw_attention", {}),
    "grad_cam": ("grad_cam", {}),
    "generic_attention": ("generic_attention", {}),
    "generic_attention by attn_lrp": ("generic_attention", {"backward": "attn_lrp"}),
    "attention_gradient": ("attention_gradient", {}),
    "transformer_attribution": ("transformer_attribution", {}),
    "partial_lrp": ("partial_lrp", {}),
    "flow_routes": ("flow_routes", {}),
    "bi_head": ("bi_head", {"feedback": "gradient"}),
    "bi_token": ("bi_token", {"feedback": "gradient"}),
    "evidence": ("evidence", {}),
    "state_x_gradient": ("state_x_gradient", {}),
    "lrp": ("lrp", {}),
    "lrp by attn_lrp": ("lrp", {"rules": "attn_lrp"}),
}
SEEN = [name for name in HYBRIDS if name not in NOT_SEEN]
# Their recurrence has no mask: padding on the left is read, by the model itself and so by every method.
READS_PADDING = {"RecurrentGemma", "RWKV", "xLSTM"}
LENGTHS = text_inputs()["attention_mask"].sum(dim=1).tolist()


@cache
def model_of(name: str) -> nn.Module:
    return HYBRIDS[name]()


def scores_of(model: nn.Module, inputs: Inputs, method: str, **options: object) -> Tensor:
    name, own = METHODS[method]
    return attribute(model, inputs, 1, name, **own, **options)["text"]


def alone(example: int) -> Inputs:
    return {name: value[example : example + 1, : LENGTHS[example]] for name, value in text_inputs().items()}


def padded_on_the_left() -> Inputs:
    return {
        name: torch.stack([row.roll(len(row) - length) for row, length in zip(value, LENGTHS, strict=True)])
        for name, value in text_inputs().items()
    }


@cache
def weights_and_logits(name: str) -> tuple[dict[str, Tensor], Tensor]:
    model = model_of(name)
    with torch.no_grad():
        logits = model(**text_inputs()).logits
    return {key: value.clone() for key, value in model.state_dict().items()}, logits


READ_STATES = {"flow_routes", "bi_token", "state_x_gradient"}
READ_OUTPUT_WEIGHTS = {"flow_routes", "bi_token"}
REFUSALS = {
    "Bailing hybrid": "W_o is rejected: its input is not the mixed values of the heads side by side",
    "xLSTM": "W_o is rejected: a mean is subtracted from the mixed values before it",
}
CASES = [
    (name, method)
    for name, method in pairs(
        SEEN, [*METHODS], with_all={"Qwen3-Next", "Falcon-H1", "evidence", "generic_attention"}, every=3
    )
    if not (name in NO_STATE and method in READ_STATES)
    if not (name in NO_OUTPUT_WEIGHT and method in READ_OUTPUT_WEIGHTS)
]
BY_BLOCKS = [(name, method) for name, method in CASES if method in ("evidence", "generic_attention")]
# Zamba's blocks pass two states on; RWKV's first block normalises the embeddings before its residual state.
NOT_BY_BLOCKS = {(name, method) for name in ("Zamba", "Zamba2") for method in METHODS} | {("RWKV", "evidence")}


def assert_unchanged(model: nn.Module, before: tuple[dict[str, Tensor], Tensor], kernels: list[object]) -> None:
    weights, logits = before
    with torch.no_grad():
        assert torch.equal(model(**text_inputs()).logits, logits)
    assert all(torch.equal(value, weights[key]) for key, value in model.state_dict().items())
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())
    assert kernels_of(model) == kernels


def kernels_of(model: nn.Module) -> list[object]:
    """What stands where kernels are rerouted: in the files of the classes, and in their modules."""
    files = {sys.modules[type(module).__module__] for module in model.modules()}
    places = [vars(place) for place in (*sorted(files, key=id), *model.modules())]
    return [place.get(name) for place in places for name in KERNELS]


@pytest.mark.parametrize(("name", "method"), CASES)
def test_a_batch_padded_on_either_side_is_explained_like_its_texts_and_leaves_the_model_as_it_was(name, method):
    model = model_of(name)
    before, kernels = weights_and_logits(name), kernels_of(model)
    right = scores_of(model, text_inputs(), method)
    assert_unchanged(model, before, kernels)
    left = scores_of(model, padded_on_the_left(), method)
    assert torch.isfinite(right).all()
    for example, (row, moved, length) in enumerate(zip(right, left, LENGTHS, strict=True)):
        (expected,) = scores_of(model, alone(example), method)
        allowed = 1e-4 * expected.abs().max()
        assert (row[:length] - expected).abs().max() <= allowed
        assert not row[length:].any(), "padding got a score"
        if name not in READS_PADDING:
            assert (moved[-length:] - expected).abs().max() <= allowed
            assert not moved[:-length].any(), "padding got a score"


@pytest.mark.parametrize(("name", "method"), [case for case in BY_BLOCKS if case not in NOT_BY_BLOCKS])
def test_block_by_block_the_scores_are_those_of_the_whole_graph(name, method):
    whole, by_blocks = (
        scores_of(model_of(name), padded_on_the_left(), method, checkpoint=switch) for switch in (False, True)
    )
    torch.testing.assert_close(by_blocks, whole, rtol=1e-4, atol=1e-5 * float(whole.abs().max()))


@pytest.mark.parametrize(("name", "method"), BY_BLOCKS[::2])
def test_in_bfloat16_the_scores_are_about_those_in_float32(name, method):
    half = copy.deepcopy(model_of(name)).bfloat16()
    scores, expected = (scores_of(model, alone(0), method) for model in (half, copy.deepcopy(half).float()))
    assert scores.dtype == torch.float32
    assert (scores - expected).norm() < 0.12 * expected.norm()


@pytest.mark.parametrize("name", SEEN)
def test_the_default_method_applies_and_says_nothing_of_another(name):
    model = model_of(name)
    attribution = attribute(model, alone(0), 1)
    assert attribution.remarks == (OF_WORDS,)
    torch.testing.assert_close(attribution["text"], scores_of(model, alone(0), "evidence"))


@pytest.mark.parametrize(("name", "is_told"), [("Qwen3-Next", True), ("Mamba", True), ("LFM2", False), ("RWKV", False)])
def test_a_convolution_before_a_kernel_is_told_and_one_that_is_the_mixer_has_a_map(name, is_told):
    remarks = attribute(model_of(name), alone(0), 1, "generic_attention").remarks
    assert any("mix neighbouring tokens by convolutions" in remark for remark in remarks) == is_told


@pytest.mark.parametrize("name", [*NO_STATE, *NO_OUTPUT_WEIGHT])
def test_what_reads_every_state_is_refused_where_one_is_not_known(name):
    for method in READ_STATES if name in NO_STATE else READ_OUTPUT_WEIGHTS:
        with pytest.raises(UnsupportedModel, match=REFUSALS.get(name, "residual state|by groups of channels")):
            scores_of(model_of(name), alone(0), method)


@pytest.mark.parametrize("name", NOT_SEEN)
def test_a_kernel_that_is_not_seen_is_refused_with_the_reason(name):
    with pytest.raises(UnsupportedModel, match=NOT_SEEN[name]):
        scores_of(model_of(name), alone(0), "rollout")
    assert torch.isfinite(attribute(model_of(name), alone(0), 1, "input_x_gradient")["text"]).all()


class FusedScan(torch.autograd.Function):
    """A fused kernel for PyTorch: one operation, with its own backward pass, and none beyond that."""

    @staticmethod
    def forward(ctx, scan, *tensors):
        ctx.scan = scan
        ctx.save_for_backward(*tensors)
        return scan(*tensors)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):
        with torch.enable_grad():
            tensors = [x.detach().requires_grad_() for x in ctx.saved_tensors]
            return None, *torch.autograd.grad(ctx.scan(*tensors), tensors, gradient)


@pytest.mark.parametrize("method", ["rollout", "generic_attention", "evidence", "lrp"])
def test_with_a_fused_kernel_the_model_runs_it_and_maps_are_made_by_the_reference(method, monkeypatch):
    model = model_of("Mamba 2")
    expected, module, runs = scores_of(model, alone(0), method), sys.modules[type(model).__module__], []
    reference = inspect.unwrap(module.mamba2_chunk_scan)

    # The signature of mamba-ssm, whose parameters have other names than the reference.
    def mamba_chunk_scan_combined(
        x, dt, A, B, C, chunk_size, D=None, z=None, dt_bias=None, initial_states=None, seq_idx=None,
        cu_seqlens=None, dt_softplus=False, dt_limit=(0.0, float("inf")), return_final_states=False,
    ):  # fmt: skip
        assert x.shape[-1] == 8, "it takes heads of some widths only, so no one-hot values"
        runs.append(x.shape)
        settings = {"D": D, "dt_bias": dt_bias, "dt_softplus": dt_softplus, "dt_limit": dt_limit}
        taken = inspect.signature(reference).parameters
        settings = {name: value for name, value in settings.items() if name in taken}

        def scan(*tensors):
            output = reference(*tensors, chunk_size=chunk_size, **settings)
            return output[0] if isinstance(output, tuple) else output

        output = FusedScan.apply(scan, x, dt, A, B, C)
        return (output, None) if return_final_states else output

    @functools.wraps(reference)
    def chosen(*args, **kwargs):  # as transformers calls a package that is installed
        taken = inspect.signature(mamba_chunk_scan_combined).parameters
        return mamba_chunk_scan_combined(*args, **{name: x for name, x in kwargs.items() if name in taken})

    monkeypatch.setattr(module, "mamba2_chunk_scan", chosen)
    torch.testing.assert_close(scores_of(model, alone(0), method), expected)
    assert runs or method in ("evidence", "lrp"), "the model did not run its kernel"
    assert module.mamba2_chunk_scan is chosen


def test_mixers_are_found_in_every_hybrid_with_a_convolution():
    without = {"RWKV", "MiniMax", "xLSTM"}
    assert all(bool(sequence_mixers(model_of(name))) == (name not in without) for name in HYBRIDS)

"""State times gradient against a Vision Transformer written out by hand, and what its scores must add up to."""

from __future__ import annotations

import math

import pytest
import torch
from test_reference import composed as composed_blocks
from test_reference import double, through_read_out, twin_token_mixing
from torch import Tensor, nn

from tiny_models import FAMILIES, IMAGE_FAMILIES, STREAM_FAMILIES
from tiny_sounds import ast
from whyformer import METHODS, UnsupportedModel, attribute
from whyformer.backward.rules import Backward
from whyformer.methods.states import OF_WORDS, state_scores
from whyformer.tracing.build import trace
from whyformer.tracing.reads import Reads

STATES = Reads(state_gradients=True)


def half_each(first: Tensor, second: Tensor) -> Tensor:
    """first @ second, each of which is handed half of the gradient."""
    return (first @ second.detach() + first.detach() @ second) / 2


def attention_by_hand(q: Tensor, k: Tensor, v: Tensor, backward: Backward) -> Tensor:
    if backward == "gradient":
        return (q @ k.mT / math.sqrt(q.shape[-1])).softmax(dim=-1) @ v
    if backward == "libra":
        return (q @ k.mT / math.sqrt(q.shape[-1])).softmax(dim=-1).detach() @ v
    return half_each((half_each(q, k.mT) / math.sqrt(q.shape[-1])).softmax(dim=-1), v)


def norm_by_hand(x: Tensor, norm: nn.LayerNorm, backward: Backward) -> Tensor:
    centred = x - x.mean(dim=-1, keepdim=True)
    spread = (centred.square().mean(dim=-1, keepdim=True) + norm.eps).sqrt()
    spread = spread if backward == "gradient" else spread.detach()
    return plus_bias(centred / spread * norm.weight.detach(), norm.bias)


def gelu_by_hand(x: Tensor, backward: Backward) -> Tensor:
    gate = (1 + torch.erf(x / math.sqrt(2))) / 2
    return x * (gate if backward == "gradient" else gate.detach())


def layer_by_hand(x: Tensor, layer: nn.Linear) -> Tensor:
    return plus_bias(x @ layer.weight.detach().T, layer.bias)


BIASES: list[Tensor] = []  # each at every token that it was added to, as a leaf of the graph


def plus_bias(x: Tensor, bias: Tensor) -> Tensor:
    BIASES.append(bias.detach().expand(x.shape).clone().requires_grad_())
    return x + BIASES[-1]


def vit_by_hand(model: nn.Module, pixels: Tensor, backward: Backward) -> tuple[Tensor, list[Tensor]]:
    """The logits, and the states that enter the blocks, as leaves of the graph or made of them."""
    config, states = model.config, []
    BIASES.clear()
    x = model.vit.embeddings(pixels).detach().requires_grad_()
    for block in model.vit.layers:
        states.append(x)
        attention = block.attention
        normed = norm_by_hand(x, block.layernorm_before, backward)
        layers = (attention.q_proj, attention.k_proj, attention.v_proj)
        heads = (config.num_attention_heads, config.hidden_size // config.num_attention_heads)
        q, k, v = (layer_by_hand(normed, layer).unflatten(-1, heads).transpose(1, 2) for layer in layers)
        mixed = attention_by_hand(q, k, v, backward).transpose(1, 2).flatten(2)
        x = x + layer_by_hand(mixed, attention.o_proj)
        hidden = layer_by_hand(norm_by_hand(x, block.layernorm_after, backward), block.mlp.fc1)
        x = x + layer_by_hand(gelu_by_hand(hidden, backward), block.mlp.fc2)
    return layer_by_hand(norm_by_hand(x, model.vit.layernorm, backward)[:, 0], model.classifier), states


def states_by_hand(model: nn.Module, pixels: Tensor, backward: Backward) -> list[Tensor]:
    logits, states = vit_by_hand(model, pixels, backward)
    gradients = torch.autograd.grad(logits[:, 2].sum(), states)
    return [(state.detach() * gradient).sum(dim=-1) for state, gradient in zip(states, gradients, strict=True)]


@pytest.mark.parametrize("backward", ["gradient", "libra", "attn_lrp"])
def test_state_times_gradient_equals_its_naive_twin(backward):
    model, inputs = double("vit")
    expected = states_by_hand(model, inputs["pixel_values"], backward)
    by_block = state_scores(trace(model, inputs, 2, reads=STATES, backward=backward))["image"]
    for got, by_hand in zip(by_block, expected, strict=True):
        torch.testing.assert_close(got, by_hand, rtol=1e-9, atol=1e-12)
    shares = [part / part[:, 1:].abs().sum(dim=1, keepdim=True) for part in expected]
    combined = {
        "first": expected[0],
        "sum": expected[0] + expected[1] + expected[2],
        "weighted": shares[0] / 9 + shares[1] * 4 / 9 + shares[2],
    }
    if backward == "gradient":  # z · g of a state that is normalised at once is 0: its shares would be rounding
        assert float(expected[2][:, 1:].abs().max()) < 1e-12
        del combined["weighted"]
    for blocks, by_hand in combined.items():
        scores = attribute(model, inputs, 2, "state_x_gradient", blocks=blocks, backward=backward)["image"]
        torch.testing.assert_close(scores, by_hand, rtol=1e-9, atol=1e-12)


def with_biases(family: str) -> tuple[nn.Module, dict[str, Tensor]]:
    model, inputs = double(family)
    torch.manual_seed(3)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter, std=0.3)
    return model, inputs


def test_full_grad_equals_its_naive_twin():
    model, inputs = with_biases("vit")
    logits, (state, *_) = vit_by_hand(model, inputs["pixel_values"], "libra")
    of_state, *of_biases = torch.autograd.grad(logits[:, 2].sum(), [state, *BIASES], materialize_grads=True)
    expected = (state.detach() * of_state).sum(dim=-1)
    for bias, gradient in zip(BIASES, of_biases, strict=True):
        part = (bias.detach() * gradient).sum(dim=-1)
        if part.dim() == 2:
            expected = expected + part
        else:  # the classifier's, whose token is the one it reads
            expected[:, 0] += part
    scores = attribute(model, inputs, 2, "full_grad")["image"]
    torch.testing.assert_close(scores, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
def test_full_grad_adds_up_to_the_score(family):
    model, inputs = with_biases(family)
    attribution = attribute(model, inputs, 1, "full_grad")
    assert float(attribution.completeness.max()) < 1e-7
    by_blocks = attribute(model, inputs, 1, "full_grad", checkpoint=True)
    torch.testing.assert_close(dict(by_blocks), dict(attribution), rtol=1e-7, atol=1e-10)


def test_full_grad_of_several_streams_is_refused_in_a_line():
    build, inputs = STREAM_FAMILIES["t5"]
    with pytest.raises(UnsupportedModel, match="it needs a model with one stream of tokens"):
        attribute(build(), inputs(), 1, "full_grad")


def test_evidence_of_patches_equals_its_naive_twin():
    model, inputs = double("vit")
    states = states_by_hand(model, inputs["pixel_values"], "attn_lrp")
    asked = trace(model, inputs, 2, reads=METHODS["evidence"].reads, backward="libra")
    (scores,) = attribute(model, inputs, 2, "evidence").values()

    def share(x: Tensor) -> Tensor:
        return x / sum(abs(value) for value in x[1:])

    for example, row in enumerate(scores):
        weighted = sum((n / 3) ** 2 * share(part[example]) for n, part in enumerate(states, 1))
        perception = composed_blocks([twin_token_mixing(record, example) for record in asked.records])
        feedback = torch.relu(asked.last.gradient[example]).mean(dim=0)
        beta = through_read_out(perception * feedback, asked.readout.weights[example])
        torch.testing.assert_close(row, share(beta) + share(weighted), rtol=1e-9, atol=1e-12)


def test_evidence_of_a_spectrogram_counts_neither_its_class_nor_its_distillation_token():
    torch.manual_seed(0)
    model, inputs = ast().double(), {"input_values": torch.randn(2, 120, 16, dtype=torch.float64)}
    parts = attribute(model, inputs, 1, "state_x_gradient", blocks="weighted", backward="attn_lrp")["audio"]
    product = attribute(model, inputs, 1, "bi_token", feedback="gradient", backward="attn_lrp")["audio"]
    expected = [one / one[:, 2:].abs().sum(dim=1, keepdim=True) for one in (parts, product)]
    scores = attribute(model, inputs, 1, "evidence")["audio"]
    torch.testing.assert_close(scores[:, 2:], sum(expected)[:, 2:], rtol=1e-9, atol=1e-12)
    by_block = state_scores(trace(model, inputs, 1, reads=STATES, backward="attn_lrp"))["audio"]
    shares = [one / one[:, 2:].abs().sum(dim=1, keepdim=True) for one in by_block]
    torch.testing.assert_close(parts[:, 2:], (shares[0] / 4 + shares[1])[:, 2:], rtol=1e-9, atol=1e-12)


def test_evidence_of_words_is_attn_lrp_at_the_embeddings():
    model, inputs = double("bert")
    scores = attribute(model, inputs, 2, "evidence")
    expected = attribute(model, inputs, 2, "input_x_gradient", backward="attn_lrp")["text"]
    torch.testing.assert_close(scores["text"], expected * inputs["attention_mask"], rtol=1e-9, atol=1e-12)
    assert scores.remarks == (OF_WORDS,)


@pytest.mark.parametrize("family", FAMILIES)
def test_by_libra_the_states_of_every_block_add_up_to_the_score_of_a_model_without_biases(family):
    model, inputs = double(family)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
    asked = trace(model, inputs, 1, reads=STATES, backward="libra")
    score = asked.question.score(asked.output).detach()
    (by_block,) = state_scores(asked).values()
    assert len(by_block) == 3
    for scores in by_block:
        torch.testing.assert_close(scores.sum(dim=1), score, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("family", IMAGE_FAMILIES)
def test_evidence_is_two_shares_one_of_which_has_no_sign(family):
    model, inputs = double(family)
    (scores,) = attribute(model, inputs, 1, "evidence").values()
    patches = scores[:, -16:]
    assert bool((patches.abs().sum(dim=1) <= 2 + 1e-9).all())
    assert bool((patches.sum(dim=1) >= -1e-9).all())  # β is a whole share for the answer, and no more is against it

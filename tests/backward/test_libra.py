"""LibraGrad's backward pass: the forward pass is untouched, and input times gradient adds up to the score."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tiny_models import FAMILIES, IMAGE, TEXT, built, inputs_of
from whyformer import WhyformerError, attribute, explain, load
from whyformer.backward.rule_graph import RuleGraph
from whyformer.backward.rules import LIBRA, layer_norm_gradient, normalize_gradient, rms_norm_gradient
from whyformer.scenes import example
from whyformer.watching.watcher import Watcher, WatchPlan

DECODER = {name: value for name, value in TEXT.items() if name != "num_labels"} | {"num_key_value_heads": 3}
READERS = ["generic_attention", "grad_cam", "bi_head", "bi_token", "attention_gradient", "input_x_gradient"]


def without_biases(model: nn.Module) -> nn.Module:
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
    return model.double()


def summed_up(model: nn.Module, states: torch.Tensor, scaled: nn.Module, **inputs: torch.Tensor):
    """The score of each example, and the sum of input times gradient at what `scaled` gives."""
    states = states.double().requires_grad_()
    handle = scaled.register_forward_hook(lambda module, args, output: states)
    mode = RuleGraph(model, len(states), precise=False)
    try:
        logits = Watcher(len(states), WatchPlan(graph=True), rules=mode).run(model, **inputs).logits
    finally:
        handle.remove()
    score = logits[:, 1] if logits.dim() == 2 else logits[:, -1, 1]
    with mode.using(LIBRA):
        (gradient,) = torch.autograd.grad(score.sum(), states)
    return score.detach(), (states * gradient).sum(dim=(1, 2)).detach()


@pytest.mark.parametrize("kind", ["bert", "vit", "llama"])
def test_input_times_gradient_adds_up_to_the_score_of_a_model_without_biases(kind):
    ids = torch.arange(5, 12)[None].repeat(2, 1)
    states = torch.randn(2, 7, 48, generator=torch.Generator().manual_seed(0))
    if kind == "bert":
        model = without_biases(FAMILIES["bert"]())
        score, total = summed_up(model, states, model.bert.embeddings, input_ids=ids)
    elif kind == "llama":
        model = without_biases(built("LlamaForCausalLM", "LlamaConfig", **DECODER))
        score, total = summed_up(model, states, model.model.embed_tokens, input_ids=ids)
    else:
        model = without_biases(built("ViTForImageClassification", "ViTConfig", **IMAGE))
        pixels = torch.randn(2, 3, 32, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        states = torch.randn(2, 17, 48, generator=torch.Generator().manual_seed(0))
        score, total = summed_up(model, states, model.vit.embeddings, pixel_values=pixels)
    # Llama computes its RMSNorm in float32 even in a float64 model.
    torch.testing.assert_close(total, score, rtol=1e-6 if kind == "llama" else 1e-10, atol=0)


@pytest.mark.parametrize("family", ["bert", "vit", "modernbert", "deberta-v2"])
def test_the_answer_is_that_of_the_plain_model(family):
    model, inputs = FAMILIES[family](), inputs_of(family)
    with torch.no_grad():
        plain = model(**inputs).logits
    mode = RuleGraph(model, len(plain), precise=False)
    recorded = Watcher(len(plain), WatchPlan(graph=True), rules=mode).run(model, **inputs).logits
    torch.testing.assert_close(recorded.detach(), plain, rtol=1e-5, atol=1e-6)


def pulled(function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor, arrived: torch.Tensor) -> torch.Tensor:
    x = x.clone().requires_grad_()
    return torch.autograd.grad(function(x), x, arrived)[0]


def test_norms_hand_back_their_gradient_with_the_denominator_as_a_constant():
    generator = torch.Generator().manual_seed(2)
    x, arrived = torch.randn(2, 3, 5, 8, dtype=torch.float64, generator=generator)
    weight, bias = torch.randn(2, 8, dtype=torch.float64, generator=generator)
    for axes in ((-1,), (-2, -1)):
        shape = x.shape[-len(axes) :]
        own_weight, own_bias = weight.expand(shape), bias.expand(shape)

        def normed(x, axes=axes, weight=own_weight, bias=own_bias):
            centred = x - x.mean(dim=axes, keepdim=True)
            return centred / (centred.detach().square().mean(dim=axes, keepdim=True) + 1e-6).sqrt() * weight + bias

        torch.testing.assert_close(
            layer_norm_gradient(arrived, x, shape, own_weight, own_bias, 1e-6), pulled(normed, x, arrived)
        )

        def scaled(x, axes=axes, weight=own_weight):
            return x / (x.detach().square().mean(dim=axes, keepdim=True) + 1e-6).sqrt() * weight

        torch.testing.assert_close(rms_norm_gradient(arrived, x, shape, own_weight, 1e-6), pulled(scaled, x, arrived))
    torch.testing.assert_close(
        normalize_gradient(arrived, x, dim=-1), pulled(lambda x: x / x.detach().norm(dim=-1, keepdim=True), x, arrived)
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_norms_in_half_precision_lose_no_more_than_their_last_digit(dtype):
    generator = torch.Generator().manual_seed(3)
    x, arrived = (3 + torch.randn(2, 4, 64, generator=generator)).to(dtype)
    weight = torch.randn(64, generator=generator).to(dtype)
    exact = layer_norm_gradient(arrived.double(), x.double(), (64,), weight.double())
    torch.testing.assert_close(
        layer_norm_gradient(arrived, x, (64,), weight).double(), exact, rtol=0, atol=2 * torch.finfo(dtype).eps * 8
    )


class Plain(nn.Module):
    """A function of one tensor as a model that the mode can watch."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]):
        super().__init__()
        self.function, self.weight = function, nn.Parameter(torch.zeros(1, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def slope(function: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """The gradient of the function's sum by LibraGrad's rules."""
    x = x.clone().requires_grad_()
    mode = RuleGraph(Plain(function), len(x), precise=False)
    with Watcher(len(x), rules=mode):
        output = function(x)
    with mode.using(LIBRA):
        return torch.autograd.grad(output.sum(), x)[0]


def gelu_new(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


def test_a_gate_and_a_denominator_are_constants_and_factors_share():
    x = torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    gates = [F.gelu, F.silu, torch.tanh, gelu_new, lambda x: x * torch.sigmoid(1.702 * x)]
    for function in gates:  # the last two are written in Python
        torch.testing.assert_close(slope(function, x), function(x) / x)
    zero = torch.zeros(1, 1, dtype=torch.float64)
    torch.testing.assert_close(slope(F.gelu, zero), torch.full_like(zero, 0.5))
    spread = x.var(dim=1, unbiased=False).add(1e-5).sqrt()
    expected = (torch.eye(6, dtype=torch.float64)[0] - 1 / 6) / spread[:, None]
    torch.testing.assert_close(slope(lambda x: F.layer_norm(x, (6,))[:, 0], x), expected)
    torch.testing.assert_close(slope(lambda x: F.silu(x[:, :3]) * x[:, 3:], x)[:, 3:], F.silu(x[:, :3]) / 2)


@pytest.mark.parametrize("method", READERS)
def test_a_batch_is_explained_like_its_examples_one_by_one(method):
    model, inputs = FAMILIES["bert"](), inputs_of("bert")
    (together,) = attribute(model, inputs, 1, method, backward="libra").values()
    for number, row in enumerate(together):
        real = inputs["attention_mask"][number].bool()
        alone = {name: value[number : number + 1, real] for name, value in inputs.items()}
        (scores,) = attribute(model, alone, 1, method, backward="libra").values()
        assert (row[real] - scores[0]).abs().max() <= 1e-5 * scores.abs().max() + 2e-9


@pytest.mark.parametrize("method", READERS)
def test_it_changes_the_explanation_and_leaves_the_model_alone(method):
    model, inputs = FAMILIES["vit"](), inputs_of("vit")
    (plain,) = attribute(model, inputs, 1, method).values()
    (balanced,) = attribute(model, inputs, 1, method, backward="libra").values()
    (again,) = attribute(model, inputs, 1, method).values()
    assert torch.equal(plain, again)
    assert (plain - balanced).abs().max() > 1e-3 * plain.abs().max()


def test_what_a_normalisation_divides_out_is_found():
    """mini-lxmert looks at the one region it is asked about so firmly that looking harder changes nothing."""
    scene = example(3)
    asked = int(
        np.argmax(explain((scene.regions, scene.question), "mini-lxmert", method="raw_attention").parts["image"].scores)
    )
    balanced = explain((scene.regions, scene.question), "mini-lxmert", method="generic_attention", backward="libra")
    assert int(balanced.parts["image"].scores.argmax()) == asked
    assert balanced.options["backward"] == "libra"


@pytest.mark.parametrize("family", ["vit", "bert"])
def test_it_is_no_part_of_a_method_that_is_named(family):
    model, inputs = FAMILIES[family](), inputs_of(family)

    def scores(*method, **settings):
        (found,) = attribute(model, inputs, 1, *method, **settings).values()
        return found

    assert torch.equal(scores(), scores("evidence", backward="attn_lrp"))
    assert torch.equal(scores(backward="libra"), scores("evidence", backward="libra"))
    assert not torch.equal(scores(), scores(backward="libra"))
    assert torch.equal(scores("bi_token"), scores("bi_token", backward="gradient"))
    assert not torch.equal(scores("bi_token", backward="libra"), scores("bi_token"))


def test_an_explanation_says_that_it_was_made_by_it():
    critic = load("mini-bert", device="cpu")
    balanced = explain("A wonderful film.", critic, method="bi_token", backward="libra", steps=3)
    assert balanced.headline == "positive (0.98) by bi_token (backward=libra) on mini-bert"
    assert explain("A wonderful film.", critic).headline == "positive (0.98) by evidence on mini-bert"
    named = explain("A wonderful film.", critic, method="bi_token")
    assert named.headline.endswith("by bi_token on mini-bert")


def test_it_is_refused_where_there_is_no_gradient():
    loaded_model = load("mini-bert", device="cpu")
    for method in ("lrp", "partial_lrp", "random", "raw_attention", "rollout"):
        with pytest.raises(WhyformerError, match=f"{method} reads no gradient"):
            explain("A film.", loaded_model, method=method, backward="libra")
    with pytest.raises(WhyformerError, match=r"backward='lrp'\. Choose from: gradient, libra"):
        explain("A film.", loaded_model, backward="lrp")

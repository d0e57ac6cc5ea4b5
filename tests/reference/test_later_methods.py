"""Methods of later papers against naive twins in float64: LeGrad, Grad-ECLIP, expected gradients, AggMean."""

from __future__ import annotations

import pytest
import torch
from test_reference import double
from torch import Tensor, nn
from torch.nn import functional as F

from tiny_arranged import levit
from tiny_models import STREAM_FAMILIES
from tiny_windows import WINDOWED
from whyformer import UnsupportedModel, WhyformerError, attribute


def blocks_by_hand(model: nn.Module, pixels: Tensor) -> list[tuple[Tensor, ...]]:
    """Of each block of a ViT its map as a leaf, its queries, keys, values and what they mix, and its output."""
    config, parts = model.config, []
    x = model.vit.embeddings(pixels).detach()
    for block in model.vit.layers:
        attention, normed = block.attention, block.layernorm_before(x)
        heads = (config.num_attention_heads, -1)
        layers = (attention.q_proj, attention.k_proj, attention.v_proj)
        q, k, v = (layer(normed).unflatten(-1, heads).transpose(1, 2).detach() for layer in layers)
        weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(dim=-1).requires_grad_()
        mixed = weights @ v
        after = x + attention.o_proj(mixed.transpose(1, 2).flatten(2))
        output = after + block.mlp(block.layernorm_after(after))
        parts.append((weights, q, k, v, mixed, output))
        x = output.detach()
    return parts


def test_exact_legrad_equals_its_naive_twin():
    model, inputs = double("vit")
    rows = []
    for weights, *_, output in blocks_by_hand(model, inputs["pixel_values"]):
        logits = model.classifier(model.vit.layernorm(output.mean(dim=1)))
        (gradient,) = torch.autograd.grad(logits[:, 2].sum(), weights)
        rows.append(torch.relu(gradient).mean(dim=(1, 2)))
    scores = attribute(model, inputs, 2, "attention_gradient", scores="each")["image"]
    torch.testing.assert_close(scores, sum(rows) / len(rows), rtol=1e-9, atol=1e-14)


def test_exact_legrad_leaves_the_blocks_as_they_were_and_padding_without_a_score():
    model, inputs = double("bert")
    scores = attribute(model, inputs, 2, "attention_gradient", scores="each")["text"]
    assert all("forward" not in vars(block) for block in model.bert.encoder.layer)
    assert not scores[inputs["attention_mask"] == 0].any()
    alone = attribute(
        model, {name: value[1:2, :6] for name, value in inputs.items()}, 2, "attention_gradient", scores="each"
    )
    torch.testing.assert_close(scores[1:2, :6], alone["text"], rtol=1e-6, atol=1e-12)


def test_exact_legrad_is_refused_where_there_is_no_one_stack():
    build, inputs = STREAM_FAMILIES["t5"]
    with pytest.raises(UnsupportedModel, match="scores='final' takes the model's own score"):
        attribute(build(), inputs(), 1, "attention_gradient", scores="each")


def test_grad_eclip_equals_its_naive_twin():
    model, inputs = double("vit")
    *_, (_, q, k, v, mixed, output) = blocks_by_hand(model, inputs["pixel_values"])
    logits = model.classifier(model.vit.layernorm(output)[:, 0])
    (gradient,) = torch.autograd.grad(logits[:, 2].sum(), mixed)
    scores = attribute(model, inputs, 2, "grad_eclip")["image"]
    for example, row in enumerate(scores):
        expected = torch.zeros_like(row)
        for head in range(q.shape[1]):
            near = torch.stack([F.cosine_similarity(q[example, head, 0], key, dim=0) for key in k[example, head]])
            near = (near - near.min()) / (near.max() - near.min())
            expected += near * (v[example, head] @ gradient[example, head, 0])
        torch.testing.assert_close(row, torch.relu(expected), rtol=1e-9, atol=1e-14)


def test_grad_eclip_advises_another_attention_only_where_there_is_one():
    model, inputs = double("vit")
    model.set_attn_implementation("eager")
    with pytest.raises(UnsupportedModel, match="load it with attn_implementation='sdpa', or use grad_cam"):
        attribute(model, inputs, 2, "grad_eclip")
    with pytest.raises(UnsupportedModel, match="does not run by scaled_dot_product_attention: use grad_cam"):
        attribute(levit(), {"pixel_values": torch.randn(1, 3, 64, 64)}, 1, "grad_eclip")
    with pytest.raises(UnsupportedModel, match="is of a part of them at a time: use grad_cam"):
        attribute(WINDOWED["swin"](), {"pixel_values": torch.randn(1, 3, 32, 32)}, 1, "grad_eclip")


def test_expected_gradients_equal_their_naive_twin():
    model, inputs = double("vit")
    pixels, others = inputs["pixel_values"], torch.randn(3, 3, 32, 32, dtype=torch.float64)
    points = torch.rand(7, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    expected = []
    for number, start in enumerate(others):
        own = []
        for point in points[number::3]:
            x = (start + point * (pixels - start)).requires_grad_()
            (gradient,) = torch.autograd.grad(model(x).logits[:, 2].sum(), x)
            own.append(((pixels - start) * gradient).sum(dim=1).flatten(1))
        expected.append(sum(own) / len(own))
    scores = attribute(model, inputs, 2, "gradient_shap", samples=7, seed=5, baseline=others)["pixels"]
    torch.testing.assert_close(scores, sum(expected) / 3, rtol=1e-9, atol=1e-12)


def test_expected_gradients_add_up_the_better_the_more_points_there_are():
    model, inputs = double("bert")
    off = [float(attribute(model, inputs, 2, "gradient_shap", samples=n).completeness.mean()) for n in (2, 200)]
    assert off[1] < off[0] / 3
    with pytest.raises(WhyformerError, match="samples=0: at least one for each of 1 baselines"):
        attribute(model, inputs, 2, "gradient_shap", samples=0)


def test_consensus_is_the_mean_of_shares():
    model, inputs = double("vit")
    parts = [attribute(model, inputs, 2, name)["image"] for name in ("rollout", "generic_attention")]
    expected = sum(part / part.abs().sum(dim=1, keepdim=True) for part in parts) / 2
    scores = attribute(model, inputs, 2, "consensus", methods="rollout + generic_attention")["image"]
    torch.testing.assert_close(scores, expected, rtol=1e-9, atol=1e-14)
    with pytest.raises(WhyformerError, match=r"consensus: lrp needs a pass of its own\. Choose from: raw_attention, "):
        attribute(model, inputs, 2, "consensus", methods="rollout+lrp")

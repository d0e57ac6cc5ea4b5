"""Methods of later papers against naive twins in float64: LeGrad, Grad-ECLIP, expected gradients, AggMean."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from test_reference import double
from torch import Tensor, nn
from torch.nn import functional as F

from authors import grad_eclip_of_one_head
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


def clip(heads: int = 2) -> tuple[nn.Module, dict[str, Tensor]]:
    """A tiny CLIP in float64 with so many heads in each tower, and a picture with a text without padding."""
    build, inputs = STREAM_FAMILIES["clip"]
    model = build().double()
    for tower in (model.vision_model, model.text_model):
        for block in tower.encoder.layers:
            attention = block.self_attn
            attention.num_heads, attention.head_dim = heads, attention.embed_dim // heads
            attention.scale = attention.head_dim**-0.5
    batch = {name: value[:1] for name, value in inputs().items()}
    return model, batch | {"pixel_values": batch["pixel_values"].double()}


def tower_by_hand(tower: nn.Module, x: Tensor, *, is_causal: bool) -> list[tuple[Tensor, ...]]:
    """Of each block of a CLIP tower its map as a leaf, queries, keys, values and what they mix, and its output."""
    parts = []
    for block in tower.encoder.layers:
        attention, normed = block.self_attn, block.layer_norm1(x)
        layers = (attention.q_proj, attention.k_proj, attention.v_proj)
        q, k, v = (layer(normed).unflatten(-1, (attention.num_heads, -1)).transpose(1, 2).detach() for layer in layers)
        logits = q @ k.mT / q.shape[-1] ** 0.5
        if is_causal:
            logits = logits.masked_fill(~torch.ones_like(logits, dtype=torch.bool).tril(), -torch.inf)
        weights = logits.softmax(dim=-1).requires_grad_()
        mixed = weights @ v
        after = x + attention.out_proj(mixed.transpose(1, 2).flatten(2))
        output = after + block.mlp(block.layer_norm2(after))
        parts.append((weights, q, k, v, mixed, output))
        x = output.detach()
    return parts


def towers_by_hand(model: nn.Module, inputs: dict[str, Tensor]) -> dict[str, tuple[Any, ...]]:
    """Of each tower its blocks, what makes an embedding of a state at its read-out, where that is, and the other's."""
    vision, text = model.vision_model, model.text_model
    patches = vision.pre_layrnorm(vision.embeddings(inputs["pixel_values"])).detach()
    words = text.embeddings(inputs["input_ids"]).detach()
    of_image = tower_by_hand(vision, patches, is_causal=False)
    of_text = tower_by_hand(text, words, is_causal=True)
    last = inputs["input_ids"].shape[1] - 1
    outputs = model(**inputs)
    return {
        "image": (of_image, lambda x: model.visual_projection(vision.post_layernorm(x)), 0, outputs.text_embeds),
        "text": (of_text, lambda x: model.text_projection(text.final_layer_norm(x)), last, outputs.image_embeds),
    }


def similarity(model: nn.Module, embedding: Tensor, other: Tensor) -> Tensor:
    return model.logit_scale.exp() * (F.normalize(embedding, dim=-1) * other.detach()).sum()


@pytest.mark.parametrize("rows", [None, "readout"])
def test_exact_legrad_of_a_dual_encoder_equals_its_naive_twin(rows):
    """Each tower ends after each of its blocks: their mean token through its norm and projection, against the other."""
    model, inputs = clip()
    scores = attribute(model, inputs, "predicted", "attention_gradient", scores="each", rows=rows)
    for stream, (blocks, embed, position, other) in towers_by_hand(model, inputs).items():
        expected = []
        for weights, *_, output in blocks:
            score = similarity(model, embed(output.mean(dim=1)), other)
            heads = torch.relu(torch.autograd.grad(score, weights)[0]).mean(dim=1)
            expected.append(heads.mean(dim=1) if rows is None else heads[:, position])
        torch.testing.assert_close(scores[stream], sum(expected) / len(expected), rtol=1e-9, atol=1e-14)


def test_exact_legrad_is_refused_where_there_is_no_stack_of_blocks_for_each_stream():
    for family, target in (("t5", 1), ("siglip", "predicted")):
        build, inputs = STREAM_FAMILIES[family]
        with pytest.raises(UnsupportedModel, match="scores='final' uses the model's own score"):
            attribute(build(), inputs(), target, "attention_gradient", scores="each")


def eclip_by_hand(part: tuple[Tensor, ...], gradient: Tensor, position: int, output_weight: Tensor) -> Tensor:
    """Grad-ECLIP of one example at one block, head by head; `position` is that of the token that is read."""
    _, q, k, v, _, _ = part
    heads, tokens, width = k.shape[1:]
    content = torch.arange(tokens) != position
    expected = torch.zeros(tokens, dtype=k.dtype)
    for head in range(heads):
        outputs = output_weight[:, head * width : (head + 1) * width]
        written = [outputs @ key for key in k[0, head]]
        near = torch.stack([F.cosine_similarity(outputs @ q[0, head, position], key, dim=0) for key in written])
        near = (near - near[content].min()) / (near[content].max() - near[content].min())
        expected += near * content * (v[0, head] @ gradient[0, head, position])
    return torch.relu(expected)


def test_grad_eclip_equals_its_naive_twin():
    model, inputs = double("vit")
    inputs = {name: value[:1] for name, value in inputs.items()}
    *_, part = blocks_by_hand(model, inputs["pixel_values"])
    logits = model.classifier(model.vit.layernorm(part[-1])[:, 0])
    (gradient,) = torch.autograd.grad(logits[:, 2].sum(), part[-2])
    expected = eclip_by_hand(part, gradient, 0, model.vit.layers[-1].attention.o_proj.weight)
    scores = attribute(model, inputs, 2, "grad_eclip")["image"]
    torch.testing.assert_close(scores[0], expected, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("blocks", ["last", "all"])
def test_grad_eclip_of_a_dual_encoder_equals_its_naive_twin(blocks):
    model, inputs = clip()
    scores = attribute(model, inputs, "predicted", "grad_eclip", blocks=blocks)
    for stream, (parts, embed, position, other) in towers_by_hand(model, inputs).items():
        tower = model.vision_model if stream == "image" else model.text_model
        expected = []
        for number, part in enumerate(parts):
            score = similarity(model, embed(run_on(tower, part[-1], number + 1, position)), other)
            (gradient,) = torch.autograd.grad(score, part[-2])
            weight = tower.encoder.layers[number].self_attn.out_proj.weight
            expected.append(eclip_by_hand(part, gradient, position, weight))
        total = expected[-1] if blocks == "last" else sum(expected)
        torch.testing.assert_close(scores[stream][0], total, rtol=1e-9, atol=1e-14)


def run_on(tower: nn.Module, state: Tensor, block: int, position: int) -> Tensor:
    """The state of one token after the blocks of a tower from this one on."""
    length = state.shape[1]
    mask = None
    if position:  # a text, whose tokens read those before them
        mask = torch.full((1, 1, length, length), -torch.inf, dtype=state.dtype).triu(1)
    for later in tower.encoder.layers[block:]:
        output = later(state, mask)
        state = output if isinstance(output, Tensor) else output[0]
    return state[:, position]


def test_with_one_head_grad_eclip_is_that_of_its_authors():
    model, inputs = clip(heads=1)
    scores = attribute(model, inputs, "predicted", "grad_eclip")
    for stream, (parts, embed, position, other) in towers_by_hand(model, inputs).items():
        _, q, k, v, mixed, output = parts[-1]
        (gradient,) = torch.autograd.grad(similarity(model, embed(output[:, position]), other), mixed)
        patches = [token for token in range(k.shape[2]) if token != position]
        tower = model.vision_model if stream == "image" else model.text_model
        weight = tower.encoder.layers[-1].self_attn.out_proj.weight
        own = grad_eclip_of_one_head(
            q[0, 0, position], k[0, 0, patches], v[0, 0, patches], gradient[0, 0, position], weight
        )
        torch.testing.assert_close(scores[stream][0, patches], own, rtol=1e-9, atol=1e-14)
        assert own.any()


def test_grad_eclip_advises_another_attention_only_where_there_is_one():
    model, inputs = double("vit")
    model.set_attn_implementation("eager")
    with pytest.raises(UnsupportedModel, match="load it with attn_implementation='sdpa', or use grad_cam"):
        attribute(model, inputs, 2, "grad_eclip")
    with pytest.raises(UnsupportedModel, match="does not run by scaled_dot_product_attention: use grad_cam"):
        attribute(levit(), {"pixel_values": torch.randn(1, 3, 64, 64)}, 1, "grad_eclip")
    with pytest.raises(UnsupportedModel, match="covers only a part of them at a time: use grad_cam"):
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
    with pytest.raises(WhyformerError, match="seed=-1: a seed is 0 or more"):
        attribute(model, inputs, 2, "gradient_shap", seed=-1)


def test_consensus_is_the_mean_of_shares():
    model, inputs = double("vit")
    parts = [attribute(model, inputs, 2, name)["image"] for name in ("rollout", "generic_attention")]
    expected = sum(part / part.abs().sum(dim=1, keepdim=True) for part in parts) / 2
    scores = attribute(model, inputs, 2, "consensus", methods="rollout + generic_attention")["image"]
    torch.testing.assert_close(scores, expected, rtol=1e-9, atol=1e-14)


def test_methods_that_need_more_than_maps_have_a_pass_of_their_own_in_a_consensus():
    model, inputs = double("vit")
    names = ("rollout", "evidence", "bi_token", "state_x_gradient")
    parts = [attribute(model, inputs, 2, name)["image"] for name in names]
    expected = sum(part / part.abs().sum(dim=1, keepdim=True) for part in parts) / len(names)
    scores = attribute(model, inputs, 2, "consensus", methods="+".join(names))["image"]
    torch.testing.assert_close(scores, expected, rtol=1e-9, atol=1e-14)
    libra = [attribute(model, inputs, 2, name, backward="libra")["image"] for name in names[2:]]
    expected = sum(part / part.abs().sum(dim=1, keepdim=True) for part in libra) / 2
    scores = attribute(model, inputs, 2, "consensus", methods="bi_token+state_x_gradient", backward="libra")["image"]
    torch.testing.assert_close(scores, expected, rtol=1e-9, atol=1e-14)


def test_a_consensus_of_words_may_have_integrated_gradients_and_one_of_patches_may_not():
    model, inputs = double("bert")
    parts = [attribute(model, inputs, 2, name)["text"] for name in ("integrated_gradients", "rollout")]
    real = inputs["attention_mask"]
    expected = sum(part / (part * real).abs().sum(dim=1, keepdim=True) for part in parts) / 2
    scores = attribute(model, inputs, 2, "consensus", methods="integrated_gradients+rollout")["text"]
    torch.testing.assert_close(scores, expected, rtol=1e-9, atol=1e-14)
    vit, pictures = double("vit")
    with pytest.raises(WhyformerError, match="consensus: lrp has scores of the pixels, and rollout of the image"):
        attribute(vit, pictures, 2, "consensus", methods="rollout+lrp")
    with pytest.raises(WhyformerError, match=r"consensus: occlusion cannot be combined\. Choose from: .*raw_att"):
        attribute(vit, pictures, 2, "consensus", methods="rollout+occlusion")

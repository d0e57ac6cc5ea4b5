"""SmoothGrad, the mean over noise on the inputs, against noise added by hand in float64."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
import torch
from test_reference import double
from torch import Tensor

from tiny_models import FAMILIES, IMAGE_FAMILIES, STREAM_FAMILIES, built
from tiny_vlms import TINY_VLMS
from whyformer import WhyformerError, attribute, explain, explain_batch, explain_response
from whyformer.methods.option_checks import check_options
from whyformer.methods.registry import method_named, trace_methods
from whyformer.tracing.question import Noise

SIZE, DRAWS = 0.2, 3


def noise_by_hand(stream: str, draw: int, values: Tensor) -> Tensor:
    """Noise on all values of one example: σ = SIZE · (max − min), numbers in the order of the values."""
    numbers = np.random.default_rng((draw, zlib.crc32(stream.encode()))).standard_normal(values.numel())
    return SIZE * (values.max() - values.min()) * torch.from_numpy(numbers).reshape(values.shape)


def test_smooth_input_x_gradient_of_pixels_equals_noise_by_hand():
    model, inputs = double("vit")
    pixels = inputs["pixel_values"]
    expected = torch.zeros(2, 1024, dtype=torch.float64)
    for draw in range(DRAWS):
        x = (pixels + torch.stack([noise_by_hand("image", draw, one) for one in pixels])).requires_grad_()
        (gradient,) = torch.autograd.grad(model(x).logits[:, 2].sum(), x)
        expected += (x * gradient).sum(dim=1).flatten(1).detach() / DRAWS
    smooth = attribute(model, inputs, 2, "input_x_gradient", noise=SIZE, noise_samples=DRAWS)
    torch.testing.assert_close(smooth["pixels"], expected, rtol=1e-9, atol=1e-12)
    assert smooth.completeness is None


def test_smooth_generic_attention_of_pixels_equals_the_mean_of_its_maps_of_noisy_pixels():
    model, inputs = double("vit")
    pixels = inputs["pixel_values"]
    parts = []
    for draw in range(DRAWS):
        noisy = pixels + torch.stack([noise_by_hand("image", draw, one) for one in pixels])
        parts.append(attribute(model, {"pixel_values": noisy}, 2, "generic_attention", backward="libra")["image"])
    options = {"noise": SIZE, "noise_samples": DRAWS}
    smooth = attribute(model, inputs, 2, "generic_attention", backward="libra", **options)
    torch.testing.assert_close(smooth["image"], sum(parts) / DRAWS, rtol=1e-9, atol=1e-14)


def test_smooth_gradients_of_words_equal_noise_on_their_embeddings_by_hand():
    """BERT embeds words with their positions and normalises them: what its encoder takes has the noise."""
    model, inputs = double("bert")
    expected = torch.zeros(3, 9, dtype=torch.float64)
    for example, mask in enumerate(inputs["attention_mask"]):
        count = int(mask.sum())
        embedded = model.bert.embeddings(inputs["input_ids"][example : example + 1, :count]).detach()
        for draw in range(DRAWS):
            x = (embedded + noise_by_hand("text", draw, embedded)).requires_grad_()
            logits = model.classifier(model.bert.pooler(model.bert.encoder(x).last_hidden_state))
            (gradient,) = torch.autograd.grad(logits[0, 2], x)
            expected[example, :count] += (x * gradient).sum(dim=-1)[0].detach() / DRAWS
    scores = attribute(model, inputs, 2, "input_x_gradient", noise=SIZE, noise_samples=DRAWS)["text"]
    torch.testing.assert_close(scores, expected, rtol=1e-9, atol=1e-12)


def test_smooth_integrated_gradients_of_a_decoder_equal_paths_to_noisy_embeddings_by_hand():
    """Left padding, which is no part of the range, and has no noise."""
    sizes = {"vocab_size": 60, "n_embd": 24, "n_layer": 2, "n_head": 2, "n_positions": 20, "pad_token_id": 0}
    model = built("GPT2LMHeadModel", "GPT2Config", bos_token_id=1, eos_token_id=2, **sizes).double()
    ids, padded = torch.tensor([[7, 20, 33, 8]]), torch.tensor([[0, 0, 7, 20, 33, 8]])
    embedded = model.transformer.wte(ids).detach()
    start = model.transformer.wte(torch.zeros_like(ids)).detach()
    expected = torch.zeros(4, dtype=torch.float64)
    for draw in range(DRAWS):
        end = embedded + noise_by_hand("text", draw, embedded)
        for node in (0.25, 0.75):
            x = (start + node * (end - start)).requires_grad_()
            (gradient,) = torch.autograd.grad(model(inputs_embeds=x).logits[0, -1, 5], x)
            expected += ((end - start) * gradient).sum(dim=-1)[0] / 2 / DRAWS
    inputs = {"input_ids": padded, "attention_mask": (padded > 0).long()}
    inputs["position_ids"] = (inputs["attention_mask"].cumsum(dim=1) - 1).clamp(min=0)
    options = {"noise": SIZE, "noise_samples": DRAWS, "steps": 2}
    scores = attribute(model, inputs, 5, "integrated_gradients", **options)["text"]
    torch.testing.assert_close(scores[0, 2:], expected, rtol=1e-9, atol=1e-12)


def test_the_label_is_that_of_the_input_without_noise():
    model, inputs = double("vit")
    best = [int(label) for label in model(inputs["pixel_values"]).logits.argmax(dim=1)]
    options = {"noise": 5.0, "noise_samples": 2}
    asked = [attribute(model, inputs, target, "grad_cam", **options)["image"] for target in ("predicted", best)]
    assert torch.equal(*asked)


def test_no_noise_to_speak_of_changes_nothing_to_speak_of():
    for family in ("vit", "bert", "modernbert"):
        model, inputs = double(family)
        for method in ("evidence", "bi_token", "full_grad"):
            (plain,), (smooth,) = (
                attribute(model, inputs, 2, method, **options).values()
                for options in ({}, {"noise": 1e-9, "noise_samples": 1})
            )
            torch.testing.assert_close(smooth, plain, rtol=1e-5, atol=1e-8)


SMOOTH = [name for name, one in trace_methods().items() if one.reads.takes_gradients]


MASKS = {
    "attention_mask": ("input_ids", "token_type_ids"),
    "decoder_attention_mask": ("decoder_input_ids",),
    "visual_attention_mask": ("visual_feats", "visual_embeds", "visual_pos", "visual_token_type_ids"),
}


def without_company(inputs: dict[str, Tensor], example: int) -> dict[str, Tensor]:
    """One example of a batch, the padding of its words and regions cut off."""
    alone = {name: value[example : example + 1] for name, value in inputs.items()}
    for mask, names in MASKS.items():
        if mask in alone:
            real = alone[mask][0].bool()
            alone |= {name: alone[name][:, real] for name in (mask, *names) if name in alone}
    return alone


@pytest.mark.parametrize("method", SMOOTH)
@pytest.mark.parametrize("family", ["vit", "bert"])
def test_a_noisy_batch_is_explained_like_its_examples_one_by_one(method, family):
    model, inputs = double(family)
    options = {"noise": SIZE, "noise_samples": 1} | ({"steps": 2} if method == "integrated_gradients" else {})
    (together,) = attribute(model, inputs, 1, method, **options).values()
    (alone,) = attribute(model, without_company(inputs, 1), 1, method, **options).values()
    torch.testing.assert_close(together[1:2, : alone.shape[1]], alone, rtol=1e-6, atol=1e-9)
    (plain,) = attribute(model, inputs, 1, method).values()
    assert not torch.allclose(together, plain)


@pytest.mark.parametrize(
    ("family", "example"), [("t5", 1), ("clip", 1), ("lxmert", 0), ("visual-bert", 0), ("detr", 1), ("vilt", 1)]
)
def test_a_noisy_batch_of_several_streams_is_explained_like_its_examples_one_by_one(family, example):
    build, make = STREAM_FAMILIES[family]
    model = build().double()
    inputs = {name: x.double() if x.is_floating_point() else x for name, x in make().items()}
    target = "predicted" if family == "clip" else 1
    for method in ("generic_attention", "input_x_gradient"):
        together, alone = (
            attribute(model, own, target, method, noise=SIZE, noise_samples=2)
            for own in (inputs, without_company(inputs, example))
        )
        for stream, scores in alone.items():
            own = together[stream][example : example + 1, : scores.shape[1]]
            torch.testing.assert_close(own, scores, rtol=1e-6, atol=1e-9)


def test_noise_on_a_padded_picture_is_that_on_the_picture_itself():
    picture = torch.randn(1, 3, 5, 7, dtype=torch.float64)
    mask = torch.zeros(1, 1, 8, 9, dtype=torch.bool)
    mask[..., :5, :7] = True
    padded = torch.zeros(1, 3, 8, 9, dtype=torch.float64).masked_scatter(mask.expand(1, 3, 8, 9), picture)
    noise, row = Noise(0.3, 2), torch.zeros(1)
    noisy = noise.on("image", padded, row, mask)
    assert torch.equal(noisy[..., :5, :7], noise.on("image", picture, row))
    assert not noisy[:, :, 5:].any()
    assert not torch.equal(noisy, noise.on("text", padded, row, mask))


@pytest.mark.parametrize("name", ["LLaVA", "Qwen2.5-VL", "Idefics 3"])
def test_a_noisy_batch_with_pictures_among_words_is_explained_like_its_examples_one_by_one(name):
    vlm = TINY_VLMS[name]
    model = vlm.build().double()

    def scores(pictures, words):
        inputs = vlm.inputs(pictures, words)
        inputs = {key: x.double() if x.is_floating_point() else x for key, x in inputs.items()}
        return attribute(model, inputs, 7, "input_x_gradient", noise=SIZE, noise_samples=2)

    together, alone = scores((1, 1), (6, 3)), scores((1,), (6,))
    for stream, own in alone.items():
        assert bool(own.any())
        torch.testing.assert_close(together[stream][:1, : own.shape[1]], own, rtol=1e-6, atol=1e-9)


def test_noise_goes_through_blocks_that_are_run_again():
    model, inputs = double("bert")
    options = {"noise": SIZE, "noise_samples": 2}
    for method in ("generic_attention", "evidence", "integrated_gradients"):
        kept, by_blocks = (
            attribute(model, inputs, 2, method, checkpoint=checkpoint, **options)["text"]
            for checkpoint in (False, True)
        )
        torch.testing.assert_close(by_blocks, kept, rtol=1e-8, atol=1e-12)


def test_explain_and_responses_take_noise(bert, gpt):
    options = {"noise": 0.1, "noise_samples": 2}
    texts = ["a wonderful film", "the music was dull and the film was bad"]
    one_by_one = [explain(text, bert, method="generic_attention", **options) for text in texts]
    together = explain_batch(texts, bert, method="generic_attention", batch_size=2, **options)
    for alone, other in zip(one_by_one, together, strict=True):
        np.testing.assert_allclose(alone.scores, other.scores, rtol=1e-4, atol=1e-7)
        assert alone.options["noise"] == 0.1
    whole = explain_response("The film was", " great.", gpt, "generic_attention", units="token", **options)
    assert np.isfinite(whole.scores).all()
    assert whole.scores.any()


def test_the_default_takes_noise_and_what_takes_its_place_does(bert):
    explanation = explain("a wonderful film", bert, noise=0.1, noise_samples=2)
    assert (explanation.method, explanation.options["noise_samples"]) == ("evidence", 2)


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("rollout", {"noise": 0.1}, "rollout reads no gradient: noise=0.1 has no effect."),
        ("lrp", {"noise": 0.1}, "lrp reads no gradient: noise=0.1 has no effect."),
        ("occlusion", {"noise_samples": 2}, "occlusion reads no gradient: noise_samples=2 has no effect."),
        ("grad_cam", {"noise": 0}, "grad_cam: noise=0. It must be a positive share of the input's range, such as 0.1."),
        ("grad_cam", {"noise": -0.1}, "grad_cam: noise=-0.1. It must be a positive share"),
        ("grad_cam", {"noise": float("nan")}, "grad_cam: noise=nan. It must be a positive share"),
        ("grad_cam", {"noise": float("inf")}, "grad_cam: noise=inf. It must be a positive share"),
        ("grad_cam", {"noise": "much"}, "grad_cam: noise='much'. It must be a positive share"),
        ("grad_cam", {"noise": True}, "grad_cam: noise=True. It must be a positive share"),
        (
            "grad_cam",
            {"noise": 0.1, "noise_samples": 0},
            "grad_cam: noise_samples=0. It must be a number of draws, 1 or",
        ),
        ("grad_cam", {"noise": 0.1, "noise_samples": 2.0}, "grad_cam: noise_samples=2.0. It must be a number of draws"),
        ("grad_cam", {"noise_samples": 4}, "grad_cam: noise_samples=4 has no effect without noise, such as noise=0.1."),
    ],
)
def test_noise_that_cannot_be_is_refused(method, options, message):
    with pytest.raises(WhyformerError) as error:
        check_options(method_named(method), options)
    assert str(error.value).startswith(message)


def test_every_family_of_one_stream_takes_noise():
    for family in FAMILIES:
        model, inputs = double(family)
        (scores,) = attribute(model, inputs, 1, "input_x_gradient", noise=0.1, noise_samples=1).values()
        assert torch.isfinite(scores).all(), family
        assert len(scores) == (2 if family in IMAGE_FAMILIES else 3)

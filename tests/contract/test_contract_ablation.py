"""What every method that removes units must hold to on every family."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tiny_models import FAMILIES, image_inputs, inputs_of, text_inputs
from tiny_sounds import WAVE_FAMILIES
from tiny_vlms import IMAGE_TOKEN, TINY_VLMS
from whyformer import UnsupportedModel, WhyformerError, attribute, explain, load
from whyformer.axes import Inputs
from whyformer.inputs.collate import model_inputs
from whyformer.inputs.encode import encode
from whyformer.methods.registry import removal_methods
from whyformer.removal.units import Ablation, Units
from whyformer.scenes import example as example_scene

BUDGET = {name: {} if name == "occlusion" else {"forwards": 24} for name in removal_methods()}
FEW = ["vit", "dinov2 registers", "bert", "modernbert mean"]


@cache
def model_of(family: str) -> nn.Module:
    return FAMILIES[family]()


def scores_of(model: nn.Module, inputs: Inputs, method: str, **options) -> Tensor:
    (scores,) = attribute(model, inputs, 1, method, **BUDGET[method], **options).values()
    return scores


def without_padding(inputs: Inputs, example: int) -> Inputs:
    alone = {name: value[example : example + 1] for name, value in inputs.items()}
    if "attention_mask" not in alone:
        return alone
    real = alone["attention_mask"][0].bool()
    return {name: value[:, real] for name, value in alone.items()}


def logit_of(model: nn.Module, inputs: Inputs) -> Tensor:
    with torch.no_grad():
        output = model(**inputs)
    return getattr(output, "logits", output)[:, 1]


@pytest.mark.parametrize("family", FAMILIES)
def test_occlusion_and_regression_work_on_every_family(family):
    model, inputs = model_of(family), inputs_of(family)
    tokens = inputs["input_ids"].shape[1] if "input_ids" in inputs else 16
    for method in ("occlusion", "mask_regression"):
        scores = scores_of(model, inputs, method)
        assert tokens <= scores.shape[1] <= tokens + 5
        assert torch.isfinite(scores).all()
        assert scores.any(dim=1).all()


def test_after_an_early_stop_the_remarks_say_how_much_was_asked():
    model, inputs = model_of("bert"), inputs_of("bert")
    early = attribute(model, inputs, 1, "lime", forwards=640, stable=0.1)
    assert early.remarks == ("It stopped early after 64 of at most 640 subsets.",)
    assert attribute(model, inputs, 1, "lime", forwards=24).remarks == ()


@pytest.mark.parametrize("family", FEW)
@pytest.mark.parametrize("method", removal_methods())
class TestEveryMethod:
    def test_a_batch_is_explained_like_its_examples_one_by_one(self, method, family):
        model, inputs = model_of(family), inputs_of(family)
        scores = scores_of(model, inputs, method)
        assert torch.equal(scores, scores_of(model, inputs, method)), "the same every time"
        for example, row in enumerate(scores):
            (expected,) = scores_of(model, without_padding(inputs, example), method)
            assert (row[: len(expected)] - expected).abs().max() <= 1e-4 * expected.abs().max()
            assert not row[len(expected) :].any(), "padding got a score"

    def test_the_model_is_left_as_it_was(self, method, family):
        model, inputs = model_of(family), inputs_of(family)
        before = logit_of(model, inputs)
        scores_of(model, inputs, method)
        assert torch.equal(logit_of(model, inputs), before)
        assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())

    def test_another_seed_draws_others(self, method, family):
        model, inputs = model_of(family), inputs_of(family)
        if method != "occlusion" and not (method == "kernel_shap" and family == "bert"):
            assert not torch.equal(scores_of(model, inputs, method), scores_of(model, inputs, method, seed=1))


def test_occlusion_of_patches_is_a_loop_over_patches():
    model, pixels = model_of("vit"), image_inputs()["pixel_values"]
    whole, expected = logit_of(model, {"pixel_values": pixels}), torch.zeros(2, 16)
    colour = torch.tensor([0.3, -0.2, 0.1])[:, None, None]
    for patch in range(16):
        row, column = divmod(patch, 4)
        without = pixels.clone()
        without[:, :, row * 8 : row * 8 + 8, column * 8 : column * 8 + 8] = colour
        expected[:, patch] = whole - logit_of(model, {"pixel_values": without})
    torch.testing.assert_close(
        scores_of(model, {"pixel_values": pixels}, "occlusion", fill=colour)[:, 1:], expected, atol=1e-5, rtol=1e-4
    )


@pytest.mark.parametrize("erasure", ["pad", "delete", 7])
def test_occlusion_of_tokens_is_a_loop_over_tokens(erasure):
    model, inputs = model_of("bert"), text_inputs()
    alone = without_padding(inputs, 0)
    length = alone["input_ids"].shape[1]
    whole, expected = logit_of(model, alone), torch.zeros(length)
    for token in range(1, length):  # the answer is read at the first
        changed = {name: value.clone() for name, value in alone.items()}
        if erasure == "delete":
            changed = {name: torch.cat([x[:, :token], x[:, token + 1 :]], dim=1) for name, x in changed.items()}
        else:
            changed["input_ids"][0, token] = 0 if erasure == "pad" else erasure
            changed["attention_mask"][0, token] = 0 if erasure == "pad" else 1
        expected[token] = (whole - logit_of(model, changed))[0]
    scores = scores_of(model, inputs, "occlusion", erasure=erasure)
    torch.testing.assert_close(scores[0, :length], expected, atol=1e-5, rtol=1e-4)


def test_shapley_values_of_a_model_add_up_and_are_exact():
    """Four units of a picture: all sixteen subsets, by hand."""
    model, pixels = model_of("vit"), image_inputs()["pixel_values"][:1]
    quarters = (torch.arange(32)[:, None] // 16 * 2 + torch.arange(32) // 16)[None]
    values = {}
    for number in range(16):
        kept = torch.tensor([bool(number >> unit & 1) for unit in range(4)])[quarters[0]]
        values[number] = float(logit_of(model, {"pixel_values": pixels * kept}))
    expected = np.zeros(4)
    for unit in range(4):
        for number in (n for n in range(16) if not n >> unit & 1):
            size = bin(number).count("1")
            share = {0: 1 / 4, 1: 1 / 12, 2: 1 / 12, 3: 1 / 4}[size]
            expected[unit] += share * (values[number | 1 << unit] - values[number])
    options = {"units": {"image": quarters}, "forwards": 16}
    (scores,) = attribute(model, {"pixel_values": pixels}, 1, "kernel_shap", **options).values()
    corners = scores[0, 1:].reshape(4, 4)[::3, ::3].flatten()
    np.testing.assert_allclose(corners.numpy(), expected, atol=1e-4)
    assert float(corners.sum()) == pytest.approx(values[15] - values[0], abs=1e-4)


def test_words_and_superpixels_are_removed_together():
    review = "An unbelievably wonderful film, unforgettable."
    scores = explain(review, "mini-bert", method="occlusion", units="word")
    for word, tokens in zip(scores.words(), _tokens_of_words(scores), strict=True):
        assert len({scores.parts["text"].scores[token] for token in tokens}) == 1, word
    inputs = image_inputs()
    patches = scores_of(model_of("vit"), inputs, "kernel_shap", units="superpixel")
    assert patches.shape == (2, 17)
    assert torch.isfinite(patches).all()


def _tokens_of_words(explanation):
    from whyformer.inputs.words import tokens_by_word

    return tokens_by_word(explanation.parts["text"].layout).values()


def test_special_tokens_are_never_removed():
    explanation = explain("A wonderful film.", "mini-bert", method="kernel_shap", target="positive")
    nothing = explain("A wonderful film.", "mini-bert", method="kernel_shap", target="positive", erasure="mask")
    assert explanation.parts["text"].scores.sum() != pytest.approx(float(nothing.parts["text"].scores.sum()))
    assert max(explanation.words(), key=lambda word: word.score).text == "wonderful"


@pytest.mark.parametrize(
    ("family", "options", "message"),
    [
        ("bert", {"units": "word"}, "units='word' needs the tokenizer"),
        ("bert", {"units": "sentence"}, "units='sentence'. Choose from: token, word, superpixel"),
        ("bert", {"erasure": "mask"}, "erasure='mask' needs the tokenizer"),
        ("bert", {"units": {"text": torch.zeros(3, 2)}}, r"units of the text have shape \(3, 2\), not"),
        ("vit", {"fill": "black"}, "fill='black' needs the image processor"),
        ("vit", {"fill": "road"}, "fill='road' imputes whole pixels, but this method dims them"),
    ],
)
def test_what_cannot_be_removed_so_is_refused_in_one_line(family, options, message):
    with pytest.raises(WhyformerError, match=message):
        scores_of(model_of(family), inputs_of(family), "rise", **options)


@pytest.mark.parametrize("name", ["LLaVA", "PaliGemma", "Gemma 3", "BLIP-2"])
def test_occlusion_of_a_picture_among_words_is_a_loop_over_patches_and_words(name):
    vlm = TINY_VLMS[name]
    model, inputs = vlm.build(), vlm.inputs()
    scores = attribute(model, inputs, 17, "occlusion")
    for example in (0, 1):
        alone = vlm.alone(inputs, example, (1, 1))
        whole = next_logit(model, alone)
        for patch in range(16):
            row, column = divmod(patch, 4)
            changed = {key: value.clone() for key, value in alone.items()}
            changed["pixel_values"][:, :, row * 8 : row * 8 + 8, column * 8 : column * 8 + 8] = 0
            drop = whole - next_logit(model, changed)
            assert float(scores["image"][example, patch - 16]) == pytest.approx(drop, abs=2e-5)
        length = alone["input_ids"].shape[1]
        for token in range(length):
            changed = {key: value.clone() for key, value in alone.items()}
            changed["input_ids"][0, token] = changed["attention_mask"][0, token] = 0
            is_fixed = token == length - 1 or alone["input_ids"][0, token] == IMAGE_TOKEN
            drop = 0.0 if is_fixed else whole - next_logit(model, changed)
            assert float(scores["text"][example, token]) == pytest.approx(drop, abs=2e-5)
        assert not scores["text"][example, length:].any(), "padding got a score"
        assert scores["image"][example].abs().max() > 1e-3


@torch.no_grad()
def next_logit(model: nn.Module, inputs: Inputs) -> float:
    return float(model(**inputs).logits[0, -1, 17])


def test_quarters_of_a_scene_and_the_words_asked_about_it_are_removed_one_by_one():
    vlm, scene = load("mini-vlm", device="cpu"), example_scene(3)
    inputs = model_inputs(vlm, encode(vlm, [(scene.image, scene.question)]))
    side = inputs["pixel_values"].shape[-1]
    half = torch.arange(side) * 2 // side
    quarters, words = (half[:, None] * 2 + half)[None], torch.full(inputs["input_ids"].shape, -1)
    words[0, -8:-1] = torch.arange(7)
    scores = attribute(vlm.model, inputs, 17, "occlusion", units={"image": quarters, "text": words})
    whole = next_logit(vlm.model, inputs)
    for quarter, score in enumerate(scores["image"][0, 1:].reshape(16, 16)[::15, ::15].flatten().tolist()):
        changed = inputs | {"pixel_values": inputs["pixel_values"] * (quarters != quarter)}
        assert score == pytest.approx(whole - next_logit(vlm.model, changed), abs=1e-4)
    for word in range(7):
        gone = words == word
        changed = inputs | {"input_ids": inputs["input_ids"].masked_fill(gone, vlm.tokenizer.pad_token_id)}
        changed["attention_mask"] = inputs["attention_mask"].masked_fill(gone, 0)
        drop = whole - next_logit(vlm.model, changed)
        assert float(scores["text"][gone]) == pytest.approx(drop, abs=1e-4)
    assert scores["text"].count_nonzero() <= 7


@pytest.mark.parametrize("name", ["LLaVA-NeXT", "Qwen2-VL", "Idefics 3"])
def test_tiles_and_packed_patches_are_refused_with_what_works(name):
    vlm = TINY_VLMS[name]
    with pytest.raises(UnsupportedModel, match="parts can only be removed from a single whole picture"):
        attribute(vlm.build(), vlm.inputs(), 17, "occlusion")
    several = TINY_VLMS["LLaVA"]
    with pytest.raises(UnsupportedModel, match="or several per prompt"):
        attribute(several.build(), several.inputs((2,), (5,)), 17, "occlusion")


def test_sounds_are_refused_with_what_works():
    model = WAVE_FAMILIES["wav2vec2"]()
    with pytest.raises(UnsupportedModel, match="words, patches or regions"):
        attribute(model, {"input_values": torch.randn(1, 4000)}, 0, "occlusion")


def test_an_answer_that_is_no_number_leaves_no_score():
    units = Units(np.arange(3), ((3,),))
    ablation = Ablation((units,), np.array([1.0]), lambda _, masks: np.full((len(masks[0]), 1), np.nan))
    for method, options in BUDGET.items():
        assert np.isnan(removal_methods()[method].formula(ablation, **options)[0]).all()

"""The language prior of written tokens: how likely each is after blank pictures."""

from __future__ import annotations

import math

import pytest
import torch

import whyformer
from whyformer import Continuation, WhyformerError
from whyformer.scenes import example


@pytest.fixture(scope="module")
def described() -> Continuation:
    scene = example(3)
    return whyformer.continuation((scene.image, scene.question), "mini-vlm", "rollout", tokens=5, prior=True)


def test_a_prior_is_the_log_probability_of_the_token_after_pixels_of_zero(described):
    vlm = whyformer.load("mini-vlm", device="cpu")
    scene = example(3)
    text = vlm.processor.apply_chat_template(
        [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": scene.question}]}],
        add_generation_prompt=True,
    )
    inputs = vlm.processor(images=scene.image, text=text, return_tensors="pt", add_special_tokens=False)
    with torch.no_grad():
        first = inputs["input_ids"].shape[1]
        written = vlm.model.generate(**inputs, max_new_tokens=5, do_sample=False)
        inputs |= {"input_ids": written, "attention_mask": torch.ones_like(written)}
        inputs["pixel_values"] = torch.zeros_like(inputs["pixel_values"])
        chances = vlm.model(**inputs).logits[0].log_softmax(dim=-1)
    places = range(first, first + len(described.tokens))
    expected = [float(chances[place - 1, written[0, place]]) for place in places]
    assert described.priors == pytest.approx(expected, abs=1e-4)
    gains = [math.log(one.probability) - prior for one, prior in zip(described.explanations, expected, strict=True)]
    assert described.picture_gains == pytest.approx(gains, abs=1e-4)
    assert max(described.picture_gains) > 1, "no word of the reply depends on the picture"


def test_priors_are_shown_and_saved(described, tmp_path):
    first = f"(blank picture {math.exp(described.priors[0]):.2g})"
    assert first in str(described)
    assert f"After a blank picture it would be {math.exp(described.priors[0]):.2g}." in described._repr_html_()
    for suffix in (".json", ".npz"):
        described.save(tmp_path / f"words{suffix}")
        assert Continuation.load(tmp_path / f"words{suffix}").priors == described.priors


def test_without_being_asked_for_there_are_no_priors():
    continuation = whyformer.continuation("The film was", tokens=1, method="rollout")
    assert continuation.priors == continuation.picture_gains == ()
    assert "priors" not in continuation.to_dict()


def test_a_model_without_pictures_has_no_prior_to_compare_with():
    with pytest.raises(WhyformerError, match=r"prior=True compares .* mini-gpt is given none in its prompt"):
        whyformer.continuation("The film was", tokens=1, prior=True)

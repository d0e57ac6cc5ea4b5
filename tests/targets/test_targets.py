"""What is asked about: one target for all examples, or one each, for models of every kind."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tiny_models import STREAM_FAMILIES
from whyformer import detection, explain, explain_batch, load
from whyformer.errors import WhyformerError
from whyformer.scenes import example

PROMPTS = ["The film was", "I think that this", "Great"]


def same_scores(ours, theirs) -> bool:
    parts = [(ours.parts[name].scores, theirs.parts[name].scores) for name in ours.parts]
    return all(np.abs(a - b).max() <= 1e-4 * np.abs(a).max() + 1e-9 for a, b in parts)


@pytest.mark.parametrize("targets", [[5, 6, 7], torch.tensor([5, 6, 7]), np.array([5, 6, 7])])
def test_a_model_that_writes_is_asked_about_a_token_of_each_example(targets):
    found = explain_batch(PROMPTS, "mini-gpt", targets, "generic_attention", batch_size=2)
    for prompt, token, batched in zip(PROMPTS, (5, 6, 7), found, strict=True):
        alone = explain(prompt, "mini-gpt", token, "generic_attention")
        assert alone.target == batched.target
        assert same_scores(alone, batched)


@pytest.mark.parametrize("targets", [["the"], ["the"] * 4])
def test_a_model_that_writes_refuses_targets_that_are_not_one_each(targets):
    with pytest.raises(WhyformerError, match=f"{len(targets)} targets for 3 examples"):
        explain_batch(PROMPTS, "mini-gpt", targets)


def test_each_picture_is_compared_with_a_text_of_its_own_choice():
    said = ["a red circle", "a blue square"]
    pairs = [(example(number).image, said) for number in (3, 4)]
    found = explain_batch(pairs, "mini-clip", said, "generic_attention")
    assert [explanation.target for explanation in found] == said
    for pair, text, batched in zip(pairs, said, found, strict=True):
        assert same_scores(explain(pair, "mini-clip", text, "generic_attention"), batched)


def test_black_is_where_pixels_start_and_changes_nothing_of_the_words():
    pairs = [(example(number).image, "a red circle") for number in (3, 4, 5)]
    zero, black = (
        explain_batch(pairs, "mini-clip", method="bi_token", baseline=kind, steps=2) for kind in ("zero", "black")
    )
    for ours, theirs in zip(zero, black, strict=True):
        assert np.array_equal(ours.parts["text"].scores, theirs.parts["text"].scores)
        assert not np.array_equal(ours.parts["image"].scores, theirs.parts["image"].scores)


def test_the_probability_of_a_detector_that_judges_each_label_by_itself_is_its_sigmoid():
    loaded_model = load("mini-detr", device="cpu")
    model, image = STREAM_FAMILIES["conditional detr"][0](), example(3).image
    found = explain(image, model, method="raw_attention", processor=loaded_model.processor)
    with torch.no_grad():
        pixels = loaded_model.processor(images=image, return_tensors="pt")["pixel_values"]
        assert found.probability == pytest.approx(float(model(pixels).logits.sigmoid().max()), abs=1e-5)


def test_a_text_that_is_not_among_those_given_is_spoken_of_as_a_text():
    pair = (example(3).image, ["a red circle", "a blue square"])
    with pytest.raises(WhyformerError, match=r"No text 'a red circel' among those .* Did you mean 'a red circle'"):
        explain(pair, "mini-clip", "a red circel")
    with pytest.raises(WhyformerError, match="No text with index 2: the picture is compared with 2, from 0 on"):
        explain(pair, "mini-clip", 2)
    with pytest.raises(WhyformerError, match="A target is a text or its index, 'predicted', a contrast or a score"):
        explain(pair, "mini-clip", 1.5)
    for target in ("A BLUE square", 1):
        assert explain(pair, "mini-clip", target, "raw_attention").target == "a blue square"


def test_a_pair_of_picture_and_text_takes_a_score_of_ones_own():
    pairs = [(example(number).image, "a red circle") for number in (3, 4)]

    def alike(output):
        return output.logits_per_image.diagonal()

    found = explain_batch(pairs, "mini-clip", alike, "generic_attention")
    for ours, theirs in zip(found, explain_batch(pairs, "mini-clip", method="generic_attention"), strict=True):
        assert (ours.target, ours.probability) == ("alike", None)
        assert same_scores(theirs, ours)


def test_words_of_several_tokens_are_shown_as_they_are_read():
    with pytest.raises(WhyformerError, match=r"is not one token of mini-gpt but several \('.*'\)") as refused:
        explain("The film was", "mini-gpt", "incomprehensibility")
    assert "Ġ" not in str(refused.value)
    shown = str(refused.value).partition("(")[2].partition(")")[0]
    assert "".join(part.strip("'") for part in shown.split(", ")).startswith("incomprehens")


def test_a_query_that_found_nothing_says_so():
    loaded_model, image = load("mini-detr", device="cpu"), example(3).image
    with torch.no_grad():
        pixels = loaded_model.processor(images=image, return_tensors="pt")["pixel_values"]
        shares = loaded_model.model(pixels).logits[0].softmax(dim=-1)
    empty = shares.argmax(dim=-1) == shares.shape[-1] - 1
    assert 0 < int(empty.sum()) < len(empty)
    for query, is_empty in enumerate(empty.tolist()):
        notes = explain(image, loaded_model, detection(query), "raw_attention").notes
        answer = f"it answers 'no object' ({shares[query, -1]:.2f}) rather than any label"
        assert notes == ((f"Object query {query} found nothing: {answer}.",) if is_empty else ())

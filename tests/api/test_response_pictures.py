"""Responses about pictures: each span explained by the pictures, by the words of the prompt, by its documents."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
from test_explain_pictures import EVERY, QUESTION, model_of, picture

from whyformer import (
    Response,
    WhyformerError,
    attribute,
    continuation,
    explain,
    explain_response,
    explain_responses,
    load,
)
from whyformer.scenes import example

TEXT = " a star . and a red circle"
TWO = ([picture(60, 40), picture(30, 50)], "which one is the star ?")


@cache
def made(method: str = "generic_attention", **settings) -> Response:
    return explain_response(TWO, TEXT, model_of("LLaVA"), method, **settings)


@pytest.mark.parametrize("method", ["generic_attention", "rollout", "input_x_gradient"])
def test_a_row_is_what_the_method_gives_for_the_sum_of_its_log_probabilities(method):
    model = model_of("LLaVA")
    found = made(method)
    words = [token.id for token in found.prompt.tokens] + [token.id for token in found.tokens]
    first = len(found.prompt.tokens)
    images = model.processor.image_processor(images=TWO[0], return_tensors="pt")["pixel_values"]
    for number, row in enumerate(found.rows):
        ids = torch.tensor([words[: first + max(row.tokens)]])
        places = [first + token - 1 for token in row.tokens]
        answers = [words[first + token] for token in row.tokens]
        weights = torch.zeros(ids.shape)
        weights[0, places] = 1 / len(places)

        def score(output, places=places, answers=answers):
            return output.logits[:, places].log_softmax(dim=-1)[:, range(len(places)), answers].sum(dim=1)

        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "pixel_values": images}
        raw = attribute(model.model, inputs, score, method, readout=weights)
        image = raw["image"][0].reshape(2, 17)[:, 1:].numpy()  # without the class token of each
        for part, expected in zip(found.parts.values(), image, strict=True):
            np.testing.assert_allclose(part.scores[number], expected, atol=1e-5 * np.abs(image).max())
        text = raw["text"][0, :first].numpy()
        np.testing.assert_allclose(found.token_scores[number], text, atol=1e-5 * np.abs(text).max())


def test_each_picture_is_a_source_beside_those_of_the_text():
    found = made()
    assert [source.text for source in found.sources] == ["image 1", "image 2", *TWO[1].split()]
    assert [source.kind for source in found.sources] == ["picture"] * 2 + ["word"] * 6
    for column, part in enumerate(found.parts.values()):
        np.testing.assert_allclose(found.scores[:, column], part.scores.clip(min=0).sum(axis=1), rtol=1e-5)
    assert [part.layout.image.size for part in found.parts.values()] == [(60, 40), (30, 50)]
    assert np.array_equal(found.parts["image 2"].part(1).scores, found.parts["image 2"].scores[1])
    assert np.allclose(found.parts["image 2"].part().scores, found.parts["image 2"].scores.sum(axis=0))


@pytest.mark.parametrize("aggregate", ["positive", "sum", "mean", "max"])
def test_other_sources_of_the_text_leave_the_pictures_as_they_are(aggregate):
    found = made("input_x_gradient").by([(0, 9), (10, 18)], aggregate)
    again = made("input_x_gradient").by(aggregate=aggregate)
    assert [source.kind for source in found.sources] == ["picture", "picture", "span", "span"]
    assert np.array_equal(found.scores[:, :2], again.scores[:, :2])
    assert found.by(aggregate=aggregate) == found
    pool = {"positive": lambda x: x.clip(min=0).sum(), "sum": np.sum, "mean": np.mean}.get(
        aggregate, lambda x: max(x.tolist(), key=abs)
    )
    expected = [pool(found.parts["image 1"].scores[row]) for row in range(2)]
    np.testing.assert_allclose(found.scores[:, 0], expected, rtol=1e-4, atol=1e-7)


def test_shares_of_sinks_count_what_falls_on_pictures():
    found = made()
    for number, sinks in enumerate(found.sinks):
        seen = sum(np.abs(part.scores[number]).sum() for part in found.parts.values())
        total = np.abs(found.token_scores[number]).sum() + np.abs(found.earlier[number]).sum() + seen
        assert sinks.earlier == pytest.approx(float(np.abs(found.earlier[number]).sum() / total), rel=1e-4)


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # of PaliGemma's own processor
@pytest.mark.parametrize("method", ["rollout", "tam"])
@pytest.mark.parametrize("name", EVERY)
def test_what_a_model_writes_about_a_picture_is_explained_like_its_tokens_one_by_one(name, method):
    example = (picture(), QUESTION)
    found = explain_response(example, None, model_of(name), method, units="token", tokens=3)
    written = continuation(example, model_of(name), method, tokens=3)
    alone = explain(example, model_of(name), method=method)
    first = written.explanations[0]
    assert alone.target == first.target
    for part, expected in alone.parts.items():
        atol = 1e-5 * np.abs(expected.scores).max()
        np.testing.assert_allclose(first.parts[part].scores, expected.scores, atol=atol)
    assert found.text.strip() == written.text.strip()
    for number, row in enumerate(found.rows):  # special tokens, which a random model may write, are none
        expected = written.explanations[row.tokens[0]].parts["image"].scores
        np.testing.assert_allclose(found.parts["image"].scores[number], expected, atol=1e-5 * np.abs(expected).max())
    assert "stopped after 3 tokens" in " ".join(found.notes)


def test_by_tam_a_written_token_is_explained_as_the_next_one_after_those_before_it():
    model, example = model_of("LLaVA"), (picture(), QUESTION)
    found = explain_response(example, " a star .", model, "tam", units="token")
    words = [token.id for token in found.prompt.tokens] + [token.id for token in found.tokens]
    images = model.processor.image_processor(images=[example[0]], return_tensors="pt")["pixel_values"]
    assert len(found.rows) == 3
    for number in range(3):
        first = len(found.prompt.tokens) + number
        ids = torch.tensor([words[:first]])
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "pixel_values": images}
        raw = attribute(model.model, inputs, words[first], "tam")
        expected = raw["image"][0, 1:].numpy()
        assert expected.max() > 0
        np.testing.assert_allclose(found.parts["image"].scores[number], expected, atol=1e-5 * expected.max())
        text = raw["text"][0, : len(found.prompt.tokens)].numpy()
        np.testing.assert_allclose(found.token_scores[number], text, atol=1e-5 * text.max())


def test_tam_of_several_tokens_at_once_is_refused_in_a_line():
    with pytest.raises(WhyformerError, match="tam explains one token: give it as target"):
        explain_response((picture(), QUESTION), " a star", model_of("LLaVA"), "tam", units="response")


@pytest.mark.parametrize("name", ["LLaVA", "LLaVA-NeXT", "Idefics 3"])
def test_prompts_with_pictures_are_explained_together_as_alone(name):
    prompts = [(picture(60, 40), QUESTION), (picture(20, 60), "which one is red ?")]
    together = explain_responses(prompts, [" a star . red", " blue"], model_of(name), "generic_attention")
    for prompt, one in zip(prompts, together, strict=True):
        alone = explain_response(prompt, one.text, model_of(name), "generic_attention")
        np.testing.assert_allclose(one.scores, alone.scores, rtol=1e-3, atol=1e-4 * np.abs(alone.scores).max())


def test_a_contrast_is_taken_on_the_pictures_too():
    this = explain_response(TWO, " red", model_of("LLaVA"), "generic_attention")
    that = explain_response(TWO, " blue", model_of("LLaVA"), "generic_attention")
    both = explain_response(TWO, " red", model_of("LLaVA"), "generic_attention", contrast=" blue")
    expected = this.parts["image 1"].scores - that.parts["image 1"].scores
    np.testing.assert_allclose(both.parts["image 1"].scores, expected, atol=1e-6)


@pytest.mark.parametrize("name", ["LLaVA", "Idefics 3"])
def test_documents_stand_beside_pictures(name):
    documents = [("one", "the star is red ."), ("two", "the circle is blue .")]
    found = explain_response(
        (picture(), QUESTION), " red", model_of(name), "rollout", context=documents, sources="document"
    )
    assert [source.text for source in found.sources] == ["image", "one: the star is red .", "two: the circle is blue ."]
    assert found.prompt.text.endswith(QUESTION)
    assert found.scores.all()


@pytest.mark.parametrize("suffix", ["json", "npz"])
def test_a_response_about_pictures_is_read_back_as_it_was_saved(suffix, tmp_path):
    made().save(tmp_path / f"a.{suffix}")
    assert Response.load(tmp_path / f"a.{suffix}") == made()
    assert made() != made("rollout")


def test_where_no_method_is_named_it_is_the_one_that_was_best_on_pictures():
    found = explain_response((picture(), QUESTION), " red", model_of("LLaVA"))
    assert found.manner == "generic_attention (backward=libra)"


def test_each_sentence_of_a_description_lies_on_the_object_it_describes():
    scene = example(3)
    model = load("mini-vlm", device="cpu")
    found = explain_response((scene.image, "Describe the scene."), None, model, "generic_attention")
    assert found.text.strip() == scene.description
    pixels = np.asarray(scene.image).astype(int)
    is_of = {
        "white": pixels.min(axis=2) > 200,
        "cyan": pixels[..., 1:].min(axis=2) > pixels[..., 0] + 80,
        "green": pixels[..., 1] > pixels[..., ::2].max(axis=2) + 80,
    }
    for row, span in enumerate(found.rows):
        part = found.parts["image"].part(row)
        strongest = np.array(divmod(int(part.scores.argmax()), part.layout.columns)) * 4 + 2  # pixels: 16 × 16 patches
        centre = np.argwhere(is_of[next(name for name in is_of if name in span.text)]).mean(axis=0)
        assert np.abs(strongest - centre).max() <= 6
        assert found.top(1, row)[0].source.kind == "picture"


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"method": "leave_one_out"}, "leave_one_out removes sources of a text, and this prompt has a picture"),
        ({"layout": "{documents}{question}"}, "layout says where the documents of context"),
        ({"prompt": "which one ?"}, r"This model takes a picture and a text: \('street.jpg'"),
        (
            {"prompt": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}], "context": ["a"]},
            "context goes with a question, not with messages",
        ),
        ({"model": "mini-llm"}, "A pair is pictures and a text, and mini-llm reads texts alone: choose a model that"),
    ],
)
def test_what_cannot_be_explained_about_pictures_is_one_line(settings, reason):
    with pytest.raises(WhyformerError, match=reason) as error:
        explain_response(**{"prompt": TWO, "response": TEXT, "model": model_of("LLaVA")} | settings)
    assert "\n" not in str(error.value)

"""ViLT, BLIP and the OWLs through `explain`: pictures with words of several kinds."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers
from PIL import Image

import whyformer
from conftest import WORDS, save_noise, tokenizer
from tiny_models import READER, SMALL, TOWER, blip, built
from whyformer import LoadedModel, WhyformerError, attribute, explain, explain_batch
from whyformer.inputs.collate import model_inputs
from whyformer.inputs.encode import encode
from whyformer.watching.handlers import even_choice

QUESTION = "the film was great"


class Both:
    """An image processor and a tokenizer in one."""

    def __init__(self, image_processor, tokenizer):
        self.image_processor, self.tokenizer = image_processor, tokenizer


@pytest.fixture(scope="module")
def vilt():
    model = built(
        "ViltForQuestionAnswering", "ViltConfig", **SMALL | {"image_size": 32, "patch_size": 8, "num_labels": 5}
    )
    sizes = {"size": {"shortest_edge": 32}, "size_divisor": 8}
    return LoadedModel(model, Both(transformers.ViltImageProcessorPil(**sizes), tokenizer()), "vilt")


@pytest.fixture(scope="module")
def matcher():
    processor = transformers.BlipImageProcessorPil(size={"height": 32, "width": 32})
    return LoadedModel(blip(), Both(processor, tokenizer()), "blip")


def ending_tokenizer():
    """One whose end token has the highest number, by which an OWL finds where to read a text."""
    words = {word: index for index, word in enumerate([*WORDS, "[END]"])}
    return transformers.BertTokenizerFast(vocab=words, sep_token="[END]")


def owl(name="OwlViT", positions=9):
    words = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": len(WORDS)}
    sizes = READER | {"vocab_size": len(WORDS) + 1, "max_position_embeddings": positions} | words
    image = TOWER | {"image_size": 32, "patch_size": 8}
    model = built(
        f"{name}ForObjectDetection", f"{name}Config", text_config=TOWER | sizes, vision_config=image, projection_dim=24
    )
    processor = getattr(transformers, f"{name}ImageProcessorPil")(size={"height": 32, "width": 32})
    return LoadedModel(model, Both(processor, ending_tokenizer()), name.lower())


@pytest.fixture
def wide(tmp_path):
    return Image.open(save_noise(tmp_path / "wide.png", seed=1, width=48, height=32))


@pytest.fixture
def high(tmp_path):
    return Image.open(save_noise(tmp_path / "high.png", seed=2, width=32, height=40))


def test_a_choice_among_equals_is_even_and_in_order():
    assert even_choice((torch.ones(4), 4), {}).tolist() == [0, 1, 2, 3]
    assert even_choice((torch.ones(6), 3), {}).tolist() == [0, 2, 4]
    assert even_choice((torch.ones(2), 5), {"replacement": True}).tolist() == [0, 1, 0, 1, 0]
    assert even_choice((torch.tensor([1.0, 2.0]), 1), {}) is None


def test_vilt_answers_as_it_does_by_itself_whatever_order_its_patches_are_drawn_in(vilt, wide):
    inputs = model_inputs(vilt, encode(vilt, [(wide, QUESTION)]))
    torch.manual_seed(3)
    with torch.no_grad():
        expected = vilt.model(**inputs).logits.softmax(dim=1).max()
    explanation = explain((wide, QUESTION), vilt, method="rollout")
    assert explanation.probability == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize("method", ["rollout", "generic_attention", "bi_token", "input_x_gradient"])
def test_pictures_of_different_shapes_are_explained_together_like_single_ones(vilt, wide, high, method):
    examples = [(wide, QUESTION), (high, "a bad film")]
    together = explain_batch(examples, vilt, method=method, batch_size=2)
    again = explain_batch(examples, vilt, method=method, batch_size=2)
    assert together == again
    for example, explanation in zip(examples, together, strict=True):
        alone = explain(example, vilt, method=method)
        assert list(explanation.parts) == ["text", "image"]
        for name, part in explanation.parts.items():
            if name == "image" and method == "input_x_gradient":
                continue  # a score for each pixel, those of the padding too
            expected = alone.parts[name].scores
            assert part.layout == alone.parts[name].layout
            assert np.abs(part.scores - expected).max() <= 2e-5 * np.abs(expected).max() + 1e-9


def test_patches_of_vilt_are_those_of_the_picture_without_its_padding(vilt, wide, high):
    first, second = explain_batch([(wide, QUESTION), (high, QUESTION)], vilt, method="rollout", batch_size=2)
    grids = [(one.parts["image"].layout.rows, one.parts["image"].layout.columns) for one in (first, second)]
    assert grids == [(4, 6), (5, 4)]
    assert second.parts["image"].layout.box == (0, 0, 32, 40)
    inputs = model_inputs(vilt, encode(vilt, [(wide, QUESTION), (high, QUESTION)]))
    words = inputs["input_ids"].shape[1]
    raw = attribute(vilt.model, inputs, lambda output: output.logits.max(dim=1).values, "rollout")["joint"]
    assert np.array_equal(second.parts["image"].scores, raw[1, words + 1 : words + 21].numpy())


def test_blip_says_whether_a_text_matches_a_picture(matcher, wide):
    explanation = explain((wide, QUESTION), matcher, "match", "generic_attention")
    inputs = model_inputs(matcher, encode(matcher, [(wide, QUESTION)]))
    raw = attribute(matcher.model, inputs, lambda output: output.itm_score[:, 1], "generic_attention")
    assert np.allclose(explanation.parts["image"].scores, raw["image"][0, 1:].numpy(), rtol=1e-5)
    with torch.no_grad():
        expected = matcher.model(**inputs).itm_score.softmax(dim=1)[0]
    assert explanation.probability == pytest.approx(float(expected[1]), rel=1e-5)
    assert explain((wide, QUESTION), matcher, method="rollout").target == ("no match", "match")[int(expected.argmax())]
    assert {"text", "image"} == set(explanation.parts)


@pytest.fixture(scope="module")
def answerer():
    model = blip("ForQuestionAnswering", vocab_size=len(WORDS)).double()
    processor = transformers.BlipImageProcessorPil(size={"height": 32, "width": 32})
    return LoadedModel(model, Both(processor, tokenizer()), "blip-vqa")


def answer_parts(model, inputs):
    """The outputs of BLIP's tower, of what reads the question, and of what writes the answer, with all their maps."""
    seen = model.vision_model(inputs["pixel_values"], output_attentions=True)
    read = model.text_encoder(
        inputs["input_ids"],
        inputs["attention_mask"],
        encoder_hidden_states=seen.last_hidden_state,
        output_attentions=True,
    )
    written = model.text_decoder(
        inputs["decoder_input_ids"],
        encoder_hidden_states=read.last_hidden_state,
        encoder_attention_mask=inputs["attention_mask"],
        output_attentions=True,
    )
    return seen, read, written


def composed(parts, weigh=lambda attention: attention.mean(dim=1)):
    """The read-out's row through the decoder, over the question, into the picture, block by block."""
    seen, read, written = parts
    row = torch.zeros(1, 1, written.attentions[0].shape[-1], dtype=torch.float64)
    row[..., -1] = 1.0
    text = image = 0.0
    for own, cross in zip(reversed(written.attentions), reversed(written.cross_attentions), strict=True):
        text = text + row @ weigh(cross)
        row = row + row @ weigh(own)
    for own, cross in zip(reversed(read.attentions), reversed(read.cross_attentions), strict=True):
        image = image + text @ weigh(cross)
        text = text + text @ weigh(own)
    for own in reversed(seen.attentions):
        image = image + image @ weigh(own)
    return text[0, 0], image[0, 0, 1:]  # without the tower's class token


def test_blip_answers_a_question_through_what_it_reads_and_what_that_sees(answerer, wide):
    model, inputs = answerer.model, model_inputs(answerer, encode(answerer, [(wide, QUESTION)]))
    model.set_attn_implementation("eager")
    parts = answer_parts(model, inputs)
    model.set_attn_implementation("sdpa")
    logits = parts[2].logits[0, -1]
    explanation = explain((wide, QUESTION), answerer, method="rollout")
    assert explanation.probability == pytest.approx(float(logits.detach().softmax(dim=0).max()), rel=1e-6)
    assert explanation.target == answerer.tokenizer.convert_ids_to_tokens(int(logits.argmax()))
    text, image = composed(parts)
    assert list(explanation.parts) == ["text", "image"]
    words = encode(answerer, [(wide, QUESTION)])[0].chunk.positions
    assert np.allclose(explanation.parts["text"].scores, text[list(words)].detach(), rtol=1e-6)
    assert np.allclose(explanation.parts["image"].scores, image.detach(), rtol=1e-6)


def test_what_blip_reads_through_its_question_flows_to_the_picture(answerer, wide):
    model, inputs = answerer.model, model_inputs(answerer, encode(answerer, [(wide, QUESTION)]))
    model.set_attn_implementation("eager")
    parts = answer_parts(model, inputs)
    model.set_attn_implementation("sdpa")
    maps = [*parts[0].attentions, *parts[1].attentions, *parts[1].cross_attentions]
    maps += [*parts[2].attentions, *parts[2].cross_attentions]
    token = int(parts[2].logits[0, -1].argmax())
    gradients = dict(zip(map(id, maps), torch.autograd.grad(parts[2].logits[0, -1, token], maps), strict=True))
    _, image = composed(parts, lambda attention: (attention * gradients[id(attention)]).clamp(min=0).mean(dim=1))
    found = explain((wide, QUESTION), answerer, method="generic_attention").parts["image"].scores
    assert np.allclose(found, image.detach(), rtol=1e-5, atol=1e-12)
    assert found.any()


@pytest.mark.parametrize("method", ["rollout", "generic_attention", "bi_token", "bi_head", "lrp", None])
def test_questions_to_blip_are_answered_together_as_alone_and_it_is_left_as_it_was(answerer, wide, high, method):
    examples = [(wide, QUESTION), (high, "a bad film"), (high, "a great bad film")]  # of which two are equally long
    before = {name: value.clone() for name, value in answerer.model.state_dict().items()}
    hooks = [len(module._forward_hooks) for module in answerer.model.modules()]
    together = explain_batch(examples, answerer, method=method, batch_size=2)
    for example, explanation in zip(examples, together, strict=True):
        alone = explain(example, answerer, method=method)
        assert alone.target == explanation.target
        for name, part in explanation.parts.items():
            assert np.abs(part.scores - alone.parts[name].scores).max() <= 1e-6 * np.abs(part.scores).max() + 1e-12
    assert all(torch.equal(value, before[name]) for name, value in answerer.model.state_dict().items())
    assert [len(module._forward_hooks) for module in answerer.model.modules()] == hooks


def test_each_word_of_an_answer_of_blip_is_explained(answerer, wide):
    written = whyformer.continuation((wide, QUESTION), answerer, "rollout", tokens=3)
    inputs = model_inputs(answerer, encode(answerer, [(wide, QUESTION)]))
    with torch.no_grad():
        ids = answerer.model.generate(
            **{name: inputs[name] for name in ("input_ids", "attention_mask", "pixel_values")}, max_length=4
        )
    names = answerer.tokenizer.convert_ids_to_tokens(ids[0, 1:].tolist())
    assert [one.target for one in written.explanations] == names[: len(written.explanations)]
    assert "target" in written.explanations[-1].parts
    reason = "blip-vqa keeps its picture apart from its text, which explain_response does not support: use "
    with pytest.raises(WhyformerError, match=f"{reason}continuation"):
        whyformer.explain_response((wide, QUESTION), None, answerer)


@pytest.mark.parametrize("name", ["OwlViT", "Owlv2"])
def test_an_owl_is_asked_about_one_of_its_texts_where_it_is_found_best(name, wide):
    model, texts = owl(name), ["the film", "a bad film", "great"]
    inputs = model_inputs(model, encode(model, [(wide, text) for text in texts]))
    with torch.no_grad():
        logits = model.model(**inputs | {"pixel_values": inputs["pixel_values"][:1]}).logits[0]
    query = int(logits[:, 1].argmax())
    explanation = explain((wide, texts), model, "a bad film", "generic_attention")
    assert explanation.target == "a bad film"
    assert explanation.probability == pytest.approx(float(logits[query, 1].sigmoid()), rel=1e-4)
    one = model_inputs(model, encode(model, [(wide, texts[1])]))
    raw = attribute(model.model, one, lambda output: output.logits[:, query, 0], "generic_attention")
    assert np.allclose(explanation.parts["image"].scores, raw["image"][0, 1:].numpy(), rtol=1e-4, atol=1e-9)
    assert model.tokenizer.convert_ids_to_tokens(one["input_ids"][0].tolist())[4] == "[END]"
    text = explanation.parts["text"]
    assert text.layout.tokens == ("a", "bad", "film")
    assert np.abs(text.scores).max() > 0
    assert np.allclose(text.scores, raw["text"][0, 1:4].numpy(), rtol=1e-4, atol=1e-9)
    best = int(logits.amax(dim=0).argmax())
    assert explain((wide, texts), model, method="rollout").target == texts[best]
    asked = explain((wide, texts), model, whyformer.detection(3, "great"), "rollout")
    assert asked.probability == pytest.approx(float(logits[3, 2].sigmoid()), rel=1e-4)


def test_each_text_that_an_owl_looks_for_is_explained(wide):
    model, texts = owl(), ["the film", "a bad film"]
    each = whyformer.explain_targets((wide, texts), model, method="rollout")
    assert [one.target for one in each] == texts
    for text, one in zip(texts, each, strict=True):
        alone = explain((wide, text), model, method="rollout")
        assert np.allclose(one.parts["image"].scores, alone.parts["image"].scores, rtol=1e-4, atol=1e-9)
        assert one.probability == pytest.approx(alone.probability, rel=1e-4)
    assert [one.target for one in whyformer.explain_targets((wide, "great"), model, method="rollout")] == ["great"]


def test_the_doctor_asks_an_owl_for_its_sentence():
    checkup = whyformer.doctor(owl(positions=20))
    assert checkup.answers == "a label of a detected object"
    assert checkup.methods["rollout"] is None  # nothing keeps it from being computed


def test_what_an_owl_finds_has_its_box_on_the_picture(wide):
    for name, side in (("OwlViT", (48, 32)), ("Owlv2", (48, 48))):
        model = owl(name)
        inputs = model_inputs(model, encode(model, [(wide, "film")]))
        with torch.no_grad():
            x, y, width, height = model.model(**inputs).pred_boxes[0, 5].tolist()
        layout = explain((wide, "film"), model, whyformer.detection(5), "rollout").parts["image"].layout
        assert layout.box == (0, 0, *side)  # OWLv2 makes a square of it first
        expected = (
            (x - width / 2) * side[0],
            (y - height / 2) * side[1],
            (x + width / 2) * side[0],
            (y + height / 2) * side[1],
        )
        assert layout.outline == pytest.approx(expected, rel=1e-4)


def test_owls_in_a_batch_look_for_texts_of_their_own(wide, high):
    model = owl()
    examples = [(wide, ["film", "great"]), (high, ["a bad film"])]
    together = explain_batch(examples, model, method="generic_attention", batch_size=2)
    for example, explanation in zip(examples, together, strict=True):
        alone = explain(example, model, method="generic_attention")
        assert explanation.target == alone.target
        for name, part in explanation.parts.items():
            assert np.allclose(part.scores, alone.parts[name].scores, rtol=1e-4, atol=1e-9)


def test_what_an_owl_cannot_be_asked_is_said(wide):
    model = owl()
    cases = {
        r"scores each text separately: give one text": whyformer.contrast("film", "great"),
        r"No text 'dog' among those": "dog",
        r"No object query 99: this model has 16, 0 to 15": whyformer.detection(99),
    }
    for reason, target in cases.items():
        with pytest.raises(WhyformerError, match=reason):
            explain((wide, ["film", "great"]), model, target)
    with pytest.raises(WhyformerError, match="There is no text to detect"):
        explain((wide, []), model)
    several = model_inputs(model, encode(model, [(wide, "film"), (wide, "great")]))
    several["pixel_values"] = several["pixel_values"][:1]
    with pytest.raises(WhyformerError, match="1 images and 2 texts: give one text per image"):
        attribute(model.model, several)

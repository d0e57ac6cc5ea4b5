"""Inputs that used to be scored wrongly without a word, or to end in a raw error of a library."""

import numpy as np
import pytest
from PIL import Image

from conftest import MOODS, labelled, tokenizer
from tiny_models import TEXT, built
from whyformer import WhyformerError, explain, explain_batch, explain_response
from whyformer.inputs.read import image_of
from whyformer.models.loading import load, resolve_model

LONG = " ".join(["the", "film", "was", "not", "great"] * 20)


def left(bert):
    """The tiny BERT with a tokenizer that cuts long texts at their beginning."""
    loaded = load(bert)
    loaded.tokenizer.truncation_side = "left"
    return loaded


def test_a_tokenizer_that_truncates_on_the_left_keeps_every_word_of_a_long_text_in_its_place(bert):
    explanation = explain(LONG, left(bert), method="rollout")
    layout = explanation.parts["text"].layout
    spelt = [layout.texts[0][start:end] for start, end in layout.offsets]
    assert spelt == LONG.split()


def test_chunks_cut_from_the_left_score_tokens_like_those_cut_from_the_right(bert):
    """Where each chunk sees the same tokens: at this length both ways of cutting give one and the same chunk."""
    short = " ".join(LONG.split()[:30])
    expected = explain(short, load(bert), method="rollout").scores
    np.testing.assert_allclose(explain(short, left(bert), method="rollout").scores, expected)


def test_a_pair_is_chunked_in_place_from_the_left(bert):
    layout = explain(("the film", LONG), left(bert), method="rollout").parts["text"].layout
    spelt = [
        layout.texts[segment][start:end] for segment, (start, end) in zip(layout.segments, layout.offsets, strict=True)
    ]
    assert spelt == ["the", "film", *LONG.split()]


def test_truncation_on_the_left_explains_the_end_and_says_so(bert):
    cut = explain(LONG, left(bert), method="rollout", truncate=True)
    assert cut.notes == ("The text is longer than the model's limit: only its end was explained, as requested.",)
    layout = cut.parts["text"].layout
    assert [LONG[start:end] for start, end in layout.offsets] == LONG.split()[-38:]


def test_unknown_tokens_are_noted(bert):
    explanation = explain("the 好看 film ☃", bert, method="rollout")
    assert explanation.notes == (
        "The tokenizer does not know 3 of 5 tokens (好, 看, ☃) and replaces each with [UNK]: "
        "the model cannot tell them apart.",
    )
    assert explain("the film was great", bert, method="rollout").notes == ()


def test_a_response_to_unknown_tokens_has_the_note_too(mini_writer):
    response = explain_response("好 the film was", " great", mini_writer, method="rollout")
    assert any("does not know 1 of" in note and "(好)" in note for note in response.notes)


@pytest.fixture(scope="module")
def mini_writer():
    model = built("GPT2LMHeadModel", "GPT2Config", n_embd=48, n_layer=2, n_head=3, vocab_size=60, n_positions=40)
    return resolve_model(model, tokenizer())


@pytest.mark.parametrize(("low", "high"), [(-1.0, 1.0), (-300.0, 20.0), (0.0, 1e6)])
def test_a_float_picture_outside_every_usual_range_is_refused(low, high):
    values = np.linspace(low, high, 64, dtype=np.float32).reshape(8, 8)
    with pytest.raises(WhyformerError, match=r"Pixels run from .* scale them to 0 … 1 or 0 … 255"):
        image_of(Image.fromarray(values, mode="F"))


def test_documents_given_as_one_string_are_refused():
    with pytest.raises(WhyformerError, match=r"context='abc': a list of documents\. For one, give context=\['abc'\]\."):
        explain_response("Where is the key?", "Rome.", context="abc")


def test_a_list_of_texts_points_to_explain_batch(bert):
    with pytest.raises(WhyformerError, match="explain_batch"):
        explain(["the film", "the film was bad"], bert)


def test_a_list_of_pictures_points_to_explain_batch(vit):
    with pytest.raises(WhyformerError, match="explain_batch"):
        explain([Image.new("RGB", (32, 32))] * 3, vit)


def test_a_token_beyond_the_vocabulary_is_named(bert):
    loaded = load(bert)
    loaded.tokenizer.add_tokens([f"word{number}" for number in range(60)])
    with pytest.raises(
        WhyformerError, match=r"'word59' has the id 73, and .* embeds 60 tokens: .*resize_token_embeddings"
    ):
        explain("the film was word59", loaded)


def test_a_prompt_with_a_token_beyond_the_vocabulary_is_refused(mini_writer):
    larger = tokenizer()
    larger.add_tokens([f"word{number}" for number in range(60)])
    with pytest.raises(WhyformerError, match=r"'word59' has the id 73, and .* embeds 60 tokens"):
        explain_response("the film word59", " was", mini_writer.model, processor=larger, method="rollout")


def test_a_decoder_that_classifies_without_a_padding_token_is_explained_in_batches():
    sizes = {name: value for name, value in TEXT.items() if name != "pad_token_id"}
    model = built("LlamaForSequenceClassification", "LlamaConfig", **sizes, **labelled(MOODS))
    assert model.config.pad_token_id is None
    texts = ["the film was great", "the film was bad", "not great"]
    alone = [explain(text, model, processor=tokenizer(), method="generic_attention") for text in texts]
    together = explain_batch(texts, model, processor=tokenizer(), method="generic_attention")
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_allclose(other.scores, one.scores, rtol=1e-5)

"""Examples in, Explanations out: the same values as tensors give, on the right tokens, in the right order."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from tokenizers.processors import TemplateProcessing

from conftest import MOODS, WORDS, change_weights, labelled, saved, tokenizer
from tiny_models import FAMILIES, TEXT, built, image_inputs, text_inputs
from whyformer import Explanation, WhyformerError, attribute, contrast, explain, explain_batch, load, logit
from whyformer.inputs.chunks import length_limit
from whyformer.inputs.layouts import covered_box
from whyformer.methods.registry import trace_methods
from whyformer.targets.scores import label_index

REVIEW = "the film was great and not badly a film"
LONG = " ".join(WORDS[5 + number % 8] for number in range(100))


@pytest.fixture(scope="module")
def critic(bert):
    return load(bert)


@pytest.fixture(scope="module")
def painter(vit):
    return load(vit)


def photograph(seed: int, width: int = 60, height: int = 40) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


@pytest.mark.parametrize("method", trace_methods())
def test_a_text_is_explained_by_its_word_pieces_without_special_tokens(critic, method):
    explanation = explain(REVIEW, critic, "dull", method)
    encoded = critic.processor(REVIEW, return_tensors="pt")
    raw = attribute(critic.model, dict(encoded), 2, method)["text"][0, 1:-1]
    np.testing.assert_allclose(explanation.scores, raw, rtol=1e-6)
    assert explanation.tokens == ("the", "film", "was", "great", "and", "not", "bad", "##ly", "a", "film")
    with torch.no_grad():
        probability = critic.model(**encoded).logits.softmax(dim=1)[0, 2]
    assert explanation.probability == pytest.approx(float(probability), abs=1e-6)
    assert (explanation.target, explanation.method, explanation.model) == ("dull", method, "tiny-bert")


def test_whether_an_answer_is_read_at_one_token_is_decided_for_each_text(critic):
    plain = tokenizer()
    plain.backend_tokenizer.post_processor = TemplateProcessing(single="$A", pair="$A $B")
    texts = ["film", "the film was", "great"]
    together = explain_batch(texts, critic.model, "dull", "rollout", processor=plain, readout="mean")
    for text, batched in zip(texts, together, strict=True):
        alone = explain(text, critic.model, "dull", "rollout", processor=plain, readout="mean")
        np.testing.assert_allclose(batched.scores, alone.scores, rtol=1e-5)
        assert bool(alone.scores.any()) is (len(alone.tokens) > 1)


def test_words_are_made_of_their_pieces(critic):
    explanation = explain(REVIEW, critic, method="generic_attention")
    by_word = {word.text: word.score for word in explanation.words("sum")}
    assert by_word["badly"] == pytest.approx(float(explanation.scores[6] + explanation.scores[7]))
    best = {word.text: word.score for word in explanation.words("max")}
    assert best["badly"] == pytest.approx(float(max(explanation.scores[6:8])))


@pytest.mark.parametrize("method", trace_methods())
def test_a_picture_is_explained_by_its_patches(painter, method):
    picture = photograph(1)
    explanation = explain(picture, painter, "bird", method)
    raw = attribute(painter.model, dict(painter.processor(images=[picture], return_tensors="pt")), 2, method)
    expected = raw["pixels"][0] if "pixels" in raw else raw["image"][0, 1:]
    np.testing.assert_allclose(explanation.scores, expected, rtol=1e-6)
    layout = explanation.parts["image"].layout
    grid = (32, 32) if "pixels" in raw else (4, 4)
    assert (layout.rows, layout.columns, layout.box) == (*grid, (0, 0, 60, 40))
    assert layout.image.size == (60, 40)


def test_a_batch_keeps_its_order_whatever_its_size(critic):
    texts = ["the film", REVIEW, "a great film was not bad", "bad"]
    alone = [explain(text, critic, method="bi_token") for text in texts]
    for size in (1, 3, 4):
        for one, other in zip(alone, explain_batch(texts, critic, method="bi_token", batch_size=size), strict=True):
            assert (one.tokens, one.target) == (other.tokens, other.target)
            np.testing.assert_allclose(other.scores, one.scores, rtol=1e-5, atol=1e-9)


def test_no_examples_give_no_explanations(critic):
    assert explain_batch([], critic) == []


def test_one_example_is_no_batch_and_a_tensor_no_inputs(critic):
    with pytest.raises(WhyformerError, match=r"a list of examples, not 'the film' alone: use explain"):
        explain_batch("the film", critic)
    with pytest.raises(WhyformerError, match=r"tensors by name.*not a Tensor"):
        attribute(critic.model, torch.zeros(1, 3), 0, "rollout")
    with pytest.raises(
        WhyformerError, match=r"is a file, not a model: a saved explanation is read by Explanation.load"
    ):
        load(__file__)


def test_the_tokenizers_padding_side_does_not_matter(critic):
    left = transformers.BertTokenizerFast(vocab={word: n for n, word in enumerate(WORDS)}, padding_side="left")
    texts = ["bad", REVIEW]
    right = explain_batch(texts, critic)
    for one, other in zip(right, explain_batch(texts, critic.model, processor=left), strict=True):
        np.testing.assert_allclose(other.scores, one.scores, rtol=1e-5)


def test_a_pair_of_texts_has_a_part_for_each_segment(critic):
    explanation = explain(("the film", "was not bad"), critic, method="generic_attention")
    layout = explanation.parts["text"].layout
    assert layout.texts == ("the film", "was not bad")
    assert layout.segments == (0, 0, 1, 1, 1)
    encoded = critic.processor("the film", "was not bad", return_tensors="pt")
    raw = attribute(critic.model, dict(encoded), "predicted", "generic_attention")["text"][0]
    np.testing.assert_allclose(explanation.scores, raw[[1, 2, 4, 5, 6]], rtol=1e-6)


def test_a_long_text_is_explained_in_chunks_that_overlap_and_are_averaged(critic):
    limit = length_limit(critic.model, critic.processor)
    assert limit == TEXT["max_position_embeddings"]
    explanation = explain(LONG, critic, method="generic_attention")
    chunks = critic.processor(
        LONG, truncation=True, max_length=limit, stride=(limit - 2) // 4, return_overflowing_tokens=True
    )["input_ids"]
    assert len(chunks) > 2
    with torch.no_grad():
        logits = torch.stack([critic.model(torch.tensor([ids])).logits[0] for ids in chunks])
    answer = int(logits.mean(dim=0).argmax())
    assert explanation.target == MOODS[answer]
    assert explanation.probability == pytest.approx(float(logits.mean(dim=0).softmax(dim=0)[answer]), abs=1e-5)
    gathered: dict[int, list[float]] = {}
    start = 0
    for ids in chunks:
        scores = attribute(critic.model, {"input_ids": torch.tensor([ids])}, answer, "generic_attention")["text"][0]
        for number, score in enumerate(scores[1:-1].tolist()):
            gathered.setdefault(start + number, []).append(score)
        start += len(ids) - 2 - (limit - 2) // 4
    expected = [np.mean(gathered[token]) for token in range(100)]
    np.testing.assert_allclose(explanation.scores, expected, rtol=1e-4)
    assert f"{len(chunks)} overlapping chunks" in explanation.notes[0]


def test_truncation_happens_on_request_only(critic):
    cut = explain(LONG, critic, method="rollout", truncate=True)
    assert cut.notes == ("The text is longer than the model's limit: only its beginning was explained, as requested.",)
    assert len(cut.scores) == TEXT["max_position_embeddings"] - 2
    assert len(explain(LONG, critic, method="rollout").scores) == 100


def test_a_long_pair_is_chunked_along_its_longer_text(critic):
    explanation = explain(("the film", LONG), critic, method="rollout")
    layout = explanation.parts["text"].layout
    assert layout.segments == (0,) * 2 + (1,) * 100
    assert len(explain((LONG[: len("the film was ")], LONG), critic, method="rollout").scores) == 103
    with pytest.raises(WhyformerError, match=r"The shorter text of the pair takes 100 of the model's 40 tokens"):
        explain((LONG, LONG), critic)


def test_a_pair_that_just_fits_is_not_cut(critic):
    long, short = " ".join(["film"] * 36), "bad"
    assert explain((long, short), critic, method="rollout").notes == ()
    longer = explain((f"{long} film", short), critic, method="rollout")
    assert "overlapping chunks" in longer.notes[0]
    assert longer.parts["text"].layout.segments == (0,) * 37 + (1,)


def test_pieces_of_one_character_stay_apart_when_chunks_are_joined(tmp_path):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: number for number, token in enumerate(["<pad>", "<s>", "</s>", *alphabet])}
    fast = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    fast.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", vocab["<s>"]), ("</s>", vocab["</s>"])]
    )
    wrapped = transformers.PreTrainedTokenizerFast(tokenizer_object=fast, pad_token="<pad>", model_max_length=40)
    model = built("BertForSequenceClassification", "BertConfig", **TEXT | {"vocab_size": len(vocab)})
    text = "🙂" * 20  # four bytes each: chunks of 38 begin and end inside a character
    explanation = explain(text, model, 1, "rollout", processor=wrapped)
    ids = wrapped(text, add_special_tokens=False)["input_ids"]
    gathered: list[list[float]] = [[] for _ in ids]
    for start in range(0, len(ids) - 9, 29):
        chunk = torch.tensor([[1, *ids[start : start + 38], 2]])
        scores = attribute(model, {"input_ids": chunk}, 1, "rollout")["text"][0, 1:-1]
        for number, score in enumerate(scores.tolist()):
            gathered[start + number].append(score)
    np.testing.assert_allclose(explanation.scores, [np.mean(scores) for scores in gathered], rtol=1e-5)


@pytest.mark.parametrize("method", ["generic_attention", "bi_token"])
def test_a_contrast_is_the_difference_of_two_logits(painter, method):
    picture = photograph(2)
    explanation = explain(picture, painter, contrast("cat", 1), method)
    pixels = dict(painter.processor(images=[picture], return_tensors="pt"))
    raw = attribute(painter.model, pixels, lambda output: output.logits[:, 0] - output.logits[:, 1], method)
    np.testing.assert_allclose(explanation.scores, raw["image"][0, 1:], rtol=1e-5)
    assert explanation.target == "cat rather than dog"


def test_a_score_of_ones_own_is_explained(painter):
    pictures = [photograph(seed) for seed in range(3)]
    own = explain_batch(pictures, painter, lambda output: output.logits[:, 3], "generic_attention", batch_size=2)
    named = explain_batch(pictures, painter, "fish", "generic_attention")
    for one, other in zip(own, named, strict=True):
        np.testing.assert_allclose(one.scores, other.scores, rtol=1e-5)
        assert one.probability is None
    assert attribute(painter.model, image_inputs(), logit(3), "rollout")


def test_each_example_may_have_a_target_of_its_own(painter):
    pictures = [photograph(seed) for seed in range(3)]
    mixed = explain_batch(pictures, painter, ["cat", 3, "predicted"], "generic_attention", batch_size=2)
    assert [explanation.target for explanation in mixed][:2] == ["cat", "fish"]
    np.testing.assert_allclose(mixed[1].scores, explain(pictures[1], painter, 3, "generic_attention").scores, rtol=1e-5)
    with pytest.raises(WhyformerError, match="2 targets for 3 examples"):
        explain_batch(pictures, painter, ["cat", "dog"])
    for indices in (torch.tensor([0, 3, 1]), np.array([0, 3, 1]), (0, np.int64(3), "dog")):
        found = explain_batch(pictures, painter, indices, "raw_attention")
        assert [explanation.target for explanation in found] == ["cat", "fish", "dog"]
    with pytest.raises(WhyformerError, match=r"not 3.0"):
        explain(pictures[0], painter, 3.0)


def test_labels_of_one_name_are_told_apart_by_index():
    labels = {0: "crane", 1: "dog", 2: "crane", 3: "Dog"}
    assert label_index("dog", labels, 4) == 1
    assert label_index("Dog", labels, 4) == 3
    with pytest.raises(WhyformerError, match=r"2 labels are named 'DOG': give one of the indices \[1, 3\]"):
        label_index("DOG", labels, 4)
    with pytest.raises(WhyformerError, match=r"2 labels are named 'crane': give one of the indices \[0, 2\]"):
        label_index("crane", labels, 4)
    with pytest.raises(WhyformerError, match="This model has no names: give 0 to 3"):
        label_index("cat", {}, 4)


def test_probabilities_fit_the_problem(tmp_path):
    for problem, expected in [("multi_label_classification", "sigmoid"), ("regression", None)]:
        labels = {"num_labels": 1} if expected is None else labelled(MOODS)
        model = built("BertForSequenceClassification", "BertConfig", **TEXT | labels, problem_type=problem)
        loaded_model = load(saved(tmp_path / problem, model, tokenizer()))
        explanation = explain(REVIEW, loaded_model, 0, "generic_attention")
        with torch.no_grad():
            logits = loaded_model.model(**loaded_model.processor(REVIEW, return_tensors="pt")).logits[0]
        if expected is None:
            assert explanation.probability is None
        else:
            assert explanation.probability == pytest.approx(float(logits.sigmoid()[0]), abs=1e-6)


def test_the_black_baseline_is_black_after_normalisation(painter):
    picture = photograph(3)
    black = torch.full((3, 1, 1), -1.0)  # the processor's mean and deviation are 0.5
    pixels = dict(painter.processor(images=[picture], return_tensors="pt"))
    raw = attribute(painter.model, pixels, 0, "bi_token", baseline=black)["image"][0, 1:]
    explained = explain(picture, painter, 0, "bi_token", baseline="black")
    np.testing.assert_allclose(explained.scores, raw, rtol=1e-5)
    assert np.abs(explained.scores - explain(picture, painter, 0).scores).max() > 1e-3 * float(raw.max())
    assert explained.options["baseline"] == "black"


def test_the_padding_baseline_starts_at_the_embedded_padding_token():
    model, inputs = FAMILIES["bert"](), text_inputs()
    padding = model.bert.embeddings(input_ids=torch.zeros_like(inputs["input_ids"])).detach()
    expected = attribute(model, inputs, 1, "bi_token", baseline=padding, inputs_at_once=1)["text"]
    torch.testing.assert_close(attribute(model, inputs, 1, "bi_token", baseline="padding")["text"], expected)
    assert not torch.allclose(attribute(model, inputs, 1, "bi_token")["text"], expected)


@pytest.mark.parametrize(
    ("family", "baseline", "message"),
    [
        ("vit", "padding", "is for text"),
        ("vit", "black", "needs the image processor"),
        ("bert", "black", "is for pixels"),
    ],
)
def test_a_baseline_of_the_other_modality_is_refused(family, baseline, message):
    inputs = image_inputs() if family == "vit" else text_inputs()
    with pytest.raises(WhyformerError, match=message):
        attribute(FAMILIES[family](), inputs, 0, "bi_token", baseline=baseline)


def test_options_are_checked_against_the_method(painter):
    with pytest.raises(
        WhyformerError, match=r"rollout has no option 'stepz'. It takes: first_block=0, normalise_rows=False"
    ):
        explain(photograph(1), painter, method="rollout", stepz=3)
    with pytest.raises(WhyformerError, match=r"bi_token: quadrature='simpson'. Choose from: midpoint, uniform"):
        explain(photograph(1), painter, method="bi_token", quadrature="simpson")
    with pytest.raises(WhyformerError, match=r"bi_token: steps='many' is not of type int"):
        explain(photograph(1), painter, method="bi_token", steps="many")
    with pytest.raises(WhyformerError, match=r"steps=0: the path needs at least one"):
        explain(photograph(1), painter, method="bi_token", steps=0)
    with pytest.raises(WhyformerError, match=r"first_block=3: this model's blocks are 0 to 2"):
        explain(photograph(1), painter, method="rollout", first_block=3)
    with pytest.raises(WhyformerError, match=r"No method named 'rolout'. Did you mean 'rollout'"):
        explain(photograph(1), painter, method="rolout")
    with pytest.raises(WhyformerError, match="batch_size=0"):
        explain_batch([], painter, batch_size=0)


def test_a_model_without_a_processor_says_so():
    with pytest.raises(WhyformerError, match=r"ViTForImageClassification came without .* pass processor="):
        explain(photograph(1), FAMILIES["vit"]())


def test_a_head_of_ones_own_is_explained_with_its_processor(painter):
    model = FAMILIES["dinov3 with a head of one's own"]()
    explanation = explain(photograph(1), model, 2, "bi_token", processor=painter.processor)
    assert explanation.parts["image"].layout.rows == 4
    assert explanation.model == "PooledHead"
    given = explain(photograph(1), model, 2, "bi_token", processor=painter.processor, readout="mean")
    assert np.abs(given.scores - explanation.scores).max() > 0  # the head reads registers and class token too


@pytest.mark.parametrize(
    ("readout", "message"), [(40, "outside a stream of 17"), ("middle", "No read-out named 'middle'")]
)
def test_an_impossible_read_out_is_refused(readout, message):
    with pytest.raises(WhyformerError, match=message):
        attribute(FAMILIES["vit"](), image_inputs(), 0, "rollout", readout=readout)


def test_a_read_out_may_be_given_as_weights():
    model, inputs = FAMILIES["vit"](), image_inputs()
    weights = torch.zeros(17)
    weights[[0, 5]] = torch.tensor([0.25, 0.75])
    mixed = attribute(model, inputs, 0, "rollout", readout=weights)["image"]
    at_0, at_5 = (attribute(model, inputs, 0, "rollout", readout=position)["image"] for position in (0, 5))
    torch.testing.assert_close(mixed, 0.25 * at_0 + 0.75 * at_5)
    with pytest.raises(WhyformerError, match="The read-out has 3 weights, the stream 17 tokens"):
        attribute(model, inputs, 0, "rollout", readout=torch.ones(3))


def test_the_box_a_centre_crop_covers_is_known():
    processor = transformers.ViTImageProcessorPil(do_center_crop=True, crop_size={"height": 32, "width": 32})
    processor.size = {"shortest_edge": 40}
    assert covered_box(processor, (200, 100)) == (60.0, 10.0, 140.0, 90.0)
    processor.size = {"height": 40, "width": 40}
    assert covered_box(processor, (200, 100)) == (20.0, 10.0, 180.0, 90.0)
    processor.size = {"height": 16, "width": 16}  # the crop is padded: the picture fills the middle of what is seen
    assert covered_box(processor, (200, 100)) == (-100.0, -50.0, 300.0, 150.0)


def test_a_crop_larger_than_the_picture_is_explained_and_drawn(painter, tmp_path):
    processor = transformers.ViTImageProcessorPil(do_center_crop=True, crop_size={"height": 32, "width": 32})
    processor.size = {"height": 16, "width": 16}
    explanation = explain(photograph(1), painter, processor=processor)
    assert explanation.parts["image"].layout.box == (-30.0, -20.0, 90.0, 60.0)
    explanation.save(tmp_path / "padded.png")
    explanation.save(tmp_path / "padded.html")


def test_another_processor_may_be_given_for_any_model(painter, vit):
    dark = transformers.ViTImageProcessorPil(
        size={"height": 32, "width": 32}, image_mean=[0.9] * 3, image_std=[0.1] * 3
    )
    expected = explain(photograph(1), painter.model, 0, processor=dark).scores
    for model in (painter, vit, str(vit)):
        np.testing.assert_array_equal(explain(photograph(1), model, 0, processor=dark).scores, expected)
    assert np.abs(explain(photograph(1), vit, 0).scores - expected).max() > 0


def test_a_folder_that_changed_is_loaded_anew(copy_of, vit):
    folder = copy_of(vit)
    before = explain(photograph(1), folder, 0, "rollout").scores
    change_weights(folder, lambda weights: {name: weight * 1.5 for name, weight in weights.items()})
    after = explain(photograph(1), folder, 0, "rollout").scores
    assert np.abs(after - before).max() > 0


def test_a_decoder_shows_no_score_for_the_word_it_answers_at():
    config = {"n_embd": 48, "n_layer": 2, "n_head": 3, "n_positions": 40, "vocab_size": len(WORDS), "num_labels": 4}
    model = built("GPT2ForSequenceClassification", "GPT2Config", pad_token_id=0, **config)
    plain = transformers.BertTokenizerFast(vocab={word: n for n, word in enumerate(WORDS)})
    explanation = explain("the film was great", model, 1, "rollout", processor=plain)
    raw = attribute(model, dict(plain("the film was great", return_tensors="pt")), 1, "rollout")["text"][0]
    np.testing.assert_allclose(explanation.scores, raw[1:-1], rtol=1e-5)


def test_texts_without_a_padding_token_are_explained_one_at_a_time():
    config = {"n_embd": 48, "n_layer": 2, "n_head": 3, "n_positions": 40, "vocab_size": len(WORDS), "num_labels": 4}
    model = built("GPT2ForSequenceClassification", "GPT2Config", pad_token_id=0, **config)
    plain = transformers.BertTokenizerFast(vocab={word: n for n, word in enumerate(WORDS)}, pad_token=None)
    texts = ["the film", "the film was great"]
    with pytest.raises(WhyformerError, match=r"no padding token.*batch_size=1"):
        explain_batch(texts, model, 1, "rollout", processor=plain)
    assert len(explain_batch(texts, model, 1, "rollout", processor=plain, batch_size=1)) == 2
    assert length_limit(model, plain) == 40


def test_a_map_that_is_all_zero_is_said_to_be(painter):
    explanations = [explain(photograph(seed), painter, label, "grad_cam") for seed in range(4) for label in range(4)]
    empty = [explanation for explanation in explanations if not explanation.scores.any()]
    assert empty
    assert all("every score is zero" in explanation.notes[-1] for explanation in empty)


@pytest.mark.parametrize("suffix", ["json", "npz"])
def test_how_nearly_scores_add_up_is_said_and_kept(critic, tmp_path, suffix):
    explanation = explain(REVIEW, critic, method="lrp")
    (raw,) = attribute(critic.model, dict(critic.processor([REVIEW], return_tensors="pt")), "predicted", "lrp").values()
    assert explanation.completeness == pytest.approx(abs(float(raw.sum()) - 1), abs=1e-6)
    assert explanation.completeness < 1e-4
    explanation.save(tmp_path / f"lrp.{suffix}")
    assert Explanation.load(tmp_path / f"lrp.{suffix}").completeness == explanation.completeness
    assert explain(REVIEW, critic, method="rollout").completeness is None


def test_integrated_gradients_say_when_they_do_not_add_up(critic):
    coarse = explain(REVIEW, critic, method="integrated_gradients", steps=1)
    fine = explain(REVIEW, critic, method="integrated_gradients", steps=100)
    assert fine.completeness < 0.01 < coarse.completeness
    assert not fine.notes
    assert (coarse.completeness > 0.1) == any("more steps may help" in note for note in coarse.notes)

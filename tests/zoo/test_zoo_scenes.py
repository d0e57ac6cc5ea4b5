"""The bundled models on scenes and sentences of our own: they know what their cards say, by what they should."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from PIL import Image

from whyformer import Regions, continuation, contrast, detection, explain, explain_batch, load
from whyformer.errors import WhyformerError
from whyformer.inputs.collate import model_inputs
from whyformer.inputs.encode import encode
from whyformer.models.zoo import ZOO
from whyformer.scenes import (
    ANSWERS,
    COLOURS,
    LABELS,
    captions,
    clear_things,
    descriptions,
    example,
    pictures,
    questions,
    regions,
    sample,
    texts,
)

COUNT = 120
REVIEWS = {
    "positive": [
        "A wonderful, touching film. I loved every minute of it.",
        "The acting is superb and the story is beautiful; one of the best films I have seen.",
        "An excellent comedy, very funny, with a great cast. Highly recommended.",
        "A masterpiece. It moved me to tears and I will watch it again.",
        "Perfect casting, amazing music and a brilliant ending.",
    ],
    "negative": [
        "A terrible film. The plot is stupid and the acting is awful.",
        "I was bored to death; what a waste of time and money.",
        "The worst movie I have ever seen. Avoid it at all costs.",
        "Poor script, bad dialogue and a ridiculous ending. Very disappointing.",
        "It is dull, predictable and badly made. I walked out.",
    ],
}
POSTS = {
    "sci.space": "The shuttle will reach orbit tomorrow and NASA plans to launch a probe to the moon.",
    "rec.sport.hockey": "The goalie stopped every shot and the Leafs won the playoff game in overtime.",
    "rec.motorcycles": "I dropped my bike on a wet road; the helmet saved me, but the rear brake is bent.",
    "sci.med": "The doctor says the disease is treated with antibiotics, but the patient still has pain.",
    "comp.windows.x": "My Motif widget does not get the X server's expose event when the window manager starts.",
}


@pytest.fixture(scope="module")
def world():
    scenes, rng = sample(COUNT, "test", rng=21), torch.Generator().manual_seed(21)
    return scenes, questions(scenes, rng), captions(scenes, rng)


def images_of(scenes) -> list[Image.Image]:
    return [Image.fromarray(part.permute(1, 2, 0).numpy()) for part in pictures(scenes).pixels]


def regions_of(scenes) -> list[Regions]:
    drawing = pictures(scenes)
    rows = zip(images_of(scenes), drawing.boxes, regions(drawing).features, strict=True)
    return [Regions(image, boxes.numpy(), features.numpy()) for image, boxes, features in rows]


def outputs(loaded_model, examples):
    with torch.no_grad():
        return loaded_model.model(**model_inputs(loaded_model, encode(loaded_model, examples)))


def test_mini_bert_tells_good_reviews_from_bad_ones():
    reviews = [text for texts in REVIEWS.values() for text in texts]
    explanations = explain_batch(reviews, "mini-bert", method="raw_attention")
    assert [explanation.target for explanation in explanations] == ["positive"] * 5 + ["negative"] * 5


def test_mini_news_knows_what_a_post_is_about():
    explanations = explain_batch(list(POSTS.values()), "mini-news", method="raw_attention")
    assert sum(part.target == name for part, name in zip(explanations, POSTS, strict=True)) >= 4


def test_mini_detr_finds_the_objects_and_no_longer_when_they_are_gone(world):
    scenes, about, _ = world
    loaded_model = load("mini-detr", device="cpu")
    for drawn_scenes, least, most in ((scenes, 0.98, 1.0), (clear_things(scenes, about.things), 0.0, 0.02)):
        output = outputs(loaded_model, images_of(drawn_scenes))
        best = output.logits.softmax(dim=-1)[..., :-1].amax(dim=1)  # scene, label
        labels = scenes.label[about.things]
        owners = about.things.nonzero()[:, 0]
        assert least <= float((best[owners, labels] > 0.5).float().mean()) <= most


@pytest.mark.parametrize("name", ["mini-lxmert", "mini-visualbert"])
def test_questions_about_regions_are_answered_and_only_from_the_object_asked_about(name, world):
    scenes, about, _ = world
    loaded_model, sentences = load(name, device="cpu"), texts(about.words)

    def is_correct(scenes) -> torch.Tensor:
        output = outputs(loaded_model, list(zip(regions_of(scenes), sentences, strict=True)))
        logits = output.question_answering_score if name == "mini-lxmert" else output.logits
        return logits.argmax(dim=1) == about.answer

    assert is_correct(scenes).float().mean() >= 0.95
    is_colour, without = about.kind == 0, clear_things(scenes, about.things)
    assert is_correct(without)[is_colour].float().mean() <= 0.45  # of eight colours, few questions
    assert [loaded_model.model.config.id2label[index] for index in range(len(ANSWERS))] == list(ANSWERS)


def test_mini_t5_answers_in_a_sentence(world):
    scenes, about, _ = world
    loaded_model = load("mini-t5", device="cpu")
    pairs = zip(texts(about.words), texts(descriptions(scenes).words), strict=True)
    sources = [f"{question} {description}" for question, description in pairs]
    inputs = loaded_model.tokenizer(sources, padding=True, return_tensors="pt")
    answers = loaded_model.tokenizer.batch_decode(
        loaded_model.model.generate(**inputs, max_new_tokens=12, do_sample=False), skip_special_tokens=True
    )
    assert np.mean([ours == theirs for ours, theirs in zip(answers, texts(about.replies), strict=True)]) >= 0.9


def test_mini_clip_prefers_the_true_caption_to_one_with_another_colour(world):
    scenes, _, sentences = world
    loaded_model = load("mini-clip", device="cpu")
    is_true = []
    for image, caption in zip(images_of(scenes)[:40], texts(sentences.words), strict=False):
        word = next(word for word in caption.split() if word in COLOURS)
        others = [caption.replace(word, other, 1) for other in COLOURS if other != word]
        explanation = explain((image, [caption, *others]), loaded_model, method="raw_attention")
        is_true.append(explanation.target == caption)
    assert np.mean(is_true) >= 0.8  # some of the others may be true as well


def test_mini_clip_knows_a_cat_by_its_name():
    names = ["a photo of a dog", "a photo of a church", "a photo of a cat", "a photo of a parachute"]
    explanation = explain((ZOO / "cat.jpg", names), "mini-clip", method="generic_attention")
    assert explanation.target == "a photo of a cat"
    assert explanation.probability > 0.8
    assert set(explanation.parts) == {"image", "text"}


def test_mini_gpt_writes_words(capsys):
    written = continuation("The film was", "mini-gpt", method="raw_attention", tokens=6)
    assert len(written.explanations) == 6
    assert written.matrix().shape == (6, 8)
    assert np.array_equal(written.matrix()[0, 3:], np.zeros(5))
    assert written.text.startswith(" ")
    metrics = json.loads((ZOO / "mini-gpt" / "config.json").read_text())
    assert metrics["architectures"] == ["LlamaForCausalLM"]


@pytest.mark.parametrize("method", ["raw_attention", "rollout", "generic_attention", "bi_token"])
def test_a_detection_rests_on_its_object(method, world):
    scenes, _, _ = world
    one = scenes.is_object & (scenes.is_object.cumsum(dim=1) == 1)
    labels = [LABELS[label] for label in scenes.label[one].tolist()][:24]
    explanations = explain_batch(images_of(scenes)[:24], "mini-detr", labels, method)
    mask = pictures(scenes).mask(one)[:24].float()
    patches = torch.nn.functional.adaptive_max_pool2d(mask[:, None], (16, 16)).flatten(1).bool().numpy()
    hits = [truth[part.scores.argmax()] for truth, part in zip(patches, explanations, strict=True)]
    assert np.mean(hits) > 0.6  # a random patch hits one time in seventeen
    assert all(part.parts["image"].layout.outline is not None for part in explanations)


def test_an_object_query_can_be_asked_about_by_its_number():
    scene = example(3)
    best = explain(scene.image, "mini-detr", method="raw_attention")
    queries = [explain(scene.image, "mini-detr", detection(query), "raw_attention") for query in range(16)]
    assert any(np.array_equal(part.scores, best.scores) and part.target == best.target for part in queries)
    with pytest.raises(WhyformerError, match="No object query 99: this model has 16"):
        explain(scene.image, "mini-detr", detection(99))


def test_why_this_word_rather_than_that():
    good = explain("The acting is great and the story is", "mini-gpt", contrast("good", "bad"), "generic_attention")
    assert good.target == " good rather than  bad"
    with pytest.raises(WhyformerError, match="is not one token of mini-gpt but several"):
        explain("The film was", "mini-gpt", "incomprehensibility")


def test_models_of_two_senses_say_what_they_are_given():
    scene = example(3)
    with pytest.raises(WhyformerError, match="a picture and a text"):
        explain(scene.image, "mini-clip")
    with pytest.raises(WhyformerError, match="regions and a text"):
        explain(scene.question, "mini-lxmert")
    with pytest.raises(WhyformerError, match="takes regions of a picture"):
        explain((scene.image, scene.question), "mini-lxmert")
    narrow = Regions(scene.image, scene.regions.boxes, scene.regions.features[:, :7])
    with pytest.raises(WhyformerError, match="7 features each, this model reads 496"):
        explain((narrow, scene.question), "mini-lxmert")


def test_regions_are_read_back_as_they_were_saved(tmp_path):
    scene = example(3)
    scene.regions.save(tmp_path / "scene.npz")
    again = explain((tmp_path / "scene.npz", scene.question), "mini-lxmert", method="raw_attention")
    before = explain((scene.regions, scene.question), "mini-lxmert", method="raw_attention")
    assert np.array_equal(again.parts["image"].scores, before.parts["image"].scores)
    assert again.target == scene.answer
    (tmp_path / "bad.npz").write_bytes(b"no archive")
    with pytest.raises(WhyformerError, match="holds no regions"):
        Regions.load(tmp_path / "bad.npz")


@pytest.mark.parametrize("name", ["mini-clip", "mini-lxmert", "mini-visualbert", "mini-t5", "mini-gpt"])
def test_a_batch_of_pairs_is_explained_like_its_pairs_one_by_one(name, world):
    scenes, about, sentences = world
    question_texts = texts(about.words)[:4]
    described = [f"{a} {b}" for a, b in zip(question_texts, texts(descriptions(scenes[:4]).words), strict=True)]
    examples = {
        "mini-clip": list(zip(images_of(scenes[:4]), texts(sentences.words), strict=False)),
        "mini-t5": [(text, "the") for text in described],
        "mini-gpt": ["The film was", "I think that this", "Great", "A story of love and war in the"],
    }.get(name) or list(zip(regions_of(scenes[:4]), question_texts, strict=True))
    loaded_model = load(name, device="cpu")
    together = explain_batch(examples, loaded_model, method="generic_attention")
    for one, batched in zip(examples, together, strict=True):
        alone = explain(one, loaded_model, method="generic_attention")
        assert alone.target == batched.target
        for part in alone.parts:
            ours, theirs = alone.parts[part].scores, batched.parts[part].scores
            assert np.abs(ours - theirs).max() <= 1e-4 * np.abs(ours).max() + 1e-9

"""Every protocol as a suite runs it, against the pure functions called by hand on the same samples."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from pycocotools import mask as run_lengths
from test_runner import pets  # noqa: F401  (a fixture)

from whyformer import WhyformerError, attribute, detection, explain, load
from whyformer.batching import MemoryLimit
from whyformer.benchmark import PROTOCOLS, explanations, make_suite
from whyformer.benchmark.batch import collate_samples, encode_sample
from whyformer.benchmark.choice import Choice
from whyformer.benchmark.ground_truth import pixel_truths
from whyformer.benchmark.protocols.perturbation import remove_pixels
from whyformer.benchmark.samples import make_sample
from whyformer.benchmark.shard import make_shard
from whyformer.benchmark.tables import explanation_records
from whyformer.benchmark.word_tokens import readout_tokens
from whyformer.data import Instances, Photo, eraser, oxford_pets
from whyformer.data.generated import scenes
from whyformer.inputs.fills import deleted, erased
from whyformer.methods.registry import METHODS as REGISTRY
from whyformer.methods.registry import Method
from whyformer.metrics.approximation import approximation_errors
from whyformer.metrics.detection import object_masks
from whyformer.metrics.perturbation_curves import FRACTIONS, VQA_FRACTIONS, curves, step_logits
from whyformer.metrics.rationale import (
    auprc,
    mean_drop,
    only_rationale,
    precision_recall_f1,
    rationale_counts,
    without_rationale,
    word_scores,
)
from whyformer.metrics.removal import removed
from whyformer.metrics.sanity import other_class, randomised, rank_correlation
from whyformer.metrics.segmentation import foreground, overlap
from whyformer.models.input_tensors import TEXT_INPUTS
from whyformer.tracing.reads import Reads

METHODS = [Choice("rollout"), Choice("random")]
TEXTS = ["the film was great and not bad", "a bad film", "the film was not a great film and not badly great"]


def shard(model, examples, labels=None, methods=METHODS):
    loaded_model = load(model)
    samples = [make_sample(example, loaded_model, labels or {}) for example in examples]
    return shard_of_samples(loaded_model, samples, methods, MemoryLimit(7))


def shard_of_samples(loaded_model, samples, methods, batch_size):
    batch = collate_samples(loaded_model, [encode_sample(loaded_model, sample) for sample in samples])
    return make_shard(loaded_model, batch, methods, batch_size)


def assert_same(found, expected, atol=1e-5):
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), atol=atol)


@pytest.fixture
def documents(tmp_path):
    """Three reviews with marked words, in the layout of ERASER."""
    (tmp_path / "docs").mkdir()
    rows = []
    for number, text in enumerate(TEXTS):
        (tmp_path / "docs" / f"{number}.txt").write_text(text)
        evidence = [[{"docid": f"{number}.txt", "start_token": 1, "end_token": 3}]]
        label = "POS" if number % 2 else "NEG"
        rows.append({"annotation_id": f"{number}.txt", "classification": label, "evidences": evidence})
    (tmp_path / "test.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return list(eraser(tmp_path))


@pytest.mark.parametrize("is_normalised", [True, False])
def test_a_removed_pixel_is_black_or_mean_before_the_model_normalises_it(is_normalised):
    processor = SimpleNamespace(image_mean=[0.2, 0.4, 0.5], image_std=[0.1, 0.2, 0.5], do_normalize=is_normalised)
    shard = SimpleNamespace(
        loaded_model=SimpleNamespace(image_processor=processor),
        batch=SimpleNamespace(inputs={"pixel_values": torch.ones(1, 3, 1, 2)}),
    )

    def pixel(fill):
        left = torch.tensor([[[[True, False]]]])  # step, batch, height, width
        return remove_pixels(shard, fill)(left, slice(0, 1))["pixel_values"][0, 0, :, 0, 0]

    assert_same(pixel("black"), [-2, -2, -1] if is_normalised else [0, 0, 0])
    assert_same(pixel("mean"), [0, 0, 0] if is_normalised else [0.2, 0.4, 0.5])


def test_texts_lose_their_words_and_rationales_are_found(bert, documents):
    tested = shard(bert, documents, {"POS": "good", "NEG": "bad"})
    model, tokenizer = tested.loaded_model.model, tested.loaded_model.tokenizer
    inputs = dict(tokenizer(TEXTS, padding=True, return_tensors="pt"))

    def forward(inputs):
        return model(**inputs).logits

    clean, labels = forward(inputs), torch.tensor([1, 0, 1])
    assert_same(tested.logits, clean.detach())
    special = torch.isin(inputs["input_ids"], torch.tensor(tokenizer.all_special_ids))
    predicted = clean.argmax(dim=1)
    scores = attribute(model, inputs, predicted.tolist(), "rollout")["text"]
    found = PROTOCOLS["text_perturbation"].measure(tested)
    for order, first in (("positive", True), ("negative", False)):
        gone = removed(scores, FRACTIONS, most_relevant_first=first, removable=~special)
        steps = step_logits(forward, erased(inputs, gone, "pad", filler=tokenizer.pad_token_id))
        expected = curves(steps, labels, predicted)
        assert_same(found["rollout", f"accuracy {order}"].values, expected.accuracy)
        assert_same(found["rollout", f"probability {order}"].values, expected.probability)
    scores = attribute(model, inputs, labels.tolist(), "rollout")["text"]
    found = PROTOCOLS["rationales"].measure(tested)
    for name, rationale in (("comprehensiveness", without_rationale), ("sufficiency", only_rationale)):
        gone = rationale(scores, ~special)
        steps = step_logits(forward, erased(inputs, gone, "delete", filler=tokenizer.pad_token_id))
        assert_same(found["rollout", name], mean_drop(clean.detach(), steps, labels))
    for row, (text, document) in enumerate(zip(TEXTS, documents, strict=True)):
        encoded = tokenizer(text, return_offsets_mapping=True)
        words = word_scores(text, encoded["offset_mapping"], scores[row, : len(encoded["input_ids"])].tolist())
        expected = precision_recall_f1(rationale_counts(words, document.rationale))[:, 2]
        assert_same(found["rollout", "F1 of the top words"].values[row], expected)
        assert_same(found["rollout", "AUPRC"][row], auprc(words, document.rationale))
    words = PROTOCOLS["class_sensitivity"].measure(tested)["rollout", "sensitivity"]
    assert_same(words, torch.zeros(3))  # rollout knows nothing of classes


@pytest.mark.parametrize("removable", ["real", "all"])
def test_where_special_tokens_may_go_the_class_token_counts_as_least_relevant(bert, documents, removable):
    methods = [Choice("input_x_gradient"), Choice("random")]
    tested = shard(bert, documents, {"POS": "good", "NEG": "bad"}, methods)
    model, tokenizer = tested.loaded_model.model, tested.loaded_model.tokenizer
    inputs = dict(tokenizer(TEXTS, padding=True, return_tensors="pt"))
    labels = torch.tensor([1, 0, 1])
    scores = attribute(model, inputs, labels.tolist(), "input_x_gradient")["text"]
    assert (scores < 0).any()
    assert (scores[:, 0] != 0).all()
    ranked = [[0.0, *(max(score, 0.0) for score in row[1:])] for row in scores.tolist()]
    may_go = inputs["attention_mask"].bool() if removable == "real" else None
    found = PROTOCOLS["text_perturbation"].measure(tested, explained="target", removable=removable)
    for order, first in (("positive", True), ("negative", False)):
        gone = removed(torch.tensor(ranked), FRACTIONS, most_relevant_first=first, removable=may_go)
        steps = erased(inputs, gone, "pad", filler=tokenizer.pad_token_id)
        expected = curves(step_logits(lambda x: model(**x).logits, steps), labels, labels)
        assert_same(found["input_x_gradient", f"probability {order}"].values, expected.probability)


def test_controls_are_those_of_the_pure_functions(vit, pets):  # noqa: F811
    methods = [Choice("generic_attention"), Choice("random")]
    tested = shard(vit, list(oxford_pets(pets))[:3], methods=methods)
    model, inputs = tested.loaded_model.model, {"pixel_values": tested.batch.inputs["pixel_values"]}
    first = tested.logits.argmax(dim=1)

    def maps(model, labels):
        return attribute(model, inputs, labels.tolist(), "generic_attention")["image"][:, 1:]

    own, other = maps(model, first), maps(model, other_class(tested.logits))
    found = PROTOCOLS["class_sensitivity"].measure(tested)
    assert_same(found["generic_attention", "sensitivity"], 1 - rank_correlation(own, other))
    found = PROTOCOLS["model_randomisation"].measure(tested)
    stages = [rank_correlation(own, maps(changed, first)) for _, changed in randomised(model, seed=0)]
    line = found["generic_attention", "rank correlation by stages forgotten"].values
    assert_same(line, torch.stack(stages, dim=1))
    assert_same(found["generic_attention", "last"], stages[-1])
    assert_same(found["edge_prior", "mean"], torch.ones(3))
    found = PROTOCOLS["approximation"].measure(tested)
    for name, errors in approximation_errors(model, inputs).items():
        assert_same(found[name, "squared error by block"].values, errors, atol=1e-3)
    found = PROTOCOLS["saco"].measure(tested)
    assert ((found["generic_attention", "saco"] >= -1) & (found["generic_attention", "saco"] <= 1)).all()
    flat = PROTOCOLS["image_perturbation"].measure(tested, fill="road", unit="patch", domain="0.1-0.9")
    again = PROTOCOLS["image_perturbation"].measure(
        shard_of_samples(tested.loaded_model, tested.batch.samples, methods, MemoryLimit(50)),
        fill="road",
        unit="patch",
        domain="0.1-0.9",
    )
    for key, line in flat.items():
        if key[1] == "probability positive":
            assert_same(line.values, again[key].values)  # the noise does not depend on what is tested together


def test_regions_and_words_of_questions_are_deleted():
    examples = list(scenes(3, seed=5))
    tested = shard("mini-lxmert", examples)
    model, inputs = tested.loaded_model.model, {name: x for name, x in tested.batch.inputs.items() if name != "sample"}
    right = torch.stack([torch.tensor([name == e.answer for name in model.config.id2label.values()]) for e in examples])
    found = PROTOCOLS["vqa_removal"].measure(tested)
    scores = attribute(model, inputs, tested.logits.argmax(dim=1).tolist(), "rollout")["image"]
    gone = removed(scores, VQA_FRACTIONS, rounded="kept")
    names = ("visual_feats", "visual_pos", "visual_attention_mask")
    steps = step_logits(lambda x: model(**x).question_answering_score, deleted(inputs, gone, names))
    expected = right.double().gather(1, steps.argmax(dim=2).T)
    assert_same(found["rollout", "regions positive"].values, expected)
    assert found["rollout", "words negative"].values[:, 0].tolist() == expected[:, 0].tolist()
    assert ("edge_prior", "regions positive") in found
    assert ("edge_prior", "words positive") not in found
    found = PROTOCOLS["localisation"].measure(tested)
    for row, scene in enumerate(examples):
        middles = (scene.regions.boxes[:, :2] + scene.regions.boxes[:, 2:]) / 2
        nearest = ((middles - 32) ** 2).sum(axis=1).argmin()
        assert found["centre_prior", "regions pointing game"][row] == scene.question.things[nearest]
    for row, scene in enumerate(examples):
        explanation = explain((scene.regions, scene.question.text), tested.loaded_model, method="rollout")
        best = int(explanation.parts["image"].scores.argmax())
        assert found["rollout", "regions pointing game"][row] == scene.question.things[best]
        words = scene.question.text.split()
        layout = explanation.parts["text"].layout
        start = layout.offsets[int(explanation.parts["text"].scores.argmax())][0]
        best = len(scene.question.text[: start + 1].split()) - 1
        assert found["rollout", "text pointing game"][row] == scene.question.words[best], words[best]
        truth, given = scene.question.things, np.sort(-explanation.parts["image"].scores)
        ranks = np.searchsorted(given, -explanation.parts["image"].scores[truth], side="right")
        precision = [np.sum(ranks <= rank) / rank for rank in ranks]
        assert_same(found["rollout", "regions average precision"][row], np.mean(precision))


def test_the_token_that_visualbert_reads_its_answer_from_is_never_deleted():
    examples = list(scenes(12, seed=2))
    tested = shard("mini-visualbert", examples)
    model, inputs = tested.loaded_model.model, {name: x for name, x in tested.batch.inputs.items() if name != "sample"}
    predicted, rows = tested.logits.argmax(dim=1), torch.arange(12)
    before_separator = inputs["attention_mask"].sum(dim=1) - 2
    assert readout_tokens(tested, predicted).nonzero().tolist() == torch.stack([rows, before_separator], dim=1).tolist()
    may_go = inputs["attention_mask"].bool()
    may_go[rows, 0] = may_go[rows, before_separator] = may_go[rows, before_separator + 1] = False
    ids, tokenizer = inputs["input_ids"], tested.loaded_model.tokenizer
    assert (ids[rows, before_separator + 1] == tokenizer.sep_token_id).all()
    right = torch.stack([torch.tensor([name == e.answer for name in model.config.id2label.values()]) for e in examples])
    scores = attribute(model, inputs, predicted.tolist(), "random")["text"][:, : ids.shape[1]]
    found = PROTOCOLS["vqa_removal"].measure(tested)
    for order, first in (("positive", True), ("negative", False)):
        gone = removed(scores, VQA_FRACTIONS, most_relevant_first=first, removable=may_go, rounded="kept")
        steps = deleted(inputs, gone, TEXT_INPUTS, filler=tokenizer.pad_token_id)
        assert steps["input_ids"][-1, :, 1].tolist() == ids[rows, before_separator].tolist()
        answers = step_logits(lambda x: model(**x).logits, steps).argmax(dim=2)
        assert_same(found["random", f"words {order}"].values, right.double().gather(1, answers.T))


@pytest.mark.parametrize("fractions", ["0.5", 3, [], [0.25, 1], [0, 0.5], [0, 0.75, 0.25, 1]])
def test_fractions_that_do_not_rise_from_0_to_1_are_refused(fractions):
    tested = shard("mini-lxmert", list(scenes(1)))
    with pytest.raises(WhyformerError, match=r"vqa_removal: fractions=.* must rise from 0 to 1"):
        PROTOCOLS["vqa_removal"].measure(tested, fractions=fractions)


def test_what_a_detector_found_becomes_masks():
    examples = list(scenes(2, seed=6))
    tested = shard("mini-detr", examples)
    found = PROTOCOLS["weak_segmentation"].measure(tested)
    assert {method for method, _ in found} == {"rollout", "random", "centre_prior", "edge_prior"}
    logits = tested.loaded_model.model(pixel_values=tested.batch.inputs["pixel_values"]).logits.softmax(dim=2)[..., :-1]
    for row, text in enumerate(found["rollout", "objects"]):
        one = json.loads(text)
        assert len(one["things"]) == sum(map(bool, examples[row].labels))
        sure, kinds = logits[row].max(dim=1)
        queries = (sure > 0.5).nonzero()[:, 0].tolist()
        assert [each["category"] for each in one["found"]] == kinds[queries].tolist()
        for query, each in list(zip(queries, one["found"], strict=True))[:2]:
            part = explain(examples[row].image, tested.loaded_model, detection(query), "rollout").parts["image"]
            scores = torch.from_numpy(part.scores).view(1, part.layout.rows, part.layout.columns)
            expected = object_masks(scores, tested.batch.image_size, tested.batch.image_size, (64, 64))[0].numpy()
            expected = run_lengths.encode(np.asfortranarray(expected.astype(np.uint8)))
            assert run_lengths.iou([each["mask"]], [expected], [0])[0, 0] > 0.98
    of = PROTOCOLS["weak_segmentation"].figures["AP"].of_texts
    perfect = []
    for text in found["rollout", "objects"]:
        one = json.loads(text)
        perfect.append(json.dumps(one | {"found": [{**thing, "score": 1.0} for thing in one["things"]]}))
    assert of(perfect)(np.ones(2)) == pytest.approx(1)
    assert of(found["random", "objects"])(np.ones(2)) < 0.5
    presence = PROTOCOLS["image_perturbation"].measure(tested, explained="target", domain="0-1", unit="patch")
    line = presence["rollout", "probability positive"].values
    label = [
        list(tested.loaded_model.model.config.id2label.values()).index(sample.label) for sample in tested.batch.samples
    ]
    assert_same(line[:, 0], logits[torch.arange(2), :, label].amax(dim=1).detach())
    assert (line[:, -1] < 0.5).all()  # nothing is found in a black picture


def test_a_dual_encoder_tells_a_caption_from_others():
    examples = list(scenes(12, seed=7))[:2]
    tested = shard("mini-clip", examples)
    processor, model = tested.loaded_model.processor, tested.loaded_model.model
    for row, scene in enumerate(examples):
        texts = [scene.caption.text, *scene.others]
        assert len(texts) == 12
        inputs = processor(text=texts, images=[scene.image], padding=True, return_tensors="pt")
        assert_same(tested.logits[row], model(**inputs).logits_per_image[0].detach(), atol=1e-3)
    assert tested.labels.tolist() == [0, 0]
    second = torch.tensor([1, 1])
    maps = explanations(tested, second, "image")["rollout"]
    explanation = explain((examples[1].image, examples[1].others[0]), tested.loaded_model, method="rollout")
    assert_same(maps[1].flatten(), explanation.parts["image"].scores, atol=1e-4)
    found = PROTOCOLS["localisation"].measure(tested, explained="target")
    assert {measure for _, measure in found} == {
        f"{part} {figure}" for part in ("image", "text") for figure in ("pointing game", "average precision")
    }


def test_photos_are_compared_with_the_texts_of_their_labels():
    photos = [Photo(f"{n}", scene.image, "cat") for n, scene in enumerate(scenes(2, seed=7))]
    tested = shard("mini-clip", photos, {"cat": "a photo of a cat", "dog": "a photo of a dog"})
    assert tested.logits.shape == (2, 2)
    assert tested.labels.tolist() == [0, 0]
    with pytest.raises(WhyformerError, match=r"no text for its label 'cat'. Write one under \[labels\]"):
        shard("mini-clip", photos)


@pytest.mark.parametrize(
    ("protocol", "message"),
    [
        ("text_perturbation", "text_perturbation needs texts"),
        ("vqa_removal", "vqa_removal needs questions about regions"),
        ("rationales", "rationales needs texts with marked words"),
        ("weak_segmentation", "weak_segmentation needs a detector"),
    ],
)
def test_a_protocol_that_does_not_fit_is_refused(vit, pets, protocol, message):  # noqa: F811
    with pytest.raises(WhyformerError, match=message):
        PROTOCOLS[protocol].measure(shard(vit, list(oxford_pets(pets))[:1]))


def test_pictures_that_are_padded_are_not_perturbed():
    examples = [Photo("a", Image.new("RGB", (64, 64))), Photo("b", Image.new("RGB", (64, 64)))]
    tested = shard("mini-detr", examples)
    tested.batch.inputs["pixel_mask"] = torch.ones(2, *tested.batch.image_size)
    tested.batch.inputs["pixel_mask"][1, :, -5:] = 0
    with pytest.raises(WhyformerError, match="needs pictures of one size, without padding"):
        PROTOCOLS["image_perturbation"].measure(tested)


def test_a_method_that_does_not_apply_is_left_out_with_its_reason(levit, pets):  # noqa: F811
    methods = [Choice("bi_token"), Choice("grad_cam"), Choice("random")]
    tested = shard(levit, list(oxford_pets(pets))[:2], methods=methods)
    found = PROTOCOLS["segmentation"].measure(tested)
    assert "residual state" in tested.cache.left_out["bi_token"]
    assert {method for method, _ in found} == {"grad_cam", "random", "centre_prior", "edge_prior"}


def test_scores_of_pixels_are_a_finer_grid(vit, pets, monkeypatch):  # noqa: F811
    def brightness(trace):
        return {"pixels": trace.question.inputs["pixel_values"].sum(dim=1).flatten(1)}

    monkeypatch.setitem(REGISTRY, "brightness", Method("brightness", brightness, Reads(maps="last")))
    tested = shard(vit, list(oxford_pets(pets))[:2], methods=[*METHODS, Choice("brightness")])
    maps = explanations(tested, tested.logits.argmax(dim=1), "image")
    assert_same(maps["brightness"], tested.batch.inputs["pixel_values"].sum(dim=1))
    assert maps["rollout"].shape == maps["centre_prior"].shape == (2, 4, 4)
    found = PROTOCOLS["segmentation"].measure(tested)
    truths = pixel_truths(tested.batch)
    assert_same(found["brightness", "overlap"], overlap(foreground(maps["brightness"]), truths))
    kept = [record for record in explanation_records(tested, [4, 5]) if record["method"] == "brightness"]
    assert [(record["sample"], record["rows"], record["columns"]) for record in kept] == [(4, 32, 32), (5, 32, 32)]


def test_things_of_coco_become_run_lengths():
    image = Image.new("RGB", (40, 30))
    square = [[10, 5, 20, 5, 20, 15, 10, 15]]
    annotations = (
        {"category_id": 3, "segmentation": square, "area": 99.5},
        {"category_id": 1, "segmentation": square, "iscrowd": 1},
    )
    sample = make_sample(Instances("a", 1, image, annotations), load("mini-detr"), {})
    assert [(thing.label, thing.is_crowd) for thing in sample.things] == [(3, False), (1, True)]
    assert run_lengths.area(sample.things[0].run_lengths) == 100
    assert [thing.area for thing in sample.things] == [99.5, 100]
    assert sample.things[0].run_lengths["size"] == [30, 40]


def test_a_suite_may_name_every_protocol():
    document = {"model": "mini-vit", "data": {"reader": "scenes", "count": 3}, "methods": ["rollout"]}
    assert len(make_suite({**document, "protocols": list(PROTOCOLS)}).protocols) == len(PROTOCOLS)
    own = [one for one in PROTOCOLS.values() if one.measure.__module__.startswith("whyformer.")]
    assert own
    assert all(protocol.summary for protocol in own)


@pytest.mark.parametrize("sure", ["high", 1, -0.1])
def test_how_sure_a_detector_must_be_is_a_probability(sure):
    tested = shard("mini-detr", list(scenes(1, seed=5)))
    with pytest.raises(WhyformerError, match=rf"weak_segmentation: sure={sure!r} is not a probability"):
        PROTOCOLS["weak_segmentation"].measure(tested, sure=sure)


def test_one_caption_among_longer_ones_is_located_as_it_is_among_many():
    """A caption is shorter than those it is told from: their padding is no part of its truth."""
    examples = list(scenes(12, seed=7))
    together = PROTOCOLS["localisation"].measure(shard("mini-clip", examples), explained="target")
    for row, example in enumerate(examples):
        alone = PROTOCOLS["localisation"].measure(shard("mini-clip", [example]), explained="target")
        for key, values in alone.items():
            if key[0] != "random":
                assert_same(values[0], together[key][row], atol=1e-3)


def test_the_text_of_a_dual_encoder_is_not_perturbed():
    with pytest.raises(WhyformerError, match="text_perturbation needs texts, which mini-clip on this data lacks"):
        PROTOCOLS["text_perturbation"].measure(shard("mini-clip", list(scenes(2, seed=7))))

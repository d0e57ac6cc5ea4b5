"""Models of several streams that do not do as most do: followed rightly, or refused with a reason."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
import transformers
from torch import Tensor

from tiny_models import (
    STREAM_FAMILIES,
    T5,
    TOWER,
    built,
    captioned,
    masked,
    noise,
    photos,
    text_inputs,
    towers,
    up_to_the_end,
    word_pieces,
)
from whyformer import UnsupportedModel, WhyformerError, attribute, contrast, detection, explain, explain_batch, load
from whyformer.axes import Inputs
from whyformer.extend import FAMILIES, Family, Stream
from whyformer.methods.registry import trace_methods
from whyformer.models.loading import LoadedModel
from whyformer.scenes import example
from whyformer.tracing.build import trace
from whyformer.tracing.reads import Reads


def without_words_and_features(inputs: Inputs, padding: int) -> Inputs:
    features = {name: torch.zeros_like(inputs[name]) for name in ("visual_embeds", "visual_feats") if name in inputs}
    return inputs | features | {"input_ids": torch.full_like(inputs["input_ids"], padding)}


@pytest.mark.parametrize(("family", "answers"), [("visual-bert", "logits"), ("lxmert", "question_answering_score")])
def test_integrated_gradients_of_text_and_regions_add_up_to_the_difference_that_both_make(family, answers):
    made, given = STREAM_FAMILIES[family]
    model = made().double()
    inputs = {name: x.double() if x.is_floating_point() else x for name, x in given().items()}
    start = without_words_and_features(inputs, model.config.pad_token_id)
    found = attribute(model, inputs, 1, "integrated_gradients", steps=40, quadrature="gauss")
    scores = torch.cat(list(found.values()), dim=1)
    words = inputs["input_ids"].shape[1]
    assert (scores[:, words:][inputs["visual_attention_mask"].bool()] != 0).all()
    expected = (model(**inputs)[answers] - model(**start)[answers])[:, 1]
    torch.testing.assert_close(scores.sum(dim=1), expected, rtol=1e-6, atol=1e-9)


def test_integrated_gradients_of_text_and_regions_equal_their_naive_twin():
    made, given = STREAM_FAMILIES["visual-bert"]
    model, inputs = made().double(), {n: x.double() if x.is_floating_point() else x for n, x in given().items()}
    embedded, found = [], []
    hook = model.base_model.embeddings.register_forward_hook(lambda *given: embedded.append(given[-1].detach()))
    for one in (without_words_and_features(inputs, model.config.pad_token_id), inputs):
        model(**one)
    hook.remove()
    start, end = embedded
    for share in (1 / 6, 3 / 6, 5 / 6):
        point = (start + share * (end - start)).requires_grad_()
        hook = model.base_model.embeddings.register_forward_hook(lambda *_, point=point: point)
        found.append(torch.autograd.grad(model(**inputs).logits[:, 1].sum(), point)[0])
        hook.remove()
    expected = ((end - start) * sum(found) / 3).sum(dim=-1)
    got = attribute(model, inputs, 1, "integrated_gradients", steps=3)["text"]
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("method", trace_methods())
def test_a_model_that_draws_its_tokens_by_lot_is_refused(method):
    make, inputs = STREAM_FAMILIES["vilt"]
    model = make()
    model.register_forward_pre_hook(lambda *_: torch.multinomial(torch.tensor([0.7, 0.3]), 1) and None)
    with pytest.raises(UnsupportedModel, match=r"shuffles its tokens at random on every pass \(torch.multinomial\)"):
        attribute(model, inputs(), 1, method)


LAYERED = sorted(STREAM_FAMILIES.keys() - {"lxmert", "siglip"})


@pytest.mark.parametrize("family", LAYERED)
def test_the_state_of_a_record_is_its_layers_input_or_what_the_encoder_gave(family):
    model, inputs = STREAM_FAMILIES[family][0](), STREAM_FAMILIES[family][1]()
    layers = {record.path: re.match(r".*?\.\d+(?=\.)", record.path)[0] for record in trace(model, inputs).records}
    read: dict[str, Tensor] = {}

    def reader(name):
        return lambda _, args, kwargs: read.update({name: [*args, *kwargs.values()][0]})

    for name in set(layers.values()):
        model.get_submodule(name).register_forward_pre_hook(reader(name), with_kwargs=True)
    asked = trace(model, inputs, reads=Reads(maps="all", states=True))
    for record in asked.records:
        is_cross = record.query_stream != record.key_stream
        encoded = "last_hidden_state" if family == "blip" else "encoder_last_hidden_state"
        expected = asked.output[encoded] if is_cross else read[layers[record.path]]
        torch.testing.assert_close(record.key_state, expected)


def test_the_state_of_lxmerts_records_is_that_of_the_stream_they_read():
    model, inputs = STREAM_FAMILIES["lxmert"][0](), STREAM_FAMILIES["lxmert"][1]()
    read: list[Tensor] = []
    for name, module in model.named_modules():
        if name.endswith((".self", ".att")):
            # hidden states alone, or with the context that they attend to
            module.register_forward_pre_hook(lambda _, args: read.append(args[1] if len(args) > 2 else args[0]))
    records = trace(model, inputs, reads=Reads(maps="all", states=True)).records
    for record in records:
        torch.testing.assert_close(record.key_state, read[record.operation])


def test_siglips_pooling_reads_the_last_state_of_the_image():
    model, inputs = STREAM_FAMILIES["siglip"][0](), STREAM_FAMILIES["siglip"][1]()
    asked = trace(model, inputs, reads=Reads(maps="all", states=True))
    (pooling,) = (record for record in asked.records if record.query_stream == "pool")
    assert pooling.key_stream == "image"
    torch.testing.assert_close(pooling.key_state, asked.output.vision_model_output.last_hidden_state)


def test_the_state_that_gpt2_reads_of_a_picture_is_what_its_encoder_gave():
    sizes = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
    picture = transformers.ViTConfig(intermediate_size=32, image_size=32, patch_size=16, **sizes)
    words = transformers.GPT2Config(vocab_size=60, bos_token_id=1, eos_token_id=2, add_cross_attention=True, **sizes)
    model = built(
        "VisionEncoderDecoderModel", "VisionEncoderDecoderConfig", encoder=picture.to_dict(), decoder=words.to_dict()
    )
    row = Family(
        "target",
        scaled="decoder.transformer.wte",
        others=(Stream("image"),),
        attention=(("crossattention", "target", "image"), ("decoder", "target", "target"), ("enc", "image", "image")),
    )
    inputs = {"pixel_values": noise(5, 3, 32, 32), "decoder_input_ids": word_pieces(masked(4, 4, 4, 4, 4), 3)}
    with with_row("vision-encoder-decoder", row):
        asked = trace(model, inputs, reads=Reads(maps="all", states=True))
    (cross,) = (record for record in asked.records if record.query_stream != record.key_stream)
    torch.testing.assert_close(cross.key_state, asked.output.encoder_last_hidden_state)
    weight = model.decoder.transformer.h[0].crossattention.c_attn.weight.detach()
    torch.testing.assert_close(cross.value_weight, weight[:, 24:].T)


@contextmanager
def with_row(kind: str, row: Family) -> Iterator[None]:
    FAMILIES[kind] = row
    try:
        yield
    finally:
        del FAMILIES[kind]


@pytest.mark.parametrize("family", ["bart", "marian", "t5"])
@pytest.mark.parametrize("method", ["bi_head", "bi_token"])
def test_an_embedding_that_encoder_and_decoder_share_is_scaled_once(family, method):
    model, inputs = STREAM_FAMILIES[family][0](), STREAM_FAMILIES[family][1]()
    expected = attribute(model, inputs, 1, method)
    inside = getattr(model, "model", model)
    inside.encoder.embed_tokens = inside.decoder.embed_tokens  # as after resize_token_embeddings
    for stream, scores in attribute(model, inputs, 1, method).items():
        assert torch.equal(scores, expected[stream])


@pytest.mark.parametrize("method", trace_methods())
@pytest.mark.parametrize("family", ["llama", "qwen3", "mistral in windows"])
def test_left_padding_changes_no_score_where_positions_are_relative(method, family):
    model, inputs = STREAM_FAMILIES[family][0](), text_inputs()
    model = model.double() if trace_methods()[method].reads.has_relevance else model
    lengths = inputs["attention_mask"].sum(dim=1).tolist()
    left = {
        name: torch.stack([row.roll(len(row) - n) for row, n in zip(value, lengths, strict=True)])
        for name, value in inputs.items()
    }
    right = attribute(model, inputs, 1, method)["text"]
    for row, expected, length in zip(attribute(model, left, 1, method)["text"], right, lengths, strict=True):
        torch.testing.assert_close(row[-length:], expected[:length], rtol=1e-4, atol=1e-8)
        assert not row[:-length].any()


def test_a_window_hides_what_lies_outside_it_from_the_last_map():
    model = STREAM_FAMILIES["mistral in windows"][0]()
    (row, *_), (far, *_) = (
        attribute(model, text_inputs(), 1, method)["text"] for method in ("raw_attention", "rollout")
    )
    assert row.nonzero()[:, 0].tolist() == [6, 7, 8]
    assert far.nonzero()[:, 0].tolist() == [4, 5, 6, 7, 8]


@pytest.mark.parametrize("method", ["rollout", "generic_attention", "bi_head", "bi_token"])
def test_a_first_block_that_only_the_deeper_tower_has_leaves_the_other_without_scores(method):
    model = towers("CLIP", projection_dim=16)
    deeper = built(
        "CLIPModel",
        "CLIPConfig",
        text_config=model.config.text_config.to_dict(),
        vision_config=model.config.vision_config.to_dict() | {"num_hidden_layers": TOWER["num_hidden_layers"] + 1},
    )
    inputs = captioned(input_ids=up_to_the_end(masked(9, 6)), attention_mask=masked(9, 6))
    scores = attribute(deeper, inputs, method=method, first_block=2)
    assert scores["image"].any()
    assert not scores.get("text", torch.zeros(1)).any()


@pytest.mark.parametrize(("family", "labels"), [("detr", 4), ("conditional detr", 4)])
def test_every_label_of_a_detector_can_be_asked_about_and_no_object_is_none(family, labels):
    model, inputs = STREAM_FAMILIES[family][0](), photos()
    with torch.no_grad():
        logits = model(**inputs).logits
    probability = logits.softmax(dim=-1)[..., :labels] if logits.shape[-1] > labels else logits.sigmoid()
    for label in range(labels):
        asked = trace(model, inputs, label)
        assert asked.target.place.tolist() == probability[:, :, label].argmax(dim=1).tolist()
        assert asked.target.indices == (label, label)
    best = trace(model, inputs).target
    assert best.place.tolist() == probability.amax(dim=2).argmax(dim=1).tolist()
    assert list(best.indices) == [int(probability[n, place].argmax()) for n, place in enumerate(best.place)]
    with pytest.raises(WhyformerError, match="No label with index 4: this model has 4, 0 to 3"):
        trace(model, inputs, labels)


def test_a_detection_names_the_query_and_a_contrast_two_of_its_labels():
    model, inputs = STREAM_FAMILIES["detr"][0](), photos()
    at_three = attribute(model, inputs, detection(3, 1), "generic_attention")
    with torch.no_grad():
        place = model(**inputs).logits.softmax(dim=-1)[:, :, 2].argmax(dim=1)
    own = attribute(model, inputs, lambda output: output.logits[:, 3, 1], "generic_attention")
    against = attribute(model, inputs, contrast(2, 0), "generic_attention")
    both = torch.arange(2)
    by_hand = attribute(
        model,
        inputs,
        lambda output: output.logits[both, place, 2] - output.logits[both, place, 0],
        "generic_attention",
    )
    for stream in ("queries", "image"):
        torch.testing.assert_close(at_three[stream], own[stream])
        torch.testing.assert_close(against[stream], by_hand[stream])


def test_the_padding_of_a_photo_is_no_part_of_its_image():
    model, inputs = STREAM_FAMILIES["detr"][0](), photos()
    real = trace(model, inputs).masks["image"]
    assert real.tolist() == [[True] * 6, [True, True, False, False, False, False]]


@pytest.mark.parametrize("method", ["raw_attention", "bi_head"])
def test_streams_of_one_length_keep_their_own_masks(method):
    lengths = {"t5": ("source", "target", "decoder_"), "lxmert": ("text", "image", "visual_")}
    for family, (first, second, prefix) in lengths.items():
        inputs = STREAM_FAMILIES[family][1]()
        masks = {first: masked(6, 4), second: masked(5, 6)}
        cut = {name: value[:, :6] for name, value in inputs.items()}
        if family == "t5":
            cut["decoder_input_ids"] = word_pieces(masked(6, 6), 4)
        cut |= {"attention_mask": masks[first], f"{prefix}attention_mask": masks[second]}
        asked = trace(STREAM_FAMILIES[family][0](), cut, 1, reads=trace_methods()[method].reads)
        scores = trace_methods()[method](asked)
        for stream, mask in masks.items():
            assert torch.equal(asked.masks[stream], mask.bool())
            assert not scores[stream][mask == 0].any()


@pytest.mark.parametrize("family", ["gpt2", "t5", "whisper"])
def test_a_decoder_is_asked_about_the_token_after_the_last_real_one(family):
    model, inputs = STREAM_FAMILIES[family][0](), STREAM_FAMILIES[family][1]()
    mask = inputs.get("decoder_attention_mask", inputs.get("attention_mask"))
    asked = trace(model, inputs).target
    assert asked.place.tolist() == (mask.sum(dim=1) - 1).tolist()
    with torch.no_grad():
        logits = model(**inputs).logits
    assert list(asked.indices) == [int(logits[n, place].argmax()) for n, place in enumerate(asked.place)]


def test_what_follows_the_asked_token_changes_no_score_of_a_decoder():
    model, inputs = STREAM_FAMILIES["llama"][0](), text_inputs()
    longer = word_pieces(masked(9, 9, 9), 9)
    longer = torch.where(inputs["attention_mask"].bool(), inputs["input_ids"], longer)
    places = inputs["attention_mask"].sum(dim=1) - 1

    def there(output):
        return output.logits[torch.arange(3), places, 7]

    for method in ("rollout", "generic_attention", "bi_head", "bi_token"):
        padded = attribute(model, inputs, there, method)["text"]
        torch.testing.assert_close(attribute(model, {"input_ids": longer}, there, method)["text"], padded)


@pytest.mark.parametrize("method", ["bi_head", "bi_token"])
def test_the_models_own_similarities_are_a_target_like_the_pairs_they_are_of(method):
    model, inputs = STREAM_FAMILIES["clip"][0](), STREAM_FAMILIES["clip"][1]()
    ours = attribute(model, inputs, method=method)
    theirs = attribute(model, inputs, lambda output: output.logits_per_image.diagonal(), method)
    for stream in ("image", "text"):
        torch.testing.assert_close(ours[stream], theirs[stream])


@pytest.mark.parametrize(
    ("method", "options"),
    [("rollout", {}), ("rollout", {"cross": "last"}), ("generic_attention", {}), ("bi_head", {}), ("bi_token", {})],
)
def test_a_first_block_that_only_the_encoder_has_leaves_nothing_of_the_source(method, options):
    deeper = built("T5ForConditionalGeneration", "T5Config", **T5 | {"num_layers": 3, "num_decoder_layers": 2})
    scores = attribute(deeper, STREAM_FAMILIES["t5"][1](), method=method, first_block=2, **options)
    assert not any(values.any() for values in scores.values())


def test_the_noise_of_one_stream_is_not_that_of_another_under_the_next_seed():
    model, inputs = STREAM_FAMILIES["t5"][0](), STREAM_FAMILIES["t5"][1]()
    inputs |= {"decoder_input_ids": inputs["input_ids"], "decoder_attention_mask": inputs["attention_mask"]}
    drawn = [attribute(model, inputs, 1, "random", seed=seed) for seed in range(3)]
    rows = torch.stack([scores[stream][0] for scores in drawn for stream in ("source", "target")])
    assert len(rows.unique(dim=0)) == len(rows) == 6


def test_the_noise_of_an_example_depends_on_all_it_is_given_and_not_on_its_company():
    model, inputs = STREAM_FAMILIES["lxmert"][0](), STREAM_FAMILIES["lxmert"][1]()
    inputs["input_ids"][1], inputs["attention_mask"][1] = inputs["input_ids"][0], inputs["attention_mask"][0]
    first, second = attribute(model, inputs, 1, "random")["text"]
    assert not torch.equal(first, second), "one question about two pictures"
    detector, seen = STREAM_FAMILIES["detr"][0](), photos()
    alone = {"pixel_values": seen["pixel_values"][1:, :, :32, :64], "pixel_mask": seen["pixel_mask"][1:, :32, :64]}
    together = attribute(detector, seen, 1, "random")["queries"][1]
    assert torch.equal(together, attribute(detector, alone, 1, "random")["queries"][0])


def test_a_tower_that_a_first_block_leaves_out_is_shown_without_a_score():
    depth = load("mini-clip").model.config.vision_config.num_hidden_layers
    found = explain((example(3).image, "a red circle"), "mini-clip", method="bi_token", first_block=depth - 1)
    assert found.parts["image"].scores.any()
    assert not found.parts["text"].scores.any()
    assert "bi_token found nothing in the text: every score is zero." in found.notes


def test_texts_of_siglip_are_padded_alike_alone_and_together():
    """SigLIP reads its last position, padding or not: every text is padded to the length it was trained with."""
    clip = load("mini-clip", device="cpu")
    sizes = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 64}
    text = sizes | {"vocab_size": len(clip.tokenizer), "max_position_embeddings": 16}
    vision = sizes | {"image_size": 128, "patch_size": 16}
    model = built("SiglipModel", "SiglipConfig", text_config=text, vision_config=vision)
    loaded_model = LoadedModel(model, clip.processor, "siglip")
    picture = example(3).image
    examples = [(picture, "a red circle"), (picture, "a red circle left of a blue square")]
    for given, batched in zip(examples, explain_batch(examples, loaded_model, method="generic_attention"), strict=True):
        alone = explain(given, loaded_model, method="generic_attention")
        for name, part in alone.parts.items():
            np.testing.assert_allclose(batched.parts[name].scores, part.scores, rtol=1e-4, atol=1e-8)

"""Perturbation: what goes at each step, what the model then says, and the areas under its answers."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import auc

from cases import GOLDEN
from conftest import tokenizer
from tiny_models import IMAGE, STREAM_FAMILIES, TEXT, built
from whyformer import WhyformerError
from whyformer.inputs.fills import blank, blanked, deleted, erased, filler_id
from whyformer.metrics.answers import answer_scores, answer_table, plain_answer
from whyformer.metrics.perturbation_curves import (
    DOMAINS,
    FRACTIONS,
    VQA_FRACTIONS,
    area,
    curves,
    explained_class,
    soft_accuracy,
    step_logits,
)
from whyformer.metrics.removal import class_token_least, groups, removable_tokens, removed, removed_pixels
from whyformer.models.input_tensors import REGION_INPUTS, TEXT_INPUTS
from whyformer.targets.scores import logits_of

EVALUATION = GOLDEN / "evaluation"
INPUTS, EXPECTED = (dict(np.load(EVALUATION / f"{name}.npz")) for name in ("inputs", "expected"))
scores_of_rows = st.lists(st.lists(st.floats(-3, 3, width=32), min_size=7, max_size=7), min_size=1, max_size=3)


@pytest.mark.parametrize("sign", ["positive", "negative"])
def test_images_are_blanked_as_by_the_reference(sign):
    image = torch.from_numpy(INPUTS["perturbation/images_0_1"])
    maps = torch.from_numpy(INPUTS["perturbation/pixel_scores"])[:, 0]
    pixels = (image - 0.5) / 0.5
    gone = removed_pixels(maps, (32, 32), FRACTIONS, most_relevant_first=sign == "positive")
    steps = blanked(pixels, gone, blank("black", [0.5] * 3, [0.5] * 3))
    assert torch.equal(steps[0], pixels)
    np.testing.assert_allclose(steps[1:].numpy(), EXPECTED[f"perturbation/{sign}.normalised_inputs"], rtol=1e-6, atol=0)


def test_areas_are_those_of_the_reference():
    accuracy = torch.from_numpy(INPUTS["auc/accuracy_at_0.0_to_0.9"])[None]
    assert 100 * area(accuracy, FRACTIONS).item() == pytest.approx(float(EXPECTED["auc/trapezoid_0_to_0.9_x100"]))
    zero = EXPECTED["auc/trapezoid_0_to_1_endpoint_zero"]
    assert area(accuracy, FRACTIONS, "0-1-zero").item() == pytest.approx(float(zero), abs=1e-12)


@pytest.mark.parametrize("domain", DOMAINS)
def test_an_area_is_that_of_scikit_learn_over_its_domain(domain):
    fractions = DOMAINS["0-1"]
    values = torch.rand(4, 11, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    kept = {"0-0.9": slice(0, 10), "0.1-0.9": slice(1, 10), "0-1": slice(0, 11), "0-1-zero": slice(0, 11)}[domain]
    for row, found in zip(values.numpy().copy(), area(values, fractions, domain), strict=True):
        if domain == "0-1-zero":
            row[-1] = 0
        assert auc(np.array(fractions)[kept], row[kept]) == pytest.approx(found.item(), abs=1e-12)


def test_an_area_beyond_what_was_measured_is_refused():
    with pytest.raises(WhyformerError, match=r"over 0-1 needs the curve at 0\.0 and 1\.0; it is measured at 0\.0"):
        area(torch.ones(1, 10), FRACTIONS, "0-1")


def test_the_area_over_steps_of_unequal_width():
    assert area(torch.ones(1, 9), VQA_FRACTIONS, "0-1").item() == pytest.approx(1.0)


def test_an_area_is_not_refused_for_an_error_of_rounding():
    assert area(torch.ones(1, 9), np.arange(0.1, 1.0, 0.1).tolist(), "0.1-0.9").item() == pytest.approx(0.8)


def twin_removed(row, fraction, removable, *, most_relevant_first=True):
    places = [place for place, may in enumerate(removable) if may]
    places.sort(key=lambda place: -row[place] if most_relevant_first else row[place])
    return set(places[: int(fraction * len(places) + 1e-9)])


@given(scores_of_rows, st.lists(st.booleans(), min_size=7, max_size=7), st.booleans())
def test_what_is_removed_is_the_top_of_the_removable(rows, may, first):
    scores, removable = torch.tensor(rows), torch.tensor(may).expand(len(rows), -1)
    found = removed(scores, DOMAINS["0-1"], most_relevant_first=first, removable=removable)
    for fraction, step in zip(DOMAINS["0-1"], found, strict=True):
        for row, gone in zip(rows, step, strict=True):
            expected = twin_removed(row, fraction, may, most_relevant_first=first)
            assert set(gone.nonzero()[:, 0].tolist()) == expected


@given(scores_of_rows)
def test_what_is_gone_stays_gone(rows):
    found = removed(torch.tensor(rows), DOMAINS["0-1"])
    assert not (found[:-1] & ~found[1:]).any()
    assert not found[0].any()
    assert found[-1].all()


@given(st.permutations(range(7)), st.booleans())
def test_permuting_the_places_permutes_what_is_removed(order, first):
    scores = torch.tensor([[0.5, -1.0, 2.0, 0.0, 3.0, 1.0, -2.0]])
    plain, moved = (removed(x, FRACTIONS, most_relevant_first=first) for x in (scores, scores[:, order]))
    assert torch.equal(plain[:, :, order], moved)


def test_ga_rounds_what_is_kept():
    scores = torch.arange(3.0)[None]
    assert removed(scores, [0.5])[0, 0].tolist() == [False, False, True]
    assert removed(scores, [0.5], rounded="kept")[0, 0].tolist() == [False, True, True]


def test_a_fraction_is_not_rounded_down_by_its_own_error():
    assert removed(torch.arange(100.0)[None], [0.29]).sum() == 29


def test_whole_patches_go_together_as_often_as_their_share():
    scores = torch.rand(2, 4, 4, generator=torch.Generator().manual_seed(0))
    gone = removed_pixels(scores, (16, 16), [0.25, 0.5], unit="patch")
    blocks = gone.unflatten(3, (4, 4)).unflatten(2, (4, 4)).transpose(3, 4).flatten(4)
    assert torch.equal(blocks.any(dim=4), blocks.all(dim=4))
    assert gone.flatten(2).sum(dim=2).tolist() == [[64, 64], [128, 128]]
    assert torch.equal(blocks[0, 0].any(dim=2).flatten(), removed(scores.flatten(1), [0.25])[0, 0])


def test_groups_part_the_places_by_descending_score():
    scores = torch.rand(3, 11, generator=torch.Generator().manual_seed(0))
    found = groups(scores, 4)
    assert (found.sum(dim=0) == 1).all()
    assert set(found.sum(dim=2).flatten().tolist()) <= {2, 3}
    for more, less in pairwise(found):
        for row, above, below in zip(scores, more, less, strict=True):
            assert row[above].min() >= row[below].max()


def test_a_removed_pixel_is_black_before_normalisation_or_of_the_mean_colour_after():
    mean, std = [0.48, 0.46, 0.41], [0.27, 0.26, 0.28]
    black = (torch.zeros(3, 1, 1) - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None]
    torch.testing.assert_close(blank("black", mean, std), black)
    assert not blank("mean", mean, std).any()


def test_hiding_the_only_cause_first_drops_the_curve_at_once():
    pixels = torch.zeros(1, 1, 4, 4)
    pixels[0, 0, 1, 2] = 1

    def forward(x):
        bright = x.amax(dim=(1, 2, 3))
        return torch.stack([bright, 0.5 - bright], dim=1)

    label, colour = torch.tensor([0]), torch.zeros(1, 1, 1)
    for first, expected in ((True, [1.0] + [0.0] * 9), (False, [1.0] * 10)):
        gone = removed_pixels(pixels[:, 0], (4, 4), FRACTIONS, most_relevant_first=first)
        found = curves(step_logits(forward, blanked(pixels, gone, colour)), label, label)
        assert found.accuracy[0].tolist() == expected


def test_curves_tell_accuracy_by_the_label_and_probability_and_logit_of_the_explained_class():
    logits = torch.randn(5, 3, 4, generator=torch.Generator().manual_seed(0))
    labels, explained = torch.tensor([0, 1, 2]), torch.tensor([3, 3, 0])
    found = curves(logits, labels, explained)
    for step in range(5):
        for example in range(3):
            row = logits[step, example].double().exp()
            assert found.accuracy[example, step] == float(row.argmax() == labels[example])
            chosen = explained[example]
            assert found.probability[example, step].item() == pytest.approx((row[chosen] / row.sum()).item(), rel=1e-5)
            assert found.logit[example, step] == logits[step, example, chosen]
    assert explained_class(logits[0], labels).tolist() == logits[0].argmax(dim=1).tolist()
    assert torch.equal(explained_class(logits[0], labels, "target"), labels)


def test_all_steps_asked_together_are_answered_as_one_by_one_and_leave_no_graph():
    model = built("ViTForImageClassification", "ViTConfig", **IMAGE)
    pixels = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    gone = removed_pixels(torch.rand(2, 4, 4), (32, 32), FRACTIONS)
    steps = blanked(pixels, gone, torch.zeros(3, 1, 1))
    together = step_logits(lambda x: model(pixel_values=x).logits, steps)
    assert not together.requires_grad
    for step, answers in zip(steps, together, strict=True):
        torch.testing.assert_close(model(pixel_values=step).logits, answers, atol=1e-5, rtol=1e-5)


IDS = torch.tensor([[1, 8, 9, 10, 2, 0], [1, 5, 6, 7, 11, 2]])
TEXTS = {"input_ids": IDS, "attention_mask": (IDS != 0).long(), "token_type_ids": torch.zeros_like(IDS)}
GONE = torch.tensor([[[0, 0, 1, 0, 0, 0], [0, 1, 0, 0, 1, 0]], [[0, 1, 1, 1, 0, 0], [0, 1, 1, 1, 1, 0]]]).bool()


def test_tokens_become_padding_or_masks_or_are_not_there():
    padded, masked, gone = (
        erased(TEXTS, GONE, how, filler=4 if how == "mask" else 0) for how in ("pad", "mask", "delete")
    )
    assert padded["input_ids"][0].tolist() == [[1, 8, 0, 10, 2, 0], [1, 0, 6, 7, 0, 2]]
    assert padded["attention_mask"][0].tolist() == [[1, 1, 0, 1, 1, 0], [1, 0, 1, 1, 0, 1]]
    assert masked["input_ids"][0].tolist() == [[1, 8, 4, 10, 2, 0], [1, 4, 6, 7, 4, 2]]
    assert torch.equal(masked["attention_mask"][1], TEXTS["attention_mask"])
    assert gone["input_ids"][0].tolist() == [[1, 8, 10, 2, 0, 0], [1, 6, 7, 2, 0, 0]]
    assert gone["attention_mask"][1].tolist() == [[1, 1, 0, 0, 0, 0]] * 2
    assert all(value.shape == (2, 2, 6) for steps in (padded, masked, gone) for value in steps.values())


def test_a_text_without_a_mask_gets_one_when_tokens_are_padded():
    assert erased({"input_ids": IDS[1:]}, GONE[:, 1:], filler=0)["attention_mask"][0].tolist() == [[1, 0, 1, 1, 0, 1]]


def test_a_deleted_word_is_as_if_it_had_not_been_written():
    model = built("BertForSequenceClassification", "BertConfig", **TEXT)
    steps = erased(TEXTS, GONE[:1], "delete", filler=0)
    logits = step_logits(lambda x: model(**x).logits, steps)
    alone = model(input_ids=torch.tensor([[1, 6, 7, 2]])).logits
    torch.testing.assert_close(logits[0, 1:], alone, atol=1e-5, rtol=1e-5)


def test_regions_go_with_all_that_is_known_of_them():
    features = torch.arange(12.0).view(1, 4, 3)
    inputs = {"visual_feats": features, "visual_pos": features[..., :2], "input_ids": IDS[:1]}
    gone = torch.tensor([[[True, False, True, False]]])
    found = deleted(inputs, gone, REGION_INPUTS)
    assert torch.equal(found["visual_feats"][0, 0, :2], features[0, [1, 3]])
    assert torch.equal(found["visual_pos"][0, 0, :2], features[0, [1, 3], :2])
    assert found["visual_attention_mask"].tolist() == [[[1, 1, 0, 0]]]
    assert torch.equal(found["input_ids"][0], IDS[:1])
    assert "attention_mask" not in found
    assert "visual_attention_mask" not in deleted(inputs, torch.zeros(1, 1, 6).bool(), TEXT_INPUTS)


def test_special_tokens_and_padding_are_not_touched_unless_asked():
    mask = TEXTS["attention_mask"]
    assert removable_tokens(IDS, mask, {0, 1, 2}).tolist()[0] == [False, True, True, True, False, False]
    assert removable_tokens(IDS, mask, {0, 1, 2}, "real").tolist()[0] == [True] * 5 + [False]
    assert removable_tokens(IDS, mask, {0, 1, 2}, "all").all()


def test_the_class_token_goes_first_of_the_least_relevant_and_after_all_that_is_relevant():
    scores = torch.tensor([[5.0, 2.0, -3.0, 1.0], [-1.0, 0.5, 4.0, -2.0]])
    least = class_token_least(scores, torch.tensor([[True, False, False, False]] * 2))
    assert least.tolist() == [[0, 2, 0, 1], [0, 0.5, 4, 0]]
    assert removed(least, [0.25, 0.5], most_relevant_first=False).nonzero()[:, 2].tolist() == [0, 0, 0, 2, 0, 3]
    assert removed(least, [0.5, 0.75]).nonzero()[:, 2].tolist() == [1, 3, 1, 2, 0, 1, 3, 0, 1, 2]


def test_the_filler_is_the_tokenizers_own_and_its_lack_is_said():
    assert filler_id(tokenizer()) == 0
    assert filler_id(tokenizer(), "mask") == 4
    bare = tokenizer()
    bare.mask_token = None
    with pytest.raises(WhyformerError, match="no mask_token: erase tokens by 'pad' or 'delete' instead of 'mask'"):
        filler_id(bare, "mask")


def test_soft_accuracy_is_the_mean_over_leaving_out_one_person():
    for agreeing in range(11):
        answers = ["two"] * agreeing + [f"other {n}" for n in range(10 - agreeing)]
        left_out = [answers[:n] + answers[n + 1 :] for n in range(10)]
        expected = sum(min(1, part.count("two") / 3) for part in left_out) / 10
        assert answer_scores(answers).get("2", 0.0) == pytest.approx(expected)


def test_answers_are_compared_without_articles_punctuation_and_case():
    assert plain_answer(" The  man's hat. ") == "man's hat"
    assert plain_answer("Ten") == "10"
    assert plain_answer("none") == plain_answer("zero") == "0"


def test_the_soft_accuracy_of_the_answer_given_at_each_step():
    table = answer_table([["red"] * 4 + ["blue"] * 2 + ["a green"] * 4, ["no"] * 10], ["red", "blue", "no"])
    torch.testing.assert_close(table, torch.tensor([[1.0, 0.6, 0.0], [0.0, 0.0, 1.0]]))
    logits = torch.tensor([[[3.0, 1, 0], [0, 0, 1]], [[0, 1, 0], [2, 0, 1]]])
    torch.testing.assert_close(soft_accuracy(logits, table), torch.tensor([[1.0, 0.6], [1.0, 0.0]]))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: removed_pixels(x[:, None], (2, 2), [0.5], unit="token"), "unit='token'. Choose from: pixel, patch."),
        (lambda x: removed(x, [0.5], rounded="up"), "rounded='up'. Choose from: removed, kept."),
        (lambda x: removable_tokens(IDS, IDS, [], "none"), "removable='none'. Choose from: content, real, all."),
        (lambda x: blank("white", [0.5], [0.5]), "colour='white'. Choose from: black, mean."),
        (lambda x: erased(TEXTS, GONE, "drop", filler=0), "how='drop'. Choose from: pad, mask, delete."),
        (lambda x: area(x, [0.0, 1.0], "all"), "domain='all'. Choose from: 0-0.9, 0.1-0.9, 0-1, 0-1-zero."),
    ],
)
def test_a_convention_nobody_follows_is_refused(call, message):
    with pytest.raises(WhyformerError) as caught:
        call(torch.rand(2, 2))
    assert str(caught.value) == message


@pytest.mark.parametrize("family", ["lxmert", "visual-bert"])
def test_a_deleted_region_is_as_if_it_had_not_been_seen(family):
    made, given = STREAM_FAMILIES[family]
    model, inputs = made().eval(), given()
    named = [name for name in REGION_INPUTS if name in inputs]
    regions = inputs[named[0]].shape[1]
    inputs["visual_attention_mask"] = torch.ones(2, regions, dtype=torch.long)
    gone = torch.zeros(1, 2, regions, dtype=torch.bool)
    gone[0, :, 1] = gone[0, 1, 3] = True
    together = step_logits(lambda x: logits_of(model(**x)), deleted(inputs, gone, REGION_INPUTS))[0]
    for example in range(2):
        kept = ~gone[0, example]
        alone = {name: value[example : example + 1] for name, value in inputs.items()}
        alone |= {name: alone[name][:, kept] for name in (*named, "visual_attention_mask")}
        with torch.no_grad():
            expected = logits_of(model(**alone))[0]
        torch.testing.assert_close(together[example], expected, atol=1e-5, rtol=1e-5)

"""What the pages of results say in words is what the published figures say."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import evaluations
import pytest

from whyformer.benchmark.reporting.charts import CONTROLS

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "evaluation"
GAP, GAP_OF_PROBABILITY = "negative − positive", "negative − positive, probability"
FIVE = ("bi_token", "bi_head", "transformer_attribution", "generic_attention", "rollout")
PHOTOGRAPHS = ("dinov2", "mae", "plain", "vit")
SURE = 0.05


@cache
def run(name: str) -> dict[str, Any]:
    return json.loads((RESULTS / f"{name}.json").read_text())


def figure(name: str, protocol: str, wanted: str) -> dict[str, Any]:
    """A published figure, by its run, the protocol's label and its own name."""
    found = next(one for one in run(name)["protocols"] if one["protocol"] == protocol)
    return next(one for one in found["figures"] if one["figure"] == wanted)


def values(name: str, protocol: str, wanted: str) -> dict[str, float]:
    """The values of the methods that were measured on all samples of the run."""
    rows = figure(name, protocol, wanted)["rows"]
    return {row["method"]: row["value"] for row in rows if row["n"] == max(one["n"] for one in rows)}


def plain(found: dict[str, float]) -> list[str]:
    """The methods as their papers have them, the best first, without controls."""
    names = [name for name in found if "=" not in name and name not in CONTROLS]
    return sorted(names, key=lambda name: -found[name])


def test_the_ranking_holds_as_a_whole_where_words_are_taken_from_mini_bert_and_mini_vlm_alone():
    holds = {
        (one["model"], protocol["protocol"].partition(" ")[0])
        for one in (run(path.stem) for path in RESULTS.glob("*.json"))
        for protocol in one["protocols"]
        if protocol["protocol"].partition(" ")[0] in evaluations.RANKED and protocol["figures"][0].get("ranking")
        if all(pair["p"] < SURE and pair["difference"] > 0 for pair in protocol["figures"][0]["ranking"])
    }
    assert holds == {("mini-bert", "text_perturbation"), ("mini-vlm", "text_perturbation")}


@pytest.mark.parametrize("model", PHOTOGRAPHS)
def test_by_perturbation_of_photographs_generic_attention_is_ahead_of_transformer_attribution(model):
    found = values(f"{model}-perturbation", "image_perturbation", GAP)
    assert found["generic_attention"] > found["transformer_attribution"]


def test_by_agreement_with_masks_bi_leads_on_mae_and_transformer_attribution_on_dinov2():
    by_model = {model: values(f"{model}-segmentation", "segmentation", "mIoU") for model in ("mae", "dinov2")}
    assert set(plain(by_model["mae"])[:2]) == {"bi_token", "bi_head"}
    assert plain(by_model["dinov2"])[0] == "transformer_attribution"


@pytest.mark.parametrize("model", ["lxmert", "visualbert"])
def test_where_regions_are_taken_away_bi_is_last_of_the_five(model):
    found = values(f"scenes-{model}", "vqa_removal", "regions, negative − positive")
    assert set(sorted(FIVE, key=found.get)[:2]) == {"bi_token", "bi_head"}
    assert (found["raw_attention"] < min(found[name] for name in FIVE)) == (model == "visualbert")


def test_as_masks_of_detr_bi_is_worthless_and_by_libra_the_best_of_all():
    found = values("scenes-detr", "weak_segmentation", "AP")
    assert max(found["bi_token"], found["bi_head"]) < 0.01
    assert max(found, key=found.get) == "bi_head backward=libra"


def test_no_method_is_better_than_the_former_default_when_regions_are_taken_from_lxmert():
    found = values("scenes-lxmert", "vqa_removal", "regions, negative − positive")
    assert max(found, key=found.get) == "bi_token backward=libra"


def test_when_regions_are_taken_from_lxmert_only_methods_that_remove_them_have_higher_values_on_50_scenes():
    rows = figure("scenes-lxmert", "vqa_removal", "regions, negative − positive")["rows"]
    names = [row["method"] for row in rows]
    ahead = rows[: names.index("bi_token backward=libra")]
    removing = {"occlusion", "rise", "kernel_shap", "lime", "mask_regression"}
    assert {row["method"].partition(" ")[0] for row in ahead} == removing
    assert {row["n"] for row in ahead} == {50}


def test_the_default_is_behind_the_former_on_regions_of_lxmert_and_ahead_of_it_on_those_of_visualbert():
    rows = figure("scenes-lxmert", "vqa_removal", "regions, negative − positive")["rows"]
    regions = [row for row in rows if row["n"] == 1000]
    (evidence,) = (row for row in regions if row["method"] == "evidence")
    assert regions[0]["method"] == "bi_token backward=libra"  # which p is against
    assert evidence["p"] < SURE
    found = values("scenes-visualbert", "vqa_removal", "regions, negative − positive")
    assert found["evidence"] > found["bi_token backward=libra"] + 0.1


def test_on_texts_methods_of_inputs_come_first_by_probability():
    reviews = values("bert-eraser", "text_perturbation", GAP_OF_PROBABILITY)
    assert set(plain(reviews)[:3]) == {"evidence", "input_x_gradient", "integrated_gradients"}
    posts = plain(values("news-perturbation", "text_perturbation how=mask", GAP_OF_PROBABILITY))
    assert posts[1] == "attention_gradient"
    assert {posts[0], posts[2]} == {"input_x_gradient", "integrated_gradients"}


@pytest.mark.parametrize("model", PHOTOGRAPHS)
def test_on_photographs_with_black_pixels_methods_of_inputs_do_no_better_than_noise(model):
    found = values(f"{model}-perturbation", "image_perturbation", GAP_OF_PROBABILITY)
    assert max(found["input_x_gradient"], found["integrated_gradients"]) < found["random"] + 0.01


def test_a_blob_in_the_centre_outscores_methods_by_agreement_with_masks():
    ahead = {}
    for model in ("plain", "mae", "dinov2"):
        found = values(f"{model}-segmentation", "segmentation", "mIoU")
        ahead[model] = {name for name in plain(found) if found[name] > found["centre_prior"]}
        behind = len(plain(found)) - len(ahead[model])
    assert ahead["plain"] == set()
    assert ahead["mae"] <= {"bi_token", "bi_head"}
    assert behind == 5


def test_grad_cam_is_best_by_the_area_of_eraser_and_worst_by_token_f1():
    area, agreement = (
        values("bert-eraser", "rationales", name) for name in ("AUPRC", "token F1, mean over top 10 to 80")
    )
    assert max(area, key=area.get) == min(agreement, key=agreement.get) == "grad_cam"


def test_attention_alone_does_not_depend_on_the_class():
    found = values("bert-sanity", "class_sensitivity", "1 − rank correlation")
    assert found["raw_attention"] == pytest.approx(0) == found["rollout"]
    assert max(found["lrp"], found["partial_lrp"]) < 0.01

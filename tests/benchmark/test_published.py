"""From runs to what is published: figures, the papers' ranking pair by pair, defaults chosen on one half."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import evaluations
import numpy as np
import pytest
from test_runner import pets  # noqa: F401  (a fixture)

import fill
from choose import chosen_defaults, chosen_options, criteria
from made_runs import forget_shard
from publish import chief_figure, main, merged, ordered_pairs, plain_label, published, rounded, with_confirmed, write
from whyformer.benchmark import make_suite, run_suite
from whyformer.benchmark.choice import Choice
from whyformer.benchmark.figures import read_run, sample_values
from whyformer.metrics.segmentation import mean_iou
from whyformer.metrics.statistics import paired_comparison

ROOT = Path(__file__).parents[2]
METHODS = ["bi_token", "bi_head", "transformer_attribution", "generic_attention", "rollout"]


@pytest.fixture(scope="module")
def folder(vit, pets, tmp_path_factory):  # noqa: F811
    document = {
        "model": str(vit),
        "data": {"reader": "oxford_pets", "folder": str(pets)},
        "methods": [*METHODS, {"name": "rollout", "first_block": 1}],
        "protocols": ["image_perturbation", "segmentation"],
        "shard": 4,
    }
    return run_suite(make_suite(document), tmp_path_factory.mktemp("published") / "tiny", quiet=True)


def test_the_papers_pairs():
    pairs = list(ordered_pairs())
    assert len(pairs) == 9
    assert ("bi_head", "rollout") in pairs
    assert ("bi_token", "bi_head") not in pairs


def test_published_figures_are_those_of_the_run(folder, tmp_path):
    run = read_run(folder)
    found = published(run)
    assert (found["samples"], found["unfinished"], found["unusable"]) == (8, 0, {})
    (figure,) = (one for one in found["protocols"][1]["figures"] if one["figure"] == "mIoU")
    assert {"random", "centre_prior", "edge_prior", *METHODS} < {row["method"] for row in figure["rows"]}
    _, values = sample_values(run, run.choices[1], "mIoU")
    counts = {method: np.array(list(each.values())) for method, each in values.items()}
    for row in figure["rows"]:
        assert row["value"] == pytest.approx(mean_iou(counts[row["method"]]), rel=1e-4)
    assert len(figure["ranking"]) == 9
    for pair in figure["ranking"]:
        tested = paired_comparison(counts[pair["ahead"]], counts[pair["behind"]], mean_iou)
        assert pair["difference"] == pytest.approx(tested.difference.value, rel=1e-4, abs=1e-9)
        assert pair["p"] == pytest.approx(tested.p, rel=1e-4)
    lower = next(one for one in found["protocols"][0]["figures"] if one["better"] == "lower")
    by_method = {row["method"]: row["value"] for row in lower["rows"]}
    for pair in lower["ranking"]:  # a positive difference is in favour of the one ahead
        assert pair["difference"] == pytest.approx(by_method[pair["behind"]] - by_method[pair["ahead"]], abs=1e-4)
        assert pair["low"] <= pair["difference"] <= pair["high"]
    write(found, tmp_path / "evaluation" / "tiny.json")
    assert evaluations.runs(tmp_path / "evaluation") == {"tiny": json.loads(json.dumps(found))}
    (page,) = evaluations.pages({"tiny": found}).values()
    assert "| *random* |" in page
    assert "ordered pairs" in page
    shown = {"tiny": found | {"model": "dinov2-photos"}}
    assert evaluations.short({"tiny": found}) == "Not yet measured."
    header, _, *lines = evaluations.short(shown).splitlines()
    assert header == "| % | dinov2-photos, perturbation gap | dinov2-photos, mIoU |"
    assert len(lines) == len(METHODS) + 3


def test_the_ranking_is_counted_run_by_run(folder):
    found = published(read_run(folder))
    perturbation, segmentation = evaluations.rankings({"tiny": found}).splitlines()[2:]
    figure = found["protocols"][1]["figures"][0]
    holds = sum(pair["p"] < 0.05 and pair["difference"] > 0 for pair in figure["ranking"])
    apart = sum(pair["p"] >= 0.05 for pair in figure["ranking"])
    assert segmentation.startswith(
        f"| {found['model']}, oxford_pets | `segmentation`, mIoU | {holds} | {apart} | {9 - holds - apart} |"
    )
    assert "`image_perturbation`, negative − positive |" in perturbation
    twice = found | {"protocols": [*found["protocols"], found["protocols"][1] | {"protocol": "segmentation again"}]}
    assert evaluations.rankings({"tiny": twice}) == evaluations.rankings({"tiny": found})


def pair(ahead, behind, difference, p):
    bounds = {"low": difference - 0.01, "high": difference + 0.01}
    return {"ahead": ahead, "behind": behind, "difference": difference, "p": p} | bounds


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ([("a", "b", 0.1, 0.001)], "By mIoU, the papers' ranking holds: of 1 ordered pairs 1 hold"),
        ([("a", "b", 0.1, 0.001), ("a", "c", 0.01, 0.6)], "nothing contradicts the papers' ranking"),
        ([("a", "b", 0.01, 0.6)], "the papers' ranking is not seen: of 1 ordered pairs 0 hold"),
        ([("a", "b", -0.1, 0.001)], "1 are reversed (b > a +10.0 [+9.0, +11.0])"),
    ],
)
def test_whether_the_papers_ranking_holds_is_said(pairs, said):
    rows = [{"method": "centre_prior"}, {"method": "a"}, {"method": "random"}]
    ranking = [pair(*one) for one in pairs]
    sentence = evaluations.ranking({"figure": "mIoU", "is_share": True, "rows": rows, "ranking": ranking})
    assert said in sentence
    assert sentence.endswith("The best method is a, behind centre_prior.")


def test_defaults_are_chosen_on_the_first_half_and_reported_on_the_second(folder, tmp_path):
    run = read_run(folder)
    models = [run.suite["model"]]
    found = chosen_defaults([run], models)
    first = criteria([run], "first", models)
    assert [one.name.partition(": ")[2] for one in first] == [
        "image_perturbation, negative − positive, probability",
        "segmentation, mIoU",
    ]
    assert set(first[0].values) == {*METHODS, "rollout first_block=1"}
    places = {sample["sample"] for sample in run.half("first").samples}
    assert all(set(values) <= places for values in first[0].values.values())
    assert found["label"] == found["first_half"][0]["method"]
    assert found["chosen"]["name"] == found["label"].split()[0]
    others = len(run.half("second").samples)
    for column in found["second_half"]:
        assert all(row["n"] == others for row in column["rows"])
        assert sum("p" in row for row in column["rows"]) == len(METHODS)
    write(found, tmp_path / "defaults.json")
    text = evaluations.defaults(tmp_path / "defaults.json")
    assert text.startswith(f"`{found['label']}` has the lowest mean rank")
    with pytest.raises(SystemExit, match="No run of dinov2-photos"):
        chosen_defaults([run])


def test_options_are_judged_against_their_defaults(folder, tmp_path):
    run = read_run(folder)
    models = [run.suite["model"]]
    found = chosen_options([run], models)
    (row,) = found["rows"]
    assert (row["method"], row["variant"]) == ("rollout", "rollout first_block=1")
    first, second = (criteria([run], half, models) for half in ("first", "second"))
    signs = []
    for criterion, gain in zip(second, row["second_half"], strict=True):
        rows = [np.array(list(criterion.values[name].values())) for name in ("rollout first_block=1", "rollout")]
        of = criterion.figure.of
        assert gain["gain"] == pytest.approx(of(rows[0]) - of(rows[1]), rel=1e-4, abs=1e-9)
    for criterion, gain in zip(first, row["first_half"], strict=True):
        rows = [np.array(list(criterion.values[name].values())) for name in ("rollout first_block=1", "rollout")]
        tested = paired_comparison(*rows, criterion.figure.of)
        bounds = {"low": rounded(tested.difference.low), "high": rounded(tested.difference.high)}
        assert gain == {"gain": rounded(tested.difference.value), **bounds, "p": rounded(tested.p)}
        signs.append(np.sign(tested.difference.value) if tested.p < 0.05 else 0)
    assert (row["better"], row["worse"]) == (signs.count(1), signs.count(-1))
    assert row["serves"] == (row["better"] >= 2 and not row["worse"])
    write(found, tmp_path / "options.json")
    line = evaluations.options(tmp_path / "options.json").splitlines()[2]
    assert line.startswith(f"| rollout first_block=1 | {row['better']} / {row['worse']} |")


def test_a_run_that_is_not_finished_is_not_published(folder, tmp_path, monkeypatch, capsys):
    run = shutil.copytree(folder, tmp_path / "run")
    forget_shard(run, 1)
    monkeypatch.setattr(sys, "argv", ["publish.py", str(run), "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    assert "is not finished: 4 samples are still to be done" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_rows_of_a_later_run_on_some_of_the_samples_are_added_to_what_is_published(folder, tmp_path):
    before = published(read_run(folder))
    document = read_run(folder).suite
    methods = [*document["methods"][:2], {"name": "grad_cam", "backward": "gradient"}]
    asked = {key: document[key] for key in ("model", "data", "labels", "protocols", "seed", "batch")}
    few = max(2, document["count"] - 2)
    suite = make_suite(asked | {"methods": methods, "samples": few, "shard": few})
    later = read_run(run_suite(suite, tmp_path / "later", quiet=True))
    merged_results = merged(json.loads(json.dumps(before)), later)
    for protocol, old in zip(merged_results["protocols"], before["protocols"], strict=True):
        for figure, kept in zip(protocol["figures"], old["figures"], strict=True):
            rows = {row["method"]: row for row in figure["rows"]}
            assert rows["grad_cam"]["n"] == few
            best = figure["rows"][0]["method"]
            for row in kept["rows"]:
                ours = {key: value for key, value in rows[row["method"]].items() if key != "p"}
                assert ours == {key: value for key, value in row.items() if key != "p"}
                if best == kept["rows"][0]["method"]:
                    assert rows[row["method"]] == row
            values = [row["value"] for row in figure["rows"]]
            assert values == sorted(values, reverse=figure["better"] == "higher")
        chief = chief_figure(protocol)
        assert [one["n"] for one in chief["subsets"]] == [few]
        assert chief["subsets"][0]["values"].keys() >= {plain_label(one["name"]) for one in methods[2:]}
    again = merged(json.loads(json.dumps(merged_results)), later)
    assert again == merged_results
    with pytest.raises(SystemExit, match="seed is 0 in the run and 1 in what is published"):
        merged(before | {"seed": 1}, later)


def test_a_method_by_its_own_backward_is_the_method_itself():
    assert plain_label("full_grad backward=libra") == "full_grad"
    assert plain_label("bi_token backward=libra") == "bi_token backward=libra"
    assert plain_label("of_a_plugin steps=3") == "of_a_plugin steps=3"


def test_what_is_missing_is_every_listed_method_without_a_value_or_a_reason():
    figures = [{"figure": "mIoU", "rows": [{"method": "rollout"}, {"method": "full_grad backward=libra"}]}]
    document = {"protocols": [{"protocol": "segmentation", "figures": figures}], "left_out": {"grad_eclip": "refused"}}
    methods = [Choice(name) for name in ("rollout", "full_grad", "grad_eclip", "evidence")]
    assert [one.label for one in fill.missing({**document, "model": "mini-vit"}, methods)] == ["evidence"]
    figures[0]["rows"] = []
    lacking = [one.label for one in fill.missing({**document, "model": "mini-clip"}, methods)]
    assert lacking == ["rollout", "evidence"]  # full_grad refuses mini-clip
    assert "rise forwards=128" in {choice.label for choice in fill.read_lists()["references"]}


@pytest.mark.parametrize(
    ("run", "model", "protocol", "expected"),
    [
        ("bert-eraser", "mini-bert", "rationales", True),
        ("vit-ablations", "mini-vit", "segmentation", False),
        ("vit-approximation", "mini-vit", "approximation", False),
        ("plain-segmentation", "mini-vit-plain", "segmentation", False),
    ],
)
def test_only_runs_on_the_board_whose_weights_are_at_hand_are_listed_as_missing(run, model, protocol, expected):
    assert fill.is_measured(run, {"model": model, "protocols": [{"protocol": protocol}]}) is expected


def test_values_of_the_confirmation_become_rows_that_are_tested_against_the_chosen_method_alone():
    rows = [{"method": "rollout", "n": 8, "value": 0.5, "low": 0.4, "high": 0.6}]
    rows += [{"method": "bi_token", "n": 8, "value": 0.2, "low": 0.1, "high": 0.3, "p": 0.01}]
    figure = {"figure": "mIoU", "better": "higher", "is_share": True, "rows": rows}
    document = {"protocols": [{"protocol": "segmentation", "figures": [figure]}], "left_out": {}}
    later = [
        {"method": "evidence", "n": 4, "value": 0.6},
        {"method": "rollout", "n": 4, "value": 0.55, "chosen_ahead_by": 0.05, "p": 0.3},
        {"method": "full_grad backward=libra", "n": 4, "value": 0.1, "chosen_ahead_by": 0.5, "p": 0.001},
        {"method": "grad_cam", "n": 2, "value": 0.3, "chosen_ahead_by": 0.2, "p": 0.2},
    ]
    table = {"criterion": "tiny: segmentation, mIoU", "rows": later}
    choices = {"all": {"chosen": "evidence", "against_others": [table]}}
    found = with_confirmed(document, "tiny", {"choices": choices})
    (merged_figure,) = found["protocols"][0]["figures"]
    standing = [(row["method"], row["n"], row["low"], row.get("p")) for row in merged_figure["rows"]]
    assert standing == [
        ("evidence", 4, None, None),
        ("rollout", 8, 0.4, None),
        ("grad_cam", 2, None, None),
        ("bi_token", 8, 0.1, 0.01),
        ("full_grad", 4, None, 0.001),
    ]
    assert merged_figure["subsets"] == [{"n": 4, "values": {"evidence": 0.6, "rollout": 0.55, "full_grad": 0.1}}]
    assert with_confirmed(document, "other", {"choices": choices}) == document

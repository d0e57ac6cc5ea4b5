"""Every method of the board is measured in every cell, stage by stage, by processes that share the work."""

from __future__ import annotations

import argparse
import json
import time
import tomllib

import numpy as np
import pytest
import torch

import fill
import publish
from whyformer.benchmark import method_maps
from whyformer.benchmark.choice import Choice
from whyformer.benchmark.run_plan import make_plan

SUITE = """
model = "mini-visualbert"
shard = 3
methods = ["rollout", "raw_attention"]
protocols = ["localisation"]
[data]
reader = "scenes"
count = 8
seed = 11
"""


@pytest.fixture
def suites(tmp_path, monkeypatch):
    """A suite and lists of methods of the test's own, in which nothing is published yet."""
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites" / "few.toml").write_text(SUITE)
    lists = {"methods": (Choice("rollout"), Choice("grad_cam")), "references": (Choice("rise", {"forwards": 4}),)}
    stages = [
        fill.Stage("common", 6, ("methods",), 3),
        fill.Stage("references", 4, fill.LISTS, 2),
        fill.Stage("whole", None, ("methods",), 4),
    ]
    monkeypatch.setattr(fill, "HERE", tmp_path)
    monkeypatch.setattr(fill, "EVALUATION", tmp_path / "published")
    monkeypatch.setattr(fill, "read_lists", lambda: lists)
    monkeypatch.setattr(fill, "fill_document", lambda: {"samples": {}, "refused": []})
    monkeypatch.setattr(fill, "opponents", lambda name: [{"name": "rollout"}])
    monkeypatch.setattr(fill, "STAGES", {stage.name: stage for stage in stages})
    return tmp_path


def measure(suites, stage, end=np.inf):
    return fill.measure("few", fill.STAGES[stage], suites, suites / "runs", "cpu", end)


def rows(found):
    (figure,) = (one for one in found["protocols"][0]["figures"] if one["figure"] == "regions: pointing game")
    return {row["method"]: row["n"] for row in figure["rows"]}


def test_every_method_gets_a_value_and_all_are_compared_on_common_samples(suites):
    assert measure(suites, "references")
    by_references = rows(fill.result("few", suites / "runs"))
    assert set(by_references) >= {"rollout", "grad_cam", "rise forwards=4"}
    assert set(by_references.values()) == {4}
    assert measure(suites, "whole")
    found = fill.result("few", suites / "runs")
    by_whole = rows(found)
    assert (by_whole["rollout"], by_whole["raw_attention"], by_whole["grad_cam"]) == (8, 8, 8)
    assert by_whole["rise forwards=4"] == 4
    (subset,) = publish.chief_figure(found["protocols"][0])["subsets"]
    assert subset["n"] == 4
    assert subset["values"].keys() >= {"rollout", "grad_cam", "rise forwards=4"}


def test_the_samples_of_a_stage_are_among_those_of_larger_ones(suites):
    names = {}
    for stage in fill.STAGES.values():
        plan = make_plan(fill.suite_of("few", stage), suites, with_digests=False)
        names[stage.name] = {plan.examples.names[number] for shard in plan.shards for number in shard}
    assert list(map(len, names.values())) == [6, 4, 8]
    assert names["references"] < names["common"] < names["whole"]


def test_a_slow_suite_has_a_number_of_samples_of_its_own(suites, monkeypatch):
    monkeypatch.setattr(fill, "fill_document", lambda: {"samples": {"common": {"few": 5, "other": 1}}})
    counts = {name: fill.suite_of("few", stage).samples for name, stage in fill.STAGES.items()}
    assert counts == {"common": 5, "references": 4, "whole": None}
    assert measure(suites, "common")
    assert set(rows(fill.result("few", suites / "runs")).values()) == {5}


def test_only_methods_without_a_value_are_measured_beside_the_best(suites, monkeypatch):
    lists = {"methods": (Choice("raw_attention"), Choice("grad_cam")), "references": ()}
    monkeypatch.setattr(fill, "read_lists", lambda: lists)
    protocol = {"protocol": "localisation", "figures": [{"rows": [{"method": "rollout"}, {"method": "raw_attention"}]}]}
    (suites / "published").mkdir()
    document = {"model": "mini-visualbert", "left_out": {}, "protocols": [protocol]}
    (suites / "published" / "few.json").write_text(json.dumps(document))
    suite = fill.suite_of("few", fill.Stage("missing", 5, ("methods",), 3, only_missing=True))
    assert {one.label for one in suite.methods} == {"rollout", "grad_cam", "random"}


def test_a_shard_that_a_process_has_taken_is_not_measured_again(suites, monkeypatch):
    claims = suites / "runs" / "common" / "few.claims"
    claims.mkdir(parents=True)
    (claims / "0").touch()  # by another process, which is still at it
    assert not measure(suites, "common")
    assert fill.result("few", suites / "runs") is None
    (claims / "0").unlink()
    (suites / "runs" / "common" / "few.taken").unlink()
    seen = []
    tables = fill.Measurement.tables
    monkeypatch.setattr(fill.Measurement, "tables", lambda one, number: seen.append(number) or tables(one, number))
    assert measure(suites, "common")
    assert seen == [0]
    assert set(rows(fill.result("few", suites / "runs")).values()) == {6}


def test_no_shard_is_begun_when_the_time_is_over(suites):
    assert not measure(suites, "common", end=time.monotonic() - 1)
    assert not (suites / "runs" / "common" / "few.claims").exists()


def test_a_method_that_fails_on_the_device_is_left_out_and_named(suites, monkeypatch, capsys):
    compute_maps = method_maps.compute_maps

    def broken(shard, loaded_model, targeted, name):
        if name == "grad_cam":
            raise RuntimeError("two devices")
        return compute_maps(shard, loaded_model, targeted, name)

    monkeypatch.setattr(method_maps, "compute_maps", broken)
    assert measure(suites, "common")
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {"suite": "few", "fails": "grad_cam", "error": "RuntimeError: two devices"} in lines
    assert "grad_cam" not in rows(fill.result("few", suites / "runs"))
    assert rows(fill.result("few", suites / "runs"))["rollout"] == 6


def test_after_a_fault_of_the_device_the_process_ends_and_the_same_command_resumes(suites, monkeypatch):
    compute_maps = method_maps.compute_maps

    def faulty(shard, loaded_model, targeted, name):
        if name == "grad_cam":
            raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")
        return compute_maps(shard, loaded_model, targeted, name)

    options = argparse.Namespace(
        stages=["common"], data=suites, runs=suites / "runs", out=suites / "out", device="cpu", seconds=np.inf
    )
    with monkeypatch.context() as patch:
        patch.setattr(method_maps, "compute_maps", faulty)
        with pytest.raises(SystemExit, match=r"few, stage common: the device failed.*Run the same command again"):
            fill.fill(["few"], options)
    fill.fill(["few"], options)
    assert rows(json.loads((suites / "out" / "few.json").read_text()))["grad_cam"] == 6


def test_running_out_of_memory_is_not_a_fault_of_the_device():
    assert fill.is_device_fault(torch.AcceleratorError("CUDA error: unspecified launch failure"))
    assert not fill.is_device_fault(torch.AcceleratorError("CUDA error: out of memory"))
    assert not fill.is_device_fault(RuntimeError("two devices"))


def test_every_suite_of_the_board_can_be_measured_in_every_stage():
    document = tomllib.loads((fill.HERE / "fill.toml").read_text())
    stages = [stage for stage in fill.STAGES.values() if not stage.only_missing]
    for name in document["order"]:
        sizes = [len(fill.suite_of(name, stage).methods) for stage in stages]
        assert min(sizes) >= len(document["methods"]), name

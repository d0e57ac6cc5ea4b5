"""The measurement of candidates: what is packed gives the same figures, and the rule decides as it is written."""

import importlib
import json

import pytest
import torch

from whyformer.benchmark import run_suite
from whyformer.benchmark.choice import Choice
from whyformer.benchmark.figures import make_figures, read_run
from whyformer.benchmark.protocols import Figure
from whyformer.benchmark.run_plan import make_plan
from whyformer.benchmark.worker import make_worker

candidates = importlib.import_module("candidates")
confirm = importlib.import_module("confirm")
confirmation = importlib.import_module("confirmation")


def test_the_committed_file_names_known_suites_figures_and_protocols():
    file = candidates.read_candidates()
    assert file.today.label == "bi_token backward=libra"
    for run in file.runs:
        suite = candidates.suite_of(run, file.lists, samples=2)
        labels = {choice.label for choice in suite.protocols}
        for one in (*file.choices, *file.reports):
            if one.run == run.name:
                protocol = next(choice for choice in suite.protocols if choice.label == one.protocol)
                assert one.protocol in labels
                assert one.figure in confirm.protocol_named(protocol.name).figures
    assert not {one.run for one in file.choices} & {one.run for one in file.reports}


def test_packed_and_unpacked_a_run_has_the_figures_of_the_runner(tmp_path):
    run = candidates.CandidateRun("scenes", "scenes-visualbert", ("few",), 1, {"shard": 2})
    lists = {"few": [candidates.Choice("rollout"), candidates.Choice("raw_attention")]}
    suite = candidates.suite_of(run, lists, samples=3)
    plan = make_plan(suite, tmp_path)
    folder = run_suite(suite, tmp_path / "plain", quiet=True)
    worker = make_worker(plan)
    confirm.write_whole(tmp_path / "light" / "scenes" / "suite.json", (folder / "suite.json").read_bytes())
    for number in range(len(plan.shards)):
        job = confirm.Job("scenes", number)
        confirm.write_whole(confirm.shard_path(tmp_path / "light", job), confirm.light_shard(worker, number))
    archives = confirm.pack(tmp_path / "light", ["scenes"], tmp_path / "packed")
    (unpacked,) = confirm.unpack(archives, tmp_path / "runs")
    plain, packed = (make_figures(read_run(place)) for place in (folder, unpacked))
    assert len(plain["protocols"]) == 2
    for one, other in zip(plain["protocols"], packed["protocols"], strict=True):
        for table, same in zip(one["tables"], other["tables"], strict=True):
            assert [row["method"] for row in table["rows"]] == [row["method"] for row in same["rows"]]
            for row, twin in zip(table["rows"], same["rows"], strict=True):
                assert twin["value"] == pytest.approx(row["value"], abs=1e-5)


def test_answers_are_in_tf32_and_explanations_are_not():
    model, seen = torch.nn.Linear(2, 2), []
    confirm.answer_in_tf32(model)
    model.register_forward_pre_hook(lambda *_: seen.append(torch.backends.cuda.matmul.allow_tf32))
    model(torch.ones(1, 2))
    with torch.no_grad():
        model(torch.ones(1, 2))
    assert seen == [False, True]
    assert not torch.backends.cuda.matmul.allow_tf32


def measured(name, values, kind="texts", *, seen=False):
    criterion = confirmation.Criterion(name, kind, "protocol", "figure", seen)
    by_sample = {method: dict(enumerate(each)) for method, each in values.items()}
    return confirmation.Measured(criterion, Figure("measure"), by_sample, 0)


def test_the_lowest_mean_rank_is_chosen_among_what_all_figures_have():
    found = [
        measured("a", {"old": [1, 1], "new": [3, 3], "lone": [9, 9]}),
        measured("b", {"old": [2, 2], "new": [1, 1], "third": [0, 0]}),
        measured("c", {"old": [1, 1], "new": [2, 2]}),
    ]
    ranks = confirmation.mean_ranks(found)
    assert list(ranks) == ["new", "old"]
    assert ranks["new"] == pytest.approx(4 / 3)


def test_what_holds_is_confirmed_and_one_loss_refuses_it():
    better = {"old": [0.1 * (n % 3) for n in range(40)], "new": [0.5 + 0.1 * (n % 3) for n in range(40)]}
    worse = {"old": better["new"], "new": better["old"]}
    halves = [measured("a", better), measured("b", better)]
    report = [measured("c", better), measured("d", worse, seen=True)]
    held = confirmation._verdict(halves, halves, report, "old")
    assert held["chosen"] == "new"
    assert held["is_confirmed"]
    assert held["second_half"] == {"better": 2, "worse": 0, "alike": 0}
    assert held["report_all"] == {"better": 1, "worse": 1, "alike": 0}
    assert not confirmation._verdict(halves, [*halves, measured("e", worse)], report, "old")["is_confirmed"]
    assert not confirmation._verdict(halves, halves, [measured("d", worse)], "old")["is_confirmed"]
    json.dumps(held)


def test_the_default_of_an_option_moves_by_the_same_rule():
    better = {"old": [0.1 * (n % 3) for n in range(40)], "new": [0.5 + 0.1 * (n % 3) for n in range(40)]}
    worse = {"old": better["new"], "new": better["old"]}
    halves, report = [measured("a", better), measured("b", better)], [measured("c", better)]
    moved = confirmation._option(halves, report, "old", "new")
    assert moved["moves"]
    assert moved["second_half"] == {"better": 2, "worse": 0, "alike": 0}
    assert not confirmation._option([*halves, measured("e", worse)], report, "old", "new")["moves"]
    assert not confirmation._option(halves, [measured("c", worse)], "old", "new")["moves"]
    assert not confirmation._option(halves[:1], report, "old", "new")["moves"]


def test_reports_measured_later_give_what_all_measured_at_once_would(monkeypatch):
    better = {"old": [0.1 * (n % 3) for n in range(40)], "new": [0.5 + 0.1 * (n % 3) for n in range(40)]}
    worse = {"old": better["new"], "new": better["old"]}
    runs = {"a": better, "b": better, "c": worse, "d": better, "e": better}
    kinds = dict.fromkeys("ad", "texts") | dict.fromkeys("bce", "pictures")
    old, new = Choice("old"), Choice("new")
    figures = {name: measured(name, values, kinds[name], seen=name == "d").criterion for name, values in runs.items()}
    file = candidates.Candidates(
        old,
        {"candidates": (old, new)},
        tuple(map(figures.get, "ab")),
        tuple(map(figures.get, "cde")),
        (),
        ((old, new),),
    )

    def fake(runs, labels, criteria, half):
        own = [one for one in criteria if one.run in runs]
        return [measured(one.run, runs[one.run], one.kind, seen=one.seen) for one in own]

    monkeypatch.setattr(confirmation, "_measured", fake)
    at_once = confirmation.confirmation(runs, file)
    first = confirmation.confirmation({name: runs[name] for name in "abc"}, file)
    later = confirmation.with_reports(first, {name: runs[name] for name in "de"}, file)
    assert later == at_once
    assert [first["choices"]["all"]["is_confirmed"], at_once["choices"]["all"]["is_confirmed"]] == [False, False]
    again = confirmation.with_reports(later, {"c": better}, file)  # measured anew, it takes the place of the earlier
    assert again == confirmation.confirmation({**runs, "c": better}, file)
    assert again["choices"]["all"]["is_confirmed"]
    with pytest.raises(SystemExit, match="No run with a figure that reports: c, d, e"):
        confirmation.with_reports(later, {"a": better}, file)

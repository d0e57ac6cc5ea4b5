"""The benchmark of actions: every method in its summary, intervals and halves by task, rows of the agent register."""

import argparse
import json

import pytest

import actions
from whyformer.facts import episode


def row(kind, task, dominance, method="grad_eclip", recovery=0.5):
    figures = [-1.0, -1.0, -1.0 - dominance, -2.0]
    located = {method: {"recovery": [recovery] * 3, "rank": 1, "seconds": 1.0}, "messages": 3, "injected": 10}
    return {
        "key": f"{kind} {task} {dominance}",
        "model": "m",
        "kind": kind,
        "suite": "s",
        "user_task": task,
        "tokens": 100,
        "seconds": 1.0,
        "targets": dict.fromkeys(("call", "action", "decision", "name"), figures),
        "arguments": {"to": [-1.0, -1.0, -4.0, -4.0]},
        **({"located": located} if kind == "attacked" else {}),
    }


def test_the_summary_has_every_method_that_was_measured():
    rows = [row("attacked", "a", 3.0), row("attacked", "b", 4.0, "removal"), row("clean", "c", 1.0)]
    summary = actions.summary_of(rows)
    assert set(summary["methods"]) == {"grad_eclip", "removal"}
    assert summary["methods"]["grad_eclip"]["recovery"] == [[0.5, 0.5, 0.5]] * 3
    assert summary["auroc"]["attacked against clean"]["dominance of the action"][0] == 1.0
    assert summary["auroc"]["attacked against clean"]["largest dominance of an argument"][0] == 0.5
    assert summary["n"] == {"attacked": 2, "ignored": 0, "clean": 1}


def test_intervals_are_drawn_by_task():
    alike = [row("attacked", "a", 1.0, recovery=value) for value in (0.0, 0.0, 0.0)]
    other = [row("attacked", "b", 1.0, recovery=1.0)]
    (mean, low, high) = actions.mean_interval([*alike, *other], lambda one: one["located"]["grad_eclip"]["recovery"][0])
    assert (mean, low, high) == (0.25, 0.0, 1.0)


def test_rows_of_two_files_are_merged_and_half_a_line_is_left_out(tmp_path):
    first, second = tmp_path / "dominance.jsonl", tmp_path / "located.jsonl"
    own = row("attacked", "a", 3.0)
    first.write_text(json.dumps({name: value for name, value in own.items() if name != "located"}) + '\n{"key": "b')
    second.write_text(json.dumps(own) + "\n")
    assert actions.merged_rows([first, second]) == [own]


def test_a_task_is_in_one_half_and_an_action_keeps_its_figures():
    halves = {actions.half_of(row("clean", f"task {number}", 1.0)) for number in range(20)}
    assert halves == {0, 1}
    assert actions.half_of(row("clean", "a", 1.0)) == actions.half_of(row("attacked", "a", 9.0))
    assert actions.action_target(row("attacked", "a", 9.0)).dominance == 9.0


def test_the_register_becomes_transcripts_with_the_place_of_the_order(tmp_path):
    out = tmp_path / "register.jsonl"
    actions.register(argparse.Namespace(out=out, count=8))
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [one["kind"] for one in rows] == ["attacked", "clean"] * 8
    for one in rows[::2]:
        results = [message for message in one["messages"] if message["role"] == "tool"]
        number, start, end = one["span"]
        seed = int(one["user_task"].split()[1])
        expected = episode(seed, kind=one["user_task"].split()[0], attack=one["injection_task"]).injected
        assert results[number]["content"][start:end] == expected.text
    assert {one["injection_task"] for one in rows[::2]} == {"other_tool", "same_tool"}


def test_the_published_figures_stand_beside_the_measured_ones(tmp_path, capsys):
    rows = tmp_path / "rows.jsonl"
    rows.write_text("\n".join(json.dumps(row(kind, "a", 1.0)) for kind in ("attacked", "clean")) + "\n")
    actions.summarise(argparse.Namespace(rows=[rows], out=tmp_path / "actions.json"))
    summary = json.loads((tmp_path / "actions.json").read_text())
    assert [(run["data"], run["model"]) for run in summary["runs"]] == [("AgentDojo", "m")]
    assert summary["published"]["FlashTrace (its own n = 3)"] == pytest.approx([0.185, 0.396, 0.765])
    assert "0.765" in capsys.readouterr().out

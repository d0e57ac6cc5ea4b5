"""The benchmark of actions: figures of rows, every method in the summary, intervals and halves by task."""

import argparse
import json

import numpy as np
import pytest

import action_summary
import actions
from whyformer.facts import episode


def row(kind, task, dominance, method="grad_eclip", recovery=0.5):
    """A call of two tokens, the name and the argument `to`; the untrusted sources add `dominance` to the argument."""
    located = {"injected": 10, method: {"shares": [0.2, 0.8], "seconds": 1.0, "recovery": [recovery] * 3}}
    return {
        "key": f"{kind} {task} {dominance}",
        "model": "m",
        "kind": kind,
        "suite": "s",
        "user_task": task,
        "tokens": 100,
        "seconds": 1.0,
        "targets": [
            *(["call", "call", [0, 1]], ["action", "action", [0]], ["decision", "decision", [0]]),
            *(["name", "name", [0]], ["argument", "to", [1]]),
        ],
        "sources": [[0, "user", "user", "request", 10, 0.0], [1, "tool result", "read", "untrusted", 20, 0.5]],
        "without": {
            "nothing": [-1.0, -1.0],
            "request": [-1.5, -1.0],
            "untrusted": [-1.0, -1.5 - dominance],
            "both": [-2.0, -9.0],
            "0": [-1.5, -1.0],
            "1": [-1.0, -1.5 - dominance],
        },
        "located": located,
        **({"driver": {"sources": [["sentence", 4, 1.0]], "forwards": 9}} if kind == "attacked" else {}),
    }


def test_figures_are_sums_over_the_tokens_of_a_part():
    one = row("attacked", "a", 3.0)
    assert action_summary.dominance(one, "call") == pytest.approx(3.0)
    assert action_summary.dominance(one, "action") == pytest.approx(-0.5)
    assert action_summary.dominance(one, "argument", "to") == pytest.approx(3.5)
    assert action_summary.request_effect(one, "call") == pytest.approx(0.5)
    log_odds = [value - np.log1p(-np.exp(value)) for value in (-1.5, -1.0)]
    assert action_summary.dominance(one, "decision") == pytest.approx(log_odds[0] - log_odds[1])
    assert action_summary.removal_rank(one) == 1
    assert action_summary.removal_rank(row("attacked", "a", -1.0)) == 2
    assert action_summary.message_rank(one, "grad_eclip") == 1


def test_the_summary_has_every_method_that_was_measured():
    tasks = [f"task {number}" for number in range(8)]
    rows = [row("attacked", task, 3.0, method) for task in tasks for method in ("grad_eclip", "removed")]
    rows += [row("clean", task, 1.0) for task in tasks]
    summary = action_summary.summary_of("m", rows)
    located = summary["located"]["attacked"]
    assert {"grad_eclip", "removed", "removal", "driver"} <= set(located)
    assert located["grad_eclip"]["recovery"] == [[0.5, 0.5, 0.5]] * 3
    assert located["driver"] == {"n": 16, "named": 1.0, "injected": [1.0, 1.0, 1.0], "forwards": 9.0}
    assert summary["auroc"]["dominance of the call"]["attacked against clean"] == [1.0, 1.0, 1.0, 1.0]
    assert summary["auroc"]["dominance of the action"]["attacked against clean"][1] == 0.5
    assert summary["n"] == {"attacked": 16, "late": 0, "ignored": 0, "clean": 8}


def test_intervals_are_drawn_by_task():
    alike = [row("attacked", "a", 1.0, recovery=value) for value in (0.0, 0.0, 0.0)]
    other = [row("attacked", "b", 1.0, recovery=1.0)]
    found = action_summary.mean_interval([*alike, *other], lambda one: one["located"]["grad_eclip"]["recovery"][0])
    assert found == [0.25, 0.0, 1.0]


def test_rows_of_two_files_are_merged_and_errors_and_half_a_line_are_left_out(tmp_path):
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    one, other = row("attacked", "a", 3.0), row("attacked", "a", 3.0, "rollout")
    failed = {"key": "x", "model": "m", "error": "OutOfMemoryError"}
    first.write_text(f'{json.dumps(one)}\n{json.dumps(failed)}\n{{"key": "b')
    second.write_text(json.dumps(other) + "\n")
    (merged,) = action_summary.finished([first, second])
    assert set(merged["located"]) == {"injected", "grad_eclip", "rollout"}


def test_a_task_is_in_one_half_and_a_call_keeps_its_figures():
    halves = {action_summary.half_of(row("clean", f"task {number}", 1.0)) for number in range(20)}
    assert halves == {0, 1}
    assert action_summary.half_of(row("clean", "a", 1.0)) == action_summary.half_of(row("attacked", "a", 9.0))
    assert action_summary.target_of(row("attacked", "a", 9.0), "call").dominance == pytest.approx(9.0)


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
    action_summary.summarise(argparse.Namespace(rows=[rows], out=tmp_path / "actions.json"))
    summary = json.loads((tmp_path / "actions.json").read_text())
    assert [run["model"] for run in summary["runs"]] == ["m"]
    assert summary["published"]["FlashTrace (its own n = 3)"] == pytest.approx([0.185, 0.396, 0.765])
    assert "0.765" in capsys.readouterr().out

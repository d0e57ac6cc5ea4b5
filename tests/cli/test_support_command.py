"""`whyformer support` and `whyformer calibrate`: a log to a report, an exit code, and calibrations."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time

import pytest

from commands import invoke, refusal

TRUE = "Boris is in Oslo. Anna is a baker. The key is in the box."
FALSE = [
    ("Boris has the coat. Anna is in Oslo. Clara gave the lamp to Boris.", "Who has the hat?", "Anna has the hat."),
    ("The lamp is in Rome. Greta took the key. Hugo is in Paris.", "Where is the key?", "The key is in Paris."),
]


def row(text: str, question: str, answer: str) -> dict[str, object]:
    prompt = {"role": "user", "content": f"{text}\n\n{question}"}
    return {"messages": [prompt, {"role": "assistant", "content": answer}]}


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    file = tmp_path_factory.mktemp("support") / "log.jsonl"
    rows = [row(TRUE, "Where is Boris?", "Boris is in Oslo."), *(row(*one) for one in FALSE)]
    file.write_text("\n".join(json.dumps({**one, "id": f"answer {number}"}) for number, one in enumerate(rows)))
    return file


@pytest.fixture(scope="module")
def report(log):
    out = log.parent / "report.html"
    return invoke("support", str(log), "--model", "mini-llm", "--out", str(out), "--fail-under", "0.9"), out


def test_the_false_answers_fail_the_check(report):
    result, out = report
    assert result.exit_code == 1
    assert "answers without an unsupported sentence: 1 of 3" in result.stdout
    page = out.read_text()
    assert page.count('class="chip not-supported"') == 2
    assert page.index("answer 1") < page.index("answer 0")  # the worst first


def test_a_finished_run_is_not_judged_again_and_a_cut_off_line_is(report, log):
    _, out = report
    kept = out.with_suffix(".jsonl")
    lines = kept.read_text().splitlines()
    assert len(lines) == 3
    kept.write_text("\n".join([*lines[:2], lines[2][:50]]))
    result = invoke("support", str(log), "--model", "mini-llm", "--out", str(out))
    assert result.exit_code == 0
    assert [len(json.loads(line)["digest"]) for line in kept.read_text().splitlines() if line.endswith("}")] == [24] * 3


def test_bad_rows_and_options_are_refused(log, tmp_path):
    result = invoke("support", str(log), "--fail-under", "2")
    assert result.exit_code == 2
    assert "--fail-under 2: a share from 0 to 1." in result.stderr
    mixed = tmp_path / "mixed.jsonl"
    mixed.write_text(f"{log.read_text().splitlines()[0]}\n{{}}\n")
    result = invoke("support", str(mixed), "--model", "mini-llm", "--out", str(tmp_path / "report.html"))
    assert result.exit_code == 1
    assert "row 2: 'question' is missing" in result.stderr


def test_a_log_of_which_nothing_can_be_judged_gets_one_line_and_no_report(log, tmp_path):
    out = tmp_path / "report.html"
    table = tmp_path / "reviews.csv"
    table.write_text("text,label\na film,pos\n")
    line = refusal("support", table, "--model", "mini-llm", "--out", out)
    assert "reviews.csv' has no answers: row 1: not JSON" in line
    line = refusal("support", log, "--model", "mini-bert", "--out", out)
    assert "could be judged: row 1: The tokenizer of mini-bert has no chat template" in line
    assert not out.exists()


def test_a_calibration_needs_labels(log):
    result = invoke("calibrate", "mini-llm", "--data", str(log))
    assert result.exit_code == 2
    assert "row 1 has no labels" in result.stderr


def test_a_killed_run_goes_on(log, tmp_path):
    many = tmp_path / "many.jsonl"
    rows = [{**json.loads(log.read_text().splitlines()[0]), "id": f"answer {number}"} for number in range(12)]
    for number, one in enumerate(rows):
        one["messages"][0]["content"] = f"Hugo is {number + 20} years old. {one['messages'][0]['content']}"
    many.write_text("\n".join(map(json.dumps, rows)))
    out = tmp_path / "report.html"
    kept = out.with_suffix(".jsonl")
    command = [sys.executable, "-m", "whyformer", "support", str(many), "--model", "mini-llm", "--out", str(out)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            while not kept.is_file() or kept.read_bytes().count(b"\n") < 2:
                assert process.poll() is None
                time.sleep(0.02)
        finally:
            process.send_signal(signal.SIGKILL)
    before = [line for line in kept.read_bytes().split(b"\n") if line.endswith(b"}")]
    assert 2 <= len(before) < len(rows)
    assert not out.is_file()
    result = invoke("support", str(many), "--model", "mini-llm", "--out", str(out), "--quiet")
    assert result.exit_code == 0, result.stderr
    after = [line for line in kept.read_bytes().split(b"\n") if line.endswith(b"}")]
    assert after[: len(before)] == before
    assert len({json.loads(line)["digest"] for line in after}) == len(after) == len(rows)
    assert out.is_file()

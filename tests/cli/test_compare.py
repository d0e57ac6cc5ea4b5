"""Methods side by side, with options, by other gradients, as JSON."""

import json

import pytest

from commands import invoke, refusal, run
from whyformer import explain, load
from whyformer.methods.registry import trace_methods


def columns(*arguments):
    lines = run("compare", *arguments, "--json").splitlines()
    return {document["column"]: document for document in map(json.loads, lines)}


def test_the_default_comes_first_and_json_says_every_column(bert, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = columns("the film was great", "--model", bert)
    assert list(found) == ["default", *trace_methods()]
    default = explain("the film was great", load(bert))
    assert found["default"]["parts"]["text"]["scores"] == pytest.approx(default.scores.tolist(), rel=1e-5)
    assert found["default"]["parts"] == found["evidence"]["parts"]
    assert "backward" not in found["bi_token"]["options"]
    assert list(tmp_path.iterdir()) == []


def test_default_is_one_of_the_methods_that_can_be_named(bert):
    assert list(columns("the film", "--model", bert, "--method", "rollout", "--method", "default")) == [
        "rollout",
        "default",
    ]


def test_an_option_goes_to_every_method_that_has_it(bert):
    found = columns("the film was great", "--model", bert, "--option", "steps=3", "--option", "first_block=1")
    for name, document in found.items():
        has = {} if name == "default" else trace_methods()[name].options
        assert (document["options"].get("steps") == 3) == ("steps" in has)
        assert (document["options"].get("first_block") == 1) == ("first_block" in has)
    expected = explain("the film was great", load(bert), method="bi_head", steps=3, first_block=1).scores
    assert found["bi_head"]["parts"]["text"]["scores"] == pytest.approx(expected.tolist(), rel=1e-5)


def test_backward_goes_to_every_method_that_reads_gradients(bert):
    found = columns("the film was great", "--model", bert, "--backward", "libra")
    libra = {name for name, document in found.items() if document["options"].get("backward") == "libra"}
    assert {"bi_token", "bi_head", "generic_attention", "grad_cam"} <= libra
    assert not {"raw_attention", "rollout", "lrp"} & libra


def test_what_no_method_takes_is_refused(bert):
    command = ["compare", "the film", "--model", bert, "--method", "rollout"]
    line = refusal(*command, "--option", "steps=3")
    assert line == "--option 'steps': none of the compared methods has it (rollout)."
    assert refusal(*command, "--option", "cross") == "--option 'cross': write it as name=value."
    assert refusal(*command, "--backward", "libra").startswith("rollout reads no gradients, so backward='libra'")
    assert "backward='nope'. Choose from: gradient, libra, attn_lrp." in refusal(*command, "--backward", "nope")
    line = refusal("compare", "the film", "--model", bert, "--method", "default", "--backward", "gradient")
    assert line == "--backward 'gradient' has no effect: the default keeps its own rules."


def test_with_json_everything_else_goes_to_stderr(levit, photo, tmp_path):
    result = invoke("compare", photo, "--model", levit, "--json", "--out", tmp_path / "c.html")
    assert all(json.loads(line) for line in result.stdout.splitlines())
    assert "Left out: bi_token on tiny-levit: " in result.stderr
    assert "Left out: default" not in result.stderr  # which takes the best method that applies
    assert result.stderr.endswith(f"Written to {tmp_path / 'c.html'}\n")
    assert run("compare", photo, "--model", levit, "--quiet", "--out", tmp_path / "c.html") == ""


def test_the_page_says_what_its_columns_are(bert, tmp_path):
    command = ["compare", "the film", "--model", bert, "--quiet", "--out", tmp_path / "c.html", "--method", "default"]
    run(*command, "--method", "random")
    assert "evidence (default)" in (tmp_path / "c.html").read_text()
    run(*command)
    assert "random is noise" not in (tmp_path / "c.html").read_text()

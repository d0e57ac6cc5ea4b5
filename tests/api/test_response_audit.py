"""Audit files of responses: what they keep, and what verifying them says."""

from __future__ import annotations

import json

import pytest

import whyformer
from whyformer import WhyformerError, explain_response

DOCUMENTS = [("town", "Boris is in Oslo. Anna is a baker."), ("key", "Greta took the key. Greta went to Rome.")]
NAMES = ["weights", "input", "scores", "response", "verdicts", "model", "tolerance"]


@pytest.fixture(scope="module")
def llm():
    return whyformer.load("mini-llm", device="cpu")


@pytest.fixture(scope="module")
def audit(llm, tmp_path_factory):
    file = tmp_path_factory.mktemp("audit") / "answer.audit.json"
    answer = "The key is in Rome. The shirt is green."
    explain_response("Where is the key?", answer, llm, context=DOCUMENTS, support=True).save(file)
    return file


def changed(audit, tmp_path, change):
    document = json.loads(audit.read_text())
    change(document)
    file = tmp_path / "changed.audit.json"
    file.write_text(json.dumps(document))
    return whyformer.verify(file)


def test_a_response_with_verdicts_is_verified(audit):
    result = whyformer.verify(audit)
    assert result.agrees
    assert [check.name for check in result.checks] == NAMES
    assert result.not_checked == ("created", "computation", "doctor", "response.notes", "response.seed")
    assert (
        json.loads(audit.read_text())["input"]["items"]["response"]["text"] == "The key is in Rome. The shirt is green."
    )


@pytest.mark.parametrize(
    ("change", "name", "finding"),
    [
        (
            lambda one: one["response"]["verdicts"]["units"][1].update(verdict="from sources"),
            "verdicts",
            "units.1.verdict is 'not supported', kept 'from sources'",
        ),
        (
            lambda one: one["response"]["verdicts"]["units"][0].update(without_sources=-1.5),
            "verdicts",
            "units.0.without_sources is -2",
        ),
        (lambda one: one["response"]["scores"][0].__setitem__(0, 9.0), "scores", "is allowed"),
        (lambda one: one["response"].update(text="The key is here."), "response", "text is 'The key is in Rome."),
        (lambda one: one["model"].update(name="another"), "model", "name is 'mini-llm', kept 'another'"),
        (lambda one: one.update(tolerance=5.0), "tolerance", "is 0.001, kept 5"),
    ],
)
def test_what_was_changed_is_named(audit, tmp_path, change, name, finding):
    result = changed(audit, tmp_path, change)
    assert [check.name for check in result.checks if not check.agrees] == [name]
    assert finding in next(check.finding for check in result.checks if check.name == name)


def test_another_prompt_is_not_computed(audit, tmp_path):
    result = changed(audit, tmp_path, lambda one: one["input"]["items"]["prompt"].update(text="Who has the key?"))
    assert [check.name for check in result.checks] == ["weights", "input"]
    assert not result.agrees


def test_unknown_fields_are_listed(audit, tmp_path):
    result = changed(audit, tmp_path, lambda one: one.update(remark="true"))
    assert result.agrees
    assert "remark" in result.not_checked


def test_what_the_model_wrote_with_a_method_that_removes_sources_is_verified(llm, tmp_path):
    prompt = [{"role": "user", "content": "Boris is in Oslo. Anna is a baker.\n\nWhere is Boris?"}]
    response = explain_response(prompt, None, llm, "leave_one_out", sources=[(0, 17), (18, 34)], units=[(0, 5)])
    response.save(tmp_path / "written.audit.json")
    assert whyformer.verify(tmp_path / "written.audit.json").agrees


def test_a_response_from_a_file_has_no_audit_file(audit, llm, tmp_path):
    explain_response("Boris is", " in Oslo.", llm, "rollout").save(tmp_path / "response.json")
    with pytest.raises(WhyformerError, match="Only what explain or explain_response returns for a loaded model"):
        whyformer.Response.load(tmp_path / "response.json").save(tmp_path / "response.audit.json")

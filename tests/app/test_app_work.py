"""Work that is followed, stopped and limited, and what an area shows of it."""

import time
from pathlib import Path

import pytest
import torch

from whyformer import WhyformerError, verify
from whyformer.app.area import SUFFIXES, Area, serve, serve_audit
from whyformer.app.code import Code, call, command
from whyformer.app.examples import CAT
from whyformer.app.labelled import Question, explain_picture
from whyformer.app.models import model_choice, tab_of
from whyformer.app.setup import Setup
from whyformer.app.view import View, progress_html
from whyformer.app.work import Progress, Stopped, Work, follow

# The components of an area by their names.
AREA = Area("html", "stop", SUFFIXES, "audit", "audit_file", "view", "python", "command")


def endless(work):
    while True:
        torch.zeros(1) + 1
        time.sleep(0.01)


def test_work_that_is_left_alone_stops_at_its_next_operation():
    ended = []

    def action(work):
        try:
            endless(work)
        except Stopped:
            ended.append(True)
            raise

    views = follow(action, seconds=60)
    assert next(views) == Progress(0, 0, "")
    views.close()
    for _ in range(100):
        if ended:
            break
        time.sleep(0.02)
    assert ended


def test_work_that_takes_too_long_ends_with_a_line_that_says_so():
    with pytest.raises(WhyformerError, match=r"longer than the 0.2 seconds that the page gives an answer: try a small"):
        list(follow(endless, seconds=0.2))


def test_progress_comes_before_the_result():
    def action(work):
        work.step(1, 4, "counting")
        time.sleep(0.8)
        return "result"

    first, last = follow(action, seconds=60)
    assert (first.done, first.total, first.doing, last) == (1, 4, "counting", "result")
    assert first.seconds_left == pytest.approx(0, abs=0.5)


def test_progress_says_how_many_and_how_long():
    shown = progress_html(Progress(3, 12, "rollout on <mini>", 7.6))
    assert "rollout on &lt;mini&gt; · 3 of 12 · about 8 s left" in shown
    assert '<progress value="3" max="12">' in shown


def test_two_visitors_get_their_own_results():
    def action(work, name):
        time.sleep(0.1)
        return View(name)

    answer = serve(action, 60, AREA)
    ours, theirs = answer("ours"), answer("theirs")
    assert [next(ours)["html"], next(theirs)["html"]] == ["ours", "theirs"]


def test_downloads_are_written_after_the_result_and_removed_after_they_were_taken():
    def action(work):
        return View("shown", Code("python", "command"), {".json": lambda path: path.write_text("{}")})

    path = None
    for outputs in serve(action, 60, AREA)():
        if "html" in outputs:
            assert (outputs["html"], outputs["python"], outputs["command"]) == ("shown", "python", "command")
            assert not outputs[".json"]["interactive"]
        else:
            path = Path(outputs[".json"]["value"])
            assert path.read_text() == "{}"
            assert list(outputs) == [".json"]
    assert not path.exists()


def test_an_audit_file_is_made_for_who_asks_and_agrees_with_the_picture(tmp_path):
    view = explain_picture(Work(600), Setup(model_choice()), str(CAT), Question(methods=["raw_attention"]))
    for outputs in serve_audit(AREA)(view):
        copy = tmp_path / "cat.audit.json"
        copy.write_bytes(Path(outputs["audit_file"]["value"]).read_bytes())
    assert verify(copy, inputs=[CAT]).agrees
    (refused,) = serve_audit(AREA)(None)
    assert "The result is no longer kept here: explain it again." in refused["html"]


def test_errors_are_one_escaped_line(caplog):
    def refuse(work):
        raise WhyformerError("No model <x>.\nSecond line")

    def fail(work):
        raise ZeroDivisionError("secret")

    (refused,) = serve(refuse, 60, AREA)()
    assert refused["html"].strip() == '<p class="problem" role="alert" dir="auto">No model &lt;x&gt;. Second line</p>'
    (failed,) = serve(fail, 60, AREA)()
    assert "could not be answered (ZeroDivisionError): try another input" in failed["html"]
    assert "secret" not in failed["html"]
    assert "secret" in caplog.text


def test_code_is_written_as_people_write_it():
    assert call("f", "a", None, b=None, c=[1]) == "f('a', None, c=[1])"
    assert call("f", "x" * 90) == f"f(\n    {'x' * 90!r},\n)"
    assert command("explain", "a film", text=["one", "two"], rather_than=None, query=3) == (
        "whyformer explain 'a film' --text one --text two --query 3"
    )
    assert command("explain", "-5 of 10", model="mini-bert") == "whyformer explain --model mini-bert -- '-5 of 10'"


def test_models_stand_in_the_tab_of_what_they_take(bert):
    models = model_choice([str(bert)])
    assert models.names["Text"][0] == str(bert)
    assert models.names["Picture"] == ["mini-vit", "mini-vit-mae"]
    assert models.names["Response"][0] == "mini-llm"
    assert set(models.names["Picture + text"]) == {"mini-clip", "mini-lxmert", "mini-visualbert", "mini-vlm"}
    assert models.names["Detection"] == ["mini-detr"]
    for tab in ("Text", "Picture + text", "Detection", "Response", "Picture"):
        for name in models.names[tab]:
            assert tab_of(models.open(name, tab).task) == tab


def test_any_model_is_taken_only_where_the_page_was_started_so(bert):
    with pytest.raises(WhyformerError, match="does not offer the model"):
        model_choice().open(str(bert), "Text")
    anything = model_choice(takes_any=True)
    assert anything.open(str(bert), "Text").task.answer == "label"
    with pytest.raises(WhyformerError, match=r"is given texts and answers with a label: use the tab Text, or choose"):
        anything.open(str(bert), "Picture")

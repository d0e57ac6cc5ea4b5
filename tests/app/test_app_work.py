"""Work that is followed, stopped and limited, and what an area shows of it."""

import json
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import gradio as gr
import pytest
import torch

from whyformer import WhyformerError, verify
from whyformer.app.bundled_examples import CAT
from whyformer.app.code import Code, call, command
from whyformer.app.label_tabs import LabelQuestion, explain_picture, explain_text
from whyformer.app.models import model_choice, tab_of
from whyformer.app.pair_tab import Pair, explain_pair
from whyformer.app.response_tab import ResponseInputs, explain_exchange
from whyformer.app.result_area import SUFFIXES, ResultArea, serve, serve_audit, serve_what_if
from whyformer.app.setup import Setup
from whyformer.app.tab_view import TabView, progress_html
from whyformer.app.visitors import Visitors
from whyformer.app.work import Progress, Stopped, Work, follow
from whyformer.files import file_digest

# The components of an area by their names.
AREA = ResultArea("html", "stop", SUFFIXES, "audit", "audit_file", "audit_page", "view", "python", "command", "what_if")


def visitor(name="we"):
    """What a visitor asks with."""
    return SimpleNamespace(session_hash=name)


@pytest.fixture
def uploads(tmp_path, monkeypatch):
    """The folder of uploads and downloads."""
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path))
    return tmp_path


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

    views = follow(action, Work(60))
    assert next(views) == Progress(0, 0, "")
    views.close()
    for _ in range(100):
        if ended:
            break
        time.sleep(0.02)
    assert ended


def test_work_that_takes_too_long_ends_with_a_line_that_says_so():
    with pytest.raises(WhyformerError, match=r"longer than the page's limit of 0.2 seconds: try a small"):
        list(follow(endless, Work(0.2)))


def test_progress_comes_before_the_result():
    def action(work):
        work.step(1, 4, "counting")
        time.sleep(0.8)
        return "result"

    first, last = follow(action, Work(60))
    assert (first.done, first.total, first.doing, last) == (1, 4, "counting", "result")
    assert first.seconds_left == pytest.approx(0, abs=0.5)


def test_progress_says_how_many_and_how_long():
    shown = progress_html(Progress(3, 12, "rollout on <mini>", 7.6))
    assert "rollout on &lt;mini&gt; · 3 of 12 · about 8 s left" in shown
    assert '<progress value="3" max="12">' in shown


def test_two_visitors_get_their_own_results():
    def action(work, name):
        time.sleep(0.1)
        return TabView(name)

    answer = serve(action, AREA, Visitors(), 60)
    ours, theirs = answer(visitor(), "ours"), answer(visitor("they"), "theirs")
    assert [next(ours)["html"], next(theirs)["html"]] == ["ours", "theirs"]


def test_a_newer_question_of_a_visitor_ends_the_older_one_and_its_answer_stays():
    ended = threading.Event()

    def action(work, name):
        if name == "slow":
            try:
                endless(work)
            finally:
                ended.set()
        return TabView(name)

    visitors = Visitors()
    answer = serve(action, AREA, visitors, 60)
    older = answer(visitor(), "slow")
    assert "Working" in next(older)["html"]
    theirs = answer(visitor("they"), "theirs")
    elsewhere = serve(action, replace(AREA, html="another tab"), visitors, 60)(visitor(), "elsewhere")
    (newer,) = answer(visitor(), "fast")
    assert newer["html"] == "fast"
    assert ended.wait(10)
    # Gradio sends the last of an iterator twice: it must not be the progress.
    assert list(older) == [gr.skip()]
    assert next(theirs)["html"] == "theirs"
    assert next(elsewhere)["another tab"] == "elsewhere"


def test_an_older_answer_that_is_ready_after_all_is_not_shown():
    def action(work, name):
        if name == "older":
            list(answer(visitor(), "newer"))
        return TabView(name)

    answer = serve(action, AREA, Visitors(), 60)
    assert list(answer(visitor(), "older")) == [gr.skip()]


def test_downloads_that_were_outdated_while_they_were_written_are_deleted(uploads):
    def action(work, name):
        def write(path):
            if name == "older":
                list(answer(visitor(), "newer"))
            path.write_text(name)

        return TabView(name, writers={".json": write})

    answer = serve(action, AREA, Visitors(), 60)
    shown, last = answer(visitor(), "older")
    assert (shown["html"], last) == ("older", gr.skip())
    assert [path.read_text() for path in uploads.rglob("*.*")] == ["newer"]


def test_a_stopped_question_shows_nothing_more():
    visitors = Visitors()
    views = serve(endless, AREA, visitors, 60)(visitor())
    assert "Working" in next(views)["html"]
    visitors.stop("we", "html")
    assert list(views) == [gr.skip()]


def test_downloads_are_written_after_the_result_and_deleted_when_another_one_is_shown(uploads):
    def action(work, name):
        return TabView(name, Code("python", "command"), {".json": lambda path: path.write_text(name)})

    answer = serve(action, AREA, Visitors(), 60)
    for name in ("one", "other"):
        shown, files = answer(visitor(), name)
        assert (shown["html"], shown["python"], shown["command"]) == (name, "python", "command")
        assert not shown[".json"]["interactive"]
        assert list(files) == [".json"]
        (path,) = uploads.rglob("*.*")
        assert files[".json"]["value"] == str(path)
        assert path.read_text() == name


def test_while_a_new_question_is_worked_on_nothing_is_left_of_the_result_before():
    def action(work):
        time.sleep(0.8)
        return TabView("shown", Code("python", "command"), audit=Path.touch)

    working, shown = serve(action, AREA, Visitors(), 60)(visitor())
    assert [working[name]["interactive"] for name in SUFFIXES] == [False, False, False]
    assert (working["python"], working["command"], working["view"]) == ("", "", None)
    buttons = ("audit", "audit_file", "audit_page", "what_if")
    assert [working[name]["visible"] for name in buttons] == [False, False, False, False]
    assert (shown["python"], shown["command"], shown["html"]) == ("python", "command", "shown")
    assert [shown[name]["visible"] for name in buttons] == [True, False, False, False]


def test_parts_are_removed_for_who_asks_and_their_choice_is_checked():
    view = TabView("shown", what_if=lambda removed: f"without {sorted(removed)}")
    run = serve_what_if(AREA, Visitors(), 600)
    assert run(visitor(), view, SimpleNamespace())["html"] == "without []"
    assert run(visitor(), view, SimpleNamespace(removed=[2, 1]))["html"] == "without [1, 2]"
    for choice in ("x", [1.5], [True], list(range(100)), {"a": 1}):
        assert "was not understood: click again." in run(visitor(), view, SimpleNamespace(removed=choice))["html"]
    for gone in (None, TabView("shown")):
        assert "explain it again" in run(visitor(), gone, SimpleNamespace())["html"]


def test_an_audit_file_is_made_for_who_asks_and_agrees_with_the_picture(uploads):
    visitors = Visitors()
    view = explain_picture(Work(600), Setup(model_choice()), str(CAT), LabelQuestion(methods=["raw_attention"]))
    outputs = serve_audit(AREA, visitors, 600)(visitor(), view)
    path = Path(outputs["audit_file"]["value"])
    assert "Audit record: " in Path(outputs["audit_page"]["value"]).read_text()
    assert path.is_relative_to(uploads)
    assert verify(path, inputs=[CAT]).agrees
    list(serve(lambda work: TabView("another"), AREA, visitors, 60)(visitor()))
    assert not path.exists()
    refused = serve_audit(AREA, visitors, 600)(visitor(), None)
    assert "The result is no longer kept here: explain it again." in refused["html"]


def test_errors_are_one_escaped_line(caplog):
    def refuse(work):
        raise WhyformerError("No model <x>.\nSecond line")

    def fail(work):
        raise ZeroDivisionError("secret")

    (refused,) = serve(refuse, AREA, Visitors(), 60)(visitor())
    assert refused["html"].strip() == '<p class="problem" role="alert" dir="auto">No model &lt;x&gt;. Second line</p>'
    (failed,) = serve(fail, AREA, Visitors(), 60)(visitor())
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
    with pytest.raises(WhyformerError, match=r"takes texts and answers with a label: use the tab Text, or choose"):
        anything.open(str(bert), "Picture")


@pytest.mark.parametrize(
    "ask",
    [
        lambda work, setup, text: explain_text(work, setup, text, LabelQuestion(methods=["rollout"])),
        lambda work, setup, text: explain_pair(work, setup, Pair(str(CAT), text=text, method="rollout")),
        lambda work, setup, text: explain_exchange(
            work, setup, ResponseInputs(text, text, response=text, method="rollout")
        ),
    ],
)
def test_a_visitor_who_types_the_name_of_a_file_gets_a_text_explained(ask, tmp_path, uploads, monkeypatch):
    (tmp_path / "secret.txt").write_text("A secret.")
    monkeypatch.chdir(tmp_path)
    typed, setup = "secret.txt", Setup(model_choice())
    *_, view = follow(lambda work: ask(work, setup, typed), Work(600))
    kept = view.save(tmp_path)[".json"].read_text()
    assert typed in kept
    assert "A secret." not in kept
    if view.audit is not None:
        outputs = serve_audit(AREA, Visitors(), 600)(visitor(), view)
        record = json.loads(Path(outputs["audit_file"]["value"]).read_text())["input"]
        assert file_digest(tmp_path / "secret.txt") not in json.dumps(record)
        assert typed in json.dumps(record)


@pytest.mark.parametrize(
    ("name", "ask", "reason"),
    [
        (
            "half.jpg",
            lambda work, setup, path: explain_picture(work, setup, path, LabelQuestion()),
            "The image 'half.jpg' ",
        ),
        (
            "a.txt",
            lambda work, setup, path: explain_exchange(work, setup, ResponseInputs("a", files=[path])),
            "'a.txt' is n",
        ),
        (
            "a.npz",
            lambda work, setup, path: explain_pair(work, setup, Pair(regions=path, text="a", model="mini-lxmert")),
            "'a.npz' holds no regions",
        ),
    ],
)
def test_what_is_wrong_with_a_file_is_said_without_where_it_lies(name, ask, reason, tmp_path):
    (tmp_path / name).write_bytes(CAT.read_bytes()[:8000])
    with pytest.raises(WhyformerError) as error:
        list(follow(lambda work: ask(work, Setup(model_choice()), str(tmp_path / name)), Work(600)))
    assert reason in str(error.value)
    assert str(tmp_path) not in str(error.value)

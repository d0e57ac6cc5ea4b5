"""Work that never asks for a tensor, and so never looks at the time: the page ends it all the same."""

import threading
import time
from html import unescape
from types import SimpleNamespace

import pytest

from whyformer import WhyformerError
from whyformer.app import models, work
from whyformer.app.result_area import SUFFIXES, ResultArea, serve, serve_audit
from whyformer.app.tab_view import TabView
from whyformer.app.visitors import Visitors
from whyformer.app.work import Stopped, Work, follow

AREA = ResultArea("html", "stop", SUFFIXES, "audit", "audit_file", "audit_page", "view", "python", "command", "what_if")
TOO_LONG = "This took longer than the page's limit of 0.3 seconds"
VISITOR = SimpleNamespace(session_hash="we")


@pytest.fixture(autouse=True)
def little_grace(monkeypatch):
    monkeypatch.setattr(work, "GRACE", 0.2)


@pytest.fixture(autouse=True)
def nothing_goes_on():
    """No thread is left when a test ends."""
    before = threading.active_count()
    yield
    end = time.monotonic() + 10
    while threading.active_count() > before:
        assert time.monotonic() < end
        time.sleep(0.02)


def count_forever(*_):
    number = 0
    while True:
        number += 1


def sleep_forever(*_):
    while True:
        time.sleep(0.01)


def swallow_an_exception_and_count(*_):
    try:
        count_forever()
    except BaseException:
        count_forever()


@pytest.mark.parametrize("action", [count_forever, sleep_forever, swallow_an_exception_and_count])
def test_a_loop_without_tensors_ends_at_its_limit(action):
    start = time.monotonic()
    with pytest.raises(WhyformerError, match=TOO_LONG):
        list(follow(action, Work(0.3)))
    assert time.monotonic() - start < 5


def test_an_honest_question_beside_it_is_answered():
    def ask_for_too_much():
        with pytest.raises(WhyformerError, match=TOO_LONG):
            list(follow(count_forever, Work(0.3)))

    hostile = threading.Thread(target=ask_for_too_much)
    hostile.start()
    assert list(follow(lambda _: sum(range(100_000)), Work(60)))[-1] == 4999950000
    hostile.join(10)
    assert not hostile.is_alive()


def test_a_loop_ends_when_its_visitor_leaves():
    views = follow(count_forever, Work(60))
    next(views)
    views.close()


def test_a_loop_ends_when_its_visitor_stops_it():
    visitors = Visitors()
    views = serve(count_forever, AREA, visitors, 60)(VISITOR)
    assert "Working" in next(views)["html"]
    visitors.stop("we", "html")
    assert [one for one in views if "html" in one] == []


def test_a_model_whose_work_was_ended_by_force_is_loaded_anew():
    before = models.open_model("mini-bert")
    assert models.open_model("mini-bert") is before
    with pytest.raises(WhyformerError, match=TOO_LONG):
        list(follow(count_forever, Work(0.3)))
    end = time.monotonic() + 10
    while models.open_model("mini-bert") is before:
        assert time.monotonic() < end


def test_downloads_that_take_too_long_end_and_leave_no_file(tmp_path, monkeypatch):
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path))

    def write(path):
        path.write_text("half of it")
        count_forever()

    shown, refused = serve(lambda work: TabView("shown", writers={".json": write}), AREA, Visitors(), 0.3)(VISITOR)
    assert shown["html"] == "shown"
    assert TOO_LONG in unescape(refused["html"])
    assert list(tmp_path.iterdir()) == []


def test_an_audit_that_takes_too_long_ends(tmp_path, monkeypatch):
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path))
    refused = serve_audit(AREA, Visitors(), 0.3)(VISITOR, TabView("shown", audit=count_forever))
    assert TOO_LONG in unescape(refused["html"])
    assert list(tmp_path.iterdir()) == []


def test_work_that_is_stopped_says_nothing():
    stopped = Work(60)
    stopped.stop()
    with pytest.raises(Stopped):
        list(follow(count_forever, stopped))

"""Files of visitors on the disk: kept as long as somebody needs them, and no longer."""

from types import SimpleNamespace
from unittest.mock import Mock

import gradio as gr
import pytest

from whyformer.app import components
from whyformer.app import visitors as module
from whyformer.app.result_area import keep_files
from whyformer.app.visitors import Visitors


@pytest.fixture
def files(tmp_path):
    """Four files, each in a folder of its own, as Gradio keeps uploads."""
    paths = [tmp_path / "uploads" / name / f"{name}.txt" for name in "abcd"]
    for path in paths:
        path.parent.mkdir(parents=True)
        path.write_text("sent")
    return paths


def names(files):
    """Which of the files are there; where one is gone, its folder is."""
    assert [path.parent.exists() for path in files] == [path.exists() for path in files]
    return "".join(path.stem for path in files if path.exists())


def test_a_file_is_deleted_when_another_takes_its_place(files):
    one, other, *_ = files
    visitors = Visitors()
    visitors.keep("we", "picture", [one])
    visitors.keep("we", "picture", [one])
    assert names(files) == "abcd"
    visitors.keep("we", "picture", [other])
    assert names(files) == "bcd"
    visitors.keep("we", "picture", [])
    assert names(files) == "cd"


def test_a_file_that_somebody_else_needs_stays(files):
    visitors = Visitors()
    visitors.keep("we", "picture", [files[0]])
    visitors.keep("we", "compare", [files[0], files[1]])
    visitors.keep("they", "picture", [files[1]])
    visitors.keep("we", "picture", [])
    assert names(files) == "abcd"
    visitors.leave("we")
    assert names(files) == "bcd"
    visitors.leave("they")
    assert names(files) == "cd"


def test_work_ends_when_the_visitor_leaves():
    visitors = Visitors()
    with visitors.work("we", "picture", 60) as ours, visitors.work("they", "picture", 60) as theirs:
        visitors.leave("we")
        assert (ours.is_stopped, theirs.is_stopped) == (True, False)


def test_a_file_that_is_already_gone_is_no_error(files):
    visitors = Visitors()
    visitors.keep("we", "picture", [files[0]])
    files[0].unlink()
    visitors.leave("we")
    assert names(files) == "bcd"


def test_files_are_kept_for_so_many_places_at_most(files, monkeypatch):
    monkeypatch.setattr(module, "MOST_PLACES", 2)
    visitors = Visitors()
    for name, path in zip("1234", files, strict=True):
        visitors.keep(name, "picture", [path])
    assert names(files) == "cd"


def test_only_what_was_uploaded_is_ever_deleted(files, tmp_path, monkeypatch):
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path / "uploads"))
    ours = tmp_path / "example.txt"
    ours.write_text("ours")
    visitors, events = Visitors(), []
    component = Mock(change=lambda function, *_, **__: events.append(function))
    keep_files(component, visitors)
    (keep,) = events
    we = SimpleNamespace(session_hash="we")
    for sent in (str(ours), str(files[0].parent), str(tmp_path / "uploads" / ".." / "example.txt"), None):
        keep(we, sent)
    assert (names(files), ours.read_text()) == ("abcd", "ours")
    keep(we, [str(files[0]), str(files[1])])
    keep(we, [str(files[1])])
    assert names(files) == "bcd"


def test_inputs_hand_over_paths_and_leave_nothing_behind(files, tmp_path, monkeypatch):
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path / "uploads"))
    monkeypatch.setattr(components, "keep_files", lambda *_: None)  # which needs a page around them
    picture = components.picture_input(Visitors())
    single = components.file_input("One", Visitors(), ".txt")
    several = components.file_input("Several", Visitors(), ".txt", several=True)
    sent = [{"path": str(path), "meta": {"_type": "gradio.FileData"}} for path in files]
    before = sorted((tmp_path / "uploads").rglob("*"))
    assert picture.preprocess(picture.data_model(**sent[0])) == str(files[0])
    assert single.preprocess(gr.FileData(**sent[0])) == str(files[0])
    assert several.preprocess(several.data_model(root=sent)) == [str(path) for path in files]
    assert (single.preprocess(None), several.preprocess(None)) == (None, [])
    assert sorted((tmp_path / "uploads").rglob("*")) == before

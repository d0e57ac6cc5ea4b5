"""How much a stranger can send to the page: questions and uploads end where they are too large."""

import json
import os
import time
from types import SimpleNamespace

import pytest

from gate_client import LOCAL, gated, question
from whyformer.app import quota as module
from whyformer.app.bundled_examples import CAT
from whyformer.app.limits import Limits
from whyformer.app.quota import BLOCK, delete_abandoned

JOIN, UPLOAD = "/gradio_api/queue/join", "/gradio_api/upload"


def pieces(content, size):
    """The content as a body whose length is not announced."""
    yield from (content[at : at + size] for at in range(0, len(content), size))


@pytest.mark.parametrize("is_announced", [True, False])
def test_a_question_that_is_too_large_is_refused(is_announced):
    client, most = gated(limits=Limits(body_bytes=1 << 10)), 1 << 10
    for size, status in ((most, 200), (most + 1, 413)):
        body = question("x" * (size - len(question())))
        answer = client.post(JOIN, headers=LOCAL, content=body if is_announced else pieces(body, 100))
        assert answer.status_code == status
    assert answer.json() == {"detail": "A question may have 1 kB: send less."}


def test_an_announced_size_that_is_false_does_not_help():
    client = gated(limits=Limits(body_bytes=100))
    assert client.post(JOIN, headers={**LOCAL, "content-length": "5"}, content=question("x" * 100)).status_code == 413
    assert client.post(JOIN, headers={**LOCAL, "content-length": "9" * 5000}, content=b"1").status_code == 413


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 100_000, b"1" * 10_000, b'{"data": [nul]}'])
def test_what_is_not_json_is_one_line(body):
    answer = gated().post(JOIN, headers=LOCAL, content=body)
    assert (answer.status_code, answer.json()) == (400, {"detail": "The question is not valid JSON."})


@pytest.mark.parametrize("path", [JOIN, "/gradio_api/run/predict", "/gradio_api/cancel", "/gradio_api/reset"])
@pytest.mark.parametrize(("depth", "status"), [(5, 200), (20, 400), (900, 400)])
def test_what_is_nested_too_deep_is_refused(path, depth, status):
    body = question("x").replace(b'"x"', b"[" * depth + b"]" * depth)
    assert gated().post(path, headers=LOCAL, content=body).status_code == status


@pytest.mark.parametrize(("count", "status"), [(100, 200), (101, 400)])
def test_a_question_refers_to_so_many_files(count, status):
    body = question("x").replace(b'"x"', json.dumps([{"path": str(CAT)}] * count).encode())
    assert gated().post(JOIN, headers=LOCAL, content=body).status_code == status


def test_gradio_is_given_exactly_what_was_checked():
    answer = gated().post(JOIN, headers=LOCAL, content=question("é")[:-1] + b', "data": ["\\ud800"]}')
    assert json.loads(answer.json()["body"])["data"] == ["\ud800"]


@pytest.mark.parametrize("size", [1, 1000, 100_000])
def test_a_visitor_uploads_so_much_in_a_while_and_no_more(size, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0], time=time.time))
    client = gated(limits=Limits(visitor_bytes=100_000, kept_seconds=600))
    content = b"x" * (60_000 - BLOCK)
    for status in (200, 413, 413):
        assert client.post(UPLOAD, headers=LOCAL, content=pieces(content, max(size, 100))).status_code == status
    now[0] = 601
    assert client.post(UPLOAD, headers=LOCAL, content=content).status_code == 200


def test_the_line_says_whose_total_it_was():
    own = gated(limits=Limits(visitor_bytes=1 << 20, server_bytes=9 << 20))
    everybody = gated(limits=Limits(visitor_bytes=9 << 20, server_bytes=1 << 20))
    content = b"x" * (2 << 20)
    assert own.post(UPLOAD, headers=LOCAL, content=content).json()["detail"] == (
        "You uploaded more than 1 MB, the limit per visitor in 15 minutes: try again later, or upload smaller files."
    )
    assert everybody.post(UPLOAD, headers=LOCAL, content=content).json()["detail"] == (
        "Visitors uploaded more than this page can keep for 15 minutes: try again later."
    )


@pytest.mark.parametrize("size", [3, 64])
def test_empty_files_count_however_they_are_cut(size):
    part = b'--b\r\nContent-Disposition: form-data; name="files"; FileName="a"\r\n\r\n\r\n'
    client = gated(limits=Limits(visitor_bytes=100 * BLOCK))
    assert client.post(UPLOAD, headers=LOCAL, content=pieces(part * 90, size)).status_code == 200
    assert client.post(UPLOAD, headers=LOCAL, content=pieces(part * 90, size)).status_code == 413


def test_what_a_broken_upload_left_is_deleted_and_nothing_else(tmp_path):
    old, new, kept = tmp_path / "tmpold", tmp_path / "tmpnew", tmp_path / "digest" / "a.png"
    kept.parent.mkdir()
    for path in (old, new, kept):
        path.write_bytes(b"x")
    for path in (old, kept):
        os.utime(path, (1, 1))
    delete_abandoned(tmp_path, 900)
    assert (old.exists(), new.exists(), kept.exists()) == (False, True, True)
    delete_abandoned(tmp_path / "none", 900)

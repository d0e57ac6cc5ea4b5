"""Files that a stranger names to the web page: it reads uploads, downloads and its own examples, and nothing else."""

import hashlib
import json
import os
from pathlib import Path

import pytest
from PIL import Image

from page_client import META, ask, served_page, text_function, upload
from whyformer.app.bundled_examples import CAT, scene_files
from whyformer.app.gate import FOREIGN_FILE, file_paths
from whyformer.app.uploads import is_sent_file

REFUSAL = {"detail": FOREIGN_FILE}


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    with served_page(tmp_path_factory.mktemp("page")) as page:
        yield page
    assert page.log.read_text() == ""


@pytest.fixture
def client(page):
    return page.client


@pytest.fixture(scope="module")
def description(page):
    """The app's own description: its functions, and its components by number."""
    config = page.client.get("config").json()
    return config["dependencies"], {one["id"]: one for one in config["components"]}


@pytest.fixture(scope="module")
def secret(tmp_path_factory):
    path = tmp_path_factory.mktemp("private") / "secret.png"
    Image.new("RGB", (32, 32), "red").save(path)
    return path


def post(client, function, data):
    """Ask a function in the way that it has, queued or at once."""
    body = {"data": data, "fn_index": function["id"], "session_hash": "stranger"}
    return client.post(f"gradio_api/{'queue/join' if function['queue'] else 'run/predict'}", json=body)


def test_every_input_of_every_function_refuses_a_foreign_path(client, description, secret):
    functions, components = description
    refused = set()
    for function in functions:
        for place, number in enumerate(function["inputs"]):
            for sent in ({"path": str(secret)}, {"path": str(secret), **META}, [{"path": str(secret), **META}]):
                data = [None] * len(function["inputs"])
                data[place] = sent
                answer = post(client, function, data)
                assert (answer.status_code, answer.json()) == (403, REFUSAL), (function["id"], place)
                refused.add(components[number]["type"])
    assert {"image", "file", "state", "textbox", "dropdown"} <= refused


@pytest.mark.parametrize(
    "path",
    [
        "{folder}/../secret.png",
        "{folder}",
        "{folder}/hash/deeper/file.png",
        "{folder}/tmpabc",
        "{secret}",
        "/etc/passwd",
        "/dev/zero",
        "no/such/file.png",
        "http://127.0.0.1:1/a.png",
        "https://example.org/a.png",
        "file:///etc/passwd",
        "a\0b",
        "a" * 5000,
        "",
        None,
        3,
        ["{secret}"],
    ],
)
def test_the_answer_does_not_tell_whether_a_file_exists_or_what_it_is(page, secret, path):
    if isinstance(path, str):
        path = path.format(folder=page.uploads, secret=secret)
    for sent in ({"path": path}, {"path": path, **META}, {"url": path, **META}):
        visit = ask(page.client, 11, [sent, "mini-vit", None, None, ["default"]])
        assert (visit.status, json.loads(visit.body), visit.messages) == (403, REFUSAL, [])


def test_a_link_out_of_the_uploads_is_followed_before_it_is_compared(secret, tmp_path, monkeypatch):
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(tmp_path))
    folder = tmp_path / "upload"
    folder.mkdir()
    os.symlink(secret, folder / "link.png")
    os.symlink(secret.parent, tmp_path / "folder")
    (folder / "own.png").write_bytes(secret.read_bytes())
    assert is_sent_file(str(folder / "own.png"))
    assert not is_sent_file(str(folder / "link.png"))
    assert not is_sent_file(str(tmp_path / "folder" / "secret.png"))
    assert all(map(is_sent_file, map(str, (CAT, *scene_files()))))
    assert not is_sent_file(str(CAT.parent))


def test_a_repeated_key_hides_no_path(client, secret):
    sent = f'[{{"path": {json.dumps(str(CAT))}, "path": {json.dumps(str(secret))}}}, null, null, null, null]'
    turned = f'[{{"path": {json.dumps(str(secret))}, "path": {json.dumps(str(CAT))}}}, null, null, null, null]'
    for data, status in ((sent, 403), (turned, 200)):
        body = f'{{"data": {data}, "fn_index": 11, "session_hash": "stranger"}}'
        answer = client.post("gradio_api/queue/join", content=body, headers={"content-type": "application/json"})
        assert answer.status_code == status


def test_paths_are_found_however_deep():
    deep = {"path": "x"}
    for _ in range(200):
        deep = {"a": [deep]}
    assert list(file_paths({"data": [deep], "event_data": {"url": "y"}})) in (["x", None], [None, "x"])


def test_a_picture_that_was_sent_is_read(client):
    path = upload(client, "cat.jpg", CAT.read_bytes())
    visit = ask(client, 11, [{"path": path, **META}, "mini-vit", None, None, ["default"]])
    assert "cat 9" in visit.text


def test_where_the_file_of_another_lies_cannot_be_guessed_from_what_is_in_it(client):
    content = b"known to everybody"
    name = Path(upload(client, "a.txt", content)).parent.name
    assert len(name) == 64
    assert name != hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize(
    "path",
    [
        "file={secret}",
        "file=http://127.0.0.1:1/",
        "file=https://example.org/",
        "file/{secret}",
        "proxy=http://127.0.0.1:1/",
    ],
)
def test_no_other_file_and_no_url_can_be_read_through_the_server(client, secret, path):
    answer = client.get(f"gradio_api/{path.format(secret=secret)}")
    assert answer.status_code in (403, 404)
    assert list(answer.json()) == ["detail"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "gradio_api/component_server"),
        ("POST", "gradio_api/call/run_3"),
        ("POST", "gradio_api/call/v2/run_3"),
        ("POST", "gradio_api/api/predict"),
        ("POST", "gradio_api/run/run_3"),
        ("POST", "gradio_api/stream/event"),
        ("POST", "login"),
        ("GET", "gradio_api/deep_link?session_hash=stranger"),
        ("GET", "gradio_api/custom_component/a/b/c/d"),
        ("GET", "monitoring"),
        ("PUT", "gradio_api/upload"),
    ],
)
def test_what_the_page_does_not_use_is_not_there(client, method, path):
    assert client.request(method, path, json={"data": []}).json() == {"detail": "There is nothing at this address."}


def test_the_line_cannot_be_passed(client):
    function = text_function(client.get("config").json())
    question = {"data": ["a", None, None, None, None], "fn_index": function, "session_hash": "stranger"}
    answer = client.post("gradio_api/run/predict", json=question)
    assert answer.status_code == 404


def test_an_upload_lands_nowhere_else(page):
    for name in ("../../escape.png", "/etc/escape.png", "..", "a/b.png", "C:\\x.png"):
        answer = page.client.post("gradio_api/upload", files={"files": (name, b"x")})
        paths = answer.json() if answer.status_code == 200 else []
        assert all(Path(path).resolve().parents[1] == page.uploads for path in paths), name

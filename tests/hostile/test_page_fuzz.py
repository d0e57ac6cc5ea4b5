"""Every function of the page, by the page's own description, asked with values that nobody should send."""

import random
import re

import pytest

from page_client import META, Visit, ask, post, served_page, text_function, upload
from whyformer.app.bundled_examples import CAT
from whyformer.app.gate import WRONG_FORM

SEED, ROUNDS = 25, 1
VALUES = [
    *(None, True, -1, 0, 2**70, 1e308, 0.5, "", "x", "default", "mini-vit", "a" * 30_000, "\0", "\ud800", "\u202e<b>"),
    *([], {}, [[]], [None], ["default"] * 50, {"a": {"b": [1]}}, [[[[]]]], "../../etc/passwd", "mini-vit\n", "$(id)"),
    *(
        {"__type__": "update"},
        {"value": 1},
        {"meta": {"_type": "gradio.FileData"}},
        "positive",
        "rollout",
        float("nan"),
    ),
]
SCRIPT = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    with served_page(tmp_path_factory.mktemp("page")) as page:
        yield page
    assert page.log.read_text() == ""  # strangers do not fill it


@pytest.fixture(scope="module")
def functions(page):
    """The functions that take something, each with what an honest visitor could send: one for each set of inputs."""
    config = page.client.get("config").json()
    components = {one["id"]: one for one in config["components"]}
    distinct = {(*one["inputs"], one["queue"]): one for one in config["dependencies"] if one["inputs"]}
    return [(one, [honest(components[number]) for number in one["inputs"]]) for one in distinct.values()]


@pytest.fixture(scope="module")
def odd_values(page):
    content = {"a.png": b"no picture", "a.npz": b"PK\x03\x04", "a.txt": b"\xff\xfe", "cat.jpg": CAT.read_bytes()[:3000]}
    files = [{"path": upload(page.client, name, sent), **META} for name, sent in content.items()]
    return [*VALUES, SCRIPT, *files, *([file] for file in files)]


def honest(component):
    kinds = {"image": {"path": str(CAT), **META}, "textbox": "A wonderful film.", "slider": 2}
    return kinds.get(component["type"], component["props"].get("value"))


def send(client, function, data):
    if function["queue"]:
        return ask(client, function["id"], data)
    answer = post(client, "run/predict", {"data": data, "fn_index": function["id"], "session_hash": "fuzz"})
    return Visit(200 if answer.status_code == 500 else answer.status_code, answer.text)  # as a failure in the queue is


def check(visit):
    """Answered, or refused in one line, without a word of the code behind it."""
    assert visit.status in (200, 400, 403, 404, 413, 422), visit.body[:500]
    assert "Traceback" not in visit.text
    assert not re.search(r"site-packages|\.py\"|line \d+, in", visit.text)
    assert SCRIPT not in visit.text


def test_one_odd_value_among_honest_ones_is_answered_or_refused_in_a_line(page, functions, odd_values):
    generator = random.Random(SEED)
    for function, data in functions:
        for place in range(len(data)):
            for value in generator.sample(odd_values, ROUNDS):
                check(send(page.client, function, [*data[:place], value, *data[place + 1 :]]))


def test_odd_values_alone_are_answered_or_refused_in_a_line(page, functions, odd_values):
    generator = random.Random(SEED)
    for function, data in functions:
        check(send(page.client, function, generator.choices(odd_values, k=len(data))))


@pytest.mark.parametrize(
    "changes",
    [
        *({"data": None}, {"data": {}}, {"data": []}, {"data": [None] * 4}, {"data": [None] * 50}),
        *({"fn_index": 99999}, {"fn_index": -1}, {"fn_index": "9"}, {"fn_index": None}, {"fn_index": [9]}),
        *({"session_hash": 3}, {"session_hash": None}),
    ],
)
@pytest.mark.parametrize("path", ["queue/join", "run/predict"])
def test_a_question_of_the_wrong_form_is_one_line(page, path, changes):
    body = {"data": [None] * 5, "fn_index": 11, "session_hash": "s", **changes}
    answer = post(page.client, path, body)
    assert (answer.status_code, answer.json()) == (400, {"detail": WRONG_FORM})


@pytest.mark.parametrize("path", ["queue/join", "run/predict", "cancel", "reset"])
@pytest.mark.parametrize("body", [None, [], 3, "x", {}, {"event_id": 3}, {"session_hash": None, "fn_index": {}}])
def test_what_is_no_question_at_all_is_refused(page, path, body):
    assert post(page.client, path, body).status_code in (400, 422)


def test_a_file_named_beside_the_inputs_is_refused(page):
    body = {"data": [None] * 5, "fn_index": 11, "session_hash": "s", "event_data": {"path": "/etc/passwd"}}
    assert post(page.client, "queue/join", body).status_code == 403


def test_an_honest_question_is_still_answered(page):
    function = text_function(page.client.get("config").json())
    review = ask(page.client, function, ["A wonderful film.", "mini-bert", None, None, ["default"]])
    assert "positive 9" in review.text

"""Endpoints: what is sent, what comes back, and what happens if it does not."""

from __future__ import annotations

import json
import logging
import pickle
import time
from dataclasses import replace

import pytest

from tiny_server import Misbehaviour, completions_answer, reference_scores, tiny_server
from whyformer import Endpoint
from whyformer.errors import WhyformerError
from whyformer.served import http_client
from whyformer.served.api_formats import route
from whyformer.served.served_tokens import RawToken, checked_scores, response_part

PROMPTS = ["The key is in the drawer. Where is the key?", "Where is the key?", "Nothing."]
RESPONSE = " The key is in the drawer."
KEY = "sk-very-secret-0123456789"


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(http_client, "FIRST_WAIT", 0.01)


def pairs(tokens):
    return [(token.text, token.log_probability) for token in tokens]


@pytest.mark.parametrize("api", ["completions", "vllm", "sglang"])
def test_every_api_gives_the_tokens_of_the_response_with_their_log_probabilities(api):
    with tiny_server() as server:
        scored = Endpoint(server.url, "tiny", api=api)(PROMPTS, [RESPONSE] * 3)
    expected = reference_scores(PROMPTS, [RESPONSE] * 3)
    assert [pairs(tokens) for tokens in scored] == expected
    assert "".join(token.text for token in scored[0]) == RESPONSE


def test_without_offsets_tokens_are_found_by_their_texts():
    with tiny_server(offsets=False) as server:
        scored = Endpoint(server.url, "tiny")(PROMPTS, [RESPONSE] * 3)
    assert [pairs(tokens) for tokens in scored] == reference_scores(PROMPTS, [RESPONSE] * 3)


def test_offsets_that_count_a_beginning_of_text_token_are_not_believed():
    raw = [RawToken("<s>", None, 0), RawToken("A", -1.0, 3), RawToken(" b", -2.0, 4), RawToken(" c", -3.0, 6)]
    assert pairs(response_part(raw, "A b", " c")) == [(" c", -3.0)]


def test_a_token_over_the_boundary_counts_with_the_response_and_says_so():
    (token, rest) = response_part(
        [RawToken("The", None), RawToken(" foobar", -2.0), RawToken("!", -1.0)], "The foo", "bar!"
    )
    assert (token.text, token.start, token.end, token.log_probability, token.reaches_back) == ("bar", 0, 3, -2.0, True)
    assert not rest.reaches_back


def test_tokens_within_a_character_share_it():
    raw = [
        RawToken("Go", None),
        RawToken(" ", -1.0),
        RawToken("\ufffd", -2.0),
        RawToken("\ufffd", -3.0),
        RawToken("!", -4.0),
    ]
    tokens = response_part(raw, "Go", " é!")
    assert [(one.start, one.end) for one in tokens] == [(0, 1), (1, 2), (1, 2), (2, 3)]
    assert sum(one.log_probability for one in tokens) == -10.0


@pytest.mark.parametrize(
    ("raw", "complaint"),
    [
        ([RawToken("bar", None)], "first token of the response has no log-probability"),
        ([RawToken("foo", None), RawToken("bar", float("nan"))], "is nan"),
        ([RawToken("foo", None), RawToken("baz", -1.0)], "is not in the text"),
        ([], "leave out 'bar'"),
    ],
)
def test_tokens_that_do_not_fit_the_response_are_named(raw, complaint):
    prompt = "foo" if len(raw) > 1 else ""
    with pytest.raises(ValueError, match=complaint):
        response_part(raw, prompt, "bar")


@pytest.mark.parametrize("url", ["http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/completions"])
def test_an_address_may_end_anywhere(url):
    assert route(url, "completions") == route(url, "vllm") == "http://h:1/v1/completions"
    assert route(url, "sglang") == "http://h:1/generate"


TROUBLE = {
    "429 with Retry-After": Misbehaviour(429, {"Retry-After": "0.05"}, b"{}"),
    "500": Misbehaviour(500, {}, b"oops"),
    "503": Misbehaviour(503, {}, b""),
    "a cut connection": Misbehaviour(cut=True),
    "a timeout": Misbehaviour(seconds=2.0),
}


@pytest.mark.parametrize("trouble", TROUBLE.values(), ids=TROUBLE.keys())
def test_trouble_that_passes_is_waited_out(trouble):
    with tiny_server(trouble, trouble) as server:
        endpoint = Endpoint(server.url, "tiny", concurrency=1, timeout=0.3)
        scored = endpoint(PROMPTS[:1], [RESPONSE])
        assert len(server.requests) == 3
    assert pairs(scored[0]) == reference_scores(PROMPTS[:1], [RESPONSE])[0]
    assert endpoint.usage.requests == 3


def test_a_pause_is_as_long_as_the_server_asks():
    with tiny_server(Misbehaviour(429, {"Retry-After": "0.4"}, b"{}")) as server:
        start = time.monotonic()
        Endpoint(server.url, "tiny")(PROMPTS[:1], [RESPONSE])
        assert time.monotonic() - start >= 0.4


def test_a_server_that_asks_for_too_long_a_pause_is_given_up():
    with tiny_server(Misbehaviour(429, {"Retry-After": "86400"}, b'{"error": "quota"}')) as server:
        with pytest.raises(WhyformerError, match="asks to wait 86400 seconds, status 429"):
            Endpoint(server.url, "tiny")(PROMPTS[:1], [RESPONSE])
        assert len(server.requests) == 1


def test_trouble_that_stays_ends_in_one_line():
    with tiny_server(*[Misbehaviour(500, {}, b"still broken")] * 3) as server:
        with pytest.raises(WhyformerError, match="failed 3 times, last with status 500: still broken") as caught:
            Endpoint(server.url, "tiny", retries=2)(PROMPTS[:1], [RESPONSE])
        assert "\n" not in str(caught.value)


MISSING = "answered without what api='completions' asks for"
FINAL = {
    "an unknown model": (Misbehaviour(404, {}, b'{"error": "no such model"}'), "refused the request, status 404"),
    "a redirection": (Misbehaviour(307, {"Location": "http://127.0.0.1:1/"}, b""), "refused the request, status 307"),
    "a page": (Misbehaviour(content=b"<html>Bad gateway</html>"), "not JSON: <html>Bad gateway</html>"),
    "JSON of another kind": (Misbehaviour(content=b'{"ok": true}'), MISSING),
    "a list": (Misbehaviour(content=b"[]"), MISSING),
    "null log-probabilities": (
        Misbehaviour(content=b'{"choices": [{"logprobs": null}]}'),
        MISSING,
    ),
    "columns of different lengths": (
        Misbehaviour(content=b'{"choices": [{"logprobs": {"tokens": ["a"], "token_logprobs": []}}]}'),
        MISSING,
    ),
    "texts for numbers": (
        Misbehaviour(content=b'{"choices": [{"logprobs": {"tokens": ["a"], "token_logprobs": ["x"]}}]}'),
        MISSING,
    ),
    "another text": (
        Misbehaviour(content=json.dumps(completions_answer({"prompt": "Something else."})).encode()),
        "cannot be used: its token",
    ),
    "endless nesting": (Misbehaviour(content=b"[" * 100_000), "not JSON"),
}


@pytest.mark.parametrize(("odd", "message"), FINAL.values(), ids=FINAL.keys())
def test_a_wrong_answer_ends_in_one_line_without_a_second_request(odd, message):
    with tiny_server(odd) as server:
        with pytest.raises(WhyformerError, match=message) as caught:
            Endpoint(server.url, "tiny")(PROMPTS[:1], [RESPONSE])
        assert len(server.requests) == 1
        assert "\n" not in str(caught.value)


def test_an_answer_without_end_is_refused(monkeypatch):
    monkeypatch.setattr(http_client, "MOST_ANSWER_BYTES", 1000)
    with tiny_server(Misbehaviour(content=b" " * 2000)) as server, pytest.raises(WhyformerError, match="more than"):
        Endpoint(server.url, "tiny")(PROMPTS[:1], [RESPONSE])


def test_nobody_listening_ends_in_one_line():
    with tiny_server() as server:
        pass
    with pytest.raises(WhyformerError, match="failed 2 times, last with ConnectError"):
        Endpoint(server.url, "tiny", retries=1)(PROMPTS[:1], [RESPONSE])


def test_so_many_requests_at_once_and_no_more():
    slow = [Misbehaviour(seconds=0.05)] * 8
    with tiny_server(*slow) as server:
        Endpoint(server.url, "tiny", concurrency=3)([f"Text {n}." for n in range(8)], [RESPONSE] * 8)
        assert server.most_at_once == 3


def test_so_many_requests_a_minute_and_no_more():
    with tiny_server() as server:
        endpoint, start = Endpoint(server.url, "tiny", requests_per_minute=600), time.monotonic()
        endpoint([f"Text {n}." for n in range(3)], [RESPONSE] * 3)
        endpoint([f"Text {n}." for n in range(3, 5)], [RESPONSE] * 2)  # the rate is that of all calls together
        assert time.monotonic() - start >= 0.4


def test_equal_questions_are_sent_once():
    with tiny_server() as server:
        scored = Endpoint(server.url, "tiny")([PROMPTS[0]] * 3, [RESPONSE] * 3)
        assert len(server.requests) == 1
    assert scored[0] == scored[1] == scored[2]


def test_the_budget_of_requests_counts_repeated_ones():
    with tiny_server(Misbehaviour(500), Misbehaviour(500)) as server:
        endpoint = Endpoint(server.url, "tiny", concurrency=1, max_requests=3)
        with pytest.raises(WhyformerError, match="max_requests=3 are used up"):
            endpoint(PROMPTS, [RESPONSE] * 3)
        assert len(server.requests) == 3


def test_no_request_is_sent_after_the_budget_of_tokens():
    with tiny_server() as server:
        endpoint = Endpoint(server.url, "tiny", concurrency=1, max_tokens=10)
        with pytest.raises(WhyformerError, match="max_tokens=10 are used up"):
            endpoint(PROMPTS, [RESPONSE] * 3)
        assert len(server.requests) == 1
        assert endpoint.usage.tokens > 10


def test_what_was_scored_before_a_stop_is_not_asked_again(tmp_path):
    with tiny_server() as server:
        first = Endpoint(server.url, "tiny", concurrency=1, max_requests=2, cache=tmp_path)
        with pytest.raises(WhyformerError):
            first(PROMPTS, [RESPONSE] * 3)
        second = replace(first, max_requests=None)
        scored = second(PROMPTS, [RESPONSE] * 3)
        assert (second.usage.requests, second.usage.cached) == (1, 2)
        assert len(server.requests) == 3
    assert [pairs(tokens) for tokens in scored] == reference_scores(PROMPTS, [RESPONSE] * 3)


def test_a_cache_is_of_one_model_and_one_address(tmp_path):
    with tiny_server() as server:
        one = Endpoint(server.url, "tiny", cache=tmp_path)
        one(PROMPTS, [RESPONSE] * 3)
        for other in (replace(one, model="other"), replace(one, api="vllm"), replace(one, url=server.url + "/other")):
            assert other.cached_tokens(PROMPTS[0], RESPONSE) is None
        assert one.cached_tokens(PROMPTS[0], RESPONSE) is not None


@pytest.mark.parametrize("damage", [b"", b"{", b'{"version": 1, "tokens": [[0, 900, -1, null, null, false]]}', b"[]"])
def test_a_damaged_file_of_the_cache_is_asked_again(tmp_path, damage):
    with tiny_server() as server:
        endpoint = Endpoint(server.url, "tiny", cache=tmp_path)
        expected = endpoint(PROMPTS[:1], [RESPONSE])
        (file,) = tmp_path.iterdir()
        file.write_bytes(damage)
        assert endpoint(PROMPTS[:1], [RESPONSE]) == expected
        assert len(server.requests) == 2


def test_a_cache_never_follows_a_link_out_of_its_folder(tmp_path):
    folder, outside = tmp_path / "cache", tmp_path / "outside.json"
    with tiny_server() as server:
        endpoint = Endpoint(server.url, "tiny", cache=folder)
        endpoint(PROMPTS[:1], [RESPONSE])
        (file,) = folder.iterdir()
        file.rename(outside)
        file.symlink_to(outside)
        with pytest.raises(WhyformerError, match="is a link"):
            endpoint(PROMPTS[:1], [RESPONSE])


def test_names_with_paths_in_them_stay_in_the_cache(tmp_path):
    with tiny_server() as server:
        Endpoint(server.url, "../../evil", cache=tmp_path / "cache")(["../../prompt"], [RESPONSE])
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]


def test_a_key_is_sent_and_nowhere_else_to_be_found(tmp_path, caplog, capsys):
    echo = Misbehaviour(401, {}, f'{{"error": "wrong key {KEY}"}}'.encode())
    caplog.set_level(logging.DEBUG)
    with tiny_server() as server:
        endpoint = Endpoint(server.url, "tiny", api_key=KEY, cache=tmp_path)
        endpoint(PROMPTS, [RESPONSE] * 3)
        assert {headers["Authorization"] for headers in server.headers} == {f"Bearer {KEY}"}
        server.script.append(echo)
        with pytest.raises(WhyformerError, match="wrong key •••") as caught:
            endpoint(["Another."], [RESPONSE])
    assert KEY not in str(caught.value) + repr(endpoint) + str(endpoint) + caplog.text + "".join(capsys.readouterr())
    assert all(KEY.encode() not in path.read_bytes() for path in tmp_path.iterdir())
    assert all(word.encode() not in path.read_bytes() for path in tmp_path.iterdir() for word in ("drawer", "Where"))
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(endpoint)


@pytest.mark.parametrize("key", ["a b", "line\n", "ключ", ""])
def test_a_key_that_cannot_be_sent_is_refused_and_not_shown(key):
    with pytest.raises(WhyformerError, match="api_key is not a key") as caught:
        Endpoint("http://127.0.0.1:1", "tiny", api_key=key)
    assert not key.strip() or key.strip() not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"url": "ftp://host"}, "url is not an address"),
        ({"url": "http://user:sesame@host"}, "pass the key as api_key"),
        ({"url": "https://host/v1?key=sesame"}, "pass the key as api_key"),
        ({"api": "chat"}, "api='chat'. Choose from"),
        ({"concurrency": 0}, "concurrency=0"),
        ({"timeout": 0}, "timeout=0"),
        ({"retries": -1}, "retries=-1"),
        ({"max_tokens": 1.5}, "max_tokens=1.5"),
    ],
)
def test_settings_that_cannot_be_are_refused(arguments, message):
    with pytest.raises(WhyformerError, match=message) as caught:
        Endpoint(**{"url": "http://127.0.0.1:1", "model": "tiny"} | arguments)
    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "returned 0 items for 1 responses"),
        (None, "returned no sequence"),
        ([[("a", -1.0)]], "tokens that join to 'a'"),
        ([[(RESPONSE, float("-inf"))]], "log-probability -inf"),
        (["text"], r"a \(text, log-probability\) pair"),
    ],
)
def test_a_function_that_returns_something_else_is_told_what_to_return(values, message):
    with pytest.raises(WhyformerError, match=message):
        checked_scores(values, [RESPONSE], "score")

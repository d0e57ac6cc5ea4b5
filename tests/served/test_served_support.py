"""Verdicts on answers of served models: figures made by hand, a cache, a limit of requests and a dry run."""

from __future__ import annotations

import json

import pytest

from commands import invoke
from tiny_server import reference_scores, tiny_server
from whyformer import Endpoint, explain_response
from whyformer.api.support_estimate import STAND_IN, estimate_support
from whyformer.inputs.support_logs import read_support_log

DOCUMENTS = [("drawer", "The key is in the drawer."), ("hat", "Anna has a hat."), ("cat", "The cat sleeps.")]
QUESTION, ANSWER = "Where is the key?", " The key is in the drawer. The bird sings."
ROW = {"question": QUESTION, "documents": [text for _, text in DOCUMENTS], "answer": ANSWER}


@pytest.fixture
def log(tmp_path):
    file = tmp_path / "log.jsonl"
    file.write_text(json.dumps(ROW) + "\n")
    return file


def command(log, url, *more):
    out = log.parent / "report.html"
    return invoke("support", str(log), "--url", url, "--model", "tiny", "--out", str(out), "--quiet", *more)


def test_the_figures_of_an_endpoint_are_differences_made_by_hand():
    with tiny_server() as server:
        endpoint = Endpoint(server.url, "tiny", retries=0)
        response = explain_response(
            QUESTION, ANSWER, score=endpoint, context=DOCUMENTS, method="leave_one_out", support=True
        )
    prompt, length = response.prompt.text, 7  # tokens of the first sentence
    without = prompt[prompt.index(QUESTION) :]
    (whole,), (bare,) = (reference_scores([text], [ANSWER]) for text in (prompt, without))
    first, second = response.verdicts.units
    assert first.log_probability == pytest.approx(sum(value for _, value in whole[:length]), abs=1e-6)
    assert first.without_sources == pytest.approx(sum(value for _, value in bare[:length]), abs=1e-6)
    assert second.lowest == pytest.approx(min(value for _, value in whole[length:]), abs=1e-6)
    assert first.value.tokens == 1
    assert first.value.log_probability == pytest.approx(whole[5][1], abs=1e-6)
    assert (first.own_answer, first.own_tokens, first.score) == ("and", 1, None)
    assert first.verdict == "from sources" != second.verdict


def test_a_dry_run_counts_the_requests_that_are_then_sent(log, tmp_path):
    (answer,), _ = read_support_log(log)
    with tiny_server() as server:
        endpoint = Endpoint(server.url, "tiny", cache=tmp_path / "answers")
        before = estimate_support(endpoint, None, [answer])
        assert not server.requests
        result = command(log, server.url, "--cache", str(tmp_path / "answers"))
        assert result.exit_code in (0, 1), result.stderr
        sent = len(server.requests)
        assert before.least <= sent <= before.most
        after = estimate_support(endpoint, None, [answer])
        assert (after.least, after.most, after.cached) == (0, 0, sent)
        assert len(server.requests) == sent
        result = command(log, server.url, "--cache", str(tmp_path / "answers"), "--dry-run")
        assert result.stdout.startswith("1 answers need 0 to 0 requests")
    assert STAND_IN not in json.dumps(server.requests)


def test_a_limit_stops_a_run_and_its_cache_goes_on(log, tmp_path):
    folder = str(tmp_path / "answers")
    with tiny_server() as server:
        result = command(log, server.url, "--cache", folder, "--requests", "2", "--concurrency", "1")
        assert result.exit_code == 2  # no answer could be judged with so few requests: there is no report
        assert "max_requests=2 are used up" in result.stderr
        assert len(server.requests) == 2
        result = command(log, server.url, "--cache", folder)
        assert "used up" not in result.stderr
        texts = [json.dumps(body, sort_keys=True) for body in server.requests]
        assert len(texts) == len(set(texts))  # nothing was sent twice
        assert server.most_at_once <= 4


def test_options_of_servers_need_one(log, tmp_path):
    result = invoke("support", str(log), "--cache", str(tmp_path), "--out", str(tmp_path / "report.html"))
    assert result.exit_code == 2
    assert "--cache, --requests and --dry-run are for a served model" in result.stderr

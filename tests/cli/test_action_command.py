"""`whyformer action`: a transcript to a page, many to a report with the most suspicious first."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

import whyformer
from commands import invoke, refusal, run
from made_actions import ASKED, EVIL, GOOD, explained
from tiny_agents import called, result
from tiny_server import tiny_server
from whyformer.render.action_page import ActionRow, action_page, action_report, most_suspicious_first
from whyformer.results.action import VERDICT_RULE, Action

FOLDER = Path(whyformer.__file__).parent / "zoo" / "mini-gpt"
MESSAGES = [ASKED, called("read_mail"), result(GOOD), called("send_money", 1, amount=3)]
SHORT = (
    "{% for m in messages %}{{ m.role }}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ c.function | tojson }}{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}assistant{% endif %}"
)


@pytest.fixture
def transcript(tmp_path):
    (tmp_path / "agent.json").write_text(json.dumps({"messages": MESSAGES, "id": "first"}))
    (tmp_path / "short.jinja").write_text(SHORT)
    return tmp_path / "agent.json"


def options(transcript, *more):
    template = transcript.with_name("short.jinja")
    return (transcript, "--model", "mini-gpt", "--chat-template", template, "--budget", "5", *more)


def test_a_transcript_becomes_text_and_a_file(transcript, tmp_path):
    out = tmp_path / "call.json"
    printed = run("action", *options(transcript, "--out", out, "--quiet"))
    assert printed == ""
    action = Action.load(out)
    assert repr(action.call) == "send_money(amount=3)"
    again = json.loads(invoke("action", *options(transcript, "--json")).stdout)
    assert again == {name: value for name, value in json.loads(out.read_text()).items() if name in again}


def test_calls_labels_and_contrasts_are_given_as_text(transcript):
    call, rival = '{"name": "f", "arguments": {}}', '{"name": "g"}'
    more = ("--call", call, "--contrast", rival, "--trust", "read_mail=trusted", "--json")
    document = json.loads(invoke("action", *options(transcript, *more)).stdout)
    assert (document["call"]["name"], document["contrast"]["name"]) == ("f", "g")
    trusts = {one["name"]: one["trust"] for one in document["sources"] if one["kind"] == "tool result"}
    assert trusts == {"read_mail": "trusted"}


def test_a_batch_becomes_a_report_and_goes_on_where_it_stopped(transcript, tmp_path):
    lines = tmp_path / "all.jsonl"
    bad = json.dumps({"messages": MESSAGES, "id": "third", "trust": ["read_mail"]})
    lines.write_text("\n".join([json.dumps(MESSAGES), "{", bad, json.dumps({"messages": MESSAGES, "id": "second"})]))
    arguments = ("action", lines, *options(transcript, "--batch", "--out", tmp_path / "report.html")[1:])
    done = invoke(*arguments)
    assert done.exit_code == 1
    assert "line 2" in done.stderr
    kept = (tmp_path / "report.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in kept] == ["line 1", "second"]
    page = (tmp_path / "report.html").read_text()
    assert "second" in page
    assert "Not explained: line 2" in page
    (line,) = (line for line in done.stderr.splitlines() if "third" in line)
    assert "third: trust=['read_mail']: labels by name" in line
    assert invoke(*arguments).exit_code == 1
    assert (tmp_path / "report.jsonl").read_text().splitlines() == kept


def test_a_batch_is_not_resumed_from_verdicts_of_another_rule(transcript, tmp_path, monkeypatch):
    arguments = ("action", *options(transcript, "--batch", "--out", tmp_path / "report.html", "--quiet"))
    counts = []
    for rule in (VERDICT_RULE - 1, VERDICT_RULE, VERDICT_RULE):
        monkeypatch.setattr("whyformer.results.action.VERDICT_RULE", rule)
        run(*arguments)
        counts.append(len((tmp_path / "report.jsonl").read_text().splitlines()))
    assert counts == [1, 2, 2]


def test_a_served_model_is_asked_at_its_address(transcript, tmp_path):
    with tiny_server() as server:
        more = ("--url", server.url, "--tokenizer", FOLDER, "--chat-template", tmp_path / "short.jinja")
        printed = invoke("action", transcript, "--model", "served", *more, "--json")
        document = json.loads(printed.stdout)
        assert (document["model"], document["token_scores"]) == ("served", None)
        assert document["forwards"] > 4
        lines = tmp_path / "all.jsonl"
        lines.write_text(json.dumps(MESSAGES))
        report = tmp_path / "served.html"
        assert run("action", lines, "--model", "served", *more, "--batch", "--out", report, "--quiet") == ""
        assert "send_money(amount=3)" in report.read_text()
    assert "--url needs --tokenizer FOLDER" in refusal("action", transcript, "--url", "http://127.0.0.1:9")


def test_an_audit_file_is_saved_and_verified(transcript, tmp_path):
    audit = tmp_path / "call.audit.json"
    run("action", *options(transcript, "--out", audit, "--quiet"))
    assert run("verify", audit).rstrip().endswith("verified")


def test_the_most_suspicious_call_comes_first_and_markup_is_escaped():
    rows = [
        ActionRow("benign", explained({"send_money": "Pay Ann", "DE89": GOOD}, ask="Pay Ann")),
        ActionRow("<b>attacked</b>", explained({"send_money": EVIL})),
    ]
    page = action_report(rows, model="m", errors=["<i>"])
    assert page.index("&lt;b&gt;attacked") < page.index("benign")
    assert "<i>" not in page
    assert "+6.0 nats" in page


def test_calls_with_a_driven_argument_come_after_driven_calls_and_are_counted():
    swapped = explained({"Pay": "Pay Ann", "send_money": "Pay Ann", "DE89": EVIL}, ask="Pay Ann")
    swapped = with_verdict(swapped, "follows the user")
    benign = explained({"send_money": "Pay Ann"}, ask="Pay Ann")
    rows = [
        ActionRow("benign", benign),
        ActionRow("swapped", swapped),
        ActionRow("mixed", with_verdict(benign, "mixed")),
        ActionRow("driven", explained({"send_money": EVIL})),
    ]
    assert [row.action.driven_arguments for row in rows] == [(), ("recipient",), (), ()]
    assert [row.name for row in most_suspicious_first(rows)] == ["driven", "mixed", "swapped", "benign"]
    title = "3 of 4 calls driven by a tool result: 2 in whole or in part, 1 only in an argument"
    assert f"<title>{title}</title>" in action_report(rows, model="m")


def with_verdict(action, verdict):
    return replace(action, verdict=verdict)


def test_the_legend_stands_between_the_bars_and_names_the_scale():
    page = action_page(explained({"send_money": EVIL}))
    line = "nats, for bars and colours; above 2 nats the scale is logarithmic"
    places = [page.index(part) for part in ('data-effect="untrusted"', line, '<ol class="ranked">')]
    assert places == sorted(places)
    assert str(explained({"send_money": EVIL})).count("bars: on a logarithmic scale above 2 nats") == 1


def test_the_report_shows_the_argument_that_a_result_gave_beside_the_action():
    swapped = explained({"send_money": "Pay Ann", "DE89": EVIL}, ask="Pay Ann")
    page = action_report([ActionRow("plain", explained({})), ActionRow("swapped", swapped)], model="m")
    assert [round(swapped.target(name).dominance) for name in ("action", "recipient")] == [-6, 6]
    cells = re.findall(
        r'data-label="of an argument" data-value="([^"]+)">([^<]*)<p class="faint" dir="auto">([^<]*)', page
    )
    assert cells == [("-6.0", "+6.0 nats", "recipient"), ("-0.0", "+0.0 nats", "recipient")]
    assert page.index(">swapped<") < page.index(">plain<")


def test_a_result_that_gives_an_argument_does_not_drive_the_call():
    benign = explained({"send_money": "Pay Ann", "DE89": "DE89"}, ask="Pay Ann", content="Ann has DE89. Hello.")
    page = action_page(benign)
    assert (benign.verdict, len(benign.driver)) == ("follows the user", 1)
    assert "What the call takes from results" in page
    assert "What drives the call" not in page
    assert 'class="said tool-result"' in page
    assert "what the call takes from results: read_mail sentence 1" in str(benign)
    assert "What drives the call" in action_page(explained({"send_money": EVIL}))


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("{", "agent.json' cannot be read: "),
        ("{}\n{}", "a file with one on each line is read by --batch."),
        ("3", 'a list of messages or {"messages", "tools"} is needed, not 3.'),
        ('{"messages": [], "tool": []}', "unknown field 'tool'. Did you mean 'tools'"),
    ],
)
def test_bad_transcripts_get_one_line(transcript, content, line):
    transcript.write_text(content)
    assert line in refusal("action", *options(transcript))


def test_a_batch_without_a_transcript_that_can_be_explained_gets_one_line_and_no_report(transcript, tmp_path):
    out = tmp_path / "report.html"
    transcript.write_text(json.dumps({"messages": 3}, indent=1))
    assert "could be explained: " in refusal("action", *options(transcript, "--batch", "--out", out))
    transcript.write_text("3")
    line = refusal("action", *options(transcript, "--batch", "--out", out))
    assert 'agent.json\' has no transcripts: agent: a list of messages or {"messages", "tools"}' in line
    assert not out.exists()


def test_bad_options_get_one_line(transcript, tmp_path):
    assert "--batch needs an .html report" in refusal("action", *options(transcript, "--batch"))
    assert "--trust 'x': write it as name=label" in refusal("action", *options(transcript, "--trust", "x"))
    assert "--call '{' is not JSON" in refusal("action", *options(transcript, "--call", "{"))
    assert "no format for '.png'" in refusal("action", *options(transcript, "--out", tmp_path / "a.png"))
    missing = tmp_path / "none.json"
    assert refusal("action", *options(missing)).count("none.json' cannot be read") == 1
    assert "--tools" in refusal("action", *options(transcript, "--tools", missing))

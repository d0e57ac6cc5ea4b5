"""`whyformer app`: where it listens, whom it warns, and how a Space starts it."""

import socket
from pathlib import Path

import pytest

from commands import invoke, process, refusal
from whyformer.app import server
from whyformer.app.limits import Limits

ROOT = Path(__file__).parents[2]


class Page:
    local_url, share_url = "http://127.0.0.1:7860/", None

    def block_thread(self):
        pass


@pytest.fixture
def launches(monkeypatch):
    """What the page would be started with."""
    calls = []
    monkeypatch.setattr(server, "launch", lambda setup, **settings: calls.append((setup, settings)) or Page())
    return calls


def test_it_listens_on_this_machine_alone_and_opens_the_browser(launches):
    result = invoke("app")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == "The page is at http://127.0.0.1:7860/ — Ctrl-C ends it.\n"
    ((setup, settings),) = launches
    assert settings == {
        **{"host": "127.0.0.1", "port": 7860, "share": False, "allow_hosts": ()},
        **{"opens_browser": True, "blocks": False},
    }
    assert not setup.models.takes_any
    assert setup.limits == Limits()


@pytest.mark.parametrize(
    ("arguments", "who"),
    [(["--host", "0.0.0.0"], "anyone who can reach this machine"), (["--share"], "anyone with the link")],
)
def test_letting_others_in_is_warned_of(launches, arguments, who):
    result = invoke("app", "--no-browser", *arguments)
    warning = f"whyformer: warning: {who} can use this page and its models, without a password.\n"
    assert result.stderr == warning
    result = invoke("app", "--any-model", *arguments)
    assert result.stderr == warning + (
        "whyformer: warning: with --any-model they can also load any model folder of this machine.\n"
    )
    assert launches[-1][0].models.takes_any


def test_a_model_that_has_no_tab_or_is_not_there_is_refused_at_the_start(launches):
    assert refusal("app", "--model", "no-such-model").startswith("No model 'no-such-model': ")
    assert launches == []


def test_a_model_named_at_the_start_is_offered_first(launches, bert):
    assert invoke("app", "--model", bert).exit_code == 0
    assert launches[0][0].models.names["Text"][0] == str(bert)


def test_a_port_that_is_taken_is_refused_with_the_options_of_the_command():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = process("app", "--no-browser", "--port", port)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == (
        f"whyformer: Cannot listen on 127.0.0.1:{port}: the port is in use, or this machine does not have "
        "that address. Choose another --port or --host.\n"
    )


def test_a_space_starts_it_with_five_lines(launches, monkeypatch):
    monkeypatch.setattr(server, "launch_space", lambda: launches.append("space"))
    text = (ROOT / "app.py").read_text()
    assert len(text.splitlines()) == 5
    exec(compile(text, "app.py", "exec"), {})
    assert launches == ["space"]


def test_a_space_says_where_to_listen(launches):
    server.launch_space()
    assert launches[0][1] == {"host": None, "port": None, "allow_hosts": ["*"]}


def test_names_of_a_proxy_are_handed_on(launches):
    assert invoke("app", "--allow-host", "why.example.org", "--allow-host", "*.example.net").exit_code == 0
    assert launches[0][1]["allow_hosts"] == ["why.example.org", "*.example.net"]

"""Whom the page answers: visitors who came to it themselves, not other sites that lead a browser here."""

import socket

import pytest

from gate_client import gated, question
from whyformer.app.hosts import page_hosts


@pytest.mark.parametrize(
    ("bound", "header", "is_accepted"),
    [
        ("127.0.0.1", "127.0.0.1:7860", True),
        ("127.0.0.1", "localhost:7860", True),
        ("127.0.0.1", "LOCALHOST", True),
        ("127.0.0.1", "[::1]:7860", True),
        ("127.0.0.1", "evil.example", False),
        ("127.0.0.1", "localhost.evil.example", False),
        ("127.0.0.1", "evil.example:7860@localhost:1", True),  # names localhost, as browsers read it
        ("127.0.0.1", "localhost@evil.example", False),
        ("127.0.0.1", "192.168.1.5", False),
        ("127.0.0.1", "", False),
        ("127.0.0.1", "[::1", False),
        ("192.168.1.5", "192.168.1.5:7860", True),
        ("box.lan", "BOX.lan:80", True),
        ("box.lan", "other.lan", False),
        ("0.0.0.0", "192.168.1.5:7860", True),
        ("0.0.0.0", "[fe80::1]:7860", True),
        ("0.0.0.0", socket.gethostname(), True),
        ("0.0.0.0", "evil.example", False),
    ],
)
def test_only_names_that_the_page_listens_on_are_answered_to(bound, header, is_accepted):
    hosts = page_hosts(bound)
    assert hosts.accept(header) == is_accepted
    assert gated(hosts).get("/config", headers={"host": header}).status_code == (200 if is_accepted else 400)


@pytest.mark.parametrize("path", ["/", "/config", "/gradio_api/file=/etc/passwd", "/gradio_api/queue/data"])
def test_a_foreign_host_gets_the_same_line_everywhere(path):
    answer = gated(page_hosts("127.0.0.1")).get(path, headers={"host": "evil.example"})
    assert (answer.status_code, answer.json()) == (
        400,
        {"detail": "The page does not answer to the host 'evil.example': start it with --allow-host to add a name."},
    )


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        (None, 200),
        ("http://127.0.0.1:7860", 200),
        ("http://127.0.0.1:3000", 403),  # another program of this machine
        ("http://localhost:7860", 403),
        ("http://evil.example", 403),
        ("https://127.0.0.1:7860.evil.example", 403),
        ("null", 403),
        ("http://[", 403),
    ],
)
@pytest.mark.parametrize("path", ["queue/join", "run/predict", "upload", "cancel", "reset"])
def test_a_foreign_origin_changes_nothing(path, origin, status):
    headers = {"host": "127.0.0.1:7860", **({} if origin is None else {"origin": origin})}
    answer = gated(page_hosts("127.0.0.1")).post(f"/gradio_api/{path}", headers=headers, content=question())
    assert answer.status_code == status


def test_a_proxy_is_allowed_by_name():
    hosts = page_hosts("127.0.0.1", ["Why.Example.org", "*.example.net"])
    for name in ("why.example.org", "a.example.net"):
        assert hosts.accept(name)
        assert hosts.accept_origin(f"https://{name}", "127.0.0.1:7860")
    assert not hosts.accept("example.org")
    assert not hosts.accept("why.example.org.evil.example")
    assert not hosts.accept_origin("https://evil.example", "why.example.org")


def test_a_public_link_answers_to_its_own_name():
    assert page_hosts("127.0.0.1", share=True).accept("0123abcd.gradio.live")
    assert not page_hosts("127.0.0.1").accept("0123abcd.gradio.live")


def test_a_space_leaves_the_names_to_its_proxy():
    hosts = page_hosts(None, ["*"])
    assert hosts.accept("somebody-whyformer.hf.space")
    assert hosts.accept_origin("https://somebody-whyformer.hf.space", "10.0.0.1:7860")

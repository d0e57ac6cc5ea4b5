"""A server on 127.0.0.1 that scores texts as served language models do, and misbehaves when told to."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any

TOKEN = re.compile(r" ?\w+| ?[^\w\s]|\s")
MOST_REQUESTS = 2000


def tokens_of(text: str) -> list[str]:
    return TOKEN.findall(text)


def log_probability(tokens: list[str], number: int) -> float:
    """A word is likelier the more often it stands before."""
    word = tokens[number].strip()
    times = sum(one.strip() == word for one in tokens[:number])
    return -4.0 / (1.0 + times) - 0.01 * len(word)


def text_scores(text: str) -> list[tuple[str, float | None]]:
    tokens = tokens_of(text)
    return [(one, log_probability(tokens, number) if number else None) for number, one in enumerate(tokens)]


def reference_scores(prompts: list[str], responses: list[str]) -> list[list[tuple[str, float | None]]]:
    """The same figures as a function, for responses that begin a token of their own."""
    rows = []
    for prompt, response in zip(prompts, responses, strict=True):
        rows.append(text_scores(prompt + response)[len(tokens_of(prompt)) :])
    return rows


def completions_answer(body: dict[str, Any], *, offsets: bool = True) -> dict[str, Any]:
    rows, places, place = text_scores(body["prompt"]), [], 0
    for text, _ in rows:
        places.append(place)
        place += len(text)
    # The generated token stands at the end, as with the real ones.
    figures = {
        "tokens": [text for text, _ in rows] + [" and"],
        "token_logprobs": [value for _, value in rows] + [-1.0],
    }
    if offsets:
        figures["text_offset"] = [*places, place]
    return {"choices": [{"text": (body["prompt"] if body.get("echo") else "") + " and", "logprobs": figures}]}


def vllm_answer(body: dict[str, Any]) -> dict[str, Any]:
    rows = text_scores(body["prompt"])
    entries = [{str(7 + n): {"logprob": v, "rank": 2, "decoded_token": t}} for n, (t, v) in enumerate(rows)]
    return {"choices": [{"text": " and", "prompt_logprobs": [None, *entries[1:]]}]}


def sglang_answer(body: dict[str, Any]) -> dict[str, Any]:
    rows = [[value, 7 + number, text] for number, (text, value) in enumerate(text_scores(body["text"]))]
    return {"text": " and", "meta_info": {"input_token_logprobs": rows}}


@dataclass
class Misbehaviour:
    """What the server does in place of an answer, once for each entry, in order."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    content: bytes | None = None  # sent as it is
    cut: bool = False  # the connection breaks in the middle of the answer
    seconds: float = 0.0  # before the answer


@dataclass
class TinyServer:
    url: str
    script: list[Misbehaviour] = field(default_factory=list)
    offsets: bool = True
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)
    at_once: int = 0
    most_at_once: int = 0


@contextmanager
def tiny_server(*script: Misbehaviour, offsets: bool = True) -> Iterator[TinyServer]:
    """Serve until the block ends."""
    server = TinyServer("", list(script), offsets)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def do_POST(self) -> None:
            with server.lock:
                assert len(server.requests) < MOST_REQUESTS
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                server.requests.append(body)
                server.headers.append(dict(self.headers))
                odd = server.script.pop(0) if server.script else Misbehaviour()
                server.at_once += 1
                server.most_at_once = max(server.most_at_once, server.at_once)
            try:
                self.answer(body, odd)
            finally:
                with server.lock:
                    server.at_once -= 1

        def answer(self, body: dict[str, Any], odd: Misbehaviour) -> None:
            if odd.seconds:
                stop.wait(odd.seconds)
            content = odd.content
            if content is None:
                if self.path == "/generate":
                    document = sglang_answer(body)
                elif "prompt_logprobs" in body:
                    document = vllm_answer(body)
                else:
                    document = completions_answer(body, offsets=server.offsets)
                content = json.dumps(document).encode()
            try:
                self.send_response(odd.status)
                for name, value in odd.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content[: len(content) // 2] if odd.cut else content)
                self.close_connection = self.close_connection or odd.cut
            except OSError:  # the client has given up
                self.close_connection = True

    from threading import Event

    stop = Event()
    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listener.daemon_threads = True
    server.url = f"http://127.0.0.1:{listener.server_address[1]}"
    thread = Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        stop.set()
        listener.shutdown()
        listener.server_close()
        thread.join()

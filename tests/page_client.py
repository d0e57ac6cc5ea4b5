"""The web page on a port of this machine, and the requests that a visitor, or somebody worse, sends to it."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import uuid
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

META = {"meta": {"_type": "gradio.FileData"}}


@dataclass(frozen=True)
class Visit:
    """What came of a request: the status it was taken with, and the messages that followed."""

    status: int
    body: str
    messages: list = field(default_factory=list)

    @property
    def text(self) -> str:
        """All that the visitor is told."""
        return self.body + json.dumps(self.messages)


@dataclass(frozen=True)
class ServedPage:
    """A page in a process of its own: a client of it, its folder of uploads, and where it writes what goes wrong."""

    client: httpx.Client
    uploads: Path
    log: Path


@contextmanager
def served_page(folder):
    """The page as people start it, with its files in this folder."""
    command = [sys.executable, "-m", "whyformer", "app", "--no-browser", "--port", str(_free_port())]
    uploads, log = folder / "uploads", folder / "log.txt"
    surroundings = {**os.environ, "GRADIO_TEMP_DIR": str(uploads)}
    with (
        log.open("w") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=surroundings) as server,
    ):
        try:
            (address,) = re.findall(r"http://[^ ]+/", server.stdout.readline())
            with httpx.Client(base_url=address, timeout=120) as client:
                yield ServedPage(client, uploads, log)
        finally:
            server.terminate()


def _free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def ask(client, function, data):
    """Join the queue as a new visitor, and read what comes back until it ends."""
    session = uuid.uuid4().hex
    joined = post(client, "queue/join", {"data": data, "fn_index": function, "session_hash": session})
    if joined.status_code != 200:
        return Visit(joined.status_code, joined.text)
    messages = []
    with client.stream("GET", "gradio_api/queue/data", params={"session_hash": session}) as lines:
        for line in lines.iter_lines():
            if line.startswith("data: "):
                messages.append(json.loads(line.removeprefix("data: ")))
                if messages[-1]["msg"] in ("process_completed", "close_stream"):
                    break
    return Visit(200, joined.text, messages)


def post(client, path, body):
    """Send any JSON, with numbers and characters that others would not send."""
    headers = {"content-type": "application/json"}
    return client.post(f"gradio_api/{path}", content=json.dumps(body), headers=headers)


def upload(client, name, content):
    """Send a file, and return where it lies."""
    answer = client.post("gradio_api/upload", files={"files": (name, content)})
    answer.raise_for_status()
    return answer.json()[0]


def text_function(config):
    """The number of the queued function that explains a text."""
    labels = {one["id"]: one["props"].get("label") for one in config["components"]}
    queued = [one for one in config["dependencies"] if one["queue"] and len(one["inputs"]) == 5]
    return next(one["id"] for one in queued if labels[one["inputs"][0]] == "Text")

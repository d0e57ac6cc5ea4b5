"""The web page under load: 500 requests by eight visitors at once on two cores; failures, memory and waiting time.

    python benchmarks/app_soak.py --out benchmarks/results/app_soak.json

Visitors talk to the page as a browser does: they send a file, join the queue, and read what comes back. Every tenth
request is hostile, and must be refused: a file of the server, a foreign host or origin, a bomb, a body without end.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import numpy as np
import psutil
from PIL import Image

from whyformer.app.bundled_examples import CAT, DOCUMENTS, FACT_QUESTION, REVIEW
from whyformer.app.label_tabs import DEFAULT_LABEL

REQUESTS, CLIENTS, WARM_UP, MOST_GROWTH = 500, 8, 200, 0.05
SECONDS = 300.0  # that a visitor waits at most
NEAR = 25  # requests whose memory is taken together
HOSTILE, EVERY = "Hostile", 10  # the tab that hostile requests are counted under; every so many is one


@dataclass(frozen=True)
class Outcome:
    """One request: which tab, whether it was answered rightly, how long it took, and the server's memory then."""

    tab: str
    is_right: bool
    seconds: float
    megabytes: float


@dataclass(frozen=True)
class Question:
    """What a visitor asks: the tab, the number of its function, its inputs, and what must be in the answer."""

    tab: str
    function: int
    inputs: Sequence[Any]
    answer: str


@contextmanager
def served() -> Iterator[tuple[str, int]]:
    """The page in a process of its own: its address and the number of the process."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    command = [sys.executable, "-m", "whyformer", "app", "--no-browser", "--port", str(port)]
    surroundings = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=surroundings) as server:
        try:
            assert server.stdout is not None
            yield re.findall(r"http://[^ ]+/", server.stdout.readline())[0], server.pid
        finally:
            server.terminate()


def questions(client: httpx.Client) -> list[Question]:
    """A picture, a text and a response, as the buttons of their tabs ask them."""
    config = client.get("config").json()
    buttons = [one["id"] for one in config["components"] if one["props"].get("value") == "Explain"]
    functions = [
        next(
            number
            for number, one in enumerate(config["dependencies"])
            if [button, "click"] in one["targets"] and one["types"]["generator"]
        )
        for button in buttons[:3]
    ]
    picture = upload(client, CAT.name, CAT.read_bytes())
    response = [FACT_QUESTION, DOCUMENTS, None, "", "", "mini-llm", DEFAULT_LABEL]
    return [
        Question("Picture", functions[0], [picture, "mini-vit", None, None, [DEFAULT_LABEL]], "cat 9"),
        Question("Text", functions[1], [REVIEW, "mini-bert", None, None, [DEFAULT_LABEL]], "positive 9"),
        Question("Response", functions[2], response, "Sources of"),
    ]


def upload(client: httpx.Client, name: str, content: bytes) -> dict[str, Any]:
    """A file that was sent, as the page's inputs take it."""
    (path,) = client.post("gradio_api/upload", files={"files": (name, content)}).json()
    return {"path": path, "orig_name": name, "meta": {"_type": "gradio.FileData"}}


def answer(client: httpx.Client, function: int, inputs: Sequence[Any]) -> str:
    """All that a new visitor is shown; empty where the page did not complete it."""
    session = uuid.uuid4().hex
    body = {"data": list(inputs), "fn_index": function, "session_hash": session}
    client.post("gradio_api/queue/join", json=body).raise_for_status()
    content = ""
    with client.stream("GET", "gradio_api/queue/data", params={"session_hash": session}) as messages:
        for line in messages.iter_lines():
            if not line.startswith("data: "):
                continue
            message = json.loads(line.removeprefix("data: "))
            if message["msg"] in ("process_generating", "process_completed"):
                content += json.dumps(message.get("output"))
            if message["msg"] == "process_completed":
                return content if message["success"] else ""
            if message["msg"] == "close_stream":
                break
    return ""


def ask(client: httpx.Client, question: Question) -> bool:
    """Whether the answer to a new visitor has what it must, and the downloads came."""
    content = answer(client, question.function, question.inputs)
    has_files = all(f"whyformer.{suffix}" in content for suffix in ("html", "png", "json"))
    return has_files and question.answer in content


def attacks(client: httpx.Client, picture: Question) -> list[Callable[[], bool]]:
    """Hostile requests; each says whether it was refused."""
    config = client.get("config").json()
    components = {one["id"]: one["type"] for one in config["components"]}
    regions = next(
        number
        for number, one in enumerate(config["dependencies"])
        if [components[given] for given in one["inputs"][:2]] == ["image", "file"] and one["types"]["generator"]
    )

    def send(status: int, path: str = "/etc/passwd", filler: str = "", **headers: str) -> bool:
        data = [{"path": path, "url": filler}, *picture.inputs[1:]]
        body = {"data": data, "fn_index": picture.function, "session_hash": "stranger"}
        return client.post("gradio_api/queue/join", json=body, headers=headers).status_code == status

    def send_line() -> bool:
        Image.new("L", (40_000_000, 1)).save(file := io.BytesIO(), "PNG")
        sent = upload(client, "line.png", file.getvalue())
        return "times the other" in answer(client, picture.function, [sent, *picture.inputs[1:]])

    def send_regions() -> bool:
        shapes = {"image": (8, 8, 3), "boxes": (20_000, 4), "features": (20_000, 8)}
        np.savez_compressed(file := io.BytesIO(), **{name: np.zeros(shape, np.uint8) for name, shape in shapes.items()})
        sent = upload(client, "bomb.npz", file.getvalue())
        return "20,000 regions" in answer(client, regions, [None, sent, "why?", "mini-lxmert", None, DEFAULT_LABEL])

    return [
        lambda: send(403),
        lambda: send(403, path="http://127.0.0.1:1/a.png"),
        lambda: send(400, host="evil.example"),
        lambda: send(403, origin="http://evil.example"),
        lambda: send(413, filler="x" * (2 << 20)),
        lambda: client.get("gradio_api/file=/etc/passwd").status_code == 403,
        lambda: client.post("gradio_api/queue/join", content="[" * 10**5).status_code == 400,
        send_line,
        send_regions,
    ]


def soak(address: str, memory: Callable[[], float], requests: int, clients: int) -> list[Outcome]:
    """The outcomes in the order in which they came in."""
    outcomes: list[Outcome] = []
    lock = threading.Lock()
    with httpx.Client(base_url=address, timeout=SECONDS) as client:
        asked = questions(client)
        hostile = attacks(client, asked[0])

        def visit(number: int) -> None:
            question, attack = asked[number % len(asked)], hostile[number // EVERY % len(hostile)]
            is_hostile = number % EVERY == EVERY - 1
            start = time.perf_counter()
            try:
                is_right = attack() if is_hostile else ask(client, question)
            except (httpx.HTTPError, ValueError, KeyError):
                is_right = False
            seconds = time.perf_counter() - start
            with lock:
                outcomes.append(Outcome(HOSTILE if is_hostile else question.tab, is_right, seconds, memory()))

        with ThreadPoolExecutor(clients) as pool:
            list(pool.map(visit, range(requests)))
    return outcomes


def growth(outcomes: Sequence[Outcome], warm_up: int) -> float:
    """How much larger the memory is at the end than after the warm-up, as a share."""
    begin, end = outcomes[warm_up : warm_up + NEAR], outcomes[-NEAR:]
    return median(one.megabytes for one in end) / median(one.megabytes for one in begin) - 1


def figures(outcomes: Sequence[Outcome], clients: int, warm_up: int) -> dict[str, Any]:
    """What is reported of a soak; the seconds are those of honest requests."""
    seconds = sorted(one.seconds for one in outcomes if one.tab != HOSTILE)

    def at(share: float) -> float:
        return round(seconds[min(len(seconds) - 1, int(share * len(seconds)))], 2)

    return {
        "requests": len(outcomes),
        "hostile": sum(one.tab == HOSTILE for one in outcomes),
        "clients": clients,
        "cores": len(os.sched_getaffinity(0)),
        "failures": sum(not one.is_right for one in outcomes),
        "seconds": {"p50": at(0.5), "p95": at(0.95), "most": round(seconds[-1], 2)},
        "memory_mb": [round(one.megabytes) for one in outcomes[NEAR - 1 :: NEAR]],
        "growth_after_warm_up": round(growth(outcomes, warm_up), 4),
        "warm_up": warm_up,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument("--out", type=Path)
    settings = parser.parse_args()
    warm_up = settings.requests * WARM_UP // REQUESTS
    with served() as (address, process):
        server = psutil.Process(process)
        outcomes = soak(address, lambda: server.memory_info().rss / 1e6, settings.requests, settings.clients)
    result = figures(outcomes, settings.clients, warm_up)
    text = json.dumps(result, indent=1)
    print(text)
    if settings.out is not None:
        settings.out.write_text(text + "\n", encoding="utf-8")
    if result["failures"] or result["growth_after_warm_up"] > MOST_GROWTH:
        sys.exit(1)


if __name__ == "__main__":
    main()

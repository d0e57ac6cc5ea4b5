"""The gate in front of the page, which checks every request before Gradio."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from gradio.utils import get_upload_folder
from pydantic import ValidationError
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from whyformer.app.hosts import Hosts
from whyformer.app.limits import Limits
from whyformer.app.quota import BLOCK, UploadQuota, delete_abandoned
from whyformer.app.uploads import is_sent_file
from whyformer.errors import WhyformerError

API = "/gradio_api/"
FILE, UPLOAD = f"{API}file=", f"{API}upload"
# All routes that the page uses. Gradio also has routes that fetch URLs, write links, and accept files in other ways.
READ_PATHS = (
    *("/", "/config", "/theme.css", "/favicon.ico", "/robots.txt", "/manifest.json"),
    *(f"{API}{name}" for name in ("info", "app_id", "startup-events", "queue/data", "upload_progress", "theme.css")),
)
READ_FOLDERS = ("/static/", "/assets/", "/svelte/", f"{API}heartbeat/")
QUESTION_PATHS = (f"{API}queue/join", f"{API}run/predict")
END_PATHS = (f"{API}cancel", f"{API}reset")
FILE_HEADER = b"filename"  # starts each file of an upload
MOST_FILES, MOST_DEPTH = 100, 16
FOREIGN_FILE = "The page reads only uploaded files: upload the file again."
WRONG_FORM = "The page has no function with these inputs: reload it."
NOTHING_THERE = "There is nothing at this address."


class Refusal(Exception):
    """A request rejected with this status and one line."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True)
class Gate:
    """The page as an ASGI application that accepts only known, same-site requests."""

    app: ASGIApp
    hosts: Hosts
    limits: Limits
    quota: UploadQuota
    inputs: Mapping[int, Sequence[Any]]  # the input components of each function

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # start and end of the server: there are no websockets
            await self.app(scope, receive, send)
            return
        try:
            await self._answer(scope, receive, send)
        except Refusal as refusal:
            await JSONResponse({"detail": str(refusal)}, refusal.status)(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers, path = Headers(scope=scope), scope["path"]
        self._check_sender(headers)
        if scope["method"] in ("GET", "HEAD"):
            _check_read(path)
        elif scope["method"] == "POST" and path in (*QUESTION_PATHS, *END_PATHS):
            question = await self._read_json(headers, receive)
            if path in QUESTION_PATHS:
                self._check_question(question)
            receive = _replay({"type": "http.request", "body": json.dumps(question).encode()}, receive)
        elif scope["method"] == "POST" and path == UPLOAD:
            await self._take_upload(scope, receive, send)
            return
        else:
            raise Refusal(404, NOTHING_THERE)
        await self.app(scope, receive, send)

    def _check_sender(self, headers: Headers) -> None:
        """Reject cross-site requests."""
        host, origin = headers.get("host"), headers.get("origin")
        if not self.hosts.accept(host):
            raise Refusal(
                400, f"The page does not answer to the host {host!r:.80}: start it with --allow-host to add a name."
            )
        if origin is not None and not self.hosts.accept_origin(origin, host):
            raise Refusal(403, f"The page accepts no requests from {origin!r:.80}.")

    async def _read_json(self, headers: Headers, receive: Receive) -> Any:
        """Read the request body if it is small enough; Gradio receives exactly these bytes."""
        content, is_complete = bytearray(), False
        announced = headers.get("content-length", "")[:20]  # Python does not parse numbers of any length
        fits = not announced.isdecimal() or int(announced) <= self.limits.body_bytes
        while fits and not is_complete:
            message = await receive()
            content += message.get("body", b"")
            fits, is_complete = len(content) <= self.limits.body_bytes, not message.get("more_body")
        if not fits:
            raise Refusal(413, f"A question may have {self.limits.body_bytes >> 10:,} kB: send less.")
        try:
            question = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise Refusal(400, "The question is not valid JSON.") from error
        if not _is_shallow(question):
            raise Refusal(400, WRONG_FORM)
        return question

    def _check_question(self, question: Any) -> None:
        """Reject requests that call no known function, or refer to files that were not uploaded."""
        fields = question if isinstance(question, dict) else {}
        function, data, visitor = (fields.get(name) for name in ("fn_index", "data", "session_hash"))
        inputs = self.inputs.get(function) if isinstance(function, int) else None
        if inputs is None or not isinstance(data, list) or len(data) != len(inputs) or not isinstance(visitor, str):
            raise Refusal(400, WRONG_FORM)
        paths = list(islice(file_paths(question), MOST_FILES + 1))
        if len(paths) > MOST_FILES:
            raise Refusal(400, f"A question may refer to {MOST_FILES} files: send fewer.")
        if not all(map(is_sent_file, paths)):
            raise Refusal(403, FOREIGN_FILE)
        if not all(map(_has_form, inputs, data)):
            raise Refusal(400, WRONG_FORM)

    async def _take_upload(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass an upload on as it arrives, until the visitor's or the total quota is exceeded."""
        delete_abandoned(Path(get_upload_folder()), self.limits.kept_seconds)
        visitor = str((scope.get("client") or ("",))[0])
        try:
            transfer = self.quota.begin(visitor)
        except WhyformerError as error:
            raise Refusal(413, str(error)) from error
        reasons: list[str] = []
        end = b""

        async def counted() -> Message:
            nonlocal end
            message = await receive()
            content = message.get("body", b"")
            files = (end + content).lower().count(FILE_HEADER)
            end = (end + content)[1 - len(FILE_HEADER) :]
            try:
                self.quota.charge(transfer, len(content) + BLOCK * files)
            except WhyformerError as error:
                reasons.append(str(error))
                return {"type": "http.disconnect"}
            return message

        try:
            await self.app(scope, counted, send)
        except ClientDisconnect as error:
            if reasons:
                raise Refusal(413, reasons[0]) from error


def _has_form(component: Any, value: Any) -> bool:
    """Whether a component can take a value: otherwise Gradio would log a traceback."""
    form = getattr(component, "data_model", None)
    try:
        if form is not None and value is not None:
            form.model_validate(value, context={"validate_meta": True})
    except ValidationError:
        return False
    return True


def _check_read(path: str) -> None:
    """Reject paths outside the page: other files, and URLs that the server would have to fetch."""
    if path.startswith(FILE):
        if not is_sent_file(path.removeprefix(FILE)):
            raise Refusal(403, FOREIGN_FILE)
    elif path not in READ_PATHS and not path.startswith(READ_FOLDERS):
        raise Refusal(404, NOTHING_THERE)


def file_paths(question: Any) -> Iterator[Any]:
    """The path of every file in a question, at any depth; None for one that has only a URL."""
    rest = [question]
    while rest:
        value = rest.pop()
        if isinstance(value, dict):
            if "path" in value or "url" in value:
                yield value.get("path")
            rest += value.values()
        elif isinstance(value, list):
            rest += value


def _is_shallow(value: Any) -> bool:
    """Whether lists and dictionaries are nested no deeper than in a normal question: Gradio walks them recursively."""
    level = [value]
    for _ in range(MOST_DEPTH):
        nested = [one for one in level if isinstance(one, (dict, list))]
        level = [part for one in nested for part in (one.values() if isinstance(one, dict) else one)]
    return not level


def _replay(message: Message, receive: Receive) -> Receive:
    """A `receive` that returns this message first."""
    messages = [message]

    async def replayed() -> Message:
        return messages.pop() if messages else await receive()

    return replayed

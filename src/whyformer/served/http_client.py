"""Send JSON requests with retries: at a bounded rate, in bounded time, and with answers of bounded size."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from threading import Event, Lock
from typing import Any

import httpx

from whyformer.errors import WhyformerError, reason_of
from whyformer.files import parse_json

PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})  # states that may pass by themselves
FIRST_WAIT, MOST_WAIT = 0.5, 60.0  # seconds before a retry: doubled each time
MOST_PAUSE = 300.0  # seconds that a server may ask for by Retry-After
MOST_ANSWER_BYTES = 64 << 20  # of an answer
MOST_READ = 1 << 20  # bytes of an answer that is an error
MOST_SHOWN = 200  # characters of it in a message


class GivenUp(Exception):
    """Another request failed, so this one was given up."""


@dataclass
class RequestPace:
    """The times at which requests may start, at most so many a minute."""

    per_minute: float | None
    lock: Lock = field(default_factory=Lock, repr=False)
    next_start: float = 0.0

    def wait(self, stop: Event) -> None:
        """Wait until the next request may start."""
        if self.per_minute is None:
            return
        with self.lock:
            start = max(self.next_start, time.monotonic())
            self.next_start = start + 60.0 / self.per_minute
        _sleep(start - time.monotonic(), stop)


@dataclass(frozen=True)
class HttpClient:
    """A client for one route.

    Attributes:
        url: The address of the route.
        headers: The headers of each request; they may contain a key, and are never shown.
        secrets: Texts to black out in whatever a server says.
        timeout: Seconds that an answer may take.
        retries: How often a request is repeated.
        pace: When requests may start.
        reserve: A function that counts a request, or raises if none may be sent.
    """

    url: str
    client: httpx.Client
    headers: Mapping[str, str] = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)
    timeout: float
    retries: int
    pace: RequestPace
    reserve: Callable[[], None]

    def post(self, body: Mapping[str, Any], stop: Event) -> Any:
        """The JSON answer to a request, repeated while the server is busy or the connection breaks."""
        reason = ""
        for attempt in range(self.retries + 1):
            self.pace.wait(stop)
            if stop.is_set():
                raise GivenUp
            self.reserve()
            try:
                status, headers, content = self._exchange(body)
            except httpx.TransportError as error:
                reason, pause = f"{type(error).__name__}: {reason_of(error)}", None
            else:
                if status < 300:
                    return self._parsed(content)
                reason, pause = f"status {status}: {self._message(content)}", requested_pause(headers)
                if status not in PASSING:
                    raise self._error(f"refused the request, {reason}")
                if pause is not None and pause > MOST_PAUSE:
                    raise self._error(f"asks to wait {pause:.0f} seconds, {reason}")
            if attempt < self.retries:
                _sleep(self._backoff(attempt) if pause is None else pause, stop)
        raise self._error(f"failed {self.retries + 1} times, last with {reason}")

    def _exchange(self, body: Mapping[str, Any]) -> tuple[int, httpx.Headers, bytes]:
        """One request and its answer, which may take no longer than the timeout in all."""
        end = time.monotonic() + self.timeout
        content = bytearray()
        with self.client.stream("POST", self.url, json=body, headers=self.headers) as answer:
            for chunk in answer.iter_bytes():
                content += chunk
                if len(content) > MOST_ANSWER_BYTES:
                    raise self._error(f"sent more than {MOST_ANSWER_BYTES >> 20} MiB")
                if time.monotonic() > end:
                    raise httpx.ReadTimeout(f"no whole answer in {self.timeout:g} seconds")
            return answer.status_code, answer.headers, bytes(content)

    def _parsed(self, content: bytes) -> Any:
        try:
            return parse_json(content)
        except ValueError as error:
            raise self._error(f"sent something that is not JSON: {self._message(content)}") from error

    def _message(self, content: bytes) -> str:
        """The beginning of what a server said, in one line and without secrets."""
        text = " ".join(content[:MOST_READ].decode("utf-8", errors="replace").split())
        return self.blacked_out(text)[:MOST_SHOWN] or "nothing"

    def blacked_out(self, text: str) -> str:
        """A text without the key."""
        for secret in self.secrets:
            text = text.replace(secret, "•••")
        return text

    def _error(self, what: str) -> WhyformerError:
        return WhyformerError(self.blacked_out(f"{self.url} {what}"))

    @staticmethod
    def _backoff(attempt: int) -> float:
        """Seconds before the next attempt, drawn so that many clients do not return at once."""
        return min(MOST_WAIT, FIRST_WAIT * 2.0**attempt) * random.uniform(0.5, 1.0)


def requested_pause(headers: Mapping[str, str]) -> float | None:
    """The seconds that a server asks to wait by Retry-After, a number or a date."""
    value = headers.get("retry-after")
    if value is None:
        return None
    try:
        return max(0.0, float(value)) if float(value) < float("inf") else None
    except ValueError:
        pass
    try:
        until = parsedate_to_datetime(value)
    except ValueError:
        return None
    until = until.replace(tzinfo=UTC) if until.tzinfo is None else until
    return max(0.0, (until - datetime.now(UTC)).total_seconds())


def _sleep(seconds: float, stop: Event) -> None:
    if seconds > 0 and stop.wait(seconds):
        raise GivenUp

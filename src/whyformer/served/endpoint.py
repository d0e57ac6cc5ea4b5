"""Endpoint: a served model that returns the log-probabilities of given responses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from threading import Event, Lock
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx

from whyformer.errors import WhyformerError, check_choice, check_count
from whyformer.progress import track
from whyformer.served.answer_cache import AnswerCache, CacheKey
from whyformer.served.api_formats import API_FORMATS, ApiName, route
from whyformer.served.http_client import GivenUp, HttpClient, RequestPace
from whyformer.served.served_tokens import ServedToken, response_part

_Answer = TypeVar("_Answer")
LOCAL_HOSTS = frozenset({"127.0.0.1", "localhost", "::1"})
CONNECT_SECONDS = 10.0


@dataclass
class Usage:
    """The usage of an endpoint so far: requests, tokens of prompts and responses, and answers from its cache."""

    requests: int = 0
    tokens: int = 0
    cached: int = 0
    lock: Any = field(default_factory=Lock, repr=False, compare=False)


@dataclass(frozen=True)
class Endpoint:
    """A model behind an HTTP API that returns log-probabilities of a text it is given.

    Pass it as `score=` to `explain_response`. Only text and settings are sent, and only to `url`. The key is sent in
    the header `Authorization` and appears in no file, message, result or `repr`.

    Args:
        url: The address of the server: "http://127.0.0.1:8000", with or without /v1.
        model: The name of the model on the server.
        api_key: The key, if the server needs one; read it from the environment rather than writing it into a script.
        api: "completions" for the OpenAI-compatible route with `echo` and `logprobs` (llama.cpp's Python server, vLLM,
            and others), "vllm" for vLLM's `prompt_logprobs`, "sglang" for SGLang's `/generate`.
        concurrency: The number of requests at once.
        requests_per_minute: The maximum rate of requests; None for no limit.
        timeout: Seconds that an answer may take.
        retries: How often a request is repeated after status 429 or 5xx, a broken connection or a timeout, with growing
            pauses, or those that the server asks for.
        cache: A folder for answers, so that nothing is scored twice, even after a stop; None for none.
        max_requests: The maximum number of requests of this object, repeated ones included; None for no limit.
        max_tokens: The maximum number of tokens in answers, after which no request is sent; None for no limit.

    Raises:
        WhyformerError: If the address or a number is invalid.

    Example:
        >>> endpoint = whyformer.Endpoint("http://127.0.0.1:8000", "smollm2", api_key="secret")
        >>> endpoint
        Endpoint(url='http://127.0.0.1:8000', model='smollm2', api='completions')
    """

    url: str
    model: str
    api_key: str | None = field(default=None, repr=False, compare=False)
    api: ApiName = "completions"
    concurrency: int = field(default=4, repr=False)
    requests_per_minute: float | None = field(default=None, repr=False)
    timeout: float = field(default=60.0, repr=False)
    retries: int = field(default=5, repr=False)
    cache: str | Path | None = field(default=None, repr=False)
    max_requests: int | None = field(default=None, repr=False)
    max_tokens: int | None = field(default=None, repr=False)
    usage: Usage = field(default_factory=Usage, repr=False, compare=False, init=False)

    def __post_init__(self) -> None:
        _check_url(self.url)
        _check_key(self.api_key)
        check_choice("api", self.api, ApiName)
        for name in ("concurrency", "max_requests", "max_tokens"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        for name in ("timeout", "requests_per_minute"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise WhyformerError(f"{name}={value!r}: a number above 0.")
        if type(self.retries) is not int or self.retries < 0:
            raise WhyformerError(f"retries={self.retries!r}: a whole number, at least 0.")

    def __call__(
        self, prompts: Sequence[str], responses: Sequence[str], *, progress: bool = False
    ) -> list[tuple[ServedToken, ...]]:
        """Score responses.

        Args:
            prompts: The texts before the responses.
            responses: A response for each prompt.
            progress: Whether to show a progress bar.

        Returns:
            The tokens of each response, each with its character range and log-probability.

        Raises:
            WhyformerError: If the server refuses, fails too often, or answers without log-probabilities, or the
                budget is spent.
        """
        pairs = list(zip(prompts, responses, strict=True))
        scored = {pair: self.cached_tokens(*pair) for pair in dict.fromkeys(pairs)}
        missing = [pair for pair, tokens in scored.items() if tokens is None]
        self.usage.cached += len(scored) - len(missing)
        if missing:
            answers = self._send([partial(self._score, pair) for pair in missing], progress=progress)
            scored |= zip(missing, answers, strict=True)
        return [tokens for pair in pairs if (tokens := scored[pair]) is not None]

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError("An Endpoint holds a key and is not pickled: make one in each process.")

    def cached_tokens(self, prompt: str, response: str) -> tuple[ServedToken, ...] | None:
        """The tokens of a response that is in the cache; None if it is not there."""
        return None if self._cache is None else self._cache.tokens(self._key(prompt, response), response)

    def cached_text(self, prompt: str, tokens: int) -> str | None:
        """The continuation of a text that is in the cache; None if it is not there."""
        return None if self._cache is None else self._cache.text(self._key(prompt, "writes", str(tokens)))

    def write(self, prompt: str, tokens: int) -> str:
        """The likeliest continuation of a text, of at most this many tokens."""
        key, known = self._key(prompt, "writes", str(tokens)), self.cached_text(prompt, tokens)
        if known is not None:
            self.usage.cached += 1
            return known
        api = API_FORMATS[self.api]
        (text,) = self._send(
            [lambda client, stop: api.text(client.post(api.writing(self.model, prompt, tokens), stop))]
        )
        if self._cache is not None:
            self._cache.keep_text(key, text)
        return text

    @cached_property
    def _cache(self) -> AnswerCache | None:
        return None if self.cache is None else AnswerCache(Path(self.cache).expanduser())

    @cached_property
    def _pace(self) -> RequestPace:
        return RequestPace(self.requests_per_minute)  # of all calls together

    @property
    def _route(self) -> str:
        return route(self.url, self.api)

    def _key(self, *question: str) -> CacheKey:
        return self._route, self.api, self.model, *question

    def _send(
        self, requests: Sequence[Callable[[HttpClient, Event], _Answer]], *, progress: bool = False
    ) -> list[_Answer]:
        """Make requests, several at once; after an error the others are given up."""
        stop = Event()
        with httpx.Client(**self._connection()) as connection, ThreadPoolExecutor(self.concurrency) as pool:
            client = self._client(connection)
            futures = [pool.submit(self._checked, request, client, stop) for request in requests]
            try:
                return [future.result() for future in track(futures, f"asking {self.model}", progress=progress)]
            except BaseException as error:
                stop.set()
                pool.shutdown(cancel_futures=True)
                raise _first_error(futures) or error from None

    def _checked(self, request: Callable[[HttpClient, Event], _Answer], client: HttpClient, stop: Event) -> _Answer:
        """The answer to a request; raise if something is missing from it."""
        try:
            return request(client, stop)
        except WhyformerError:
            raise
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            raise WhyformerError(
                f"{client.url} answered without what api={self.api!r} asks for: the server must return "
                "log-probabilities of the text it is sent, by echo with logprobs or by prompt_logprobs."
            ) from error

    def _score(self, pair: tuple[str, str], client: HttpClient, stop: Event) -> tuple[ServedToken, ...]:
        """The tokens of a response, asked for and kept in the cache."""
        prompt, response = pair
        api = API_FORMATS[self.api]
        raw = api.tokens(client.post(api.request(self.model, prompt + response), stop), prompt + response)
        with self.usage.lock:
            self.usage.tokens += len(raw)
        try:
            tokens = response_part(raw, prompt, response)
        except ValueError as error:
            raise WhyformerError(f"The answer of {client.url} cannot be used: {error}.") from error
        if self._cache is not None:
            self._cache.keep_tokens(self._key(prompt, response), tokens)
        return tokens

    def _connection(self) -> dict[str, Any]:
        return {
            "timeout": httpx.Timeout(self.timeout, connect=min(self.timeout, CONNECT_SECONDS)),
            "limits": httpx.Limits(max_connections=self.concurrency),
            "follow_redirects": False,  # a key is sent to one address only
            "trust_env": urlsplit(self.url).hostname not in LOCAL_HOSTS,  # no proxy to this machine
        }

    def _client(self, connection: httpx.Client) -> HttpClient:
        headers = {} if self.api_key is None else {"Authorization": f"Bearer {self.api_key}"}
        return HttpClient(
            self._route,
            connection,
            headers,
            () if not self.api_key else (self.api_key,),
            self.timeout,
            self.retries,
            self._pace,
            self._reserve,
        )

    def _reserve(self) -> None:
        """Count a request, unless the budget is spent."""
        with self.usage.lock:
            for name, used in (("max_requests", self.usage.requests), ("max_tokens", self.usage.tokens)):
                most = getattr(self, name)
                if most is not None and used >= most:
                    raise WhyformerError(
                        f"{name}={most} are used up ({self.usage.requests} requests, {self.usage.tokens} tokens): "
                        "raise it to continue; with cache=…, nothing is requested twice."
                    )
            self.usage.requests += 1


def _first_error(futures: Sequence[Future[Any]]) -> BaseException | None:
    """The error that made the others stop."""
    errors = (future.exception() for future in futures if future.done() and not future.cancelled())
    return next((error for error in errors if error is not None and not isinstance(error, GivenUp)), None)


def _check_url(url: str) -> None:
    parts = urlsplit(url) if isinstance(url, str) else None
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
        raise WhyformerError("url is not an address such as 'http://127.0.0.1:8000' or 'https://host/v1'.")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise WhyformerError("url has a user, a password, a query or a fragment: pass the key as api_key=….")


def _check_key(key: str | None) -> None:
    """Validate a key without ever showing it."""
    if key is not None and not (isinstance(key, str) and key.isascii() and key.isprintable() and key.split() == [key]):
        raise WhyformerError("api_key is not a key: printable ASCII characters without white space, or None.")

"""How servers are asked for the log-probabilities of a text, and what they answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from whyformer.served.scored_tokens import RawToken

ApiName = Literal["completions", "vllm", "sglang"]


@dataclass(frozen=True)
class ApiFormat:
    """An API that returns the log-probabilities of a text.

    Attributes:
        path: The path of its route, below the address of the server.
        request: The body of a request, given the model and the text.
        tokens: The tokens in an answer. It raises a ValueError, LookupError or TypeError if there are none.
    """

    path: str
    request: Callable[[str, str], dict[str, Any]]
    tokens: Callable[[Any], list[RawToken]]


def route(url: str, api: ApiName) -> str:
    """The address of the API's route, given that of the server, with or without /v1 or the route itself."""
    path = API_FORMATS[api].path
    base = url.rstrip("/")
    for end in (path, "/v1/completions", "/v1"):
        base = base.removesuffix(end)
    return base + path


def _completions_request(model: str, text: str) -> dict[str, Any]:
    # One token is generated and dropped: some servers take 0 for "without limit".
    return {"model": model, "prompt": text, "max_tokens": 1, "temperature": 0, "echo": True, "logprobs": 1}


def _completions_tokens(answer: Any) -> list[RawToken]:
    figures = answer["choices"][0]["logprobs"]
    texts, values = figures["tokens"], figures["token_logprobs"]
    starts = figures.get("text_offset") or [None] * len(texts)
    return [
        RawToken(_text(text), _number(value), None if start is None else int(start))
        for text, value, start in zip(texts, values, starts, strict=True)
    ]


def _vllm_request(model: str, text: str) -> dict[str, Any]:
    return {"model": model, "prompt": text, "max_tokens": 1, "temperature": 0, "prompt_logprobs": 0}


def _vllm_tokens(answer: Any) -> list[RawToken]:
    tokens = []
    for entry in _rows(answer["choices"][0]["prompt_logprobs"])[1:]:  # nothing predicts the first token
        token, figures = next(iter(entry.items()))
        rank = figures.get("rank")
        text, value = _text(figures["decoded_token"]), _number(figures["logprob"])
        tokens.append(RawToken(text, value, id=int(token), rank=None if rank is None else int(rank)))
    return tokens


def _sglang_request(_: str, text: str) -> dict[str, Any]:
    return {
        "text": text,
        "sampling_params": {"max_new_tokens": 1, "temperature": 0},
        "return_logprob": True,
        "logprob_start_len": 0,
        "return_text_in_logprobs": True,
        "stream": False,
    }


def _sglang_tokens(answer: Any) -> list[RawToken]:
    rows = _rows(answer["meta_info"]["input_token_logprobs"])
    return [RawToken(_text(text), _number(value), id=int(token)) for value, token, text in rows]


def _rows(value: Any) -> Sequence[Any]:
    if not isinstance(value, list) or not value:
        raise TypeError("no list of log-probabilities")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.40} in the place of a token's text")
    return value


def _number(value: Any) -> float | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
        raise TypeError(f"{value!r:.40} in the place of a log-probability")
    return None if value is None else float(value)


API_FORMATS: Mapping[ApiName, ApiFormat] = {
    "completions": ApiFormat("/v1/completions", _completions_request, _completions_tokens),
    "vllm": ApiFormat("/v1/completions", _vllm_request, _vllm_tokens),
    "sglang": ApiFormat("/generate", _sglang_request, _sglang_tokens),
}

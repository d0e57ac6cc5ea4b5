"""The requests of APIs that return the log-probabilities of a text, and their answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from whyformer.errors import WhyformerError
from whyformer.served.served_tokens import RawToken

LEAST_SHIFTED = 5  # tokens that are predicted at the place before theirs, if the server shifts its figures
ApiName = Literal["completions", "vllm", "sglang"]


@dataclass(frozen=True)
class ApiFormat:
    """An API that returns the log-probabilities of a text.

    Attributes:
        path: The path of its route, below the address of the server.
        request: The body of a request, given the model and the text.
        tokens: The tokens in an answer, given the text. It raises ValueError, LookupError or TypeError.
        writing: The body of a request to continue a text by at most this many tokens, greedily.
        text: The continuation in an answer; it raises likewise.
    """

    path: str
    request: Callable[[str, str], dict[str, Any]]
    tokens: Callable[[Any, str], list[RawToken]]
    writing: Callable[[str, str, int], dict[str, Any]]
    text: Callable[[Any], str]


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


def _completions_writing(model: str, text: str, tokens: int) -> dict[str, Any]:
    # llama.cpp's Python server penalises repetition by default, so that its likeliest text is not the model's.
    return {"model": model, "prompt": text, "max_tokens": tokens, "temperature": 0, "repeat_penalty": 1.0}


def _completions_text(answer: Any) -> str:
    return _text(answer["choices"][0]["text"])


def _completions_tokens(answer: Any, text: str) -> list[RawToken]:
    figures = answer["choices"][0]["logprobs"]
    texts, values = figures["tokens"], figures["token_logprobs"]
    starts = figures.get("text_offset") or [None] * len(texts)
    _check_alignment(texts, figures.get("top_logprobs") or [])
    tokens = [
        RawToken(_text(part), _number(value), None if start is None else int(start))
        for part, value, start in zip(texts, values, starts, strict=True)
    ]
    return tokens[: len(tokens) - _generated(texts, answer["choices"][0].get("text"), text)]


def _generated(texts: Sequence[str], answer: Any, text: str) -> int:
    """The number of generated tokens at the end, by the text of the answer, which begins with what was sent."""
    if not isinstance(answer, str) or not answer.startswith(text):
        return 0
    rest, count = answer[len(text) :], 0
    while rest and count < len(texts) and texts[-1 - count] and rest.endswith(texts[-1 - count]):
        rest, count = rest[: -len(texts[-1 - count])], count + 1
    return 0 if rest else count


def _check_alignment(texts: Sequence[str], likeliest: Sequence[Any]) -> None:
    """Check that figures are those of their own tokens, by the likeliest token at each place.

    llama.cpp's Python server takes the figures of the next place unless a text begins with the token that begins texts.
    """
    first = [
        max(one, key=lambda text: float(one[text])) if isinstance(one, dict) and one else None for one in likeliest
    ]
    own, next_ones = (sum(a == b for a, b in zip(first, shifted, strict=False)) for shifted in (texts, texts[1:]))
    if next_ones >= LEAST_SHIFTED and next_ones > 2 * own:
        raise WhyformerError(
            "The server returns each token with the figures of the next: the likeliest token is the next one in "
            f"{next_ones} places and the token itself in {own}. llama.cpp's Python server does this unless the text "
            "begins with the model's beginning-of-text token: begin the prompt with it."
        )


def _vllm_request(model: str, text: str) -> dict[str, Any]:
    return {"model": model, "prompt": text, "max_tokens": 1, "temperature": 0, "prompt_logprobs": 0}


def _vllm_tokens(answer: Any, _: str) -> list[RawToken]:
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


def _sglang_writing(_: str, text: str, tokens: int) -> dict[str, Any]:
    return {"text": text, "sampling_params": {"max_new_tokens": tokens, "temperature": 0}, "stream": False}


def _sglang_text(answer: Any) -> str:
    return _text(answer["text"])


def _sglang_tokens(answer: Any, _: str) -> list[RawToken]:
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
    "completions": ApiFormat(
        "/v1/completions", _completions_request, _completions_tokens, _completions_writing, _completions_text
    ),
    "vllm": ApiFormat("/v1/completions", _vllm_request, _vllm_tokens, _completions_writing, _completions_text),
    "sglang": ApiFormat("/generate", _sglang_request, _sglang_tokens, _sglang_writing, _sglang_text),
}

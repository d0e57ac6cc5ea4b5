"""Run a model again without parts of its prompt: in batches, untraced, shared prefixes computed once."""

from __future__ import annotations

import inspect
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from whyformer.batching import check_batch_size, consecutive, in_batches
from whyformer.models.structure import device_of
from whyformer.targets.span_scores import log_probabilities_of

Ids = Sequence[int]
# Prompts at once, if they fit: more are not faster on a CPU, as measured on a Llama of six blocks.
BATCH = {"cpu": 4, "cuda": 32}


@dataclass(frozen=True)
class ResponseModel:
    """A generative model, and the response to score.

    Attributes:
        model: The module, in evaluation mode.
        response: The tokens of the response.
        start: For a model with an encoder, the tokens that its decoder starts from; otherwise None.
        alternatives: Other tokens to score in the place of the last one, from the same logits.
    """

    model: nn.Module
    response: tuple[int, ...]
    start: tuple[int, ...] | None = None
    alternatives: tuple[int, ...] = ()

    def takes(self, name: str) -> bool:
        """Whether the model takes an input of this name."""
        return name in inspect.signature(self.model.forward).parameters

    def logits_at(self, positions: Sequence[int]) -> dict[str, Tensor]:
        """The input that limits logits to these positions, if the model takes one."""
        place = device_of(self.model)
        return {"logits_to_keep": torch.tensor(positions, device=place)} if self.takes("logits_to_keep") else {}

    def log_probabilities(self, logits: Tensor) -> list[np.ndarray]:
        """The log-probabilities of the response's tokens, then of the alternatives, from logits [row, place, token]."""
        values = log_probabilities_of(logits, self.response)
        if self.alternatives:
            last = logits[:, -1:].expand(-1, len(self.alternatives), -1)
            values = np.concatenate([values, log_probabilities_of(last, self.alternatives)], axis=1)
        return list(values)


@dataclass(eq=False)
class PrefixCache:
    """Keys and values of the last prompt, kept for variants of it and for other responses to it."""

    ids: tuple[int, ...] = ()
    cache: DynamicCache | None = None

    def shared(self, ids: Ids) -> int:
        """How many of these tokens it begins with."""
        return 0 if self.cache is None else _shared_length((*ids, -1), self.ids)


def response_log_probabilities(
    writer: ResponseModel,
    prompts: Sequence[tuple[int, ...]],
    *,
    like: Ids = (),
    prefix: PrefixCache | None = None,
    batch_size: int | None = None,
    progress: bool = False,
) -> dict[tuple[int, ...], np.ndarray]:
    """The log-probability of each token of the response, and of each alternative, after each prompt, in float64.

    The prefix that the prompts share with `like` is computed once, if the model's cache allows it, and kept in
    `prefix` for the next call.
    """
    size = check_batch_size(batch_size) or BATCH.get(device_of(writer.model).type, BATCH["cpu"])
    shared = {prompt: _shared_length(prompt, like) for prompt in prompts}
    order = sorted(prompts, key=lambda prompt: (shared[prompt], len(prompt)))
    with torch.inference_mode():
        cache = _prefix(writer, like, [shared[prompt] for prompt in order], prefix)

        def run(batch: Sequence[tuple[int, ...]], _: bool | None) -> list[np.ndarray]:
            if writer.start is not None:
                return _after_encoding(writer, batch)
            length = 0 if cache is None else min(shared[prompt] for prompt in batch)
            return _after_prefix(writer, batch, cache, length)

        batches = consecutive(len(order), size)
        figures = in_batches(order, run, batches, "asking without some sources", progress=progress)
    return dict(zip(order, figures, strict=True))


def _shared_length(prompt: Ids, like: Ids) -> int:
    """The length of the common prefix, without the prompt's last token, which predicts the response."""
    most = min(len(prompt) - 1, len(like))
    return next((place for place in range(most) if prompt[place] != like[place]), max(0, most))


def _prefix(writer: ResponseModel, like: Ids, lengths: Sequence[int], kept: PrefixCache | None) -> DynamicCache | None:
    """Keys and values of the common prefix, if caching saves time and the cache can be cut anywhere."""
    longest = max(lengths, default=0)
    if writer.start is not None or longest == 0:
        return None
    if kept is not None:  # the whole prompt, which later calls share
        return kept.cache if kept.shared(like[:longest]) == longest else _fill(writer, like[:-1], kept)
    return _fill(writer, like[:longest], PrefixCache()) if sum(lengths) >= 2 * longest else None


def _fill(writer: ResponseModel, ids: Ids, kept: PrefixCache) -> DynamicCache | None:
    """Compute keys and values and keep them; None if the model's cache cannot be cut anywhere."""
    if not writer.takes("past_key_values"):
        return None
    known = min(kept.shared(ids), len(ids) - 1)
    place = torch.tensor([list(ids[known:])], device=device_of(writer.model))
    past = {} if kept.cache is None or known == 0 else {"past_key_values": _cut(kept.cache, known, 1)}
    output = writer.model(input_ids=place, use_cache=True, **past, **writer.logits_at([len(ids) - known - 1]))
    cache = output.past_key_values
    if type(cache) is not DynamicCache or not all(type(layer) is DynamicLayer for layer in cache.layers):
        return None
    kept.ids, kept.cache = tuple(ids), cache
    return cache


def greedy_tokens(writer: ResponseModel, prompt: Ids, most: int, ends: Container[int], kept: PrefixCache) -> list[int]:
    """The likeliest token after a prompt, then the likeliest after that, up to one of `ends`, which is left out."""
    device, written = device_of(writer.model), list[int]()
    cache, length = None, 0
    if writer.start is None and len(prompt) > 1:
        whole = kept.cache if kept.shared(prompt[:-1]) == len(prompt) - 1 else _fill(writer, prompt[:-1], kept)
        if whole is not None:
            cache, length = _cut(whole, len(prompt) - 1, 1), len(prompt) - 1
    while len(written) < most:
        stream = torch.tensor([[*(prompt if writer.start is None else writer.start), *written]], device=device)
        inputs: dict[str, Any] = {"input_ids": stream[:, length:]}
        if writer.start is not None:
            inputs = {"input_ids": torch.tensor([list(prompt)], device=device), "decoder_input_ids": stream}
        elif cache is not None:
            inputs["past_key_values"], length = cache, stream.shape[1]
        token = int(writer.model(**inputs).logits[0, -1].argmax())
        if token in ends:
            break
        written.append(token)
    return written


def _after_prefix(
    writer: ResponseModel, prompts: Sequence[tuple[int, ...]], prefix: DynamicCache | None, length: int
) -> list[np.ndarray]:
    """Log-probabilities by a decoder, which reads prompt and response as one text; padding comes last."""
    texts = [[*prompt, *writer.response[:-1]] for prompt in prompts]
    longest = max(map(len, texts))
    device = device_of(writer.model)
    ids = torch.tensor([text + [0] * (longest - len(text)) for text in texts], device=device)
    positions = torch.tensor(
        [[len(prompt) - 1 - length + n for n in range(len(writer.response))] for prompt in prompts]
    )
    kept, places = positions.unique(return_inverse=True)
    inputs: dict[str, Any] = {"input_ids": ids[:, length:]}
    if prefix is not None and length:
        inputs["past_key_values"] = _cut(prefix, length, len(prompts))
    elif writer.takes("use_cache"):
        inputs["use_cache"] = False
    settings = writer.logits_at(kept.tolist())
    logits = writer.model(**inputs, **settings).logits
    index = (places if settings else positions).to(device)
    return writer.log_probabilities(logits[torch.arange(len(prompts), device=device)[:, None], index])


def _after_encoding(writer: ResponseModel, prompts: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
    """Log-probabilities by an encoder-decoder, whose encoder reads the prompt."""
    assert writer.start is not None
    longest = max(map(len, prompts))
    device = device_of(writer.model)
    ids, mask = (
        torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows], device=device)
        for rows in (prompts, [[1] * len(prompt) for prompt in prompts])
    )
    written = torch.tensor([[*writer.start, *writer.response[:-1]]], device=device).expand(len(prompts), -1)
    output = writer.model(input_ids=ids, attention_mask=mask, decoder_input_ids=written, use_cache=False)
    return writer.log_probabilities(output.logits[:, len(writer.start) - 1 :])


def _cut(prefix: DynamicCache, length: int, batch: int) -> DynamicCache:
    """The first keys and values of a cache, expanded to a batch."""
    cache = DynamicCache()
    for number, layer in enumerate(prefix.layers):
        keys, values = (x[:, :, :length].expand(batch, -1, -1, -1) for x in (layer.keys, layer.values))
        cache.update(keys, values, number)
    return cache

"""A model made to write, and each token of what it writes explained by what came before it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn
from transformers import MaxLengthCriteria, StoppingCriteriaList

from whyformer.api.explain import explain_encoded
from whyformer.errors import WhyformerError
from whyformer.inputs.chunks import Chunk, spelt
from whyformer.inputs.collate import model_inputs
from whyformer.inputs.encode import EncodedExample, encode, written_of
from whyformer.inputs.layouts import WordPieces
from whyformer.models.loading import LoadedModel, quiet, resolve_model
from whyformer.models.structure import config_of
from whyformer.results.continuation import Continuation


def continuation(
    example: Any,
    model: str | Path | nn.Module | LoadedModel = "mini-gpt",
    method: str | None = None,
    *,
    tokens: int = 8,
    processor: Any = None,
    truncate: bool = False,
    **settings: Any,
) -> Continuation:
    """What the model writes next, token by token, each the likeliest that it may write, and an Explanation of each.

    Its own generation settings hold: what its decoder starts from, tokens it must begin with, must not write, or ends
    with. `settings` are those of `explain_batch`, and the options of the method.
    """
    loaded_model = resolve_model(model, processor)
    if not loaded_model.task.writes:
        raise WhyformerError(f"{loaded_model.name} writes nothing: use explain.")
    if tokens < 1:
        raise WhyformerError(f"tokens={tokens}: at least 1.")
    (one,) = encode(loaded_model, [example], truncate=truncate, room=tokens - 1)
    _check_room(loaded_model, one, tokens - 1)
    written = _written(loaded_model, one, tokens)
    if not written:
        raise WhyformerError(f"{loaded_model.name} writes nothing after this: it ends at once.")
    encoded = [_after(loaded_model, one, number, written[:number]) for number in range(len(written))]
    if loaded_model.tokenizer.pad_token is None:  # as GPT-2 has it: nothing to pad the shorter ones with
        settings = {"batch_size": 1} | settings
    explanations = explain_encoded(loaded_model, encoded, list(written), method, **settings)
    text, _, _ = spelt(written, loaded_model.tokenizer, _before(one))
    return Continuation(text, tuple(explanations))


def _check_room(loaded_model: LoadedModel, one: EncodedExample, room: int) -> None:
    """Refuse more tokens than a decoder beside an encoder has positions for."""
    limit = getattr(config_of(loaded_model.model), "max_position_embeddings", None)
    if one.written is None or limit is None:
        return
    begun = len(one.written.encoding["input_ids"])
    if begun + room > limit:
        raise WhyformerError(
            f"tokens={room + 1}: {loaded_model.name} has written {begun} tokens and can write {limit - begun + 1} more."
        )


def _written(loaded_model: LoadedModel, one: EncodedExample, tokens: int) -> list[int]:
    """The likeliest next tokens, up to the end of the text."""
    inputs = model_inputs(loaded_model, [one])
    before = inputs["decoder_input_ids" if loaded_model.task.has_decoder else "input_ids"].shape[1]
    # Stopped one token before its own end, it is not made to end its text there (forced_eos_token_id).
    enough = StoppingCriteriaList([MaxLengthCriteria(before + tokens)])
    model = cast(Any, loaded_model.model)
    with torch.no_grad(), quiet():
        made = model.generate(
            **inputs, max_new_tokens=tokens + 1, stopping_criteria=enough, do_sample=False, num_beams=1
        )
    ids: list[int] = made[0, before:].tolist()
    end = model.generation_config.eos_token_id
    ends = end if isinstance(end, list) else [end]
    return list(takewhile(lambda token: token not in (*ends, loaded_model.tokenizer.eos_token_id), ids))


def _before(one: EncodedExample) -> list[int]:
    """The last token before those to be written, after which it shows whether a word begins with a space."""
    goes_on = one.chunk if one.written is None else one.written
    assert goes_on is not None
    return goes_on.encoding["input_ids"][-1:] if goes_on.layout.size else []


def _after(loaded_model: LoadedModel, one: EncodedExample, number: int, ids: Sequence[int]) -> EncodedExample:
    """The example when these tokens have been written."""
    if loaded_model.task.has_decoder:
        assert one.written is not None
        given = one.written.encoding["input_ids"]
        before = given[len(given) - one.written.layout.size :]
        return EncodedExample(number, chunk=one.chunk, written=written_of([*before, *ids], loaded_model))
    assert one.chunk is not None
    chunk = one.chunk
    layout = chunk.layout
    text, names, offsets = spelt(list(ids), loaded_model.tokenizer, _before(one))
    start, first = len(layout.texts[0]), len(chunk.encoding["input_ids"])
    longer = WordPieces(
        (layout.texts[0] + text,),
        layout.tokens + names,
        (0,) * (layout.size + len(ids)),
        layout.offsets + tuple((start + a, start + b) for a, b in offsets),
    )
    encoding = {"input_ids": [*chunk.encoding["input_ids"], *ids]}
    encoding["attention_mask"] = [1] * len(encoding["input_ids"])
    positions = chunk.positions + tuple(range(first, first + len(ids)))
    return EncodedExample(number, chunk=Chunk(encoding, positions, tuple((0, n) for n in range(longer.size)), longer))

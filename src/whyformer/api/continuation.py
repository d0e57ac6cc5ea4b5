"""A model made to write, and each token of what it writes explained by what came before it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import MaxLengthCriteria, StoppingCriteriaList

from whyformer.api.explain import explain_encoded
from whyformer.errors import WhyformerError
from whyformer.inputs.chunks import Chunk, spell
from whyformer.inputs.collate import model_inputs
from whyformer.inputs.encode import EncodedExample, encode, written_of
from whyformer.inputs.layouts import WordPieces
from whyformer.models.loading import LoadedModel, quiet, resolve_model
from whyformer.models.structure import config_of
from whyformer.propagation.mode import Backward
from whyformer.results.continuation import Continuation


def continuation(
    example: Any,
    model: str | Path | nn.Module | LoadedModel = "mini-gpt",
    method: str | None = None,
    *,
    tokens: int = 8,
    processor: Any = None,
    readout: str | int | Tensor | None = None,
    truncate: bool = False,
    batch_size: int | None = None,
    progress: bool = False,
    backward: Backward | None = None,
    **options: Any,
) -> Continuation:
    """What a model writes next, token by token, and why each token.

    Each token is the likeliest that the model may write. Its own generation settings hold: what its decoder starts
    from, tokens it must begin with, must not write, or ends with.

    Args:
        example: A text; for a model with an encoder also (text, what was written so far).
        model: The name of a bundled model, a folder, a Hugging Face id, a LoadedModel, or a module of your own.
        method: The name of a method, as in `explain`.
        tokens: How many tokens it is to write at most.
        processor: The tokenizer of a module of your own, where its folder does not have it.
        readout: Where the answer is read, as in `explain`.
        truncate: Go on from the beginning of a text that is longer than the model's limit.
        batch_size: How many tokens are explained at once.
        progress: Show a progress bar.
        backward: "gradient", or "libra" for LibraGrad's rules.
        **options: The options of the method.

    Returns:
        A Continuation: the text, and an Explanation of each of its tokens.

    Raises:
        WhyformerError: If the model writes nothing, has no room for so many tokens, or an option cannot be used.

    Example:
        >>> len(whyformer.continuation("The film was", model="mini-gpt", tokens=2, method="rollout").tokens)
        2
    """
    loaded_model = resolve_model(model, processor)
    if not loaded_model.task.writes:
        raise WhyformerError(f"{loaded_model.name} writes nothing: use explain.")
    if type(tokens) is not int or tokens < 1:
        raise WhyformerError(f"tokens={tokens!r}: a whole number, at least 1.")
    if "target" in options:
        raise WhyformerError("A continuation explains every token that is written: use explain to ask about another.")
    (encoded,) = encode(loaded_model, [example], truncate=truncate, room=tokens - 1)
    _check_room(loaded_model, encoded, tokens - 1)
    ids = _generate(loaded_model, encoded, tokens)
    if not ids:
        raise WhyformerError(f"{loaded_model.name} writes nothing after this: it ends at once.")
    steps = [_after(loaded_model, encoded, number, ids[:number]) for number in range(len(ids))]
    if loaded_model.tokenizer.pad_token is None:  # as GPT-2 has it: nothing to pad the shorter ones with
        batch_size = batch_size or 1
    explanations = explain_encoded(
        loaded_model,
        steps,
        list(ids),
        method,
        readout=readout,
        batch_size=batch_size,
        progress=progress,
        backward=backward,
        **options,
    )
    text, _, _ = spell(ids, loaded_model.tokenizer, _before(encoded))
    return Continuation(text, tuple(explanations))


def _check_room(loaded_model: LoadedModel, encoded: EncodedExample, room: int) -> None:
    """Refuse more tokens than a decoder beside an encoder has positions for."""
    limit = getattr(config_of(loaded_model.model), "max_position_embeddings", None)
    if encoded.written is None or limit is None:
        return
    begun = len(encoded.written.encoding["input_ids"])
    if begun + room > limit:
        raise WhyformerError(
            f"tokens={room + 1}: {loaded_model.name} has written {begun} tokens and can write {limit - begun + 1} more."
        )


def _generate(loaded_model: LoadedModel, encoded: EncodedExample, tokens: int) -> list[int]:
    """The likeliest next tokens, up to the end of the text."""
    inputs = model_inputs(loaded_model, [encoded])
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


def _before(encoded: EncodedExample) -> list[int]:
    """The last token before those to be written, after which it shows whether a word begins with a space."""
    goes_on = encoded.chunk if encoded.written is None else encoded.written
    assert goes_on is not None
    return goes_on.encoding["input_ids"][-1:] if goes_on.layout.size else []


def _after(loaded_model: LoadedModel, encoded: EncodedExample, number: int, ids: Sequence[int]) -> EncodedExample:
    """The example when these tokens have been written."""
    if loaded_model.task.has_decoder:
        assert encoded.written is not None
        given = encoded.written.encoding["input_ids"]
        before = given[len(given) - encoded.written.layout.size :]
        return EncodedExample(number, chunk=encoded.chunk, written=written_of([*before, *ids], loaded_model))
    assert encoded.chunk is not None
    chunk = encoded.chunk
    layout = chunk.layout
    text, names, offsets = spell(list(ids), loaded_model.tokenizer, _before(encoded))
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

"""A model made to write, and each token of what it writes explained by what came before it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn
from transformers import MaxLengthCriteria, StoppingCriteriaList

from whyformer.attribution import explain_pieces
from whyformer.continuation import Continuation
from whyformer.errors import WhyformerError
from whyformer.explanation import WordPieces
from whyformer.families import config_of
from whyformer.inputs import Chunk, Piece, model_inputs
from whyformer.loading import Loaded, loaded, quiet
from whyformer.pieces import pieces_of, spelt, written_of


def continuation(
    example: Any,
    model: str | Path | nn.Module | Loaded = "mini-gpt",
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
    subject = loaded(model, processor)
    if not subject.writes:
        raise WhyformerError(f"{subject.name} writes nothing: use explain.")
    if tokens < 1:
        raise WhyformerError(f"tokens={tokens}: at least 1.")
    (piece,) = pieces_of(subject, [example], truncate=truncate, room=tokens - 1)
    _check_room(subject, piece, tokens - 1)
    written = _written(subject, piece, tokens)
    if not written:
        raise WhyformerError(f"{subject.name} writes nothing after this: it ends at once.")
    pieces = [_after(subject, piece, number, written[:number]) for number in range(len(written))]
    if subject.tokenizer.pad_token is None:  # as GPT-2 has it: nothing to pad the shorter ones with
        settings = {"batch_size": 1} | settings
    explanations = explain_pieces(subject, pieces, list(written), method, **settings)
    text, _, _ = spelt(written, subject.tokenizer, _before(piece))
    return Continuation(text, tuple(explanations))


def _check_room(subject: Loaded, piece: Piece, room: int) -> None:
    """Refuse more tokens than a decoder beside an encoder has positions for."""
    limit = getattr(config_of(subject.model), "max_position_embeddings", None)
    if piece.written is None or limit is None:
        return
    begun = len(piece.written.encoding["input_ids"])
    if begun + room > limit:
        raise WhyformerError(
            f"tokens={room + 1}: {subject.name} has written {begun} tokens and can write {limit - begun + 1} more."
        )


def _written(subject: Loaded, piece: Piece, tokens: int) -> list[int]:
    """The likeliest next tokens, up to the end of the text."""
    inputs = model_inputs(subject, [piece])
    before = inputs["decoder_input_ids" if subject.has_decoder else "input_ids"].shape[1]
    # Stopped one token before its own end, it is not made to end its text there (forced_eos_token_id).
    enough = StoppingCriteriaList([MaxLengthCriteria(before + tokens)])
    model = cast(Any, subject.model)
    with torch.no_grad(), quiet():
        made = model.generate(
            **inputs, max_new_tokens=tokens + 1, stopping_criteria=enough, do_sample=False, num_beams=1
        )
    ids: list[int] = made[0, before:].tolist()
    end = model.generation_config.eos_token_id
    ends = end if isinstance(end, list) else [end]
    return list(takewhile(lambda token: token not in (*ends, subject.tokenizer.eos_token_id), ids))


def _before(piece: Piece) -> list[int]:
    """The last token before those to be written, after which it shows whether a word begins with a space."""
    goes_on = piece.chunk if piece.written is None else piece.written
    assert goes_on is not None
    return goes_on.encoding["input_ids"][-1:] if goes_on.layout.size else []


def _after(subject: Loaded, piece: Piece, number: int, ids: Sequence[int]) -> Piece:
    """The piece when these tokens have been written."""
    if subject.has_decoder:
        assert piece.written is not None
        given = piece.written.encoding["input_ids"]
        before = given[len(given) - piece.written.layout.size :]
        return Piece(number, chunk=piece.chunk, written=written_of([*before, *ids], subject))
    assert piece.chunk is not None
    chunk = piece.chunk
    layout = chunk.layout
    text, names, offsets = spelt(list(ids), subject.tokenizer, _before(piece))
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
    return Piece(number, chunk=Chunk(encoding, positions, tuple((0, n) for n in range(longer.size)), longer))

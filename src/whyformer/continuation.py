"""Every token of a text that a model writes, each explained by what came before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from whyformer.attribution import explain_pieces
from whyformer.errors import WhyformerError
from whyformer.explanation import Explanation, WordPieces
from whyformer.inputs import Chunk, Piece, model_inputs
from whyformer.loading import Loaded, loaded
from whyformer.pieces import pieces_of, spelt, written_of


@dataclass(frozen=True)
class Continuation:
    """What a model wrote after a text, and why each token of it."""

    text: str
    explanations: tuple[Explanation, ...]

    @property
    def tokens(self) -> tuple[str, ...]:
        """The tokens written."""
        return tuple(explanation.target for explanation in self.explanations)

    def matrix(self, part: str | None = None) -> np.ndarray:
        """Scores [written token, token before it]; tokens that were not yet there have 0.

        `part` names the stream where there are two: "source", or "target" for what was written before.
        """
        first = next(iter(self.explanations[0].parts))
        known = ("source", "target") if first == "source" else (first,)
        if part is not None and part not in known:
            raise WhyformerError(f"No part named {part!r}. Known: {', '.join(known)}.")
        name = part or first
        rows = [x.parts[name].scores if name in x.parts else np.zeros(0, dtype=np.float32) for x in self.explanations]
        widest = max(map(len, rows))
        return np.stack([np.pad(row, (0, widest - len(row))) for row in rows])


def continuation(
    example: Any,
    model: str | Path | nn.Module | Loaded = "mini-gpt",
    method: str = "bi_token",
    *,
    tokens: int = 8,
    processor: Any = None,
    truncate: bool = False,
    **settings: Any,
) -> Continuation:
    """What the model writes next, token by token, each the likeliest, and an Explanation of each.

    `settings` are those of `explain_batch`, and the options of the method.
    """
    subject = loaded(model, processor)
    if not subject.writes:
        raise WhyformerError(f"{subject.name} writes nothing: use explain.")
    if tokens < 1:
        raise WhyformerError(f"tokens={tokens}: at least 1.")
    (piece,) = pieces_of(subject, [example], truncate=truncate)
    written = _written(subject, piece, tokens)
    if not written:
        raise WhyformerError(f"{subject.name} writes nothing after this: it ends at once.")
    pieces = [_after(subject, piece, number, written[:number]) for number in range(len(written))]
    explanations = explain_pieces(subject, pieces, list(written), method, **settings)
    return Continuation(subject.tokenizer.decode(written), tuple(explanations))


def _written(subject: Loaded, piece: Piece, tokens: int) -> list[int]:
    """The likeliest next tokens, up to the end of the text."""
    inputs = model_inputs(subject, [piece])
    before = inputs["decoder_input_ids" if subject.has_decoder else "input_ids"].shape[1]
    with torch.no_grad():
        made = cast(Any, subject.model).generate(**inputs, max_new_tokens=tokens, do_sample=False, num_beams=1)
    ids: list[int] = made[0, before:].tolist()
    end = subject.tokenizer.eos_token_id
    return ids[: ids.index(end)] if end in ids else ids


def _after(subject: Loaded, piece: Piece, number: int, ids: Sequence[int]) -> Piece:
    """The piece when these tokens have been written."""
    if subject.has_decoder:
        assert piece.written is not None
        before = piece.written.encoding["input_ids"][1:]
        return Piece(number, chunk=piece.chunk, written=written_of([*before, *ids], subject))
    assert piece.chunk is not None
    chunk = piece.chunk
    layout = chunk.layout
    text, names, offsets = spelt(list(ids), subject.tokenizer)
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

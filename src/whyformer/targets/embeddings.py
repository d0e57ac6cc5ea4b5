"""Targets of text encoders: the cosine similarity of two embeddings, or the norm of one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from whyformer.errors import WhyformerError
from whyformer.inputs.chunks import whole_text
from whyformer.inputs.encode import EncodedExample
from whyformer.inputs.layouts import WordPieces
from whyformer.inputs.read import text_of, two_of
from whyformer.models.loading import LoadedModel
from whyformer.models.pooling import pooling_of
from whyformer.targets.head_target import HeadTarget, RowScore, output_of


def similarity_target(
    loaded_model: LoadedModel, number: int, example: Any, target: Any, *, truncate: bool
) -> list[HeadTarget]:
    """The targets of two texts, each compared with the other; together they explain the similarity."""
    if target != "predicted":
        raise WhyformerError(f"Two texts have a similarity and no label {target!r:.40}: leave the target out.")
    is_one = isinstance(example, (str, Path))
    texts = (example,) if is_one else two_of(example, "a text, or two texts: ('a question', 'a passage')")
    whole = tuple(str(text_of(text)) for text in texts)
    encoded = [_encode(number, segment, whole, loaded_model, truncate=truncate) for segment in range(len(whole))]
    pooling = loaded_model.pooling or pooling_of(loaded_model.model)

    def embedding(output: Any, row: int, mask: Tensor) -> Tensor:
        return pooling.embedding(output.last_hidden_state[row, : len(mask)], mask)

    def compared_with(other: Tensor, mask: Tensor) -> RowScore:
        return lambda output, row: F.cosine_similarity(embedding(output, row, mask), other, dim=0)

    def along(direction: Tensor, mask: Tensor) -> RowScore:
        return lambda output, row: embedding(output, row, mask) @ direction

    masks = [_mask(one) for one in encoded]
    own = [embedding(output_of(loaded_model, one), 0, mask) for one, mask in zip(encoded, masks, strict=True)]
    if is_one:
        # Of a text alone the embedding's length in its own direction: its cosine with itself is 1, whatever it says.
        score, name = along(F.normalize(own[0], dim=0), masks[0]), f"embedding of length {float(own[0].norm()):.2f}"
        return [HeadTarget(encoded[0], score, name, notes=(pooling.description,))]
    name = f"similarity {float(F.cosine_similarity(own[0].float(), own[1].float(), dim=0)):.2f}"
    others = reversed(own)
    return [
        HeadTarget(one, compared_with(other, mask), name, notes=(pooling.description,))
        for one, other, mask in zip(encoded, others, masks, strict=True)
    ]


def _encode(
    number: int, segment: int, texts: tuple[str, ...], loaded_model: LoadedModel, *, truncate: bool
) -> EncodedExample:
    """Encode one of the texts, laid out as a segment of all."""
    chunk = whole_text(texts[segment], loaded_model, truncate=truncate)
    layout = chunk.layout
    pieces = WordPieces(texts, layout.tokens, (segment,) * layout.size, layout.offsets)
    places = tuple((segment, place) for _, place in chunk.places)
    return EncodedExample(number, {"text": replace(chunk, layout=pieces, places=places)})


def _mask(encoded: EncodedExample) -> Tensor:
    assert encoded.chunk is not None
    ids = encoded.chunk.encoding["input_ids"]
    return torch.tensor(encoded.chunk.encoding.get("attention_mask", [1] * len(ids)))

"""The output so far of an encoder-decoder's decoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from whyformer.axes import Inputs
from whyformer.inputs.chunks import Chunk, decode_tokens, decoder_beginning, pad_chunks
from whyformer.inputs.layouts import WordPieces
from whyformer.inputs.modality import ForwardBatch, Modality, PartPlace, ScoredLayout
from whyformer.models.loading import LoadedModel


def written_of(ids: list[int], loaded_model: LoadedModel, beginning: Sequence[int] | None = None) -> Chunk:
    """The decoder's tokens so far, after those it starts with."""
    start = list(decoder_beginning(loaded_model) if beginning is None else beginning)
    text, tokens, offsets = decode_tokens(ids, loaded_model.tokenizer)
    layout = WordPieces((text,), tokens, (0,) * len(ids), offsets)
    whole = [*start, *ids]
    positions = tuple(range(len(start), len(whole)))
    encoding: dict[str, list[int]] = {"input_ids": whole, "attention_mask": [1] * len(whole)}
    return Chunk(encoding, positions, tuple((0, n) for n in range(len(ids))), layout)


def token_ids(text: str, loaded_model: LoadedModel) -> list[int]:
    """Tokenize a text without special tokens."""
    return list(loaded_model.tokenizer(text, add_special_tokens=False)["input_ids"]) if text else []


def collate(loaded_model: LoadedModel, chunks: Sequence[Chunk]) -> Inputs:
    """Pad the decoder's ids and mask."""
    own = pad_chunks([chunk.encoding for chunk in chunks], loaded_model.tokenizer)
    return {f"decoder_{name}": own[name] for name in ("input_ids", "attention_mask")}


def place(model: nn.Module, inputs: Inputs, lengths: Mapping[str, int]) -> PartPlace | None:
    """Locate the decoder's stream."""
    has_decoder = "decoder_input_ids" in inputs and "target" in lengths
    return PartPlace("written", "target", 0, lengths["target"]) if has_decoder else None


def lay_out(chunk: Chunk, row: int, forward: ForwardBatch, place: PartPlace, scores: Tensor) -> ScoredLayout:
    """Lay scores out on the tokens after those that the decoder starts with."""
    return ScoredLayout(place.stream, chunk.layout, scores[torch.tensor(chunk.positions, dtype=torch.long)])


MODALITY = Modality("written", collate, place, lay_out)

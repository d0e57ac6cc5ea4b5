"""Texts, whole or in overlapping chunks."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from whyformer.axes import Inputs
from whyformer.errors import WhyformerError
from whyformer.inputs.chunks import Chunk, check_ids, chunks_of, length_limit, pad_chunks, whole_text
from whyformer.inputs.encode import EncodedExample
from whyformer.inputs.fills import erased, filler_id
from whyformer.inputs.image_prompt import has_picture
from whyformer.inputs.layouts import WordPieces
from whyformer.inputs.modality import FileKind, ForwardBatch, Modality, PartPlace, ScoredLayout, known_modalities
from whyformer.inputs.read import text_of, two_of
from whyformer.inputs.removable import PartRemoval, PartUnits, RemovablePart, TraceRemoval, token_line
from whyformer.inputs.words import tokens_by_word
from whyformer.modalities.word_pieces import WORD_PIECE_KIND
from whyformer.modalities.written import token_ids, written_of
from whyformer.models import compat
from whyformer.models.families import FAMILIES
from whyformer.models.family import JOINT
from whyformer.models.input_tensors import TEXT_INPUTS
from whyformer.models.loading import LoadedModel
from whyformer.models.structure import config_of

if TYPE_CHECKING:
    from whyformer.tracing.trace import Trace


def encode(example: Any, loaded_model: LoadedModel, *, truncate: bool, room: int) -> Iterator[dict[str, Any]]:
    """Encode a text, in chunks for a classifier; a text to be continued, or beside another input, must fit."""
    task = loaded_model.task
    if has_picture(example):
        raise WhyformerError(f"{loaded_model.name} takes no pictures: give a text.")
    if task.has_decoder:
        is_pair = isinstance(example, (tuple, list))
        source, so_far = two_of(example, "a text, and what was written so far") if is_pair else (example, "")
        chunk = whole_text(source, loaded_model, truncate=truncate)
        yield {"text": chunk, "written": written_of(token_ids(so_far, loaded_model), loaded_model)}
    elif task.writes:
        yield {"text": whole_text(example, loaded_model, truncate=truncate, room=room)}
    else:
        if task.answer == "next sentence":
            two_of(example, "two texts, of which the second may follow the first: ('It rained.', 'We got wet.')")
        limit = length_limit(loaded_model.model, loaded_model.tokenizer)
        for chunk in chunks_of(text_of(example), loaded_model.tokenizer, limit, truncate=truncate):
            yield {"text": chunk}


def collate(loaded_model: LoadedModel, chunks: Sequence[Chunk]) -> Inputs:
    """Pad token ids and masks to the longest text, or to the length that the family requires."""
    encodings = [chunk.encoding for chunk in chunks]
    check_ids(loaded_model, [encoding["input_ids"] for encoding in encodings])
    length = _fixed_length(loaded_model.model)
    own = (
        pad_chunks(encodings, loaded_model.tokenizer) if length is None else _filled_up(encodings, loaded_model, length)
    )
    takes = inspect.signature(loaded_model.model.forward).parameters
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in takes.values())
    if "token_type_ids" not in takes and not takes_any:  # transformers 4 tokenizers return them unconditionally
        own.pop("token_type_ids", None)
    if loaded_model.task.answer == "choice":  # [example, choice, token]: one choice is read at a time
        own = {name: value[:, None] for name, value in own.items()}
    return own


def place(model: nn.Module, inputs: Inputs, lengths: Mapping[str, int]) -> PartPlace | None:
    """Locate the word pieces, which come first in a shared stream."""
    words, stream = word_count(inputs), text_stream(lengths)
    return PartPlace("text", stream, 0, words) if words and stream in lengths else None


def lay_out(chunk: Chunk, row: int, forward: ForwardBatch, place: PartPlace, scores: Tensor) -> ScoredLayout:
    """Lay scores out on the word pieces, without special tokens."""
    name = "text" if place.stream == JOINT else place.stream
    return ScoredLayout(name, chunk.layout, scores[torch.tensor(chunk.positions, dtype=torch.long)])


def _removable(trace: Trace, place: PartPlace, units: PartUnits) -> RemovablePart:
    """The word pieces, except the read-out token, which is never removed."""
    count = trace.question.inputs["input_ids"].shape[-1]
    may_go, bridge = trace.masks[place.stream][:, :count].clone(), trace.question.bridge
    if bridge is not None:  # placeholders of pictures, from which patches are removed instead
        may_go &= ~bridge.is_placeholder
    for readout in trace.readouts:
        read = readout.weights != 0
        if readout.stream == place.stream:
            may_go &= ~(read & (read.sum(dim=1, keepdim=True) == 1))[:, :count]
    return token_line("text", place.stream, 0, may_go, units)


def _without(inputs: Inputs, kept: Tensor, removal: TraceRemoval) -> Inputs:
    """Erase the word pieces that are not kept."""
    own = {name: inputs[name] for name in TEXT_INPUTS if name in inputs}
    # A multiple-choice head has an axis of one choice.
    removed = (kept == 0).reshape(len(kept), *own["input_ids"].shape)
    how = "mask" if isinstance(removal.erasure, int) else removal.erasure
    steps = erased(own, removed, how, filler=removal.erasure if isinstance(removal.erasure, int) else removal.padding)
    if "attention_mask" in steps:  # read the padding of empty texts: a mean over no tokens is undefined
        mask = steps["attention_mask"]
        steps["attention_mask"] = mask.where(
            mask.any(dim=-1, keepdim=True), own.get("attention_mask", torch.ones_like(mask))
        )
    return steps


def _text_units(
    loaded_model: LoadedModel, inputs: Inputs, encoded: Sequence[EncodedExample], *, by_word: bool
) -> Tensor:
    """The unit of each token of the texts; -1 for special tokens and padding."""
    ids = inputs["input_ids"]
    numbers = torch.full((len(ids), ids.shape[-1]), -1)
    special = compat.special_ids(loaded_model.tokenizer)
    for row, own in enumerate(ids.reshape(numbers.shape).tolist()):
        chunk = encoded[row].chunk if encoded else None
        if chunk is None:
            numbers[row] = torch.tensor([-1 if token in special else n for n, token in enumerate(own)])
        else:
            numbers[row, list(chunk.positions)] = torch.from_numpy(
                word_numbers(chunk) if by_word else np.array(chunk.positions)
            )
    return numbers


def word_numbers(chunk: Chunk) -> np.ndarray:
    """The word of each word piece of a chunk; each piece outside words is a unit."""
    words = list(tokens_by_word(chunk.layout).values())
    numbers = len(words) + np.arange(len(chunk.positions))
    for word, tokens in reversed(list(enumerate(words))):
        numbers[tokens] = word
    return numbers


def _options(
    options: Mapping[str, Any], loaded_model: LoadedModel, inputs: Inputs, encoded: Sequence[EncodedExample]
) -> dict[str, Any]:
    """The id that replaces word pieces, and units without special tokens; words are those of the examples."""
    own: dict[str, Any] = {}
    if "input_ids" not in inputs or loaded_model.tokenizer is None:
        return own
    if isinstance(erasure := options.get("erasure"), str) and erasure == "mask":
        own["erasure"] = filler_id(loaded_model.tokenizer, "mask")
    if isinstance(units := options.get("units", "token"), str):
        of_text = _text_units(loaded_model, inputs, encoded, by_word=units == "word")
        own["units"] = dict.fromkeys(known_modalities(), units) | {"text": of_text}
    return own


def word_count(inputs: Inputs) -> int:
    """Number of word pieces per text."""
    return inputs["input_ids"].shape[-1] if "input_ids" in inputs else 0  # the last axis, after that of choices


def text_stream(lengths: Mapping[str, int]) -> str:
    """The stream of the word pieces."""
    return next((stream for stream in ("source", "text", JOINT) if stream in lengths), "text")


def _fixed_length(model: nn.Module) -> int | None:
    """The length that every text is padded to, if the model's family requires it."""
    config = config_of(model)
    row = FAMILIES.get(getattr(config, "model_type", ""))
    return config.text_config.max_position_embeddings if row is not None and row.pads_to_limit else None


def _filled_up(chunks: list[dict[str, list[int]]], loaded_model: LoadedModel, length: int) -> Inputs:
    """Pad texts on the right to one length, with the mask that the family's row names, if any."""
    rows, padding = [chunk["input_ids"] for chunk in chunks], loaded_model.tokenizer.pad_token_id
    ids = {"input_ids": torch.tensor([row + [padding] * (length - len(row)) for row in rows])}
    masks = {s.mask for s in FAMILIES[config_of(loaded_model.model).model_type].streams if s.name == "text" and s.mask}
    return ids | {mask: torch.tensor([[1] * len(row) + [0] * (length - len(row)) for row in rows]) for mask in masks}


MODALITY = Modality(
    "text",
    collate,
    place,
    lay_out,
    encode,
    noun="text",
    files=FileKind(frozenset({".txt"}), "text", "texts"),
    read=text_of,
    removal=PartRemoval(_removable, _without, _options),
    layouts={WordPieces: WORD_PIECE_KIND},
)

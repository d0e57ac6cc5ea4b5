"""Split texts into chunks that fit the model, and align word pieces with characters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, Literal

import torch
from torch import nn

from whyformer.axes import Inputs
from whyformer.errors import WhyformerError
from whyformer.inputs.layouts import WordPieces
from whyformer.inputs.read import Text, text_of
from whyformer.inputs.token_alignment import token_offsets
from whyformer.models.loading import LoadedModel
from whyformer.models.structure import base_model, config_of, vocabulary_size

OVERLAP = 0.25  # share of a chunk that the next one repeats
LEAST_TEXT = 8  # tokens of a text, special ones included, that must fit


@dataclass(frozen=True)
class Chunk:
    """A piece of a text that fits the model.

    `positions` are the positions of its word pieces in the encoding, `places` those in the whole of each text. `words`
    is the index of the tokenizer's word that each belongs to. `truncated_to` says which end of a long text was kept, if
    it was truncated.
    """

    encoding: dict[str, list[int]]
    positions: tuple[int, ...]
    places: tuple[tuple[int, int], ...]
    layout: WordPieces
    truncated_to: Literal["beginning", "end"] | None = None
    words: tuple[int, ...] = ()


def chunks_of(text: Text, tokenizer: Any, limit: int | None, *, truncate: bool = False) -> list[Chunk]:
    """Split the text into overlapping chunks of at most `limit` tokens.

    With `truncate`, return only the chunk that the tokenizer keeps: the beginning, or the end if its `truncation_side`
    is "left". In a pair, the text with more tokens is split, and every chunk holds all of the other.
    """
    texts = (text,) if isinstance(text, str) else text
    if not getattr(tokenizer, "is_fast", False):
        return [_aligned_chunk(texts, tokenizer, limit, truncate=truncate)]
    lengths = [len(tokenizer(part, add_special_tokens=False, verbose=False)["input_ids"]) for part in texts]
    special = tokenizer.num_special_tokens_to_add(pair=len(texts) == 2)
    is_long = limit is not None and sum(lengths) + special > limit
    room = limit - special - (min(lengths) if len(texts) == 2 else 0) if limit is not None and is_long else 0
    if is_long and room < 4:
        raise WhyformerError(
            f"The shorter text of the pair takes {min(lengths)} of the model's {limit} tokens: shorten it."
        )
    cut = lengths.index(max(lengths))
    overlap = int(room * OVERLAP)
    encoded = tokenizer(
        *texts,
        truncation=("only_first", "only_second")[cut] if is_long else False,
        max_length=limit if is_long else None,
        stride=overlap,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    count = len(encoded.encodings)
    chunks = []
    for number in range(1 if truncate else count):
        start = number * (room - overlap)
        if keeps_end(tokenizer):  # overflowing pieces are counted from the end
            start = max(0, lengths[cut] - room - start)
        chunk = _chunk(encoded, number, texts, tokenizer, cut=cut, start=start)
        chunks.append(replace(chunk, truncated_to=_kept_side(tokenizer)) if is_long and truncate else chunk)
    if not any(chunk.positions for chunk in chunks):
        raise WhyformerError("The text has no word piece of this model's tokenizer: there is nothing to explain.")
    return chunks


def _aligned_chunk(texts: tuple[str, ...], tokenizer: Any, limit: int | None, *, truncate: bool) -> Chunk:
    """Encode a text whose tokenizer has no offsets, such as those of proteins; it is never split."""
    tokens = [tokenizer.tokenize(text) for text in texts]
    length = sum(map(len, tokens)) + tokenizer.num_special_tokens_to_add(pair=len(texts) == 2)
    is_long = limit is not None and length > limit
    if is_long and not (truncate and len(texts) == 1):
        way_out = "shorten it" if len(texts) == 2 else "shorten it, or truncate it"
        raise WhyformerError(f"The text has {length} tokens, and the model takes {limit}: {way_out}.")
    cut = {"truncation": True, "max_length": limit} if is_long else {}
    encoded = tokenizer(*texts, return_special_tokens_mask=True, **cut)
    positions = tuple(n for n, is_special in enumerate(encoded.pop("special_tokens_mask")) if not is_special)
    offsets = [token_offsets(text, own, tokenizer) for text, own in zip(texts, tokens, strict=True)]
    rows = [(segment, n) for segment, own in enumerate(tokens) for n in range(len(own))]
    rows = rows[-len(positions) :] if keeps_end(tokenizer) else rows[: len(positions)]
    layout = WordPieces(
        texts=texts,
        tokens=tuple(tokens[segment][n] for segment, n in rows),
        segments=tuple(segment for segment, _ in rows),
        offsets=tuple(offsets[segment][n] for segment, n in rows),
    )
    kept = _kept_side(tokenizer) if is_long else None
    return Chunk(dict(encoded), positions, tuple(rows), layout, kept, tuple(n for _, n in rows))


def keeps_end(tokenizer: Any) -> bool:
    """Whether truncation removes the beginning of a long text."""
    return bool(tokenizer.truncation_side == "left")


def _kept_side(tokenizer: Any) -> Literal["beginning", "end"]:
    return "end" if keeps_end(tokenizer) else "beginning"


def length_limit(model: nn.Module, tokenizer: Any) -> int | None:
    """Maximum number of tokens, by the model's position embeddings and its tokenizer; None if unlimited."""
    limits = [tokenizer.model_max_length] if tokenizer.model_max_length < 1_000_000 else []
    table = getattr(getattr(base_model(model), "embeddings", None), "position_embeddings", None)
    if isinstance(table, nn.Embedding):
        # RoBERTa's positions start after its padding index.
        limits.append(table.num_embeddings - (0 if table.padding_idx is None else table.padding_idx + 1))
    else:
        stated = (getattr(config_of(model), name, None) for name in ("max_position_embeddings", "n_positions"))
        limits.extend(limit for limit in stated if isinstance(limit, int) and limit > 0)
    return min(limits, default=None)


def decode_tokens(
    ids: list[int], tokenizer: Any, before: list[int] | None = None
) -> tuple[str, tuple[str, ...], tuple[tuple[int, int], ...]]:
    """Decode tokens that follow those in `before`; return their text, their names and their character ranges.

    Tokens that are bytes of one character all cover it: their decoded text changes until the last of them.
    """
    before = before or []
    start = len(tokenizer.decode(before))
    beginnings = [tokenizer.decode([*before, *ids[:count]])[start:] for count in range(len(ids) + 1)]
    text = beginnings[-1]
    settled = [sum(takewhile(bool, map(str.__eq__, part, text))) for part in beginnings]
    ends = list(settled)
    for count in reversed(range(len(ids))):
        if settled[count] < len(beginnings[count]):
            ends[count] = ends[count + 1]
    return text, tuple(tokenizer.convert_ids_to_tokens(ids)), tuple(zip(settled[:-1], ends[1:], strict=True))


def whole_text(example: Any, loaded_model: LoadedModel, *, truncate: bool, room: int = 0) -> Chunk:
    """Encode a text that must fit: a question, a comparison or a prefix cannot be read in chunks."""
    limit = length_limit(loaded_model.model, loaded_model.tokenizer)
    left = None if limit is None else limit - room
    if room and left is not None and left < LEAST_TEXT:
        raise WhyformerError(
            f"tokens={room + 1}: {loaded_model.name} takes {limit} with the text before them. Ask for fewer."
        )
    chunks = chunks_of(text_of(example), loaded_model.tokenizer, left, truncate=truncate)
    if len(chunks) > 1:
        others = f", {room} of them for what it is to write" if room else ""
        way_out = "shorten it, or ask for fewer" if room else "shorten it"
        raise WhyformerError(
            f"The text is too long for the {limit} tokens that {loaded_model.name} takes{others}: {way_out}."
        )
    return chunks[0]


def decoder_beginning(loaded_model: LoadedModel) -> list[int]:
    """The tokens that a decoder is started with: its start token and, for some models, a language."""
    model = loaded_model.model
    settings = [getattr(model, "generation_config", None), model.config, model]
    start, forced = (
        next((value for part in settings if (value := getattr(part, name, None)) is not None), None)
        for name in ("decoder_start_token_id", "forced_bos_token_id")
    )
    if start is None:
        raise WhyformerError(
            f"{loaded_model.name} does not define the token its decoder starts from: set decoder_start_token_id."
        )
    return [start] if forced is None else [start, forced]


def check_ids(loaded_model: LoadedModel, rows: Iterable[Sequence[int]]) -> None:
    """Raise if the model has no embedding for a token, such as one added to the tokenizer alone."""
    known = vocabulary_size(loaded_model.model)
    largest = max((max(row, default=0) for row in rows), default=0)
    if known is not None and largest >= known:
        name = loaded_model.tokenizer.convert_ids_to_tokens(largest)
        raise WhyformerError(
            f"The token {name!r} has the id {largest}, and {loaded_model.name} embeds {known} tokens: give the "
            "tokenizer that belongs to the model, or call model.resize_token_embeddings(len(tokenizer))."
        )


def pad_chunks(chunks: list[dict[str, list[int]]], tokenizer: Any) -> Inputs:
    """Pad texts on the right, where padding does not move class tokens."""
    if len({len(chunk["input_ids"]) for chunk in chunks}) == 1:
        return {name: torch.tensor([chunk[name] for chunk in chunks]) for name in chunks[0]}
    if tokenizer.pad_token is None:
        raise WhyformerError(
            "The tokenizer has no padding token, so texts of different lengths cannot be explained together: "
            "set tokenizer.pad_token, or use batch_size=1."
        )
    known = [{name: chunk[name] for name in chunk if name in tokenizer.model_input_names} for chunk in chunks]
    batch = dict(tokenizer.pad(known, padding_side="right", return_tensors="pt"))
    longest = batch["input_ids"].shape[1]
    for name in chunks[0].keys() - batch.keys():  # a processor's own, which its tokenizer does not know
        batch[name] = torch.tensor([chunk[name] + [0] * (longest - len(chunk[name])) for chunk in chunks])
    return batch


class Vocabulary(Mapping[int, str]):
    """The text of each token of a tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def __getitem__(self, index: int) -> str:
        text = str(self._tokenizer.decode([index]))
        # Decoded alone, a SentencePiece token loses its leading space.
        begins_with_space = str(self._tokenizer.convert_ids_to_tokens(index)).startswith("▁")
        return f" {text}" if begins_with_space and not text.startswith(" ") else text

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self)))

    def __len__(self) -> int:
        return len(self._tokenizer)


def _chunk(encoded: Any, number: int, texts: tuple[str, ...], tokenizer: Any, *, cut: int, start: int) -> Chunk:
    """One piece of a tokenizer's output, beginning at token `start` of the text that is split."""
    piece = encoded.encodings[number]
    positions = tuple(position for position, special in enumerate(piece.special_tokens_mask) if not special)
    segments = tuple(piece.sequence_ids[position] or 0 for position in positions)
    layout = WordPieces(
        texts=texts,
        tokens=tuple(piece.tokens[position] for position in positions),
        segments=segments,
        offsets=tuple(piece.offsets[position] for position in positions),
    )
    counted: Counter[int] = Counter({cut: start})
    places = []
    for segment in segments:
        places.append((segment, counted[segment]))
        counted[segment] += 1
    names = [name for name in tokenizer.model_input_names if name in encoded]
    encoding = {name: list(encoded[name][number]) for name in names}
    words = tuple(position if (word := piece.word_ids[position]) is None else word for position in positions)
    return Chunk(encoding, positions, tuple(places), layout, words=words)

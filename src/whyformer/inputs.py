"""Examples made into what a model takes, each with the layout its scores will be shown on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from whyformer.axes import Inputs
from whyformer.errors import WhyformerError
from whyformer.examples import Text
from whyformer.explanation import Box, WordPieces
from whyformer.families import base_model

OVERLAP = 0.25  # of a chunk is seen by the next one too
LONGEST = 16  # times as long as wide, a picture is handed over whole


@dataclass(frozen=True)
class Picture:
    """One example that is a picture, and the part of it the model sees."""

    example: int
    image: Image.Image
    box: Box


@dataclass(frozen=True)
class Chunk:
    """As much of an example's text as the model takes at once, and which positions are word pieces of the text."""

    example: int
    encoding: dict[str, list[int]]
    positions: tuple[int, ...]
    layout: WordPieces


def collated(pieces: Sequence[Picture | Chunk], processor: Any) -> Inputs:
    """Pieces as the model takes them; texts are padded on the right, where padding moves no class token."""
    chunks = [piece.encoding for piece in pieces if isinstance(piece, Chunk)]
    if chunks:
        return dict(processor.pad(chunks, padding_side="right", return_tensors="pt"))
    images = [_shortened(piece.image, processor) for piece in pieces if isinstance(piece, Picture)]
    return {"pixel_values": processor(images=images, return_tensors="pt")["pixel_values"]}


def chunks_of(example: int, text: Text, tokenizer: Any, limit: int | None, *, truncate: bool) -> list[Chunk]:
    """The text cut into overlapping pieces of at most `limit` tokens; the first alone with `truncate`."""
    if not getattr(tokenizer, "is_fast", False):
        raise WhyformerError(f"{type(tokenizer).__name__} has no character offsets: a fast tokenizer is needed.")
    texts = (text,) if isinstance(text, str) else text
    room = None if limit is None else limit - tokenizer.num_special_tokens_to_add(pair=len(texts) == 2)
    if room is not None and len(texts) == 2:
        shorter = len(tokenizer(min(texts, key=len), add_special_tokens=False)["input_ids"])
        if shorter > room * (1 - OVERLAP):
            raise WhyformerError(
                f"The shorter text of the pair takes {shorter} of the model's {limit} tokens: shorten it."
            )
        room -= shorter
    encoded = tokenizer(
        *texts,
        truncation=False if room is None else _longer(texts),
        max_length=limit,
        stride=0 if room is None else int(room * OVERLAP),
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    count = 1 if truncate else len(encoded.encodings)
    chunks = [_chunk(example, encoded, number, texts, tokenizer) for number in range(count)]
    if not any(chunk.positions for chunk in chunks):
        raise WhyformerError("The text has no word piece of this model's tokenizer: there is nothing to explain.")
    return chunks


def length_limit(model: nn.Module, tokenizer: Any) -> int | None:
    """The most tokens the model takes, by its position embeddings and its tokenizer; None without a limit."""
    limits = [tokenizer.model_max_length] if tokenizer.model_max_length < 1_000_000 else []
    table = getattr(getattr(base_model(model), "embeddings", None), "position_embeddings", None)
    if isinstance(table, nn.Embedding):
        # RoBERTa's positions start after its padding index.
        limits.append(table.num_embeddings - (0 if table.padding_idx is None else table.padding_idx + 1))
    return min(limits, default=None)


def covered_box(processor: Any, size: tuple[int, int]) -> Box:
    """The part of a picture of this (width, height) that the processor hands to the model."""
    width, height = size
    if not getattr(processor, "do_center_crop", False):
        return 0.0, 0.0, float(width), float(height)
    crop = processor.crop_size
    scale_x = scale_y = 1.0
    if getattr(processor, "do_resize", False):
        resized = processor.size
        if "shortest_edge" in resized:
            scale_x = scale_y = resized["shortest_edge"] / min(width, height)
        else:
            scale_x, scale_y = resized["width"] / width, resized["height"] / height
    kept_width, kept_height = min(crop["width"] / scale_x, width), min(crop["height"] / scale_y, height)
    left, top = (width - kept_width) / 2, (height - kept_height) / 2
    return left, top, left + kept_width, top + kept_height


def black(processor: Any) -> Tensor:
    """What a black picture is after the processor's normalisation, per channel."""
    mean, std = torch.tensor(processor.image_mean), torch.tensor(processor.image_std)
    return (-mean / std)[:, None, None] if processor.do_normalize else torch.zeros(len(mean), 1, 1)


def _shortened(image: Image.Image, processor: Any) -> Image.Image:
    """The middle of a very long picture, where the processor would enlarge it whole only to keep the middle."""
    width, height = image.size
    spare = (max(width, height) - LONGEST * min(width, height)) // 2
    if spare <= 0 or not getattr(processor, "do_center_crop", False) or "shortest_edge" not in processor.size:
        return image
    return image.crop((spare, 0, width - spare, height) if width > height else (0, spare, width, height - spare))


def _longer(texts: tuple[str, ...]) -> str:
    return "only_second" if len(texts) == 2 and len(texts[1]) > len(texts[0]) else "only_first"


def _chunk(example: int, encoded: Any, number: int, texts: tuple[str, ...], tokenizer: Any) -> Chunk:
    piece = encoded.encodings[number]
    positions = tuple(position for position, special in enumerate(piece.special_tokens_mask) if not special)
    layout = WordPieces(
        texts=texts,
        tokens=tuple(piece.tokens[position] for position in positions),
        segments=tuple(piece.sequence_ids[position] or 0 for position in positions),
        offsets=tuple(piece.offsets[position] for position in positions),
    )
    names = [name for name in tokenizer.model_input_names if name in encoded]
    return Chunk(example, {name: list(encoded[name][number]) for name in names}, positions, layout)

"""Examples made into what a model takes, each with the layout its scores will be shown on."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

from whyformer.axes import Inputs
from whyformer.errors import WhyformerError
from whyformer.examples import Regions, Text
from whyformer.explanation import Box, WordPieces
from whyformer.families import base_model, config_of
from whyformer.loading import Loaded

OVERLAP = 0.25  # of a chunk is seen by the next one too
LONGEST = 16  # times as long as wide, a picture is handed over whole


@dataclass(frozen=True)
class Picture:
    """A picture, and the part of it the model sees."""

    image: Image.Image
    box: Box


@dataclass(frozen=True)
class Chunk:
    """As much of a text as the model takes at once.

    `positions` are those of its word pieces in the encoding, `places` theirs in the whole of each text.
    """

    encoding: dict[str, list[int]]
    positions: tuple[int, ...]
    places: tuple[tuple[int, int], ...]
    layout: WordPieces
    is_truncated: bool = False


@dataclass(frozen=True)
class Piece:
    """As much of an example as the model takes at once: what it sees, what it reads, what it has written so far."""

    example: int
    picture: Picture | None = None
    regions: Regions | None = None
    chunk: Chunk | None = None
    written: Chunk | None = None


def model_inputs(subject: Loaded, pieces: Sequence[Piece]) -> Inputs:
    """Pieces as the model takes them, on its device and in its dtype."""
    place = next(subject.model.parameters())
    return {
        name: value.to(place.device, place.dtype if value.is_floating_point() else value.dtype)
        for name, value in collated(subject, pieces).items()
    }


def collated(subject: Loaded, pieces: Sequence[Piece]) -> Inputs:
    """Pieces as the model takes them."""
    inputs: Inputs = {}
    chunks = [piece.chunk for piece in pieces if piece.chunk is not None]
    if chunks:
        encodings = [chunk.encoding for chunk in chunks]
        inputs |= _padded(encodings, subject.tokenizer, _fixed_length(subject.model))
    pictures = [_shortened(piece.picture.image, subject.image_processor) for piece in pieces if piece.picture]
    if pictures:
        made = subject.image_processor(images=pictures, return_tensors="pt")
        takes = inspect.signature(subject.model.forward).parameters
        inputs |= {name: made[name] for name in ("pixel_values", "pixel_mask") if name in made and name in takes}
    regions = [piece.regions for piece in pieces if piece.regions is not None]
    if regions:
        inputs |= _region_inputs(regions, subject.model)
    written = [piece.written.encoding for piece in pieces if piece.written is not None]
    if written:
        made = _padded(written, subject.tokenizer)
        inputs |= {f"decoder_{name}": made[name] for name in ("input_ids", "attention_mask")}
    return inputs


def _fixed_length(model: nn.Module) -> int | None:
    """The length that every text is padded to, for SigLIP, which reads its last position, padding or not."""
    config = config_of(model)
    is_fixed = getattr(config, "model_type", "") in ("siglip", "siglip2")
    return config.text_config.max_position_embeddings if is_fixed else None


def _padded(chunks: list[dict[str, list[int]]], tokenizer: Any, length: int | None = None) -> Inputs:
    """Texts padded on the right, where padding moves no class token; to one length without a mask, if it is given."""
    if length is not None:
        ids = [chunk["input_ids"] + [tokenizer.pad_token_id] * (length - len(chunk["input_ids"])) for chunk in chunks]
        return {"input_ids": torch.tensor(ids)}
    if len({len(chunk["input_ids"]) for chunk in chunks}) == 1:
        return {name: torch.tensor([chunk[name] for chunk in chunks]) for name in chunks[0]}
    if tokenizer.pad_token is None:
        raise WhyformerError(
            "The tokenizer has no padding token, so texts of different lengths cannot be explained together: "
            "set tokenizer.pad_token, or use batch_size=1."
        )
    return dict(tokenizer.pad(chunks, padding_side="right", return_tensors="pt"))


def _region_inputs(regions: Sequence[Regions], model: nn.Module) -> Inputs:
    """Features and boxes, fewer regions filled up with masked ones."""
    config = config_of(model)
    width = getattr(config, "visual_feat_dim", None) or getattr(config, "visual_embedding_dim", None)
    wrong = next((part.features.shape[1] for part in regions if part.features.shape[1] != width), None)
    if wrong is not None:
        raise WhyformerError(
            f"The regions have {wrong} features each, this model reads {width}: use its own detector's."
        )
    most = max(len(part.boxes) for part in regions)
    features, boxes = (
        torch.stack([F.pad(torch.as_tensor(x, dtype=torch.float32), (0, 0, 0, most - len(x))) for x in parts])
        for parts in ([part.features for part in regions], [part.shares for part in regions])
    )
    mask = torch.stack([(torch.arange(most) < len(part.boxes)).long() for part in regions])
    if "visual_feats" in inspect.signature(model.forward).parameters:
        return {"visual_feats": features, "visual_pos": boxes, "visual_attention_mask": mask}
    types = torch.ones_like(mask)
    return {"visual_embeds": features, "visual_attention_mask": mask, "visual_token_type_ids": types}


def chunks_of(text: Text, tokenizer: Any, limit: int | None, *, truncate: bool = False) -> list[Chunk]:
    """The text cut into overlapping pieces of at most `limit` tokens; the first alone with `truncate`.

    Of a pair, the text with more tokens is cut, and each chunk holds the whole of the other.
    """
    if not getattr(tokenizer, "is_fast", False):
        raise WhyformerError(f"{type(tokenizer).__name__} has no character offsets: a fast tokenizer is needed.")
    texts = (text,) if isinstance(text, str) else text
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
    chunks = [
        _chunk(encoded, number, texts, tokenizer, _Cut(cut, number * (room - overlap), is_long and truncate))
        for number in range(1 if truncate else count)
    ]
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
    else:
        stated = (getattr(config_of(model), name, None) for name in ("max_position_embeddings", "n_positions"))
        limits.extend(limit for limit in stated if isinstance(limit, int) and limit > 0)
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
        elif "longest_edge" in resized:
            scale_x = scale_y = resized["longest_edge"] / max(width, height)
        else:
            scale_x, scale_y = resized["width"] / width, resized["height"] / height
    kept_width, kept_height = crop["width"] / scale_x, crop["height"] / scale_y
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


@dataclass(frozen=True)
class _Cut:
    """Which of the texts is cut, where in it a chunk begins, and whether the rest was asked to be left out."""

    segment: int
    start: int
    is_final: bool


def _chunk(encoded: Any, number: int, texts: tuple[str, ...], tokenizer: Any, cut: _Cut) -> Chunk:
    piece = encoded.encodings[number]
    positions = tuple(position for position, special in enumerate(piece.special_tokens_mask) if not special)
    segments = tuple(piece.sequence_ids[position] or 0 for position in positions)
    layout = WordPieces(
        texts=texts,
        tokens=tuple(piece.tokens[position] for position in positions),
        segments=segments,
        offsets=tuple(piece.offsets[position] for position in positions),
    )
    counted: Counter[int] = Counter({cut.segment: cut.start})
    places = []
    for segment in segments:
        places.append((segment, counted[segment]))
        counted[segment] += 1
    names = [name for name in tokenizer.model_input_names if name in encoded]
    encoding = {name: list(encoded[name][number]) for name in names}
    return Chunk(encoding, positions, tuple(places), layout, cut.is_final)

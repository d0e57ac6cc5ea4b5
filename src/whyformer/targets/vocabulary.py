"""Targets in a model's vocabulary: next tokens, and words at masks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from whyformer.errors import WhyformerError
from whyformer.inputs.chunks import Vocabulary
from whyformer.inputs.encode import EncodedExample, encode
from whyformer.inputs.read import text_of
from whyformer.models.loading import LoadedModel
from whyformer.targets.head_target import HeadTarget, Term, named, output_of, output_tensor, sides, sum_of
from whyformer.targets.scores import Contrast, PlacedLabel, label_index
from whyformer.targets.token_classification import CHUNK_NOTE


def token_of(label: Any, loaded_model: LoadedModel) -> Any:
    """The token of a word, preferably with a leading space; anything else is returned unchanged."""
    if not isinstance(label, str) or label == "predicted":
        return label
    tokenizer = loaded_model.tokenizer
    for text in (f" {label}", label):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        if len(ids) == 1 and ids[0] != tokenizer.unk_token_id:
            return ids[0]
    ids = tokenizer(label, add_special_tokens=False)["input_ids"]
    if ids == [tokenizer.unk_token_id]:
        raise WhyformerError(f"{label!r} is not in the vocabulary of {loaded_model.name}: choose another word.")
    encoded = ", ".join(repr(Vocabulary(tokenizer)[index]) for index in ids[:6])
    raise WhyformerError(
        f"{label!r} is not one token of {loaded_model.name} but several ({encoded}): choose the first."
    )


def mask_target(
    loaded_model: LoadedModel, number: int, example: Any, target: Any, *, truncate: bool
) -> list[HeadTarget]:
    """The target for a word at a mask, by default the first; "predicted" is the most likely word."""
    encoded = _encode(loaded_model, example, truncate=truncate)
    masks = _masks(encoded, loaded_model)
    chosen = target.place if isinstance(target, PlacedLabel) else 0
    label = target.label if isinstance(target, PlacedLabel) else target
    if type(chosen) is not int or not 0 <= chosen < len(masks):
        raise WhyformerError(f"No mask {chosen!r}: the text has {len(masks)}, counted from 0.")
    chunk, position = masks[chosen]
    shares = output_tensor(output_of(loaded_model, encoded[chunk]), "logits", loaded_model)[position].softmax(dim=0)
    vocabulary = Vocabulary(loaded_model.tokenizer)
    tokens = [
        int(shares.argmax()) if side == "predicted" else label_index(token_of(side, loaded_model), {}, len(shares))
        for side, _ in sides(label)
    ]
    signs = [sign for _, sign in sides(label)]
    terms = [Term("logits", (position, token), sign) for token, sign in zip(tokens, signs, strict=True)]
    mask = loaded_model.tokenizer.mask_token + (f" {chosen}" if len(masks) > 1 else "")
    notes = []
    if len(masks) > 1 and not isinstance(target, PlacedLabel):
        notes.append(f"The text has {len(masks)} masks: mask 0, the first, is explained.")
    if len(encoded) > 1:
        notes.append(CHUNK_NOTE.format(chunk + 1, len(encoded)))
    return [
        HeadTarget(
            replace(encoded[chunk], example=number),
            sum_of(terms),
            f"{mask} → {named([repr(vocabulary[token].strip()) for token in tokens])}",
            None if isinstance(label, Contrast) else float(shares[tokens[0]]),
            tuple(notes),
        )
    ]


def mask_targets(loaded_model: LoadedModel, example: Any, *, truncate: bool) -> list[PlacedLabel]:
    """The most likely word at every mask."""
    encoded = _encode(loaded_model, example, truncate=truncate)
    return [PlacedLabel(number) for number in range(len(_masks(encoded, loaded_model)))]


def _encode(loaded_model: LoadedModel, example: Any, *, truncate: bool) -> list[EncodedExample]:
    mask, text = loaded_model.tokenizer.mask_token, text_of(example)
    if mask is None:
        raise WhyformerError(f"The tokenizer of {loaded_model.name} has no mask token: set tokenizer.mask_token.")
    if not any(mask in part for part in ((text,) if isinstance(text, str) else text)):
        raise WhyformerError(
            f"The text has no {mask}: write it where {loaded_model.name} should put a word, such as 'A great {mask}.'."
        )
    return encode(loaded_model, [example], truncate=truncate)


def _masks(encoded: list[EncodedExample], loaded_model: LoadedModel) -> list[tuple[int, int]]:
    """For each mask, the chunk that contains it as far from its ends as possible, and its position there."""
    by_place: dict[tuple[int, int], tuple[int, int, int]] = {}
    for number, one in enumerate(encoded):
        assert one.chunk is not None
        for index, (place, position) in enumerate(zip(one.chunk.places, one.chunk.positions, strict=True)):
            if one.chunk.encoding["input_ids"][position] == loaded_model.tokenizer.mask_token_id:
                margin = min(index, len(one.chunk.positions) - 1 - index)
                by_place[place] = max(by_place.get(place, (-1, 0, 0)), (margin, number, position))
    if not by_place:
        raise WhyformerError(
            f"No {loaded_model.tokenizer.mask_token} is in the part of the text that fits the model: shorten it."
        )
    return [by_place[place][1:] for place in sorted(by_place)]

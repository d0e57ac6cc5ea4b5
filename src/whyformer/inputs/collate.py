"""Examples made into what a model takes, each with the layout its scores will be shown on."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

from whyformer.axes import Inputs
from whyformer.errors import WhyformerError, misfits_in_one_line
from whyformer.inputs.encode import EncodedExample
from whyformer.inputs.pictured import picture_inputs
from whyformer.inputs.read import Regions
from whyformer.inputs.sound import Sound
from whyformer.models.families import FAMILIES
from whyformer.models.loading import LoadedModel
from whyformer.models.modalities import SOUND_INPUTS
from whyformer.models.structure import config_of, device_of, dtype_of, vocabulary_size

LONGEST = 16  # times as long as wide, a picture is handed over whole


def model_inputs(loaded_model: LoadedModel, encoded: Sequence[EncodedExample]) -> Inputs:
    """Pieces as the model takes them, on its device and in its dtype."""
    with misfits_in_one_line(f"The processor of {loaded_model.name}"):
        return on_device(loaded_model, collate(loaded_model, encoded))


def on_device(loaded_model: LoadedModel, inputs: Inputs) -> Inputs:
    """Tensors on the model's device, numbers that are no indices in its dtype."""
    device, dtype = device_of(loaded_model.model), dtype_of(loaded_model.model)
    return {
        name: value.to(device, dtype if value.is_floating_point() else value.dtype) for name, value in inputs.items()
    }


def collate(loaded_model: LoadedModel, encoded: Sequence[EncodedExample]) -> Inputs:
    """Pieces as the model takes them."""
    inputs: Inputs = {}
    takes = inspect.signature(loaded_model.model.forward).parameters
    chunks = [one.chunk for one in encoded if one.chunk is not None]
    if chunks:
        encodings = [chunk.encoding for chunk in chunks]
        check_ids(loaded_model, [encoding["input_ids"] for encoding in encodings])
        length = _fixed_length(loaded_model.model)
        if length is None:
            inputs |= _padded(encodings, loaded_model.tokenizer)
        else:
            inputs |= _filled_up(encodings, loaded_model, length)
        takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in takes.values())
        if "token_type_ids" not in takes and not takes_any:  # tokenizers of transformers 4 make them unasked
            inputs.pop("token_type_ids", None)
        if loaded_model.task.answer == "choice":  # [example, choice, token]: one choice is read at a time
            inputs = {name: value[:, None] for name, value in inputs.items()}
    pictures = [_shortened(one.picture.image, loaded_model.image_processor) for one in encoded if one.picture]
    if pictures:
        batch = loaded_model.image_processor(images=pictures, return_tensors="pt")
        inputs |= {name: batch[name] for name in ("pixel_values", "pixel_mask") if name in batch and name in takes}
    inputs |= _prompt_inputs(encoded, inputs)
    pictured = [one.pictured for one in encoded if one.pictured is not None]
    if pictured:
        inputs |= picture_inputs(pictured)
    sounds = [one.hearing.sound for one in encoded if one.hearing is not None]
    if sounds:
        inputs |= sound_inputs(sounds, loaded_model)
    regions = [one.regions for one in encoded if one.regions is not None]
    if regions:
        inputs |= _region_inputs(regions, loaded_model.model)
    written = [one.written.encoding for one in encoded if one.written is not None]
    if written:
        padded = _padded(written, loaded_model.tokenizer)
        inputs |= {f"decoder_{name}": padded[name] for name in ("input_ids", "attention_mask")}
    return inputs


def check_ids(loaded_model: LoadedModel, rows: Iterable[Sequence[int]]) -> None:
    """Refuse tokens that the model has no embedding for, as those added to a tokenizer alone."""
    known = vocabulary_size(loaded_model.model)
    largest = max((max(row, default=0) for row in rows), default=0)
    if known is not None and largest >= known:
        name = loaded_model.tokenizer.convert_ids_to_tokens(largest)
        raise WhyformerError(
            f"The token {name!r} has the id {largest}, and {loaded_model.name} embeds {known} tokens: give the "
            "tokenizer that belongs to the model, or call model.resize_token_embeddings(len(tokenizer))."
        )


def _prompt_inputs(encoded: Sequence[EncodedExample], inputs: Inputs) -> Inputs:
    """Points, or boxes, in the pixels that a picture is made into: it lies at the top left of a square."""
    places: list[list[float]] = []
    for one in encoded:
        if one.prompt is not None and one.picture is not None:
            scale = inputs["pixel_values"].shape[-1] / max(one.picture.image.size)
            sides = [int(side * scale + 0.5) for side in one.picture.image.size]
            places.append([share * side for share, side in zip(one.prompt, sides * 2, strict=False)])
    if len({len(place) for place in places}) > 1:
        raise WhyformerError("Points and boxes cannot be explained together: give those of one kind, or batch_size=1.")
    if not places:
        return {}
    prompts = torch.tensor(places)[:, None]
    return {"input_boxes": prompts} if prompts.shape[-1] == 4 else {"input_points": prompts[:, None]}


def _fixed_length(model: nn.Module) -> int | None:
    """The length that every text is padded to, where the model's family says so."""
    config = config_of(model)
    row = FAMILIES.get(getattr(config, "model_type", ""))
    return config.text_config.max_position_embeddings if row is not None and row.pads_to_limit else None


def _filled_up(chunks: list[dict[str, list[int]]], loaded_model: LoadedModel, length: int) -> Inputs:
    """Texts padded on the right to one length, with the mask that the family's row names, if any."""
    rows, padding = [chunk["input_ids"] for chunk in chunks], loaded_model.tokenizer.pad_token_id
    ids = {"input_ids": torch.tensor([row + [padding] * (length - len(row)) for row in rows])}
    masks = {s.mask for s in FAMILIES[config_of(loaded_model.model).model_type].streams if s.name == "text" and s.mask}
    return ids | {mask: torch.tensor([[1] * len(row) + [0] * (length - len(row)) for row in rows]) for mask in masks}


def _padded(chunks: list[dict[str, list[int]]], tokenizer: Any) -> Inputs:
    """Texts padded on the right, where padding moves no class token."""
    if len({len(chunk["input_ids"]) for chunk in chunks}) == 1:
        return {name: torch.tensor([chunk[name] for chunk in chunks]) for name in chunks[0]}
    if tokenizer.pad_token is None:
        raise WhyformerError(
            "The tokenizer has no padding token, so texts of different lengths cannot be explained together: "
            "set tokenizer.pad_token, or use batch_size=1."
        )
    known = [{name: chunk[name] for name in chunk if name in tokenizer.model_input_names} for chunk in chunks]
    padded = dict(tokenizer.pad(known, padding_side="right", return_tensors="pt"))
    longest = padded["input_ids"].shape[1]
    for name in chunks[0].keys() - padded.keys():  # a processor's own, which its tokenizer does not know
        padded[name] = torch.tensor([chunk[name] + [0] * (longest - len(chunk[name])) for chunk in chunks])
    return padded


def sound_inputs(sounds: Sequence[Sound], loaded_model: LoadedModel) -> Inputs:
    """What the feature extractor makes of sounds, which are equally long where it does not fill them up itself."""
    samples = [sound.samples for sound in sounds]
    batch = loaded_model.feature_extractor(samples, sampling_rate=sounds[0].rate, return_tensors="pt")
    return {name: batch[name] for name in (*SOUND_INPUTS, "attention_mask") if name in batch}


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

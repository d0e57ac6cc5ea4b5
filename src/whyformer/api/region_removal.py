"""Explain responses about a picture by removing regions of it: patches, superpixels or boxes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from whyformer.api.attribute import MethodChoice
from whyformer.api.exchange_scores import ScoringEngine
from whyformer.api.response_case import ResponseCase, response_of
from whyformer.api.source_methods import SourceQuestion
from whyformer.errors import UnsupportedModel, WhyformerError
from whyformer.inputs.image_prompt import ImagePrompt
from whyformer.inputs.modality import known_modalities
from whyformer.models.loading import LoadedModel
from whyformer.results.response import Response

RegionKind = Literal["patch", "superpixel"]
PictureRegions = RegionKind | Sequence[Sequence[float]]  # or boxes: left, top, right, bottom in pixels
UNIT_KINDS = {"patch": "token", "superpixel": "superpixel"}


def explain_removals(
    ask: SourceQuestion,
    loaded_model: LoadedModel,
    cases: Sequence[ResponseCase],
    regions: PictureRegions | None,
    *,
    batch_size: int | None = None,
    progress: bool = False,
) -> list[Response]:
    """Explain each case by removal: of sources of a text, or of regions of a picture."""
    usage: dict[str, Any] = {"batch_size": batch_size, "progress": progress}
    chosen: PictureRegions = "superpixel" if regions is None else regions
    return [
        explain_by_regions(ask, loaded_model, case, chosen, **usage) if has_more_than_words(case) else ask(case)
        for case in cases
    ]


def explain_by_regions(
    ask: SourceQuestion,
    loaded_model: LoadedModel,
    case: ResponseCase,
    regions: PictureRegions = "superpixel",
    *,
    batch_size: int | None = None,
    progress: bool = False,
) -> Response:
    """Explain a response about one picture by the model's answers without regions of it, and without words.

    Removed regions have the mean colour; removed words are hidden.
    """
    method, options = ask.method, ask.options
    pictured = case.reply.exchange.image_prompt
    if pictured is None:
        raise WhyformerError(
            "Removal methods remove sources of a text or regions of a picture, and this prompt is a "
            f"{known_modalities()[loaded_model.task.modality].noun}: use a method that reads the model, such as "
            "generic_attention."
        )
    if "example" not in method.kinds:
        raise WhyformerError(
            f"{method.name} removes sources of a text, and this prompt has a picture: use kernel_shap, "
            "mask_regression, lime, rise or occlusion, which remove regions of it too."
        )
    chosen = UNIT_KINDS.get(regions) if isinstance(regions, str) else region_units(pictured, regions)
    if chosen is None:
        raise WhyformerError(
            f"regions={regions!r}: 'patch', 'superpixel', or boxes (left, top, right, bottom) in pixels of the picture."
        )
    choice = MethodChoice(method, "gradient", {**options, "units": {"text": "token", "image": chosen}})
    engine = ScoringEngine(loaded_model, choice, batch_size=batch_size, progress=progress)
    scores = engine.explain(case.exchanges)
    response = response_of(case, scores, loaded_model, choice, aggregate=ask.aggregate, sinks="keep")
    plain = regions if isinstance(regions, str) else [list(map(float, box)) for box in regions]
    return replace(response, options={**response.options, "units": "token", "regions": plain})


def check_regions(regions: PictureRegions | None, cases: Sequence[ResponseCase], *, is_removal: bool) -> None:
    """Check that regions are given only for a removal method on prompts with pictures."""
    if regions is not None and not (is_removal and all(case.reply.exchange.image_prompt for case in cases)):
        raise WhyformerError(
            f"regions={regions!r} has no effect here: it is for methods that remove parts of a picture, such as "
            "kernel_shap."
        )


def has_more_than_words(case: ResponseCase) -> bool:
    """Whether the prompt has more than words."""
    return not case.reply.exchange.is_text


def region_units(pictured: ImagePrompt, boxes: Sequence[Sequence[float]]) -> Tensor:
    """The box of each pixel that the model reads [1, row, column]; -1 outside all. Of two, the later one counts."""
    pixels = pictured.pixels["pixel_values"]
    if pixels.dim() != 4 or len(pictured.pictures) != 1:
        raise UnsupportedModel("Boxes can only be removed from a single whole picture.")
    if not boxes:
        raise WhyformerError("regions=[]: give at least one box (left, top, right, bottom).")
    (picture,), ((seen, *_), *_) = pictured.pictures, pictured.boxes
    height, width = pixels.shape[-2:]
    units = torch.full((1, height, width), -1)
    # Where the centre of each pixel that the model reads lies in the picture.
    across = (seen[0] + (seen[2] - seen[0]) * (torch.arange(width) + 0.5) / width) * picture.width
    down = (seen[1] + (seen[3] - seen[1]) * (torch.arange(height) + 0.5) / height) * picture.height
    for number, box in enumerate(boxes):
        if len(box) != 4 or not (box[0] < box[2] and box[1] < box[3]):
            raise WhyformerError(f"regions: {tuple(box)} is not a box (left, top, right, bottom) in pixels.")
        left, top, right, bottom = box
        inside = ((down >= top) & (down < bottom))[:, None] & ((across >= left) & (across < right))
        if not bool(inside.any()):
            raise WhyformerError(f"regions: the box {tuple(box)} covers no pixel that the model reads.")
        units[0, inside] = number
    return units

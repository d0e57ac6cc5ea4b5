"""Targets of segmentation models: a pixel, a region, or an instance."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from whyformer.axes import ExampleScores
from whyformer.errors import WhyformerError
from whyformer.targets.scores import Contrast, Detection, Pixel, Region, Score, label_index, label_name, one_each

NamedSegment = tuple[Score, tuple[int, ...], tuple[str, ...]]


_MASKS = ("masks_queries_logits", "pred_masks")


def segments(output: Any) -> bool:
    """Whether the output is a segmentation: logits [example, label, row, column], or masks of queries."""
    logits = getattr(output, "logits", None)
    has_logits = isinstance(logits, Tensor) and logits.dim() == 4
    return has_logits or any(isinstance(getattr(output, name, None), Tensor) for name in _MASKS)


def pixel_logits(output: Any) -> Tensor:
    """Logits of each label at each pixel of the model's grid [example, label, row, column].

    For a model with queries, the logarithm of the sum over queries of label probability times pixel probability, as
    such models combine their masks.
    """
    if isinstance(getattr(output, "masks_queries_logits", None), Tensor):
        shares = output.class_queries_logits.softmax(dim=-1)[..., :-1]
        masks = output.masks_queries_logits.sigmoid()
        return torch.einsum("bql,bqrc->blrc", shares, masks).clamp(min=torch.finfo(masks.dtype).tiny).log()
    logits: Tensor = output.logits
    return logits


def resolve_area(target: Any, output: Any, labels: Mapping[int, str]) -> NamedSegment:
    """Resolve a pixel, a region or an instance to its score and each example's label.

    A label alone denotes the region where the model predicts it; "predicted" is the label with the largest region.
    """
    if isinstance(getattr(output, "pred_masks", None), Tensor):
        return _resolve_mask(target, output)
    if isinstance(target, Detection):
        return _resolve_instance(target, output, labels)
    logits = pixel_logits(output).detach()
    batch, count, *size = logits.shape
    if isinstance(target, Contrast):
        raise WhyformerError("A contrast is not supported for segmentation: give one label.")
    label = target.label if isinstance(target, (Pixel, Region)) else target
    seen = logits.argmax(dim=1)
    if isinstance(target, Pixel):
        row, column = place_of(target, (size[0], size[1]))
        best = seen[:, row, column].tolist()
    else:
        best = [int(part.flatten().bincount(minlength=count).argmax()) for part in seen]
    indices = tuple(
        best[number] if one == "predicted" else label_index(one, labels, count)
        for number, one in enumerate(one_each(label, batch))
    )
    if isinstance(target, Pixel):
        inside = torch.zeros_like(seen, dtype=torch.bool)
        inside[:, row, column] = True
    else:
        chosen = torch.tensor(indices, device=seen.device)[:, None, None]
        inside = _within(target if isinstance(target, Region) else Region(), seen == chosen, indices, labels)
    names = tuple(area_name(label_name(index, labels), target) for index in indices)
    return _mean_logit(torch.tensor(indices), inside), indices, names


def area_name(label: str, target: Any) -> str:
    """Name a target by its label, and its point or box in shares of the picture's width and height."""
    if isinstance(target, Pixel):
        return f"{label} at ({target.x:.3g}, {target.y:.3g})"
    if isinstance(target, Region) and target.box is not None:
        return f"{label} in ({', '.join(f'{side:.3g}' for side in target.box)})"
    return label


def _resolve_mask(target: Any, output: Any) -> NamedSegment:
    """Resolve the mask of a prompt, the best by its predicted IoU: all of it, a pixel, or a box."""
    if not (target == "predicted" or isinstance(target, (Pixel, Region))):
        raise WhyformerError("A mask has no labels: give a pixel or a box, or leave the target out.")
    if output.pred_masks.shape[1] != 1:
        raise WhyformerError(f"{output.pred_masks.shape[1]} prompts for a picture: give one for each picture.")
    best = output.iou_scores[:, 0].argmax(dim=1)

    def logits_of(output: Any) -> Tensor:
        logits: Tensor = output.pred_masks[torch.arange(len(best)), 0, best]
        return logits

    seen = logits_of(output).detach() > 0
    if isinstance(target, Pixel):
        row, column = place_of(target, (seen.shape[1], seen.shape[2]))
        inside = torch.zeros_like(seen)
        inside[:, row, column] = True
    else:
        inside = _within(target if isinstance(target, Region) else Region(), seen, (0,) * len(seen), {0: "The mask"})

    def score(output: Any) -> ExampleScores:
        mean: ExampleScores = (logits_of(output) * inside).sum(dim=(1, 2)) / inside.sum(dim=(1, 2))
        return mean

    return score, (0,) * len(seen), (area_name("mask", target),) * len(seen)


def _resolve_instance(target: Detection, output: Any, labels: Mapping[int, str]) -> NamedSegment:
    """Score of an instance query: label probability times pixel probability, averaged over its pixels."""
    if not isinstance(getattr(output, "masks_queries_logits", None), Tensor):
        raise WhyformerError("This model segments without queries: give a label, a pixel or a region.")
    masks, shares = output.masks_queries_logits.detach(), output.class_queries_logits.detach()[..., :-1]
    check_query(target.query, masks.shape[1])
    inside = masks[:, target.query] > 0
    if not bool(inside.flatten(1).any(dim=1).all()):
        raise WhyformerError(f"Query {target.query} has no pixel of this picture: choose another one.")
    best = shares[:, target.query].argmax(dim=1).tolist()
    is_open = target.label == "predicted"
    indices = tuple(one if is_open else label_index(target.label, labels, shares.shape[2]) for one in best)

    def score(output: Any) -> ExampleScores:
        names = output.class_queries_logits[:, target.query].log_softmax(dim=-1)
        pixels = logsigmoid(output.masks_queries_logits[:, target.query])
        share = (pixels * inside).sum(dim=(1, 2)) / inside.sum(dim=(1, 2))
        together: ExampleScores = names[torch.arange(len(names)), list(indices)] + share
        return together

    return score, indices, tuple(f"{label_name(index, labels)} by query {target.query}" for index in indices)


def check_query(query: int, count: int) -> None:
    """Raise if the object query is out of range."""
    if not 0 <= query < count:
        raise WhyformerError(f"No object query {query}: this model has {count}, 0 to {count - 1}.")


def place_of(pixel: Pixel, size: tuple[int, int]) -> tuple[int, int]:
    """Row and column of a pixel in a grid of this size, from shares of the picture's width and height."""
    rows, columns = size
    return min(rows - 1, math.floor(pixel.y * rows)), min(columns - 1, math.floor(pixel.x * columns))


def _within(area: Region, seen: Tensor, indices: tuple[int, ...], labels: Mapping[int, str]) -> Tensor:
    """Pixels where the label is predicted, within the box if given; the whole box if it is not predicted there."""
    rows, columns = seen.shape[1:]
    box = torch.ones(rows, columns, dtype=torch.bool, device=seen.device)
    if area.box is not None:
        left, top, right, bottom = area.box
        down = (torch.arange(rows, device=seen.device) + 0.5) / rows
        across = (torch.arange(columns, device=seen.device) + 0.5) / columns
        box = ((top <= down) & (down < bottom))[:, None] & ((left <= across) & (across < right))
        if not bool(box.any()):
            raise WhyformerError(f"box={area.box} contains no pixel of the model's {rows}×{columns} grid: enlarge it.")
        return box.expand_as(seen)
    missing = next((index for index, part in zip(indices, seen, strict=True) if not bool(part.any())), None)
    if missing is not None:
        raise WhyformerError(
            f"{label_name(missing, labels)!r} is not predicted anywhere in this picture: give a pixel or a box."
        )
    return seen


def _mean_logit(indices: Tensor, inside: Tensor) -> Score:
    def score(output: Any) -> ExampleScores:
        logits = pixel_logits(output)
        rows = logits[torch.arange(len(logits), device=logits.device), indices.to(logits.device)]
        within = inside.to(rows)
        mean: ExampleScores = (rows * within).sum(dim=(1, 2)) / within.sum(dim=(1, 2))
        return mean

    return score

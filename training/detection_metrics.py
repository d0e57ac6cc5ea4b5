"""How well a detector works: average precision, recall, and whether it still names an object that was removed."""

from typing import NamedTuple

import torch
from PIL import Image
from torch import Tensor
from transformers import DetrForObjectDetection, DetrImageProcessorPil

from detection_batches import STD, gather_rows, inputs_of
from whyformer.scenes import LABELS, SIDE, Scenes, clear_things, pictures

DETECTION_SCORE = 0.5  # from which an object counts as detected


class Detections(NamedTuple):
    """What each query detects; boxes are left, top, right, bottom, in pixels."""

    scores: Tensor  # scene, query
    labels: Tensor
    boxes: Tensor  # scene, query, 4


@torch.no_grad()
def detections(model: DetrForObjectDetection, processor: DetrImageProcessorPil, pixels: Tensor) -> Detections:
    """As a user would get them: pictures in, the processor's boxes out."""
    parts = []
    for part in pixels.split(250):
        inputs = processor(images_of(part), return_tensors="pt").to(model.device)
        sizes = [(SIDE, SIDE)] * len(part)
        results = processor.post_process_object_detection(model(**inputs), threshold=-1.0, target_sizes=sizes)
        parts += [(result["scores"], result["labels"], result["boxes"]) for result in results]
    return Detections(*(torch.stack(field) for field in zip(*parts, strict=True)))


def images_of(pixels: Tensor) -> list[Image.Image]:
    return [Image.fromarray(picture) for picture in pixels.permute(0, 2, 3, 1).cpu().numpy()]


def overlaps(detected: Detections, scenes: Scenes, boxes: Tensor) -> Tensor:
    """The IoU of each detection with the object of its label, of which a scene has at most one; 0 if it has none."""
    truth = boxes.new_zeros(len(scenes), len(LABELS), 4)
    scene, thing = scenes.is_object.nonzero(as_tuple=True)
    truth[scene, scenes.label[scene, thing]] = boxes[scene, thing]
    theirs = gather_rows(truth, detected.labels)
    start, end = torch.maximum(detected.boxes, theirs)[..., :2], torch.minimum(detected.boxes, theirs)[..., 2:]
    shared = (end - start).clamp(min=0).prod(dim=2)
    areas = sum((part[..., 2:] - part[..., :2]).prod(dim=2) for part in (detected.boxes, theirs))
    return shared / (areas - shared).clamp(min=1e-6)


def true_positives(detected: Detections, overlap: Tensor, at_least: float) -> Tensor:
    """Which detections hit their object; of several that do, the one with the highest score."""
    hits = overlap >= at_least
    rivals = (detected.labels[:, :, None] == detected.labels[:, None, :]) & hits[:, None, :]
    better = detected.scores[:, None, :] > detected.scores[:, :, None]
    return hits & ~(rivals & better).any(dim=2)


def average_precision(detected: Detections, is_correct: Tensor, labels: Tensor) -> float:
    """The area under the precision that is reached at each recall or beyond, for each label shown; their mean."""
    areas = []
    for label in labels[labels >= 0].unique():
        is_label = detected.labels == label
        order = detected.scores[is_label].argsort(descending=True)
        correct = is_correct[is_label][order].double()
        precision = correct.cumsum(0) / torch.arange(1, len(correct) + 1, device=correct.device)
        best_precision = precision.flip(0).cummax(0).values.flip(0) if len(correct) else precision
        areas.append(float((best_precision * correct).sum() / (labels == label).sum()))
    return sum(areas) / len(areas)


def detection_scores(
    model: DetrForObjectDetection, processor: DetrImageProcessorPil, scenes: Scenes
) -> dict[str, float]:
    """Average precision at two thresholds, recall, and the share of wrong detections."""
    drawn = pictures(scenes)
    detected = detections(model, processor, drawn.pixels)
    overlap = overlaps(detected, scenes, drawn.boxes)
    is_correct = true_positives(detected, overlap, 0.5)
    is_sure = detected.scores >= DETECTION_SCORE
    return {
        "ap50": average_precision(detected, is_correct, scenes.label),
        "ap75": average_precision(detected, true_positives(detected, overlap, 0.75), scenes.label),
        "objects_found": float((is_correct & is_sure).sum() / scenes.is_object.sum()),
        "detections_wrong": float((is_sure & ~is_correct).sum() / is_sure.sum().clamp(min=1)),
    }


def removal_scores(
    model: DetrForObjectDetection, processor: DetrImageProcessorPil, scenes: Scenes, rng: torch.Generator
) -> dict[str, float]:
    """How often a random object's label is detected anywhere in its scene, and still is once the object is cleared."""
    thing = torch.multinomial(scenes.is_object.float(), 1, generator=rng)
    label = scenes.label.gather(1, thing)
    without = clear_things(scenes, torch.zeros_like(scenes.is_object).scatter(1, thing, True))

    def detection_rate(scenes: Scenes) -> float:
        detected = detections(model, processor, pictures(scenes).pixels)
        return float(((detected.labels == label) & (detected.scores >= DETECTION_SCORE)).any(dim=1).float().mean())

    return {"label_found": detection_rate(scenes), "label_found_when_cleared": detection_rate(without)}


def pixel_difference(processor: DetrImageProcessorPil, pixels: Tensor) -> float:
    """The most by which training's pixels depart from the processor's, in steps of 1/255."""
    theirs = processor(images_of(pixels), return_tensors="pt")["pixel_values"]
    steps = (inputs_of(pixels).cpu() - theirs).abs() * 255 * torch.tensor(STD)[:, None, None]
    return float(steps.max())

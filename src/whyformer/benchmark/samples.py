"""Examples of data sets as the model at hand takes them, with the truth that protocols compare with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from whyformer.axes import WordTruth
from whyformer.data import (
    Document,
    Examples,
    Instances,
    Photo,
    VisualQuestion,
    coco_instances,
    eraser,
    imagenet,
    imagenet_segmentation,
    newsgroups,
    oxford_pets,
    photos,
    vqa,
)
from whyformer.data.examples import BACKGROUND, OBJECT
from whyformer.data.generated import Scene, scenes
from whyformer.errors import WhyformerError
from whyformer.extras import extra
from whyformer.models.loading import LoadedModel

READERS: dict[str, Callable[..., Examples[Any]]] = {
    "photos": photos,
    "imagenet": imagenet,
    "imagenet_segmentation": imagenet_segmentation,
    "oxford_pets": oxford_pets,
    "eraser": eraser,
    "newsgroups": newsgroups,
    "coco_instances": coco_instances,
    "vqa": vqa,
    "scenes": scenes,
}


@dataclass(frozen=True, eq=False)
class Thing:
    """An object that a detector should find: its label or category, and its mask in COCO's run lengths.

    Its area is in pixels; COCO's own is that of the outline, which need not be that of the mask.
    """

    label: str | int
    run_lengths: dict[str, Any]
    area: float
    is_crowd: bool = False


@dataclass(frozen=True, eq=False)
class Sample:
    """An example as `explain` takes it, the right answer, and the truth of what that depends on, where known.

    A dual encoder has `choices` of texts, of which the label is one. The truth is a mask of the picture's pixels, marks
    of its regions, and marks of the text's words.
    """

    name: str
    example: Any
    label: str | None = None
    choices: tuple[str, ...] = ()
    mask: np.ndarray | None = None
    regions: np.ndarray | None = None
    words: WordTruth | None = None
    answers: tuple[str, ...] = ()
    things: tuple[Thing, ...] = ()

    @property
    def picture(self) -> Image.Image | None:
        seen = self.example[0] if isinstance(self.example, tuple) else self.example
        seen = getattr(seen, "image", seen)
        return seen if isinstance(seen, Image.Image) else None


def is_detector(loaded_model: LoadedModel) -> bool:
    return type(loaded_model.model).__name__.endswith("ForObjectDetection")


def sample_of(read: Any, loaded_model: LoadedModel, labels: Mapping[str, str]) -> Sample:
    """What a reader gave, for this model; `labels` says what the data's labels are called there."""
    match read:
        case Photo(name=name, image=image, label=label, mask=mask):
            if not loaded_model.compares:
                return Sample(name, image, None if label is None else labels.get(label, label), mask=mask)
            if label is None or label not in labels:
                raise WhyformerError(f"{name!r}: no text for its label {label!r}. Write one under [labels].")
            place = list(labels).index(label)  # two labels may have the same text, as ImageNet's two cranes
            return Sample(name, (image, labels[label]), str(place), tuple(labels.values()), mask)
        case Document(name=name, text=text, label=label, rationale=rationale):
            return Sample(name, text, labels.get(label, label), words=rationale)
        case Instances(name=name, image=image, annotations=annotations):
            things = tuple(_thing(annotation, image.size) for annotation in annotations)
            return Sample(name, image, things=things)
        case VisualQuestion(name=name, question=question, answers=answers, regions=regions):
            if regions is None:
                raise WhyformerError(f"Question {name}: name the folder of the pictures' regions, `regions`.")
            return Sample(name, (regions, question), answers=answers)
        case Scene():
            return _of_scene(read, loaded_model)
        case unknown:
            raise WhyformerError(f"A {type(unknown).__name__} is nothing that {loaded_model.name} can be measured on.")


def _of_scene(scene: Scene, loaded_model: LoadedModel) -> Sample:
    if loaded_model.compares:
        said = scene.caption
        mask = np.where(scene.pixels(said.things), OBJECT, BACKGROUND).astype(np.uint8)
        return Sample(
            scene.name, (scene.image, said.text), said.text, (said.text, *scene.others), mask, words=said.words
        )
    if loaded_model.sees_regions:
        said = scene.question
        answers = (scene.answer,) * 10
        return Sample(
            scene.name,
            (scene.regions, said.text),
            scene.answer,
            regions=said.things,
            words=said.words,
            answers=answers,
        )
    if is_detector(loaded_model):
        kinds = [(number, label) for number, label in enumerate(scene.labels) if label]
        masks = [(label, scene.owner == number) for number, label in kinds]
        things = tuple(Thing(label, _run_lengths(mask), float(mask.sum())) for label, mask in masks if mask.any())
        label, first = next((label, mask) for label, mask in masks if mask.any())
        mask = np.where(first, OBJECT, BACKGROUND).astype(np.uint8)
        return Sample(scene.name, scene.image, label, mask=mask, things=things)
    raise WhyformerError(f"Scenes are for detectors, dual encoders and models of regions, not for {loaded_model.name}.")


def _thing(annotation: Mapping[str, Any], size: tuple[int, int]) -> Thing:
    rle = extra("pycocotools.mask")
    outline, (width, height) = annotation["segmentation"], size
    if isinstance(outline, list):
        found = rle.merge(rle.frPyObjects(outline, height, width))
    else:
        found = rle.frPyObjects(outline, height, width) if isinstance(outline["counts"], list) else outline
    area = float(annotation.get("area") or rle.area(found))
    return Thing(annotation["category_id"], _plain(found), area, bool(annotation.get("iscrowd")))


def _run_lengths(mask: np.ndarray) -> dict[str, Any]:
    return _plain(extra("pycocotools.mask").encode(np.asfortranarray(mask.astype(np.uint8))))


def _plain(found: Mapping[str, Any]) -> dict[str, Any]:
    counts = found["counts"]
    return {"size": list(found["size"]), "counts": counts.decode() if isinstance(counts, bytes) else counts}

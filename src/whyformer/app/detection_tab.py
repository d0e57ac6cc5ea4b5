"""The tab Detection: objects found in a picture, and why."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from whyformer.api.explain import explain
from whyformer.app.code import explain_code
from whyformer.app.label_tabs import DEFAULT_LABEL
from whyformer.app.setup import Setup
from whyformer.app.tab_view import TabView, detection_html, explanation_writers, percents
from whyformer.app.uploads import read_upload
from whyformer.app.work import Work
from whyformer.errors import WhyformerError
from whyformer.inputs.collate import model_inputs
from whyformer.inputs.encode import encode
from whyformer.models.loading import LoadedModel
from whyformer.models.structure import labels_of
from whyformer.render.text_spans import readable
from whyformer.render.view import data_uri
from whyformer.targets.resolve import object_probabilities
from whyformer.targets.scores import detection

LIKELY_OBJECT, DETECTION_WIDTH, DETECTION_LEAST_WIDTH = 0.5, 640, 480


@dataclass(frozen=True)
class Find:
    """A detected object: its query, label, probability, and box in percent of the picture."""

    query: int
    label: str
    probability: float
    left: float
    top: float
    width: float
    height: float

    @property
    def title(self) -> str:
        return f"{readable(self.label)} {self.probability:.2f}"


def explain_detection(
    work: Work, setup: Setup, path: str | None, model: str | None, query: Any = None, method: str = DEFAULT_LABEL
) -> TabView:
    """The picture with all detected objects, and the explanation of this query, by default the most likely."""
    picture = read_upload(path, setup.limits)
    name, loaded_model = setup.models.name(model, "Detection"), setup.models.open(model, "Detection")
    objects = finds(picture, loaded_model)
    if not objects:
        raise WhyformerError(f"{loaded_model.name} finds no objects in this picture: try another, or another model.")
    chosen = next((find for find in objects if find.query == query), objects[0])
    way = None if method == DEFAULT_LABEL else method
    work.step(0, 1, f"{method} on {loaded_model.name}")
    explanation = explain(picture, loaded_model, detection(chosen.query, chosen.label), way)
    file = Path(path or "").name
    return TabView(
        detection_html(data_uri(_display(picture)), objects, chosen.query, explanation),
        explain_code(path, file, file, name, chosen.label, None, [way], query=chosen.query),
        explanation_writers([explanation]),
        choices=[(find.title, find.query) for find in objects],
        choice=chosen.query,
        audit=explanation.save,
    )


@torch.no_grad()
def finds(picture: Image.Image, loaded_model: LoadedModel) -> list[Find]:
    """Objects with a probability above one half, most likely first."""
    (encoded,) = encode(loaded_model, [picture])
    output = loaded_model.model(**model_inputs(loaded_model, [encoded]))
    labels = labels_of(loaded_model.model)
    shares = object_probabilities(output.logits[0].float(), labels)
    first, top, last, bottom = encoded.parts["image"].box
    objects = []
    for query, (share, label) in enumerate(zip(*map(torch.Tensor.tolist, shares.max(dim=1)), strict=True)):
        if share < LIKELY_OBJECT:
            continue
        x, y, width, height = output.pred_boxes[0, query].tolist()
        left, right = (first + (x + side * width / 2) * (last - first) for side in (-1, 1))
        above, below = (top + (y + side * height / 2) * (bottom - top) for side in (-1, 1))
        objects.append(Find(query, labels[label], share, *percents(picture.size, (left, above, right, below))))
    return sorted(objects, key=lambda find: -find.probability)


def _display(picture: Image.Image) -> Image.Image:
    """The picture at a size at which boxes can be clicked; a tiny one keeps its pixels as squares."""
    ratio = min(DETECTION_WIDTH, max(DETECTION_LEAST_WIDTH, *picture.size)) / max(picture.size)
    size = (max(1, round(picture.width * ratio)), max(1, round(picture.height * ratio)))
    return picture.resize(size, Image.Resampling.NEAREST if ratio > 3 else Image.Resampling.LANCZOS)

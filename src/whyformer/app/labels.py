"""The labels a model predicts, with probabilities, before anything is explained."""

from __future__ import annotations

from typing import Any

import torch

from whyformer.inputs.collate import model_inputs
from whyformer.inputs.encode import encode
from whyformer.models.loading import LoadedModel
from whyformer.models.structure import labels_of
from whyformer.render.text_spans import readable
from whyformer.targets.candidate_encoding import answer_to_all, encode_texts
from whyformer.targets.scores import logits_of


@torch.no_grad()
def label_probabilities(example: Any, loaded_model: LoadedModel) -> list[tuple[str, float]]:
    """Every label of the model with its probability, most likely first; for a long text the mean over its chunks."""
    rows = [
        logits_of(loaded_model.model(**model_inputs(loaded_model, [one])))[0].float()
        for one in encode(loaded_model, [example])
    ]
    logits = torch.stack(rows).mean(dim=0)
    judges_each = loaded_model.task.answer == "labels"
    shares = (logits.sigmoid() if judges_each else logits.softmax(dim=0)).tolist()
    names = labels_of(loaded_model.model)
    pairs = [(names.get(index, str(index)), share) for index, share in enumerate(shares)]
    return sorted(pairs, key=lambda pair: -pair[1])


def label_choices(probabilities: list[tuple[str, float]]) -> list[tuple[str, str]]:
    """Labels as a list shows them, `cat · 96 %`, and their names."""
    return [(f"{readable(name)} · {_percent(share)}", name) for name, share in probabilities]


def _percent(share: float) -> str:
    return "<1 %" if 0 < share < 0.005 else f"{100 * share:.0f} %"


def text_probabilities(example: Any, loaded_model: LoadedModel) -> list[tuple[str, float]]:
    """Each text that a picture is compared with, and its probability, most likely first."""
    picture, texts = example
    _, encoded = encode_texts(loaded_model, 0, (picture, texts), form="", purpose="", truncate=False)
    shares = answer_to_all(loaded_model, encoded).logits_per_image[0].float().softmax(dim=0).tolist()
    return sorted(zip(texts, shares, strict=True), key=lambda pair: -pair[1])

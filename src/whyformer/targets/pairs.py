"""Dual encoders: which of several texts a picture is compared with, and against which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from whyformer.axes import ExampleScores
from whyformer.errors import WhyformerError
from whyformer.inputs.collate import model_inputs
from whyformer.inputs.encode import EncodedExample, picture_of, whole_text
from whyformer.inputs.read import two_of
from whyformer.models.loading import LoadedModel
from whyformer.targets.resolve import scale_of
from whyformer.targets.scores import Contrast, Label, Score, Target, one_each, similarity, text_index


@dataclass(frozen=True)
class Pair:
    """A picture with the text it is compared with, what that is called, and the text it is compared against."""

    encoded: EncodedExample
    name: str
    probability: float | None
    against: Tensor | None


def pairs_of(loaded_model: LoadedModel, examples: Sequence[Any], target: Target, *, truncate: bool) -> list[Pair]:
    """Each example is a picture and a text, or a picture and a list of texts of which `target` names one.

    "predicted" is the most similar. A contrast is of two of the texts.
    """
    targets = [target] * len(examples) if isinstance(target, Contrast) else one_each(target, len(examples))
    questions = enumerate(zip(examples, targets, strict=True))
    return [_pair(number, example, loaded_model, each, truncate=truncate) for number, (example, each) in questions]


def _pair(number: int, example: Any, loaded_model: LoadedModel, target: Label | Contrast, *, truncate: bool) -> Pair:
    image, given = two_of(example, "a picture and a text, or a list of texts: ('street.jpg', 'a red bus')")
    texts = list(given) if isinstance(given, (list, tuple)) else [given]
    if not texts:
        raise WhyformerError("There is no text to compare the picture with: give one, or a list of them.")
    picture = picture_of(image, loaded_model)
    encoded = [
        EncodedExample(number, picture, chunk=whole_text(text, loaded_model, truncate=truncate)) for text in texts
    ]
    if len(texts) == 1 and target in ("predicted", 0, texts[0]):
        return Pair(encoded[0], str(texts[0]), None, None)
    with torch.no_grad():
        inputs = model_inputs(loaded_model, encoded)
        output = loaded_model.model(**inputs | {"pixel_values": inputs["pixel_values"][:1]})
    shares = output.logits_per_image[0].softmax(dim=0)
    names = list(map(str, texts))

    def index_of(label: Any) -> int:
        return int(shares.argmax()) if label == "predicted" else text_index(label, names)

    if isinstance(target, Contrast):
        chosen, other = index_of(target.label), index_of(target.other)
        if chosen == other:
            raise WhyformerError(f"Why {names[chosen]!r} rather than itself? A contrast is of two texts.")
        name = f"{names[chosen]} rather than {names[other]}"
        return Pair(encoded[chosen], name, None, output.text_embeds[other])
    chosen = index_of(target)
    return Pair(encoded[chosen], names[chosen], float(shares[chosen]), None)


def score_of(pairs: Sequence[Pair], loaded_model: LoadedModel) -> Score:
    """The similarity of each pair, less that of the picture with the text it is compared against."""
    scale = scale_of(loaded_model.model)
    alike = similarity(scale)
    against = [pair.against for pair in pairs if pair.against is not None]
    if not against:
        return alike
    nothing = torch.zeros_like(against[0])
    others = torch.stack([nothing if pair.against is None else pair.against for pair in pairs])

    def score(output: Any) -> ExampleScores:
        unlike: Tensor = scale * (output.image_embeds * others).sum(dim=-1)
        return alike(output) - unlike

    return score

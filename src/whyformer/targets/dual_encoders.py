"""Targets of dual encoders: the similarity of a picture to one of several texts."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from whyformer.errors import WhyformerError
from whyformer.models.loading import LoadedModel
from whyformer.targets.candidate_encoding import answer_to_all, encode_texts
from whyformer.targets.head_target import HeadTarget, RowScore
from whyformer.targets.resolve import scale_of
from whyformer.targets.scores import Contrast, text_index


def pair_target(
    loaded_model: LoadedModel, number: int, example: Any, target: Any, *, truncate: bool
) -> list[HeadTarget]:
    """The target for a text, or a contrast of two; "predicted" is the most similar one."""
    form = "a picture and a text, or a list of texts: ('street.jpg', 'a red bus')"
    purpose = "to compare the picture with"
    texts, encoded = encode_texts(loaded_model, number, example, form=form, purpose=purpose, truncate=truncate)
    if len(texts) == 1 and target in ("predicted", 0, texts[0]):
        return [HeadTarget(encoded[0], _similarity(loaded_model), str(texts[0]))]
    output = answer_to_all(loaded_model, encoded)
    shares = output.logits_per_image[0].softmax(dim=0)
    names = list(map(str, texts))

    def index_of(label: Any) -> int:
        return int(shares.argmax()) if label == "predicted" else text_index(label, names)

    if isinstance(target, Contrast):
        chosen, other = index_of(target.label), index_of(target.other)
        if chosen == other:
            raise WhyformerError(f"contrast({names[chosen]!r}, …) names the same text twice: give two different texts.")
        name = f"{names[chosen]} rather than {names[other]}"
        return [HeadTarget(encoded[chosen], _similarity(loaded_model, output.text_embeds[other]), name)]
    chosen = index_of(target)
    return [HeadTarget(encoded[chosen], _similarity(loaded_model), names[chosen], float(shares[chosen]))]


def _similarity(loaded_model: LoadedModel, other: Tensor | None = None) -> RowScore:
    """The similarity of a pair, minus that of the picture and another text, if given."""
    scale = scale_of(loaded_model.model)

    def score(output: Any, row: int) -> Tensor:
        image, text = output.image_embeds[row], output.text_embeds[row]
        alike = scale * (image * text).sum(dim=-1)
        if other is not None:
            alike = alike - scale * (image * other).sum(dim=-1)
        return torch.as_tensor(alike).reshape(())  # SigLIP's scale has an axis

    return score

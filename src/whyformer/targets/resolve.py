"""Resolve a target against the model's output: its score, position and name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from whyformer.axes import Inputs
from whyformer.errors import WhyformerError
from whyformer.models.loading import LoadedModel
from whyformer.models.structure import can_write, labels_of
from whyformer.targets.ctc import moment_of, spells
from whyformer.targets.image_segments import check_query, resolve_area, segments
from whyformer.targets.scores import (
    Contrast,
    Detection,
    Label,
    Moment,
    Pixel,
    Region,
    Score,
    Target,
    all_logits,
    label_index,
    label_name,
    logit,
    logits_of,
    one_each,
    similarity,
)


def label_from_text(text: str, loaded_model: LoadedModel) -> Label:
    """A label as typed: its name if the model has a label of that name, else its index if it is a number."""
    names = labels_of(loaded_model.model) if loaded_model.task.has_labels else {}
    is_name = text.casefold() in {name.casefold() for name in names.values()}
    is_index = re.fullmatch(r"-?[0-9]{1,18}", text) is not None and loaded_model.task.answer != "span"
    return int(text) if is_index and not is_name else text


def place_from_text(text: str, loaded_model: LoadedModel) -> str | int:
    """A place of a text as typed: a number, except for a model that tags words, where a word may be one."""
    return int(text) if text.isdecimal() and loaded_model.task.answer != "tag" else text


@dataclass(frozen=True)
class ResolvedTarget:
    """A resolved target: the score, and for labels their index and name per example.

    `place` is the token or object query whose logits are explained, if there are several. `is_sole` means multi-label:
    probabilities are sigmoids. `notes` has a note per example, else empty.
    """

    score: Score
    indices: tuple[int | None, ...]
    names: tuple[str, ...]
    place: Tensor | None = None
    is_sole: bool = False
    notes: tuple[str, ...] = ()


def resolve_target(
    target: Target, output: Any, labels: Mapping[int, str], model: nn.Module, inputs: Inputs
) -> ResolvedTarget:
    """Resolve a target against this output; "predicted" becomes the best label of each example.

    For a language model this is the next token, and for a dual encoder the similarity of each pair. For a detector it
    is the best detection, or the best of a label.
    """
    if callable(target):
        return _resolve_score(target, output)
    if segments(output):
        score, indices, names = resolve_area(target, output, labels)
        return ResolvedTarget(score, (None,) * len(indices), names)
    if isinstance(target, (Pixel, Region)):
        raise WhyformerError("A pixel or a region is a target for models that segment: give a label, or 'predicted'.")
    finds = hasattr(output, "pred_boxes")
    if hasattr(output, "text_embeds") and hasattr(output, "image_embeds") and not finds:
        return _resolve_similarity(target, output, model)
    logits = all_logits(output)
    if logits is not None and not bool(torch.isfinite(logits).all()):
        raise WhyformerError("The model returned NaN or infinite logits: check its weights and precision.")
    if logits is not None and logits.dim() == 3 and finds:
        return _resolve_detection(target, logits, {0: "text"} if "input_ids" in inputs else labels)
    if logits is not None and logits.dim() == 3 and spells(model):
        label, place = moment_of(target, logits, labels, model)
        return resolve_choice(label, logits_of(output, place), labels, place)
    if isinstance(target, Moment):
        raise WhyformerError("A moment is a target for models that spell a sound (CTC): give a label, or 'predicted'.")
    if logits is not None and logits.dim() == 3 and can_write(model):
        return _resolve_label(target, output, labels, last_tokens(logits, inputs))
    return _resolve_label(target, output, labels, None)


def last_tokens(logits: Tensor, inputs: Inputs) -> Tensor:
    """Position of each example's last real token, which predicts the next one."""
    mask = inputs.get("decoder_attention_mask" if "decoder_input_ids" in inputs else "attention_mask")
    batch, length, _ = logits.shape
    if not isinstance(mask, Tensor) or mask.shape != (batch, length):
        return torch.full((batch,), length - 1, device=logits.device)
    return ((torch.arange(length, device=mask.device) + 1) * mask).argmax(dim=1)


def _resolve_label(target: Target, output: Any, labels: Mapping[int, str], place: Tensor | None) -> ResolvedTarget:
    logits = logits_of(output, place)
    if isinstance(target, Detection):
        raise WhyformerError("A detection is a target for detectors: give a label, or 'predicted'.")
    return resolve_choice(target, logits, labels, place)


def _resolve_detection(target: Target, logits: Tensor, labels: Mapping[int, str]) -> ResolvedTarget:
    """The object query with the highest probability of the label, or of any label."""
    batch, queries, _ = logits.shape
    is_sole, shares = not has_no_object(logits, labels), object_probabilities(logits, labels)
    several = list(target) if isinstance(target, (list, tuple)) else [target] * batch
    detections = [one for one in several if isinstance(one, Detection)]
    label: Any
    if len(detections) == batch:
        for one in detections:
            check_query(one.query, queries)
        place = torch.tensor([one.query for one in detections], device=logits.device)
        label = [one.label for one in detections]
    else:
        label = target.label if isinstance(target, Contrast) else target
        place = _best_queries(label, shares, labels)
    here = shares[torch.arange(batch, device=place.device), place]
    resolved = resolve_choice(target if isinstance(target, Contrast) else label, here, labels, place)
    is_single = not isinstance(target, Contrast)
    return replace(resolved, is_sole=is_sole and is_single, notes=() if is_sole else _notes_on_nothing(logits, place))


def _best_queries(label: Any, probabilities: Tensor, labels: Mapping[int, str]) -> Tensor:
    """The object query of each example with the highest probability of its label, or of any if "predicted"."""
    batch, _, count = probabilities.shape
    best = []
    for shares, one in zip(probabilities, one_each(label, batch), strict=True):
        by_query = shares.amax(dim=1) if one == "predicted" else shares[:, label_index(one, labels, count)]
        best.append(by_query.argmax())
    return torch.stack(best)


def has_no_object(logits: Tensor, labels: Mapping[int, str]) -> bool:
    """Whether a detector's last logit is "no object"; without it, labels are independent sigmoids."""
    return logits.shape[-1] != len(labels)


def object_probabilities(logits: Tensor, labels: Mapping[int, str]) -> Tensor:
    """Label probabilities of each object query of a detector, without "no object"."""
    return logits.softmax(dim=-1)[..., :-1] if has_no_object(logits, labels) else logits.sigmoid()


def _notes_on_nothing(logits: Tensor, place: Tensor) -> tuple[str, ...]:
    """A note for each example whose object query predicts "no object"."""
    here = logits[torch.arange(len(place), device=place.device), place].softmax(dim=-1)
    return tuple(
        f"Object query {query} found nothing: it answers 'no object' ({shares[-1]:.2f}) rather than any label."
        if max(shares) == shares[-1]
        else ""
        for query, shares in zip(place.tolist(), here.tolist(), strict=True)
    )


def resolve_choice(target: Any, scores: Tensor, labels: Mapping[int, str], place: Tensor | None) -> ResolvedTarget:
    """Resolve the label or contrast of each example; "predicted" is the best of its scores [example, label]."""
    batch, count = scores.shape
    best = scores.argmax(dim=1).tolist()

    def indices_of(target: Any) -> tuple[int, ...]:
        each = enumerate(one_each(target, batch))
        return tuple(best[n] if label == "predicted" else label_index(label, labels, count) for n, label in each)

    if isinstance(target, Contrast):
        return _resolve_contrast(indices_of(target.label), indices_of(target.other), labels, place)
    return _resolve_labels(indices_of(target), labels, place)


def _resolve_labels(indices: tuple[int, ...], labels: Mapping[int, str], place: Tensor | None) -> ResolvedTarget:
    names = tuple(label_name(index, labels) for index in indices)
    return ResolvedTarget(logit(torch.tensor(indices), place), indices, names, place)


def _resolve_contrast(
    wanted: tuple[int, ...], others: tuple[int, ...], labels: Mapping[int, str], place: Tensor | None
) -> ResolvedTarget:
    """Resolve a contrast, which has names but no index, since it has no single probability."""
    pairs = [(label_name(a, labels), label_name(b, labels)) for a, b in zip(wanted, others, strict=True)]
    same = next((name for (name, _), a, b in zip(pairs, wanted, others, strict=True) if a == b), None)
    if same is not None:
        raise WhyformerError(f"contrast({same!r}, …) names the same label twice: give two different labels.")
    chosen, against = (logit(torch.tensor(indices), place) for indices in (wanted, others))
    names = tuple(f"{label} rather than {other}" for label, other in pairs)
    return ResolvedTarget(lambda result: chosen(result) - against(result), (None,) * len(names), names, place)


def _resolve_similarity(target: Target, output: Any, model: nn.Module) -> ResolvedTarget:
    images, texts = len(output.image_embeds), len(output.text_embeds)
    if images != texts:
        raise WhyformerError(f"{images} images and {texts} texts: give pairs, one text per image.")
    if target != "predicted":
        raise WhyformerError(f"A pair of image and text has no label {_shown(target)}: leave the target out.")
    return ResolvedTarget(similarity(scale_of(model)), (None,) * images, ("similarity",) * images)


def scale_of(model: nn.Module) -> Tensor | float:
    """The factor that a dual encoder applies to cosines."""
    scale = getattr(model, "logit_scale", None)
    return scale.detach().exp() if isinstance(scale, Tensor) else 1.0


def _shown(target: Target | Label) -> str:
    return f"{target!r:.40}"


def _resolve_score(target: Score, output: Any) -> ResolvedTarget:
    scores = target(output)
    if not isinstance(scores, Tensor) or scores.dim() != 1 or not bool(torch.isfinite(scores).all()):
        raise WhyformerError(f"A score must return one finite number per example, not {scores!r:.60}.")
    name = getattr(target, "__name__", "").strip("<>") or "score"
    return ResolvedTarget(target, (None,) * len(scores), (name,) * len(scores), getattr(target, "place", None))

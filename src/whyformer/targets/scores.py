"""Scores: one number per example, computed from the model's output."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from whyformer.axes import ExampleScores, Logits
from whyformer.errors import WhyformerError, nearest

Score = Callable[[Any], ExampleScores]
Label = str | int


@dataclass(frozen=True)
class Contrast:
    """Why `label` rather than `other`: the difference of their logits."""

    label: Label
    other: Label


@dataclass(frozen=True)
class Detection:
    """The object found by a detector's query `query`: `label`, or its most probable one."""

    query: int
    label: Label = "predicted"


@dataclass(frozen=True)
class PlacedLabel:
    """A label at one position of the example: `label`, or the model's own prediction there."""

    place: str | int | range
    label: Label | Contrast = "predicted"


@dataclass(frozen=True)
class Moment:
    """A CTC model's character at a time: `label`, or its most likely character there.

    `rate` is the model's sampling rate, which `explain` sets.
    """

    seconds: float
    label: Label = "predicted"
    rate: int = 16_000


@dataclass(frozen=True)
class Pixel:
    """The target "why `label` at this point", for segmentation models.

    Args:
        x: Distance from the left, as a share of the picture's width.
        y: Distance from the top, as a share of its height.
        label: The name or index of a label; "predicted" for the model's own.

    Raises:
        WhyformerError: If the point lies outside the picture.

    Example:
        >>> whyformer.Pixel(0.5, 0.9, "road").label
        'road'
    """

    x: float
    y: float
    label: Label = "predicted"

    def __post_init__(self) -> None:
        if not (0 <= self.x <= 1 and 0 <= self.y <= 1):
            raise WhyformerError(f"A pixel is given as shares of width and height, 0 to 1, not ({self.x}, {self.y}).")


@dataclass(frozen=True)
class Region:
    """The target "why `label` in this region", for segmentation models: wherever it is predicted, or within a box.

    Args:
        label: The name or index of a label; "predicted" for the one with the largest area.
        box: Left, top, right and bottom as shares of the picture's width and height.

    Raises:
        WhyformerError: If the box has no area.

    Example:
        >>> whyformer.Region("road", box=(0, 0.5, 1, 1)).box
        (0, 0.5, 1, 1)
    """

    label: Label = "predicted"
    box: tuple[float, float, float, float] | None = None

    def __post_init__(self) -> None:
        if self.box is not None and not (self.box[0] < self.box[2] and self.box[1] < self.box[3]):
            raise WhyformerError(f"A box is (left, top, right, bottom) as shares of the picture, not {self.box}.")


# One target for all examples, or a sequence with one each.
PlacedTarget = PlacedLabel | Moment | Pixel | Region
Target = Label | Contrast | Detection | PlacedTarget | Score | Sequence[Label | Contrast | PlacedLabel]


def contrast(label: Label, other: Label) -> Contrast:
    """The target "why `label` rather than `other`".

    Args:
        label: The name or index of a label; "predicted" for the model's answer. For a dual encoder, one of the texts;
            for a language model, a token.
            other: The label to compare it with.

    Returns:
        A target for `explain` and `attribute`: the difference of the two logits.

    Example:
        >>> why_not = whyformer.contrast("negative", "positive")
        >>> whyformer.explain("A dull film.", model="mini-bert", target=why_not).target
        'negative rather than positive'
    """
    return Contrast(label, other)


def detection(query: int, label: Label = "predicted") -> Detection:
    """The target "why did object query `query` find `label`", for detectors.

    Args:
        query: The index of the object query.
        label: The name or index of a label; "predicted" for the query's own.

    Returns:
        A target for `explain` and `attribute`.

    Example:
        >>> whyformer.detection(3, "cat")
        Detection(query=3, label='cat')
    """
    return Detection(query, label)


def at(place: str | int | range, label: Label | Contrast = "predicted") -> PlacedLabel:
    """The target "why `label` at `place`", for models with answers at several places of a text.

    Args:
        place: For token classification, a word or consecutive words of the text, or the index of a word, or a range of
            indices. For masked language models, the index of the mask. For question answering, the first character of
            the answer in the passage.
            label: The tag, word or answer; "predicted" for the model's own, or a contrast of two.

    Returns:
        A target for `explain`.

    Example:
        >>> whyformer.at("Paris", "B-LOC")
        PlacedLabel(place='Paris', label='B-LOC')
    """
    return PlacedLabel(place, label)


def moment(seconds: float, label: Label = "predicted") -> Moment:
    """The target "why `label` at this time", for CTC models.

    Args:
        seconds: Time from the beginning of the sound.
        label: The name or index of a character; "predicted" for the most likely one at that time.

    Returns:
        A target for `explain` and `attribute`.

    Example:
        >>> whyformer.moment(1.5, "E").label
        'E'
    """
    return Moment(seconds, label)


def logit(index: int | Tensor, place: Tensor | None = None) -> Score:
    """The score that is a logit of the model's output.

    Args:
        index: The index of the label: one for all examples, or a tensor with one for each.
        place: For models with logits at every token or object query, the one to explain for each example.

    Returns:
        A target: a function of the model's output that returns one number per example.

    Example:
        >>> whyformer.explain("A dull film.", model="mini-bert", target=whyformer.logit(0)).probability is None
        True
    """

    def score(output: Any) -> ExampleScores:
        logits = logits_of(output, place)
        chosen = torch.as_tensor(index, device=logits.device).expand(len(logits))
        return logits.gather(1, chosen[:, None])[:, 0]

    return score


def similarity(scale: Tensor | float = 1.0) -> Score:
    """The score of a dual encoder's cosine similarity between a picture and a text.

    Args:
        scale: A factor of the cosine, such as the model's logit scale.

    Returns:
        A target: a function of the model's output that returns one number per pair.

    Raises:
        WhyformerError: If the model has no embeddings of a picture and a text.

    Example:
        >>> scene = whyformer.scenes.example(3)
        >>> pair = (scene.image, scene.caption)
        >>> whyformer.explain(pair, model="mini-clip", target=whyformer.similarity(), method="rollout").target
        'score'
    """

    def score(output: Any) -> ExampleScores:
        if getattr(output, "image_embeds", None) is None or getattr(output, "text_embeds", None) is None:
            raise WhyformerError("similarity() is for dual encoders (CLIP): this model returns no embeddings.")
        cosines: ExampleScores = (output.image_embeds * output.text_embeds).sum(dim=-1)
        return scale * cosines

    return score


def box_side(query: int, side: Literal["x", "y", "width", "height"]) -> Score:
    """The score of one side of the box of a detector's object query, as a share of the picture.

    Args:
        query: The number of the object query, from 0 on.
        side: "x" or "y" of the box's centre, its "width" or its "height".

    Returns:
        A target: a function of the model's output that returns one number per example.

    Raises:
        WhyformerError: If a box has no such side, or the model has no boxes.

    Example:
        >>> scene = whyformer.scenes.example(3)
        >>> width = whyformer.box_side(0, "width")
        >>> whyformer.explain(scene.image, model="mini-detr", target=width, method="rollout").target
        'score'
    """
    sides = ("x", "y", "width", "height")
    if side not in sides:
        raise WhyformerError(f"box_side: side={side!r}. Choose from: {', '.join(sides)}.")

    def score(output: Any) -> ExampleScores:
        boxes = getattr(output, "pred_boxes", None)
        if boxes is None:
            raise WhyformerError("box_side() is for detectors: this model's output has no boxes.")
        if not 0 <= query < boxes.shape[1]:
            raise WhyformerError(f"No object query {query}: this model has {boxes.shape[1]}, from 0 on.")
        side_of_box: ExampleScores = boxes[:, query, sides.index(side)]
        return side_of_box

    return score


def logits_of(output: Any, place: Tensor | None = None) -> Logits:
    """The logits of a Hugging Face output, a tuple or a tensor, at one place of each example if given."""
    logits = all_logits(output)
    if logits is not None and logits.dim() == 3 and place is not None:
        return logits[torch.arange(len(logits), device=logits.device), place.to(logits.device)]
    if logits is None or logits.dim() != 2:
        seen = "none" if logits is None else f"shape {tuple(logits.shape)}"
        raise WhyformerError(f"Expected logits [batch, label], found {seen}: pass a custom target (a function).")
    return logits


def all_logits(output: Any) -> Tensor | None:
    """The logits under any of their names: [batch, label], or [batch, place, label] per token or object query."""
    for name in ("logits", "question_answering_score", "itm_score"):
        logits = getattr(output, name, None)
        if isinstance(logits, Tensor):
            return logits
    first = output if isinstance(output, Tensor) else output[0] if isinstance(output, tuple) else None
    return first if isinstance(first, Tensor) else None


def one_each(target: Any, count: int) -> list[Any]:
    """Expand a target to one per example; tensors and arrays of indices are accepted."""
    if hasattr(target, "tolist"):
        target = target.tolist()
    each = list(target) if isinstance(target, (list, tuple)) else [target] * count
    if count == 1 and len(each) > 1:
        raise WhyformerError(f"{len(each)} targets for one example: give one, or use explain_targets for several.")
    if len(each) != count:
        raise WhyformerError(f"{len(each)} targets for {count} examples: give one for all, or one each.")
    return each


def label_index(label: Label, labels: Mapping[int, str], count: int) -> int:
    """The index of a label given by index or name."""
    if isinstance(label, str):
        return _index_of_name(label, labels, count)
    if isinstance(label, bool) or not hasattr(label, "__index__"):
        raise WhyformerError(f"A target is a label's name or index, 'predicted', a contrast or a score, not {label!r}.")
    index = operator.index(label)
    if not 0 <= index < count:
        raise WhyformerError(f"No label with index {index}: this model has {count}, 0 to {count - 1}.")
    return index


def text_index(text: Label, texts: Sequence[str], kind: Literal["text", "choice", "candidate"] = "text") -> int:
    """The index of one of several texts, given by index or verbatim; `kind` is used in errors."""
    compared = "the picture is compared with" if kind == "text" else "the model chooses from"
    if isinstance(text, str):
        exact = [index for index, known in enumerate(texts) if known == text]
        alike = exact or [index for index, known in enumerate(texts) if known.casefold() == text.casefold()]
        if not alike:
            raise WhyformerError(f"No {kind} {text!r} among those {compared}. {nearest(text, texts)}")
        return alike[0]
    if isinstance(text, bool) or not hasattr(text, "__index__"):
        raise WhyformerError(f"A target is a {kind} or its index, 'predicted', a contrast or a score, not {text!r}.")
    index = operator.index(text)
    if not 0 <= index < len(texts):
        raise WhyformerError(f"No {kind} with index {index}: {compared} {len(texts)}, from 0 on.")
    return index


def _index_of_name(name: str, labels: Mapping[int, str], count: int) -> int:
    exact = [index for index, known in labels.items() if known == name]
    alike = exact or [index for index, known in labels.items() if known.casefold() == name.casefold()]
    if len(alike) > 1:
        raise WhyformerError(f"{len(alike)} labels are named {name!r}: give one of the indices {alike}.")
    if alike:
        return alike[0]
    if name.isdecimal() and int(name) < count:
        return int(name)
    known = nearest(name, list(labels.values())) if labels else f"This model has no names: give 0 to {count - 1}."
    raise WhyformerError(f"No label named {name!r}. {known}")


def label_name(index: int, labels: Mapping[int, str]) -> str:
    """The name of a label, or its index if the model has no names."""
    return labels.get(index, f"label {index}")

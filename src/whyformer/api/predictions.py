"""Explain any function by its outputs only: a served model or an API, without torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from whyformer.axes import LabelValues, PlaceShares, SubsetExampleScores, UnitMasks, UnitScores
from whyformer.batching import check_batch_size, consecutive
from whyformer.errors import WhyformerError, check_choice
from whyformer.inputs.fills import Fill
from whyformer.inputs.layouts import Patches, WordPieces
from whyformer.inputs.read import image_of, text_of
from whyformer.inputs.removable import UnitKind
from whyformer.inputs.road_imputation import imputed
from whyformer.inputs.words import word_ranges
from whyformer.methods.option_checks import check_options
from whyformer.methods.registry import Method, methods_of
from whyformer.modalities.image import superpixels
from whyformer.progress import track
from whyformer.removal.prompt_text import with_white_space
from whyformer.removal.units import Ablation, SubsetCount, Units
from whyformer.results.explanation import Explanation
from whyformer.results.part import Part
from whyformer.targets.resolve import resolve_choice
from whyformer.targets.scores import Contrast, Target, one_each

Predict = Callable[[list[Any]], Any]
DEFAULT_REMOVAL_METHOD = "kernel_shap"
UNNAMED = "mini-vit"  # the default model of `explain`
EXAMPLES_AT_ONCE = 32  # examples per call of the function
PATCHES, FINE_PATCHES = 8, 28  # on a side of a square picture, if patches are the units, and for superpixels
MASK_SIDE = 224  # masks of larger pictures have this size, and are enlarged
SURE = 1e-3  # the largest deviation from a sum of 1 for outputs to count as probabilities


@dataclass(frozen=True, eq=False)
class RemovableUnits:
    """An example with removable places; `without` removes a share of each, `part` lays scores on it."""

    whole: Any
    name: str
    units: Units
    without: Callable[[PlaceShares], Any]
    part: Callable[[UnitScores], Part]


@dataclass(frozen=True)
class FunctionScores:
    """A function of examples, with the names of its outputs."""

    predict: Predict
    labels: Mapping[int, str]
    batch_size: int
    progress: bool

    @property
    def name(self) -> str:
        """Name shown in explanations."""
        return getattr(self.predict, "__name__", type(self.predict).__name__)

    def answers(
        self, examples: Sequence[Any] | np.ndarray, make: Callable[[Any], Any] = lambda example: example
    ) -> LabelValues:
        """Outputs [example, label] for the transformed examples, one batch at a time."""
        rows = []
        for batch in track(consecutive(len(examples), self.batch_size), f"asking {self.name}", progress=self.progress):
            outputs = _numbers(self.predict([make(examples[number]) for number in batch]))
            if outputs.ndim != 2 or len(outputs) != len(batch) or outputs.shape[1] < 1:
                raise WhyformerError(
                    f"predict returned an array of shape {outputs.shape} for {len(batch)} examples: return one row per "
                    "example with one number per label."
                )
            if self.labels and outputs.shape[1] != len(self.labels):
                raise WhyformerError(
                    f"predict returned {outputs.shape[1]} numbers per example, but there are {len(self.labels)} labels."
                )
            if not np.isfinite(outputs).all():
                raise WhyformerError("predict returned NaN or infinite numbers.")
            rows.append(outputs)
        return np.concatenate(rows)


def _numbers(answers: Any) -> np.ndarray:
    """Output of `predict` as an array; one number per example becomes a column."""
    try:
        numbers = np.asarray(answers, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise WhyformerError(
            f"predict returned {answers!r:.60}: return one row of numbers per example, all of equal length."
        ) from error
    return numbers[:, None] if numbers.ndim == 1 else numbers


def refuse_beside_predict(**settings: Any) -> None:
    """Reject options of a model where a function is explained instead."""
    unset = {"model": UNNAMED, "truncate": False}
    for name, value in settings.items():
        is_set = value != unset.get(name) if isinstance(value, str) else value is not unset.get(name)
        if is_set:
            raise WhyformerError(f"{name}={value!r:.40} needs a model, but predict is explained by its outputs only.")


def explain_predictions(
    examples: Sequence[Any],
    predict: Predict,
    labels: Sequence[str] | None,
    target: Target,
    method: str | None,
    *,
    batch_size: int | None = None,
    progress: bool = False,
    units: UnitKind | None = None,
    fill: Fill = "mean",
    **options: Any,
) -> list[Explanation]:
    """Explain the outputs of a function for each of the examples, texts and pictures."""
    chosen = _method(method)
    check_options(chosen, options)
    check_choice("fill", fill, Fill)
    if units is not None:
        check_choice("units", units, UnitKind)
    if "erasure" in options:
        raise WhyformerError(
            f"erasure={options['erasure']!r} applies to tokens, but predict takes texts: words are deleted."
        )
    if not callable(predict):
        raise WhyformerError(f"predict must be a function of a list of examples, not {predict!r:.40}.")
    named = {} if labels is None else dict(enumerate(map(str, labels)))
    prediction = FunctionScores(predict, named, check_batch_size(batch_size) or EXAMPLES_AT_ONCE, progress)
    removable = [removable_units(example, units, fill) for example in examples]
    targets = (
        [target] * len(removable)
        if isinstance(target, Contrast) or callable(target)
        else one_each(target, len(removable))
    )
    settings = {**({} if units is None else {"units": units}), "fill": fill, **options}
    return [_explanation(one, prediction, own, chosen, settings) for one, own in zip(removable, targets, strict=True)]


def _method(name: str | None) -> Method:
    known = methods_of("function")
    if name is not None and name not in known:
        raise WhyformerError(f"{name!r} reads the model, which predict hides: use {', '.join(known)}.")
    return known[name or DEFAULT_REMOVAL_METHOD]


def _explanation(
    example: RemovableUnits, prediction: FunctionScores, target: Any, method: Method, options: Mapping[str, Any]
) -> Explanation:
    whole = prediction.answers([example.whole])
    name, score, index = _resolve(target, whole, prediction.labels)

    def ask(units: Sequence[Units], masks: Sequence[UnitMasks]) -> SubsetExampleScores:
        own, numbers = masks[0], units[0].numbers
        kept = np.append(own, np.ones((len(own), 1), dtype=own.dtype), axis=1)[:, numbers]
        if not isinstance(example.whole, str):
            return score(prediction.answers(kept, example.without))[:, None]
        versions = [example.without(row) for row in kept]
        different = list(dict.fromkeys(versions))  # few words have few subsets: evaluate each once
        scores = dict(zip(different, score(prediction.answers(different)), strict=True))
        return np.array([[scores[version]] for version in versions])

    defaults = {key: parameter.default for key, parameter in method.options.items()}
    own = defaults | {key: value for key, value in options.items() if key in method.options}
    count = SubsetCount()
    (scores,) = method.formula(count.counting(Ablation((example.units,), score(whole), ask)), **own)
    is_share = index is not None and bool((whole >= 0).all()) and abs(float(whole.sum()) - 1) < SURE
    return Explanation(
        parts={example.name: example.part(example.units.at_places(scores))},
        target=name,
        probability=float(whole[0, index]) if is_share else None,
        method=method.name,
        model=prediction.name,
        options=defaults | dict(options),
        notes=count.remarks(own),
    )


def _resolve(
    target: Any, whole: LabelValues, labels: Mapping[int, str]
) -> tuple[str, Callable[[LabelValues], np.ndarray], int | None]:
    """Name, score and label of the target."""
    if callable(target):
        return getattr(target, "__name__", "score"), lambda answers: np.asarray(target(answers), dtype=np.float64), None
    resolved = resolve_choice(target, torch.from_numpy(whole), labels, None)

    def score(answers: LabelValues) -> np.ndarray:
        return resolved.score(torch.from_numpy(answers)).numpy()

    return resolved.names[0], score, resolved.indices[0]


def removable_units(example: Any, units: UnitKind | None, fill: Fill) -> RemovableUnits:
    """The words of a text, or the patches or superpixels of a picture, as units to remove."""
    is_text = isinstance(example, str) or (isinstance(example, Path) and example.suffix in (".txt", ".md"))
    if is_text:
        if units not in (None, "word"):
            raise WhyformerError(f"units={units!r}: the units of a text for predict are words.")
        return _removable_text(str(text_of(example)))
    if units == "word":
        raise WhyformerError("units='word' is for texts: for a picture use 'token' for patches, or 'superpixel'.")
    return _removable_picture(image_of(example), by_superpixel=units == "superpixel", fill=fill)


def _removable_text(text: str) -> RemovableUnits:
    """A text by words, which are removed with their white space."""
    spans = word_ranges(text)
    layout = WordPieces((text,), tuple(text[a:b] for a, b in spans), (0,) * len(spans), tuple(spans))

    def without(kept: PlaceShares) -> str:
        rest, start = [], 0
        for first, last in with_white_space(text, [span for span, share in zip(spans, kept, strict=True) if not share]):
            rest.append(text[start:first])
            start = last
        return "".join([*rest, text[start:]])

    units = Units(np.arange(len(spans)), ((len(spans),),))
    return RemovableUnits(text, "text", units, without, lambda scores: Part(layout, scores.astype(np.float32)))


def _removable_picture(picture: Image.Image, *, by_superpixel: bool, fill: Fill) -> RemovableUnits:
    """A picture by patches or superpixels, which are filled."""
    width, height = picture.size
    shrunk = max(1.0, max(width, height) / MASK_SIDE)
    wide, high = max(1, round(width / shrunk)), max(1, round(height / shrunk))
    side = FINE_PATCHES if by_superpixel else PATCHES
    rows, columns = (max(1, min(n, round(side * (n / m) ** 0.5))) for n, m in ((high, wide), (wide, high)))
    down, right = np.arange(high) * rows // high, np.arange(wide) * columns // wide
    patches = (down[:, None] * columns + right).ravel()
    numbers = patches
    if by_superpixel:
        small = torch.from_numpy(np.asarray(picture.resize((wide, high)), dtype=np.float32))
        numbers = superpixels(small.permute(2, 0, 1)).ravel()
    pixels = np.asarray(picture, dtype=np.float32)
    colour = np.zeros(3, dtype=np.float32) if fill == "black" else pixels.mean(axis=(0, 1))
    at = np.ix_(np.arange(height) * high // height, np.arange(width) * wide // width)

    def without(kept: PlaceShares) -> Image.Image:
        shares = kept.reshape(high, wide)[at][..., None].astype(np.float32)
        if fill == "road":
            return _imputed(pixels, shares[..., 0] > 0)
        return Image.fromarray(np.rint(colour + shares * (pixels - colour)).astype(np.uint8))

    def part(scores: UnitScores) -> Part:
        layout = Patches(picture, rows, columns, (0.0, 0.0, float(width), float(height)))
        return Part(layout, Units(patches, ((high, wide),)).mean_of(scores).astype(np.float32))

    return RemovableUnits(picture, "image", Units.counted(numbers, [(high, wide)]), without, part)


def _imputed(pixels: np.ndarray, kept: np.ndarray) -> Image.Image:
    """Impute the removed pixels of a picture from their neighbours."""
    values = torch.from_numpy(pixels / 255).permute(2, 0, 1)[None]
    filled = imputed(values, torch.from_numpy(~kept)[None, None])[0, 0].permute(1, 2, 0)
    return Image.fromarray((filled.clamp(0, 1) * 255).round().byte().numpy())

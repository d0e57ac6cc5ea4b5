"""What is explained: one number per example, made from the model's output."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from whyformer.axes import ExampleScores, Logits
from whyformer.errors import WhyformerError

Score = Callable[[Any], ExampleScores]
Label = str | int


@dataclass(frozen=True)
class Contrast:
    """Why `label` rather than `other`: the difference of their logits."""

    label: Label
    other: Label


# One target for all examples, or a sequence with one label each.
Target = Label | Contrast | Score | Sequence[Label]


def contrast(label: Label, other: Label) -> Contrast:
    """The target "why `label` rather than `other`"."""
    return Contrast(label, other)


def logit(index: int | Tensor) -> Score:
    """The logit at `index`, one for all examples or one each."""

    def score(output: Any) -> ExampleScores:
        logits = logits_of(output)
        chosen = torch.as_tensor(index, device=logits.device).expand(len(logits))
        return logits.gather(1, chosen[:, None])[:, 0]

    return score


def logits_of(output: Any) -> Logits:
    """The logits of a Hugging Face output, a tuple or a tensor."""
    logits = getattr(output, "logits", None)
    if logits is None:
        logits = output if isinstance(output, Tensor) else output[0] if isinstance(output, tuple) else None
    if logits is None or logits.dim() != 2:
        found = "none" if logits is None else f"shape {tuple(logits.shape)}"
        raise WhyformerError(f"Expected logits [batch, label], found {found}: pass a target that makes the score.")
    return logits


@dataclass(frozen=True)
class Asked:
    """A target made definite: the score, and for labels their index and name per example."""

    score: Score
    indices: tuple[int | None, ...]
    names: tuple[str, ...]


def asked(target: Target, output: Any, labels: Mapping[int, str]) -> Asked:
    """The target against this output: "predicted" becomes the best label of each example."""
    if callable(target):
        batch = len(target(output))
        return Asked(target, (None,) * batch, (getattr(target, "__name__", "score"),) * batch)
    logits = logits_of(output)
    if not bool(torch.isfinite(logits).all()):
        raise WhyformerError("The model answered with NaN or infinite logits: check its weights and precision.")
    batch, count = logits.shape
    if isinstance(target, Contrast):
        wanted, other = (label_index(label, labels, count) for label in (target.label, target.other))
        chosen, against = logit(wanted), logit(other)
        name = f"{label_name(wanted, labels)} rather than {label_name(other, labels)}"
        return Asked(lambda result: chosen(result) - against(result), (wanted,) * batch, (name,) * batch)
    each = (target,) * batch if isinstance(target, (str, int)) else tuple(target)
    if len(each) != batch:
        raise WhyformerError(f"{len(each)} targets for {batch} examples: give one for all, or one each.")
    best = logits.argmax(dim=1).tolist()
    indices = tuple(
        best[example] if label == "predicted" else label_index(label, labels, count)
        for example, label in enumerate(each)
    )
    return Asked(logit(torch.tensor(indices)), indices, tuple(label_name(index, labels) for index in indices))


def label_index(label: Label, labels: Mapping[int, str], count: int) -> int:
    """The index of a label given by index or name."""
    if isinstance(label, bool) or not isinstance(label, (int, str)):
        raise WhyformerError(
            f"A target is a label name, an index, 'predicted', a contrast or a callable, not {label!r}."
        )
    if isinstance(label, int):
        if not 0 <= label < count:
            raise WhyformerError(f"No label with index {label}: this model has {count}, 0 to {count - 1}.")
        return label
    by_name = {name.casefold(): index for index, name in labels.items()}
    if label.casefold() in by_name:
        return by_name[label.casefold()]
    if label.isdecimal() and int(label) < count:
        return int(label)
    raise WhyformerError(f"No label named {label!r}. {nearest(label, list(labels.values()))}")


def label_name(index: int, labels: Mapping[int, str]) -> str:
    """The name of a label, or its number where the model has none."""
    return labels.get(index, f"label {index}")


def nearest(word: str, known: Sequence[str]) -> str:
    """A sentence with the names closest to a misspelt one."""
    close = difflib.get_close_matches(word, known, n=3, cutoff=0.4)
    if close:
        return f"Did you mean {' or '.join(repr(name) for name in close)}?"
    return f"Known: {', '.join(known[:20])}{' …' if len(known) > 20 else ''}."

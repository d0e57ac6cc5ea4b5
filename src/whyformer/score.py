"""What is explained: one number per example, made from the model's output."""

from __future__ import annotations

import difflib
import operator
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
        scores = target(output)
        if not isinstance(scores, Tensor) or scores.dim() != 1 or not bool(torch.isfinite(scores).all()):
            raise WhyformerError(f"A target that is a score gives one finite number per example, not {scores!r:.60}.")
        name = getattr(target, "__name__", "").strip("<>") or "score"
        return Asked(target, (None,) * len(scores), (name,) * len(scores))
    logits = logits_of(output)
    if not bool(torch.isfinite(logits).all()):
        raise WhyformerError("The model answered with NaN or infinite logits: check its weights and precision.")
    batch, count = logits.shape
    best = logits.argmax(dim=1).tolist()

    def indices_of(target: Any) -> tuple[int, ...]:
        each = enumerate(one_each(target, batch))
        return tuple(best[n] if label == "predicted" else label_index(label, labels, count) for n, label in each)

    if isinstance(target, Contrast):
        return _contrasted(indices_of(target.label), indices_of(target.other), labels)
    indices = indices_of(target)
    return Asked(logit(torch.tensor(indices)), indices, tuple(label_name(index, labels) for index in indices))


def _contrasted(wanted: tuple[int, ...], others: tuple[int, ...], labels: Mapping[int, str]) -> Asked:
    """A contrast has names but no index: no single label's probability is that of its answer."""
    pairs = [(label_name(a, labels), label_name(b, labels)) for a, b in zip(wanted, others, strict=True)]
    same = next((name for (name, _), a, b in zip(pairs, wanted, others, strict=True) if a == b), None)
    if same is not None:
        raise WhyformerError(f"Why {same!r} rather than itself? A contrast is of two labels.")
    chosen, against = logit(torch.tensor(wanted)), logit(torch.tensor(others))
    names = tuple(f"{label} rather than {other}" for label, other in pairs)
    return Asked(lambda result: chosen(result) - against(result), (None,) * len(names), names)


def one_each(target: Any, count: int) -> list[Label]:
    """A label for each example, from one for all or one each; tensors and arrays of indices are taken too."""
    if hasattr(target, "tolist"):
        target = target.tolist()
    each = list(target) if isinstance(target, (list, tuple)) else [target] * count
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
    """The name of a label, or its number where the model has none."""
    return labels.get(index, f"label {index}")


def nearest(word: str, known: Sequence[str]) -> str:
    """A sentence with the names closest to a misspelt one."""
    close = difflib.get_close_matches(word, known, n=3, cutoff=0.4)
    if close:
        return f"Did you mean {' or '.join(repr(name) for name in close)}?"
    return f"Known: {', '.join(known[:20])}{' …' if len(known) > 20 else ''}."

"""Resolve the target of an example before tracing: which word, span or candidate, and its score."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from whyformer.axes import ExampleScores
from whyformer.errors import WhyformerError
from whyformer.inputs.collate import model_inputs
from whyformer.inputs.encode import EncodedExample
from whyformer.models.loading import LoadedModel
from whyformer.targets.scores import Contrast, Score

RowScore = Callable[[Any, int], Tensor]  # called with the model's output and a row index


@dataclass(frozen=True)
class HeadTarget:
    """A target of one encoded example: the score of its row of the output, its name and probability.

    `notes` say how it was chosen; `query` is the object query of a detector, if any.
    """

    encoded: EncodedExample
    score: RowScore
    name: str
    probability: float | None = None
    notes: tuple[str, ...] = ()
    query: int | None = None


@dataclass(frozen=True)
class Term:
    """A weighted entry of an example's output, by the name of its tensor and its position there."""

    field: str
    place: tuple[int, ...]
    weight: float = 1.0


def sum_of(terms: Sequence[Term]) -> RowScore:
    """The weighted sum of entries of the output."""

    def score(output: Any, row: int) -> Tensor:
        values = [term.weight * getattr(output, term.field)[(row, *term.place)] for term in terms]
        return torch.stack(values).sum()

    return score


@dataclass(frozen=True)
class BatchScore:
    """The score of a batch of resolved targets, in order, and their object queries, if any."""

    targets: Sequence[HeadTarget]

    @property
    def place(self) -> Tensor | None:
        queries = [target.query for target in self.targets if target.query is not None]
        return torch.tensor(queries) if queries else None

    def __call__(self, output: Any) -> ExampleScores:
        return torch.stack([target.score(output, row) for row, target in enumerate(self.targets)])


def score_of(targets: Sequence[HeadTarget]) -> Score:
    """The score of a batch of targets, in order."""
    return BatchScore(targets)


@torch.no_grad()
def output_of(loaded_model: LoadedModel, encoded: EncodedExample) -> Any:
    """Run the model on one encoded example."""
    return loaded_model.model(**model_inputs(loaded_model, [encoded]))


def sides(target: Any) -> Iterator[tuple[Any, float]]:
    """The labels of a target with their signs: one, or two for a contrast."""
    if isinstance(target, Contrast):
        yield from ((target.label, 1.0), (target.other, -1.0))
    else:
        yield target, 1.0


def named(names: Sequence[str]) -> str:
    """Name a target by the names of its sides."""
    if len(set(names)) < len(names):
        raise WhyformerError(f"contrast({names[0]!r}, …) names the same thing twice: give two different ones.")
    return " rather than ".join(names)


def output_tensor(output: Any, field: str, model: LoadedModel) -> Tensor:
    """A required tensor of a single example's output."""
    value = output.get(field) if isinstance(output, Mapping) else None
    if not isinstance(value, Tensor):
        raise WhyformerError(f"The output of {model.name} has no {field}: pass a custom target (a function).")
    return value[0].float()

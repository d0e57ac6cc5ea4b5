"""Ask a model again without the strongest words or patches of an explained example."""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor, nn

from whyformer.api.assemble import ExplainedAnswer, answers, judges_each, likely_indices, probabilities_of
from whyformer.api.batch_scores import BatchScores, answer_names, trace_batch
from whyformer.api.processed_options import processed_options
from whyformer.axes import Inputs, StreamScores
from whyformer.errors import UnsupportedModel, WhyformerError
from whyformer.inputs.collate import model_inputs
from whyformer.inputs.encode import EncodedExample, encode
from whyformer.inputs.parts import merge_levels
from whyformer.methods.registry import method_named
from whyformer.models.loading import LoadedModel
from whyformer.models.structure import fixed_modules, labels_of, unwrapped
from whyformer.removal.trace_inputs import TokenAblation, trace_ablation
from whyformer.removal.units import Units
from whyformer.render.layout_kinds import kind_of
from whyformer.results.explanation import Explanation
from whyformer.results.part import Part
from whyformer.results.unit_effects import (
    RemovableUnit,
    RemovalEffects,
    Subset,
    asked_subsets,
    strongest_units,
)
from whyformer.targets.encoded_targets import encoded_targets
from whyformer.targets.scores import label_name, logits_of
from whyformer.tracing.attribution import Attribution
from whyformer.tracing.reads import Reads
from whyformer.tracing.trace import Trace, zero_scores

# Units that can be removed, how many of them in every combination, and blocks of patches on a side: 34 forward passes.
MOST_UNITS, COMBINED = 12, 4
MOST_ANSWERS = 3  # that a page explains
REMOVED_AS = "kernel_shap"  # whose defaults say how parts are removed


@dataclass(frozen=True)
class Remover:
    """The question of an `explain` call, to be asked again. The model is held weakly, as by audit files."""

    module: weakref.ref[nn.Module]
    rest: Mapping[str, Any]
    example: Any
    target: Any
    truncate: bool
    method: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    def others(self, explanation: Explanation) -> list[Explanation]:
        """Explanations of the next most likely answers by the same method, unless it asks the model many times."""
        from whyformer.api.explain import explain

        module = self.module()
        asks_again = method_named(explanation.method).reads_with(explanation.options).subsets
        if module is None or asks_again or len(explanation.answers) < 2 or not isinstance(self.target, str | int):
            return []
        loaded_model = LoadedModel(module, **self.rest)
        names = [name for name in explanation.answers if name != explanation.target][: MOST_ANSWERS - 1]
        settings = {"truncate": self.truncate, **self.settings}
        try:
            return [explain(self.example, loaded_model, name, self.method, **settings) for name in names]
        except WhyformerError:
            return []

    def __call__(
        self,
        explanation: Explanation,
        subsets: Iterable[Subset] = (),
        before: RemovalEffects | None = None,
        *,
        most: int = MOST_UNITS,
        combined: int = COMBINED,
    ) -> RemovalEffects:
        """The model's answers without the strongest units of its explanation, and without further subsets of them.

        Those that are known from before are not asked again.
        """
        module = self.module()
        if module is None:
            raise WhyformerError("The model is no longer in memory: keep it to ask it again.")
        encoded = encode(LoadedModel(module, **self.rest), [self.example], truncate=self.truncate)
        loaded_model, counts = LoadedModel(module, **self.rest), (most, combined)
        return measured_effects(loaded_model, encoded, self.target, explanation, subsets, before=before, counts=counts)

    def trace(self) -> Trace:
        """The question put to the model again, without reading its maps."""
        module = self.module()
        if module is None:
            raise WhyformerError("The model is no longer in memory: keep it to ask it again.")
        loaded_model = LoadedModel(module, **self.rest)
        encoded = encode(loaded_model, [self.example], truncate=self.truncate)
        with fixed_modules(unwrapped(module)):
            return _trace(loaded_model, encoded, self.target)[1]

    def __reduce__(self) -> tuple[type, tuple[()]]:
        """Drop the model from a copy or pickle."""
        return type(None), ()


def remover_of(
    loaded_model: LoadedModel,
    example: Any,
    target: Any,
    truncate: bool,
    method: str | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Remover:
    """Record the question of an explanation now."""
    rest = {one.name: getattr(loaded_model, one.name) for one in fields(loaded_model) if one.name != "model"}
    return Remover(weakref.ref(loaded_model.model), rest, example, target, truncate, method, settings or {})


def measured_effects(
    loaded_model: LoadedModel,
    encoded: Sequence[EncodedExample],
    target: Any,
    explanation: Explanation,
    subsets: Iterable[Subset] = (),
    *,
    before: RemovalEffects | None = None,
    counts: tuple[int, int] = (MOST_UNITS, COMBINED),
) -> RemovalEffects:
    """Remove the strongest units of an explanation, and ask the model for the probabilities of its likely answers.

    `counts` are how many units are removed, and how many of them in every combination.

    Raises:
        UnsupportedModel: If the answer has no probability, or the input has no parts that can be removed.
    """
    if not explanation.answers or len(encoded) > 1:
        raise UnsupportedModel("Parts are removed where a whole example has one answer with a probability.")
    with fixed_modules(unwrapped(loaded_model.model)):
        question = _question(loaded_model, encoded[0], target)
        numbers = question.unit_numbers()
        units = [unit for name, part in explanation.parts.items() for unit in _units(name, part, numbers[name])]
        if not units:
            raise UnsupportedModel("The input has no removable parts: words, patches or regions.")
        most, combined = counts
        chosen = strongest_units(units, most)
        known = {} if before is None else before.known
        wanted = [*dict.fromkeys([*asked_subsets(len(chosen), combined), *subsets])]
        if any(unit not in range(len(chosen)) for subset in wanted for unit in subset):
            raise WhyformerError(f"The units that can be removed have the numbers 0 to {len(chosen) - 1}.")
        wanted = [subset for subset in wanted if subset not in known]
        places = [numbers[unit.part][list(unit.tokens)] for unit in chosen]
        removed = [[place for unit in subset for place in places[unit]] for subset in wanted]
        everything = [place for unit in units for place in numbers[unit.part][list(unit.tokens)]]
        rows = question.probabilities([*removed, everything])
    names, scores = tuple(question.names), np.array([unit.score for unit in units])
    target_index = question.likely.index(question.index)
    return RemovalEffects(
        units=chosen,
        answers=names,
        target=target_index,
        known={**known, **{subset: tuple(row) for subset, row in zip(wanted, rows, strict=False)}},
        empty=rows[-1][target_index],
        total=(float(scores.sum()), float(np.abs(scores).sum())),
    )


@dataclass(frozen=True, eq=False)
class _Question:
    """One encoded example put to a model, its answer, and how its parts are removed."""

    loaded_model: LoadedModel
    encoded: EncodedExample
    tokens: TokenAblation
    answer: ExplainedAnswer

    @cached_property
    def units(self) -> Units:
        (units,) = self.tokens.ablation.examples
        return units

    @property
    def index(self) -> int:
        assert self.answer.index is not None
        return self.answer.index

    @cached_property
    def likely(self) -> list[int]:
        return likely_indices([self.answer], self.loaded_model.task)

    @property
    def names(self) -> list[str]:
        known = answer_names(self.loaded_model) or labels_of(self.loaded_model.model)
        return [label_name(index, known) for index in self.likely]

    def unit_numbers(self) -> dict[str, np.ndarray]:
        """The removable unit of each token of each part; -1 if it is never removed.

        The numbers take the way of scores, from a stream to the parts that are shown.
        """
        marks = self.tokens.on_tokens(self.tokens.ablation, [1.0 + np.arange(self.units.count)])
        parts = _answer(self.tokens.trace, marks, self.encoded, self.loaded_model).parts
        numbers = {name: part.scores.astype(np.float64) - 1 for name, part in parts.items()}
        if any((own != np.rint(own)).any() for own in numbers.values()):
            raise UnsupportedModel("The patches of this picture are resampled before they are shown.")
        return {name: own.astype(np.int64) for name, own in numbers.items()}

    def probabilities(self, removed: Sequence[Sequence[int]]) -> list[list[float]]:
        """The probability of each likely answer without each of these sets of units."""
        masks = np.ones((len(removed), self.units.count), dtype=bool)
        for mask, places in zip(masks, removed, strict=True):
            mask[list(places)] = False
        is_sole, place = judges_each(self.answer, self.loaded_model.task), self.tokens.trace.target.place

        def read(output: Any) -> Tensor:
            return probabilities_of(logits_of(output, place).float(), is_sole=is_sole)[:, self.likely]

        rows: list[list[list[float]]] = self.tokens.outputs([self.units], [masks], read).tolist()
        return [row for (row,) in rows]


def _trace(loaded_model: LoadedModel, encoded: Sequence[EncodedExample], target: Any) -> tuple[Inputs, Trace]:
    """The model's inputs, and the question without its maps."""
    inputs = model_inputs(loaded_model, encoded)
    targets = encoded_targets(loaded_model, encoded, target, 1)
    return inputs, trace_batch(loaded_model, inputs, targets, Reads(subsets=True))


def _question(loaded_model: LoadedModel, encoded: EncodedExample, target: Any) -> _Question:
    inputs, trace = _trace(loaded_model, [encoded], target)
    options = processed_options(method_named(REMOVED_AS), {}, loaded_model, inputs, [encoded])
    answer = _answer(trace, {}, encoded, loaded_model)
    if answer.index is None:
        raise UnsupportedModel("Parts are removed where the answer has a probability.")
    return _Question(loaded_model, encoded, trace_ablation(trace, **options), answer)


def _answer(trace: Trace, scores: StreamScores, encoded: EncodedExample, loaded_model: LoadedModel) -> ExplainedAnswer:
    """Scores by stream, laid out on the parts of the example."""
    laid_out = merge_levels(trace.question.model, trace.question.inputs, zero_scores(trace) | scores)
    (answer,) = answers(BatchScores(trace, Attribution(scores), laid_out), [encoded], loaded_model.task)
    return answer


def _units(name: str, part: Part, numbers: np.ndarray) -> Iterator[RemovableUnit]:
    """The words, blocks of patches or regions of a part that can be removed."""
    for title, tokens in kind_of(part.layout).groups(part):
        own = tuple(token for token in tokens if numbers[token] >= 0)
        if own:
            yield RemovableUnit(name, own, title, math.fsum(part.scores[list(own)].tolist()))

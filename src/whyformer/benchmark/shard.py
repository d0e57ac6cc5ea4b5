"""A shard: samples that are measured together, the model's answers, and the methods' maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from whyformer.axes import Labels, Logits
from whyformer.batching import MemoryLimit
from whyformer.benchmark.batch import SampleBatch, label_of
from whyformer.benchmark.choice import Choice
from whyformer.benchmark.sample_targets import SampleTargets, answer, make_questions
from whyformer.errors import WhyformerError
from whyformer.metrics.perturbation_curves import Explained, explained_class
from whyformer.models.loading import LoadedModel
from whyformer.targets.scores import label_name

CONTROL = "random"  # the method in every table
Maps = dict[str, Tensor]  # the scores of each part: image [sample row column], regions and text [sample place]


@dataclass(eq=False)
class MapCache:
    """The maps computed so far, by method and labels, and the reasons why methods were left out.

    `at_once` caches the number of inputs to explain at once.
    """

    maps: dict[tuple[str, tuple[int, ...]], Maps] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    at_once: int | None = None


@dataclass(frozen=True, eq=False)
class Shard:
    """Input of a protocol. Methods are keyed by label; `logits` are the outputs for the complete samples."""

    loaded_model: LoadedModel
    batch: SampleBatch
    questions: SampleTargets
    logits: Logits
    labels: Labels
    methods: Mapping[str, Choice]
    batch_size: MemoryLimit
    seed: int = 0
    known: frozenset[str] = frozenset()  # methods and controls that the run has values of already
    cache: MapCache = field(default_factory=MapCache)

    def __len__(self) -> int:
        return len(self.batch)


class NotFinite(WhyformerError):
    """Some samples of a shard have answers or explanations that are not finite."""

    def __init__(self, rows: Sequence[int], reason: str) -> None:
        super().__init__(reason)
        self.rows = frozenset(rows)


def make_shard(
    loaded_model: LoadedModel,
    batch: SampleBatch,
    methods: Sequence[Choice],
    batch_size: MemoryLimit,
    seed: int = 0,
    known: frozenset[str] = frozenset(),
) -> Shard:
    """Run the model on the samples; raise NotFinite for those without finite logits."""
    questions = make_questions(loaded_model, batch, batch_size)
    batch = questions.batch
    logits = answer(questions, batch.inputs, batch_size)
    is_broken = ~is_finite(logits)
    if bool(is_broken.any()):
        raise NotFinite(is_broken.nonzero()[:, 0].tolist(), "The model answers with NaN or infinite logits.")
    numbers = [label_of(sample, names) for sample, names in zip(batch.samples, questions.names, strict=True)]
    labels = torch.tensor(numbers, device=logits.device)
    by_label = {choice.label: choice for choice in methods}
    return Shard(loaded_model, batch, questions, logits, labels, by_label, batch_size, seed, known)


def explained_labels(shard: Shard, which: Explained) -> Labels:
    """The label to explain for each sample: the model's answer, or the true one.

    Args:
        shard: The argument of the protocol.
        which: "predicted" or "target", the true label.

    Returns:
        The index of a label for each sample.

    Raises:
        WhyformerError: If true labels are requested, and a sample has none.

    Example:
        >>> from whyformer.extend import Figure, explained_labels, protocol
        >>> @protocol("answers", {"number": Figure("number", better="neither")}, replace=True)
        ... def answers(shard):
        ...     "The number of each predicted label."
        ...     return {("model", "number"): explained_labels(shard, "predicted").float()}
    """
    if which == "target" and bool((shard.labels < 0).any()):
        nameless = shard.batch.samples[int((shard.labels < 0).nonzero()[0])].name
        raise WhyformerError(f'{nameless!r} has no label: explained = "predicted" needs none.')
    return explained_class(shard.logits, shard.labels, which)


def label_names(shard: Shard, labels: Labels) -> list[str]:
    """Name of each sample's label."""
    return [label_name(label, names) for label, names in zip(labels.tolist(), shard.questions.names, strict=True)]


def is_finite(values: Tensor) -> Tensor:
    """Whether all values of each sample are finite."""
    return values.isfinite().flatten(1).all(dim=1)

"""Collate samples into a batch of a model's inputs; each is preprocessed once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from whyformer.axes import Inputs
from whyformer.benchmark.samples import Sample
from whyformer.inputs.collate import model_inputs
from whyformer.inputs.encode import EncodedExample, encode
from whyformer.models.loading import LoadedModel
from whyformer.models.structure import device_of, labels_of
from whyformer.targets.candidate_encoding import encode_texts
from whyformer.targets.scores import label_index

SAMPLE = "sample"  # among the inputs: the row of the sample of each input


@dataclass(frozen=True, eq=False)
class EncodedSample:
    """A sample, and its pictures and texts encoded for the model."""

    sample: Sample
    encoding: EncodedExample


@dataclass(frozen=True, eq=False)
class SampleBatch:
    """Samples, their encodings, and the collated tensors."""

    samples: tuple[Sample, ...]
    encodings: tuple[EncodedExample, ...]
    inputs: Inputs

    def __len__(self) -> int:
        return len(self.samples)

    @property
    def image_size(self) -> tuple[int, int]:
        """Height and width of the pictures as the model sees them."""
        height, width = self.inputs["pixel_values"].shape[-2:]
        return height, width

    def content_size(self, row: int) -> tuple[int, int]:
        """Height and width of one picture among its pixels; the rest is padding."""
        if "pixel_mask" not in self.inputs:
            return self.image_size
        is_content = self.inputs["pixel_mask"][row].bool()
        return int(is_content.any(dim=1).sum()), int(is_content.any(dim=0).sum())


def encode_sample(loaded_model: LoadedModel, sample: Sample) -> EncodedSample:
    """Encode a sample; raise if the model cannot read it or lacks its label."""
    if loaded_model.task.compares:
        _, (encoding,) = encode_texts(loaded_model, 0, sample.example, form="", purpose="", truncate=True)
    else:
        (encoding,) = encode(loaded_model, [sample.example], truncate=True)
    if sample.label is not None and not sample.choices:
        label_of(sample, known_labels(loaded_model))
    return EncodedSample(sample, encoding)


def collate_samples(loaded_model: LoadedModel, encoded: Sequence[EncodedSample]) -> SampleBatch:
    """Collate samples into one batch on the model's device; pictures become pixels."""
    inputs = model_inputs(loaded_model, [one.encoding for one in encoded])
    device = device_of(loaded_model.model)
    inputs[SAMPLE] = torch.arange(len(encoded), device=device)
    return SampleBatch(tuple(one.sample for one in encoded), tuple(one.encoding for one in encoded), inputs)


def known_labels(loaded_model: LoadedModel) -> dict[int, str]:
    """Names of the model's outputs: its labels, or its tokens if it writes."""
    if loaded_model.task.writes:
        return {number: token for token, number in loaded_model.tokenizer.get_vocab().items()}
    return dict(labels_of(loaded_model.model))


def label_of(sample: Sample, names: dict[int, str]) -> int:
    """The index of a sample's label among these; -1 if it has none."""
    return -1 if sample.label is None else label_index(sample.label, names, len(names))


def slice_inputs(inputs: Inputs, part: slice) -> Inputs:
    """Some rows of a batch of inputs."""
    return {name: value[part] for name, value in inputs.items()}


def model_arguments(inputs: Inputs) -> Inputs:
    """The inputs of the model, without the row of their sample."""
    return {name: value for name, value in inputs.items() if name != SAMPLE}

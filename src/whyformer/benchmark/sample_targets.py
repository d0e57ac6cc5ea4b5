"""Targets of benchmark samples by kind of model: a class, the presence of an object, the best-matching text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from whyformer.axes import Inputs, Labels, Logits
from whyformer.batching import MemoryLimit
from whyformer.benchmark.batch import SAMPLE, SampleBatch, known_labels, label_of, model_arguments, slice_inputs
from whyformer.inputs.chunks import whole_text
from whyformer.inputs.collate import model_inputs
from whyformer.inputs.encode import EncodedExample
from whyformer.models.loading import LoadedModel
from whyformer.models.structure import labels_of
from whyformer.targets.resolve import last_tokens, object_probabilities, scale_of
from whyformer.targets.scores import Target, label_name, logits_of


@dataclass(frozen=True, eq=False)
class TargetedInputs:
    """Inputs, and the target to explain for each slice of them."""

    inputs: Inputs
    target: Callable[[slice], Target]


@dataclass(frozen=True, eq=False)
class SampleTargets:
    """Inputs, targets and outputs of a model for a batch.

    `logits` runs the model on inputs; `targeted` returns the inputs and target for a label per sample; `names` are the
    label names of each sample.
    """

    batch: SampleBatch
    logits: Callable[[Inputs], Logits]
    targeted: Callable[[Labels], TargetedInputs]
    names: Sequence[dict[int, str]]


def make_questions(loaded_model: LoadedModel, batch: SampleBatch, batch_size: MemoryLimit) -> SampleTargets:
    """Build the targets of these samples for this model."""
    if loaded_model.task.compares:
        return _comparison(loaded_model, batch, batch_size)
    if loaded_model.task.detects:
        return _detection(loaded_model, batch)
    if loaded_model.task.writes:
        return _next_token(loaded_model, batch)
    return _classification(loaded_model, batch)


def answer(questions: SampleTargets, inputs: Inputs, batch_size: MemoryLimit) -> Logits:
    """Run the model on inputs with its own kernels, without a graph."""
    with torch.no_grad():
        parts = batch_size.map_slices(len(inputs[SAMPLE]), lambda part: questions.logits(slice_inputs(inputs, part)))
    return torch.cat(parts)


def _classification(loaded_model: LoadedModel, batch: SampleBatch) -> SampleTargets:
    names = dict(labels_of(loaded_model.model))
    return SampleTargets(
        batch,
        lambda inputs: logits_of(loaded_model.model(**model_arguments(inputs))),
        lambda labels: TargetedInputs(batch.inputs, lambda part: labels[part].tolist()),
        [names] * len(batch),
    )


def _next_token(loaded_model: LoadedModel, batch: SampleBatch) -> SampleTargets:
    """Which token comes next?"""
    names = known_labels(loaded_model)

    def logits(inputs: Inputs) -> Logits:
        output = loaded_model.model(**model_arguments(inputs))
        return logits_of(output, last_tokens(output.logits, inputs))

    return SampleTargets(
        batch,
        logits,
        lambda labels: TargetedInputs(batch.inputs, lambda part: labels[part].tolist()),
        [names] * len(batch),
    )


def _detection(loaded_model: LoadedModel, batch: SampleBatch) -> SampleTargets:
    """Is the object of the sample's label present? Logits of absent and present, by the most confident query."""
    names = dict(labels_of(loaded_model.model))
    numbers = [0 if sample.label is None else label_of(sample, names) for sample in batch.samples]
    true_labels = torch.tensor(numbers, device=batch.inputs[SAMPLE].device)

    def logits(inputs: Inputs) -> Logits:
        shares = object_probabilities(loaded_model.model(**model_arguments(inputs)).logits, names)
        label = true_labels[inputs[SAMPLE]]
        present = shares.gather(2, label[:, None, None].expand(-1, shares.shape[1], 1)).amax(dim=(1, 2))
        present = present.clamp(1e-6, 1 - 1e-6)
        return torch.stack([(1 - present).log(), present.log()], dim=1)

    def targeted(labels: Labels) -> TargetedInputs:
        return TargetedInputs(batch.inputs, lambda part: true_labels[part].tolist())

    sample_names = [{0: f"no {label_name(label, names)}", 1: label_name(label, names)} for label in numbers]
    return SampleTargets(batch, logits, targeted, sample_names)


def _comparison(loaded_model: LoadedModel, batch: SampleBatch, batch_size: MemoryLimit) -> SampleTargets:
    """Which text matches the picture best?"""
    texts = list(dict.fromkeys(text for sample in batch.samples for text in sample.choices))
    chunks = [whole_text(text, loaded_model, truncate=True) for text in texts]
    encodings = [EncodedExample(number, {"text": chunk}) for number, chunk in enumerate(chunks)]
    choices = model_inputs(loaded_model, encodings)
    model, scale = loaded_model.model, scale_of(loaded_model.model)
    with torch.no_grad():
        one_image = {"pixel_values": batch.inputs["pixel_values"][:1]}
        embedded = torch.cat(
            batch_size.map_slices(
                len(texts), lambda part: model(**slice_inputs(choices, part), **one_image).text_embeds
            )
        )
    number_of = {text: number for number, text in enumerate(texts)}
    numbers = [[number_of[text] for text in sample.choices] for sample in batch.samples]
    most = max(map(len, numbers))
    places = torch.tensor([line + [-1] * (most - len(line)) for line in numbers], device=embedded.device)

    def logits(inputs: Inputs) -> Logits:
        one_text = {name: value[:1] for name, value in choices.items()}
        image_embeds = model(pixel_values=inputs["pixel_values"], **one_text).image_embeds
        here = places[inputs[SAMPLE]]
        likeness = scale * (image_embeds @ embedded.T).gather(1, here.clamp(min=0))
        masked: Logits = likeness.masked_fill(here < 0, torch.finfo(likeness.dtype).min)
        return masked

    # The samples' texts are padded like the choices, so that their maps have the same width.
    own = torch.tensor([number_of[sample.example[1]] for sample in batch.samples], device=embedded.device)
    padded = replace(batch, inputs=batch.inputs | {name: value[own] for name, value in choices.items()})

    def targeted(labels: Labels) -> TargetedInputs:
        texts_here = places.gather(1, labels[:, None])[:, 0]
        inputs = padded.inputs | {name: value[texts_here] for name, value in choices.items()}
        return TargetedInputs(inputs, lambda part: "predicted")

    names = [dict(enumerate(sample.choices)) for sample in batch.samples]
    return SampleTargets(padded, logits, targeted, names)

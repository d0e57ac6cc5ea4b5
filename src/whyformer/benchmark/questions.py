"""The questions put to each kind of model: a class, whether a thing is there, which text is the most alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from whyformer.axes import Inputs, Labels, Logits
from whyformer.benchmark.batch_size import BatchSize
from whyformer.benchmark.samples import Sample, is_detector
from whyformer.inputs.collate import model_inputs
from whyformer.inputs.encode import EncodedExample, picture_of, whole_text
from whyformer.models.loading import LoadedModel
from whyformer.models.structure import labels_of
from whyformer.targets.resolve import scale_of
from whyformer.targets.scores import Target, label_index, label_name, logits_of

SAMPLE = "sample"  # among the inputs: whose they are


@dataclass(frozen=True, eq=False)
class Questions:
    """How a model is asked: the logits of inputs, and what is explained for a label of each sample, on which inputs."""

    inputs: Inputs
    logits: Callable[[Inputs], Logits]
    explained: Callable[[Labels], tuple[Inputs, Callable[[slice], Target]]]
    names: Sequence[dict[int, str]]  # of the labels, for each sample


def questions_of(loaded_model: LoadedModel, inputs: Inputs, samples: Sequence[Sample], pace: BatchSize) -> Questions:
    """How this model is asked about these samples."""
    if loaded_model.compares:
        return _compared(loaded_model, inputs, samples, pace)
    return _detected(loaded_model, inputs, samples) if is_detector(loaded_model) else _classified(loaded_model, inputs)


def _classified(loaded_model: LoadedModel, inputs: Inputs) -> Questions:
    names = dict(labels_of(loaded_model.model))
    return Questions(
        inputs,
        lambda asked: logits_of(loaded_model.model(**as_taken(asked))),
        lambda labels: (inputs, lambda part: labels[part].tolist()),
        [names] * len(inputs[SAMPLE]),
    )


def _detected(loaded_model: LoadedModel, inputs: Inputs, samples: Sequence[Sample]) -> Questions:
    """Is the thing of the sample's label there? Two logits, of absent and present, by the query that says so most."""
    names = dict(labels_of(loaded_model.model))
    known = [0 if sample.label is None else label_of(sample, names) for sample in samples]
    asked_for = torch.tensor(known, device=inputs[SAMPLE].device)

    def logits(asked: Inputs) -> Logits:
        found = probabilities(loaded_model, loaded_model.model(**as_taken(asked)).logits)
        chosen = asked_for[asked[SAMPLE]]
        present = found.gather(2, chosen[:, None, None].expand(-1, found.shape[1], 1)).amax(dim=(1, 2))
        present = present.clamp(1e-6, 1 - 1e-6)
        return torch.stack([(1 - present).log(), present.log()], dim=1)

    def explained(labels: Labels) -> tuple[Inputs, Callable[[slice], Target]]:
        return inputs, lambda part: asked_for[part].tolist()

    sample_names = [{0: f"no {label_name(label, names)}", 1: label_name(label, names)} for label in known]
    return Questions(inputs, logits, explained, sample_names)


def probabilities(loaded_model: LoadedModel, logits: Tensor) -> Tensor:
    """Of each label at each object query; a logit more than there are labels is "no object"."""
    is_sole = logits.shape[2] == len(labels_of(loaded_model.model))
    return logits.sigmoid() if is_sole else logits.softmax(dim=2)[..., :-1]


def _compared(loaded_model: LoadedModel, inputs: Inputs, samples: Sequence[Sample], pace: BatchSize) -> Questions:
    """Which of its texts is the picture most like?"""
    texts = list(dict.fromkeys(text for sample in samples for text in sample.choices))
    picture = picture_of(samples[0].example[0], loaded_model)
    encoded = [
        EncodedExample(n, picture, chunk=whole_text(text, loaded_model, truncate=True)) for n, text in enumerate(texts)
    ]
    choices = model_inputs(loaded_model, encoded)
    read = {name: value for name, value in choices.items() if name != "pixel_values"}
    model, scale = loaded_model.model, scale_of(loaded_model.model)
    with torch.no_grad():
        one = {"pixel_values": choices["pixel_values"][:1]}
        embedded = torch.cat(pace.parts(len(texts), lambda part: model(**sliced(read, part), **one).text_embeds))
    number_of = {text: number for number, text in enumerate(texts)}
    numbers = [[number_of[text] for text in sample.choices] for sample in samples]
    most = max(map(len, numbers))
    places = torch.tensor([line + [-1] * (most - len(line)) for line in numbers], device=embedded.device)

    def logits(asked: Inputs) -> Logits:
        one_text = {name: value[:1] for name, value in read.items()}
        seen = model(pixel_values=asked["pixel_values"], **one_text).image_embeds
        here = places[asked[SAMPLE]]
        alike = scale * (seen @ embedded.T).gather(1, here.clamp(min=0))
        answers: Logits = alike.masked_fill(here < 0, torch.finfo(alike.dtype).min)
        return answers

    def explained(labels: Labels) -> tuple[Inputs, Callable[[slice], Target]]:
        chosen = places.gather(1, labels[:, None])[:, 0]
        return inputs | {name: value[chosen] for name, value in read.items()}, lambda part: "predicted"

    names = [dict(enumerate(sample.choices)) for sample in samples]
    return Questions(inputs, logits, explained, names)


def label_of(sample: Sample, names: dict[int, str]) -> int:
    """The number of a sample's label among these; -1 if it has none."""
    return -1 if sample.label is None else label_index(sample.label, names, len(names))


def sliced(inputs: Inputs, part: slice) -> Inputs:
    return {name: value[part] for name, value in inputs.items()}


def as_taken(inputs: Inputs) -> Inputs:
    """The inputs as the model takes them: it need not know whose they are."""
    return {name: value for name, value in inputs.items() if name != SAMPLE}

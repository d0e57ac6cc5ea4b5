"""Some samples of a suite put to its model: their inputs as one batch, the answers, and every method's maps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from whyformer.api.attribution import attribute
from whyformer.axes import Inputs, Labels, Logits, PixelTruth, StepLogits, StreamScores, TokenMask
from whyformer.benchmark.batch_size import BatchSize
from whyformer.benchmark.questions import SAMPLE, Questions, as_taken, label_of, questions_of, sliced
from whyformer.benchmark.samples import Sample
from whyformer.data.examples import UNKNOWN
from whyformer.errors import UnsupportedModel, WhyformerError
from whyformer.inputs.collate import black, model_inputs
from whyformer.inputs.encode import EncodedExample, encode, picture_of, whole_text
from whyformer.inputs.read import Regions
from whyformer.metrics.perturbation import Explained, explained_class, step_logits
from whyformer.metrics.priors import PRIORS, REGION_PRIORS
from whyformer.metrics.removal import Removable, removable_tokens
from whyformer.models.loading import LoadedModel
from whyformer.models.structure import labels_of, patch_grid
from whyformer.targets.scores import Target, label_name
from whyformer.tracing.build import trace
from whyformer.tracing.reads import Reads

Maps = dict[str, Tensor]  # the scores of each part: image [sample row column], regions and text [sample place]
Gone = Callable[[], Tensor]  # makes a Removal or PixelRemoval
Perturbed = Callable[[Tensor, slice], Inputs]  # the inputs of these samples, at every step of what is gone of them
Key = TypeVar("Key", str, tuple[str, str])
CONTROL = "random"  # the method that is in every table


@dataclass(frozen=True, eq=False)
class Shard:
    """Samples, asked about together. `maps` is the memory of what was explained, by method and labels."""

    loaded_model: LoadedModel
    samples: tuple[Sample, ...]
    encoded: tuple[EncodedExample, ...]
    questions: Questions
    clean: Logits
    labels: Labels
    methods: dict[str, tuple[str, dict[str, Any]]]
    pace: BatchSize
    seed: int = 0
    maps: dict[tuple[str, tuple[int, ...]], Maps] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def inputs(self) -> Inputs:
        return self.questions.inputs

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the pictures as the model sees them."""
        height, width = self.inputs["pixel_values"].shape[-2:]
        return height, width

    def __len__(self) -> int:
        return len(self.samples)

    def explained(self, which: Explained) -> Labels:
        """The label of each sample that is explained."""
        if which == "target" and bool((self.labels < 0).any()):
            nameless = self.samples[int((self.labels < 0).nonzero()[0])].name
            raise WhyformerError(f'{nameless!r} has no label: explained = "predicted" needs none.')
        return explained_class(self.clean, self.labels, which)

    def answers(self, inputs: Inputs) -> Logits:
        """The model's answers to inputs, on its own kernels, without a graph."""
        with torch.no_grad():
            parts = self.pace.parts(len(inputs[SAMPLE]), lambda part: self.questions.logits(sliced(inputs, part)))
        return torch.cat(parts)

    def step_answers(self, gone: Mapping[Key, Gone], steps: int, perturbed: Perturbed) -> dict[Key, StepLogits]:
        """The answers to every sample at every step; what is gone is so many steps under each key.

        Steps of all keys are asked about together, as many as the pace allows. Where memory runs out while masks or
        perturbed inputs are made, it is halved as for the answers themselves.
        """
        makers, rows = list(gone.values()), len(self)
        made = lru_cache(maxsize=1)(lambda number: makers[number]())  # parts are asked about in their order

        def asked(part: slice) -> Logits:
            first, last = part.start // rows, (part.stop - 1) // rows + 1
            here = slice(part.start % rows, (part.stop - 1) % rows + 1)
            numbers = range(first // steps, (last - 1) // steps + 1)
            masks = [made(n)[max(0, first - n * steps) : last - n * steps, here] for n in numbers]
            return step_logits(self.questions.logits, perturbed(torch.cat(masks), here)).flatten(0, 1)

        answers = torch.cat(self.pace.parts(len(makers) * steps * rows, asked, unit=rows))
        return dict(zip(gone, answers.unflatten(0, (-1, rows)).split(steps), strict=True))

    def explanations(self, labels: Labels, part: str) -> dict[str, Tensor]:
        """The maps of this part by every method that gives one; of pictures and regions by the priors too."""
        found = {name: self._maps(name, labels) for name in self.methods}
        maps = {name: found_maps[part] for name, found_maps in found.items() if found_maps and part in found_maps}
        if part == "image":
            return maps | self.priors(self.inputs, maps)
        return maps | self._region_priors(maps) if part == "regions" else maps

    def priors(self, inputs: Inputs, maps: Maps) -> Maps:
        """The maps that look at no model, of the same patches as these."""
        control = next(label for label, (name, _) in self.methods.items() if name == CONTROL)
        rows, columns = maps[control].shape[1:]
        return {name: prior(inputs["pixel_values"], rows, columns) for name, prior in PRIORS.items()}

    def _region_priors(self, maps: Maps) -> Maps:
        """The same of regions, of each picture its own; what pads them is 0."""
        like = next(iter(maps.values()))
        found = {name: torch.zeros_like(like) for name in REGION_PRIORS}
        for row, sample in enumerate(self.samples):
            regions: Regions = sample.example[0]
            pixels = torch.from_numpy(np.array(regions.image.convert("RGB"))).permute(2, 0, 1)[None]
            boxes = torch.from_numpy(regions.shares)
            for name, prior in REGION_PRIORS.items():
                found[name][row, : len(boxes)] = prior(pixels, boxes).to(like)
        return found

    def _maps(self, name: str, labels: Labels) -> Maps | None:
        key = (name, tuple(labels.tolist()))
        if key not in self.maps and name not in self.left_out:
            found = self.attempted(*self.questions.explained(labels), name)
            self.maps.update({} if found is None else {key: found})
        return self.maps.get(key)

    def attempted(self, inputs: Inputs, target: Callable[[slice], Target], name: str) -> Maps | None:
        """The maps of these inputs by a method of the suite; None, and why, where it does not apply to the model."""
        try:
            maps = self.explained_on(self.loaded_model, inputs, target, name)
        except UnsupportedModel as reason:
            self.left_out[name] = str(reason)
            return None
        broken = ~torch.stack([is_finite(scores) for scores in maps.values()]).all(dim=0)
        if len(broken) > 1 and bool(broken.all()):
            self.left_out[name] = "It gives NaN or infinite scores on all samples of a shard."
            return None
        if bool(broken.any()):
            raise NotFinite(inputs[SAMPLE][broken].tolist(), f"{name} gives NaN or infinite scores.")
        return maps

    def explained_on(
        self, loaded_model: LoadedModel, inputs: Inputs, target: Callable[[slice], Target], name: str
    ) -> Maps:
        """The maps of these inputs by a method of the suite."""
        method, options = self.methods[name]

        def asked(part: slice) -> StreamScores:
            settings = {"inputs_at_once": self.pace.size, **options}
            return attribute(
                loaded_model.model, as_taken(sliced(inputs, part)), target(part), method, **settings
            ).scores

        found = self.pace.parts(len(inputs[SAMPLE]), asked)
        streams = {stream: torch.cat([part[stream] for part in found]) for stream in found[0]}
        return parts_of(loaded_model, streams, inputs)

    def truth(self, row: int) -> PixelTruth | None:
        """The mask of a sample's picture where the model sees it, one entry for each of its pixels."""
        mask, picture = self.samples[row].mask, self.encoded[row].picture
        if mask is None or picture is None:
            return None
        height, width = self.content(row)
        box = tuple(picture.box)
        seen = Image.fromarray(mask).transform((width, height), Image.Transform.EXTENT, box, fillcolor=UNKNOWN)
        whole = torch.full(self.size, UNKNOWN, dtype=torch.long)
        whole[:height, :width] = torch.from_numpy(np.array(seen)).long()
        return whole.to(self.clean.device)

    def content(self, row: int) -> tuple[int, int]:
        """Height and width of a sample's picture among its pixels; the rest is padding."""
        if "pixel_mask" not in self.inputs:
            return self.size
        seen = self.inputs["pixel_mask"][row].bool()
        return int(seen.any(dim=1).sum()), int(seen.any(dim=0).sum())

    def words(self, which: Removable = "content") -> TokenMask:
        """The tokens of the texts that are words; `which` may let special tokens and padding in."""
        ids = self.inputs["input_ids"]
        mask = self.inputs.get("attention_mask", torch.ones_like(ids))
        return removable_tokens(ids, mask, self.loaded_model.tokenizer.all_special_ids, which)

    @property
    def class_tokens(self) -> TokenMask:
        """Where [CLS] is in the texts; nowhere if the tokenizer has none."""
        ids: Tensor = self.inputs["input_ids"]
        found = getattr(self.loaded_model.tokenizer, "cls_token_id", None)
        return torch.zeros_like(ids, dtype=torch.bool) if found is None else ids == found

    def read_tokens(self, labels: Labels) -> TokenMask:
        """The token of each text that the answer is read from, where it is read from one alone."""
        inputs, target = self.questions.explained(labels)
        plain = as_taken(inputs)

        def asked(part: slice) -> TokenMask:
            readout = trace(
                self.loaded_model.model, sliced(plain, part), target(part), reads=Reads(maps="last", gradients="last")
            ).readout
            return readout.weights[:, : plain["input_ids"].shape[1]] == 1

        return torch.cat(self.pace.parts(len(self), asked))

    def label_names(self, labels: Labels) -> list[str]:
        return [label_name(label, names) for label, names in zip(labels.tolist(), self.questions.names, strict=True)]


class NotFinite(WhyformerError):
    """Some samples of a shard have no finite answer, or no finite explanation."""

    def __init__(self, rows: Sequence[int], reason: str) -> None:
        super().__init__(reason)
        self.rows = frozenset(rows)


def is_finite(values: Tensor) -> Tensor:
    """Of each sample: are all its values finite?"""
    return values.isfinite().flatten(1).all(dim=1)


def repeated(inputs: Inputs, steps: int) -> Inputs:
    """Every input at every step."""
    return {name: value.expand(steps, *value.shape) for name, value in inputs.items()}


def parts_of(loaded_model: LoadedModel, streams: StreamScores, inputs: Inputs) -> Maps:
    """Scores of streams as those of the parts of an example: a picture, its regions, a text."""
    found: Maps = {}
    words = inputs["input_ids"].shape[1] if "input_ids" in inputs else 0
    text = streams.get("text", streams.get("source"))
    if words and text is not None:
        found["text"] = text[:, :words].float()
    seen = streams.get("image", text)
    if "pixel_values" in inputs:
        size = inputs["pixel_values"].shape[-2:]
        if "pixels" in streams:
            found["image"] = streams["pixels"].float().unflatten(1, size)
        elif seen is not None:
            rows, columns = patch_grid(loaded_model.model, size, seen.shape[1])
            found["image"] = seen[:, seen.shape[1] - rows * columns :].float().unflatten(1, (rows, columns))
    elif loaded_model.sees_regions and seen is not None:
        found["regions"] = seen[:, 0 if "image" in streams else words :].float()
    return found


def shard_of(
    loaded_model: LoadedModel,
    samples: Sequence[Sample],
    methods: dict[str, tuple[str, dict[str, Any]]],
    pace: BatchSize,
    seed: int = 0,
) -> Shard:
    """The samples put to the model; NotFinite names those that it has no answer to."""
    encoded = tuple(_pieces(loaded_model, samples))
    inputs = model_inputs(loaded_model, encoded)
    device = next(loaded_model.model.parameters()).device
    inputs[SAMPLE] = torch.arange(len(samples), device=device)
    questions = questions_of(loaded_model, inputs, samples, pace)
    named = [label_of(sample, names) for sample, names in zip(samples, questions.names, strict=False)]
    labels = torch.tensor(named, device=device)
    methods = {label: (name, _as_tensors(options, loaded_model)) for label, (name, options) in methods.items()}
    shard = Shard(loaded_model, tuple(samples), encoded, questions, torch.empty(0), labels, methods, pace, seed)
    clean = shard.answers(inputs)
    broken = ~is_finite(clean)
    if bool(broken.any()):
        raise NotFinite(broken.nonzero()[:, 0].tolist(), "The model answers with NaN or infinite logits.")
    return Shard(loaded_model, tuple(samples), encoded, questions, clean, labels, methods, pace, seed)


def check_sample(loaded_model: LoadedModel, sample: Sample) -> None:
    """Refuse a sample that the model could not be asked about."""
    (one,) = _pieces(loaded_model, [sample])
    model_inputs(loaded_model, [one])
    if sample.label is not None and not sample.choices:
        label_of(sample, labels_of(loaded_model.model))


def _pieces(loaded_model: LoadedModel, samples: Sequence[Sample]) -> Iterator[EncodedExample]:
    if not loaded_model.compares:
        yield from encode(loaded_model, [sample.example for sample in samples], truncate=True)
        return
    for number, sample in enumerate(samples):
        image, text = sample.example
        yield EncodedExample(
            number, picture_of(image, loaded_model), chunk=whole_text(text, loaded_model, truncate=True)
        )


def _as_tensors(options: dict[str, Any], loaded_model: LoadedModel) -> dict[str, Any]:
    """A black baseline in the model's own colours."""
    is_black = options.get("baseline") == "black" and loaded_model.sees_pictures
    return options | {"baseline": black(loaded_model.image_processor)} if is_black else options

"""Evaluate a trace's target on inputs without some of their units, and lay unit scores on tokens."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from whyformer.axes import (
    Inputs,
    StreamScores,
    SubsetExampleScores,
    UnitMasks,
    UnitScores,
    at_least_float32,
)
from whyformer.errors import UnsupportedModel, WhyformerError, check_choice
from whyformer.inputs.fills import Erasure, Fill
from whyformer.inputs.modality import known_modalities
from whyformer.inputs.removable import PartUnits, RemovablePart, TraceRemoval, UnitChoice, UnitKind
from whyformer.models.structure import config_of
from whyformer.removal.state_insertion import insert_states
from whyformer.removal.units import Ablation, Units
from whyformer.tracing.leaves import padding_token
from whyformer.tracing.question import repeat_inputs, split_output
from whyformer.tracing.trace import Trace, copies_at_once, real_tokens


@dataclass(frozen=True, eq=False)
class TokenAblation:
    """A trace's question as a function of which units of its inputs are kept."""

    trace: Trace
    parts: tuple[RemovablePart, ...]
    removal: TraceRemoval

    @property
    def ablation(self) -> Ablation:
        """The Ablation that methods take."""
        trace, shapes = self.trace, [part.shape for part in self.parts]
        with torch.no_grad():
            whole = at_least_float32(trace.question.score(trace.output)).double().cpu().numpy()
        rows = (self._numbers(row) for row in range(trace.question.batch))
        examples = tuple(Units.counted(numbers, shapes) for numbers in rows)
        if any(units.count == 0 for units in examples):
            raise WhyformerError("An example has no removable parts: all of its tokens are special.")
        return Ablation(examples, whole, self._ask, insert=partial(insert_states, self, examples))

    def on_tokens(self, ablation: Ablation, scores: Sequence[UnitScores]) -> StreamScores:
        """Convert unit scores to token scores: the mean over a token's places of their units' scores."""
        streams = {
            part.stream: torch.zeros_like(self.trace.masks[part.stream], dtype=torch.float32) for part in self.parts
        }
        for row, (units, own) in enumerate(zip(ablation.examples, scores, strict=True)):
            lengths = [part.numbers.shape[1] for part in self.parts]
            by_part = np.split(units.at_places(own), np.cumsum(lengths)[:-1])
            for part, places in zip(self.parts, by_part, strict=True):
                tokens, stream = part.tokens[row], streams[part.stream]
                is_token, count = tokens >= 0, stream.shape[1]
                sums = np.bincount(tokens[is_token], places[is_token], count)
                sizes = np.bincount(tokens[is_token], minlength=count)
                stream[row] += torch.from_numpy(sums / np.maximum(sizes, 1)).to(stream)
        return streams

    def _numbers(self, row: int) -> np.ndarray:
        """The units of an example's places, part by part."""
        numbers, first = [], 0
        for part in self.parts:
            own = part.numbers[row]
            numbers.append(np.where(own < 0, -1, own + first))
            first += int(own.max(initial=-1)) + 1
        return np.concatenate(numbers)

    def outputs(
        self, examples: Sequence[Units], masks: Sequence[UnitMasks], read: Callable[[Any], Tensor]
    ) -> np.ndarray:
        """Values that `read` takes from the output, [subset example …], with these units of each example kept."""
        question, device = self.trace.question, self.trace.mask.device
        subsets = max(map(len, masks))
        copies = max(1, copies_at_once(self.trace) // question.batch)
        numbers = [torch.from_numpy(units.numbers).to(device) for units in examples]
        rows: list[Tensor] = []
        for start in self.trace.state.track(range(0, subsets, copies)):
            stop = min(subsets, start + copies)
            kept = torch.stack(
                [_at_places(own[start:stop], n, stop - start) for own, n in zip(masks, numbers, strict=True)], dim=1
            )
            with torch.inference_mode(False), torch.no_grad():
                output = question.model(**self._inputs(kept))
                rows += [read(part) for part in split_output(output, question.batch, stop - start)]
        values: np.ndarray = at_least_float32(torch.stack(rows)).double().cpu().numpy()
        return values

    def kept_tokens(self, examples: Sequence[Units], masks: Sequence[UnitMasks]) -> dict[str, Tensor]:
        """Which tokens of each stream belong to kept units, [subset, example, token]."""
        device, subsets = self.trace.mask.device, max(map(len, masks))
        places = np.zeros((subsets, len(examples), len(examples[0].numbers)), dtype=bool)
        for row, (units, own) in enumerate(zip(examples, masks, strict=True)):
            places[: len(own), row] = np.pad(own, ((0, 0), (0, 1)))[:, units.numbers]
        by_stream: dict[str, Tensor] = {}
        sizes = [part.numbers.shape[1] for part in self.parts]
        for part, chosen in zip(self.parts, np.split(places, np.cumsum(sizes)[:-1], axis=2), strict=True):
            shape = (subsets, *self.trace.masks[part.stream].shape)
            kept = by_stream.setdefault(part.stream, torch.zeros(shape, dtype=torch.bool, device=device))
            subset, example, place = (chosen & (part.tokens >= 0)).nonzero()
            indices = (subset, example, part.tokens[example, place])
            kept[tuple(torch.from_numpy(index).to(device) for index in indices)] = True
        return by_stream

    def neutral_inputs(self, examples: Sequence[Units], copies: int) -> Inputs:
        """Copies of the inputs without any of the units, whose places the model still sees."""
        inputs = self.trace.question.inputs
        kept = torch.stack([torch.from_numpy(units.numbers < 0) for units in examples]).to(self.trace.mask.device)
        neutral = self._inputs(kept[None].expand(copies, -1, -1))
        masks = {name: inputs.get(name) for name in ("attention_mask",) if name in neutral}
        own = repeat_inputs({k: v for k, v in masks.items() if v is not None}, copies, self.trace.question.batch)
        return {name: value for name, value in neutral.items() if name not in masks} | own

    def _ask(self, examples: Sequence[Units], masks: Sequence[UnitMasks]) -> SubsetExampleScores:
        return self.outputs(examples, masks, self.trace.question.score)

    def _inputs(self, kept: Tensor) -> Inputs:
        """The inputs of each copy of the examples, with only the kept places [copy, example, place]."""
        inputs = self.trace.question.inputs
        copies = repeat_inputs(inputs, len(kept), self.trace.question.batch)
        sizes = [part.numbers.shape[1] for part in self.parts]
        for part, own in zip(self.parts, kept.split(sizes, dim=2), strict=True):
            steps = _without(part, inputs, own.unflatten(2, part.shape), self.removal)
            copies |= {
                name: value.flatten(0, 1) for name, value in steps.items() if name in inputs or self._takes(name)
            }
        return copies

    def _takes(self, name: str) -> bool:
        """Whether the model takes an input of this name that is not among the inputs."""
        return name in inspect.signature(self.trace.question.model.forward).parameters


def trace_ablation(
    trace: Trace,
    *,
    units: UnitChoice = "token",
    fill: Fill | Tensor = "mean",
    erasure: Erasure | int = "pad",
) -> TokenAblation:
    """The trace's question as a function of which units of its inputs are kept.

    Args:
        trace: The question.
        units: "token" for word pieces, patches and regions; "superpixel" for segments of a picture; or a dict of
            these by part, "text", "image" or "regions". In a dict, a tensor gives the unit of each place, [example,
            token] or [example, height, width], and -1 to places that are never removed.
        fill: The fill of removed pixels.
        erasure: The replacement of removed word pieces.
    """
    removable = [name for name, modality in known_modalities().items() if modality.removal is not None]
    by_part = dict.fromkeys(removable, units) if isinstance(units, str) else units
    for kind in (kind for kind in by_part.values() if isinstance(kind, str)):
        check_choice("units", kind, UnitKind)
    if isinstance(by_part.get("text"), str) and by_part["text"] == "word":
        raise WhyformerError(
            "units='word' needs the tokenizer: use explain, or give the word of each token as a tensor."
        )
    if isinstance(fill, str) and fill == "black":
        raise WhyformerError("fill='black' needs the image processor: use explain, or give the colour as a tensor.")
    if isinstance(erasure, str) and erasure == "mask":
        raise WhyformerError("erasure='mask' needs the tokenizer: use explain, or give the id of its mask token.")
    parts = tuple(_parts(trace, by_part))
    if erasure == "delete" and trace.target.place is not None and any(part.kind == "text" for part in parts):
        raise WhyformerError("erasure='delete' would move the read-out token: use 'pad' or 'mask'.")
    return TokenAblation(trace, parts, TraceRemoval(fill, erasure, padding_token(config_of(trace.question.model)) or 0))


def _parts(trace: Trace, units: PartUnits) -> Iterator[RemovablePart]:
    """Removable parts of the inputs of a trace."""
    question = trace.question
    name, axes = type(question.model).__name__, getattr(question.inputs.get("pixel_values"), "ndim", 4)
    if question.bridge is not None and (axes != 4 or not question.bridge.has_one_each):
        raise UnsupportedModel(
            f"{name} reads pictures in tiles, as a sequence of patches, or several per prompt: parts can only be "
            "removed from a single whole picture. Use rollout or generic_attention."
        )
    if axes != 4:
        raise UnsupportedModel(f"{name} takes pixels with {axes} axes: parts can only be removed from single pictures.")
    lengths = {stream: mask.shape[1] for stream, mask in real_tokens(trace).items()}
    is_empty = True
    for modality in known_modalities().values():
        place = None if modality.place is None else modality.place(question.model, question.inputs, lengths)
        if place is not None and modality.removal is not None:
            is_empty = False
            yield modality.removal.places(trace, place, units)
    if is_empty:
        raise UnsupportedModel(f"The inputs of {name} have no removable parts: words, patches or regions.")


def _at_places(masks: UnitMasks, numbers: Tensor, count: int) -> Tensor:
    """Mask of kept places, [subset, place]; places outside all units and missing subsets are kept."""
    own = torch.from_numpy(np.ascontiguousarray(masks)).to(numbers.device)
    kept = torch.ones(count, own.shape[1] + 1, dtype=own.dtype, device=own.device)
    kept[: len(own), :-1] = own
    return kept[:, numbers]


def _without(part: RemovablePart, inputs: Inputs, kept: Tensor, removal: TraceRemoval) -> Inputs:
    """The inputs of a part at every step, without the places that are not kept."""
    of_part = known_modalities()[part.kind].removal
    assert of_part is not None
    return of_part.without(inputs, kept, removal)

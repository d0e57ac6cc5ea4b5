"""Series of measurements: a kind of input that the package does not know, in one file as a plugin has it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw
from rich.text import Text
from torch import Tensor, nn

from whyformer import LoadedModel, Part, WhyformerError
from whyformer.extend import FAMILIES, Family, LayoutKind, Modality, known_modalities
from whyformer.inputs.modality import FileKind, ForwardBatch, PartPlace, ScoredLayout
from whyformer.inputs.removable import PartRemoval, RemovablePart, token_line
from whyformer.render.colour import rgb, score_scale
from whyformer.render.view import PartView, PictureView, data_uri, legend_view

STEPS, WIDTH = 6, 8


@dataclass(frozen=True)
class Steps:
    """The measurements of a series, in the order of time."""

    values: tuple[float, ...]

    @property
    def size(self) -> int:
        return len(self.values)

    @property
    def tokens(self) -> tuple[str, ...]:
        return tuple(f"step {number}" for number in range(1, self.size + 1))

    @property
    def summary(self) -> str:
        return f"{self.size} steps"


def read(example: Any) -> tuple[float, ...]:
    """Read a file with a number on each line, or a list of numbers."""
    lines = Path(example).read_text().split() if isinstance(example, (str, Path)) else example
    values = tuple(map(float, lines))
    if len(values) != STEPS:
        raise WhyformerError(f"A series has {STEPS} measurements, not {len(values)}.")
    return values


def encode(example: Any, loaded_model: LoadedModel, *, truncate: bool, room: int) -> Iterator[dict[str, Any]]:
    yield {"series": read(example)}


def collate(loaded_model: LoadedModel, parts: Sequence[tuple[float, ...]]) -> dict[str, Any]:
    return {"series": torch.tensor(parts)}


def place(model: nn.Module, inputs: Mapping[str, Any], lengths: Mapping[str, int]) -> PartPlace | None:
    return PartPlace("series", "series", 0, lengths["series"]) if "series" in inputs else None


def lay_out(part: tuple[float, ...], row: int, forward: ForwardBatch, place: PartPlace, scores: Tensor) -> ScoredLayout:
    return ScoredLayout("series", Steps(part), scores)


def removable(trace: Any, place: PartPlace, units: Any) -> RemovablePart:
    return token_line("series", place.stream, place.first, trace.masks[place.stream], units)


def without(inputs: Mapping[str, Any], kept: Tensor, removal: Any) -> dict[str, Any]:
    return {"series": inputs["series"] * kept}


def figure(part: Part, width: int) -> Image.Image:
    """A bar for each step, in the colour of its score."""
    sheet, scale, step = Image.new("RGB", (width, 100), "white"), score_scale(part.scores), width // part.layout.size
    colours = scale.colours(scale.strength(part.scores), "light")
    for number, (value, colour) in enumerate(zip(part.layout.values, colours, strict=True)):
        top = round(50 - 40 * value)
        corners = (number * step, min(50, top), (number + 1) * step - 2, max(50, top))
        ImageDraw.Draw(sheet).rectangle(corners, fill=rgb(colour))
    return sheet


def lines(part: Part, width: int) -> list[str]:
    return [f"{name}: {value:g}, {score:+.2f}" for name, value, score in rows(part)]


def rows(part: Part) -> Iterator[tuple[str, float, float]]:
    return zip(part.tokens, part.layout.values, part.scores.tolist(), strict=True)


def view(part: Part, side: int, units: str) -> PartView:
    return PartView(legend_view(part, "page"), picture=PictureView("", data_uri(figure(part, 2 * side)), "The series"))


def from_fields(field: Callable[..., Any]) -> Steps:
    return Steps(tuple(field("values", list[float])))


STEP_KIND = LayoutKind(
    name="steps",
    fields=("values",),
    units=("token",),
    to_fields=lambda layout: {"values": list(layout.values)},
    from_fields=from_fields,
    places=lambda layout: ({"step": number} for number in range(1, layout.size + 1)),
    figure=lambda part, space: figure(part, space.width),
    lines=lines,
    coloured=lambda part, width, units: list(map(Text, lines(part, width))),
    view=view,
    noun="series",
    unit="step",
    whole="the series",
    ground="page",
)
known_modalities()["series"] = Modality(
    "series",
    collate,
    place,
    lay_out,
    encode,
    noise=lambda loaded_model: np.linspace(-1, 1, STEPS),
    noun="series",
    read=read,
    files=FileKind(
        frozenset({".series"}), "series", "series", "a series, and this model takes a text: choose a model for series"
    ),
    removal=PartRemoval(removable, without),
    layouts={Steps: STEP_KIND},
)
FAMILIES["series"] = Family("series", "mean", scaled="embedding", mask=None, modality="series")


class Block(nn.Module):
    """Attention of two heads, and its residual."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, states: Tensor) -> Tensor:
        heads = (one(states).unflatten(2, (2, -1)).transpose(1, 2) for one in (self.query, self.key, self.value))
        return states + self.out(F.scaled_dot_product_attention(*heads).transpose(1, 2).flatten(2))


class Classifier(nn.Module):
    """Tells series that rise from those that fall."""

    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(model_type="series", id2label={0: "rises", 1: "falls"}, num_labels=2)
        self.embedding, self.blocks = nn.Linear(1 + STEPS, WIDTH), nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, series: Tensor) -> Tensor:
        numbers = torch.eye(STEPS, dtype=series.dtype).expand(len(series), -1, -1)
        states = self.embedding(torch.cat([series[..., None], numbers], dim=2))
        for block in self.blocks:
            states = block(states)
        return self.head(states.mean(dim=1))


def loaded_classifier() -> LoadedModel:
    """The classifier with random weights; reading a series needs no processor, so this one is a placeholder."""
    torch.manual_seed(0)
    return LoadedModel(Classifier().eval(), SimpleNamespace(), "series")

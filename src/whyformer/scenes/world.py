"""What there is in a scene: eight things in a 3 × 3 grid of cells, three to six of them objects, the rest grey clutter.

A scene is kept as numbers, not pixels, so that it can be edited exactly: an object changed or taken away.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor

from whyformer.errors import WhyformerError

COLOURS = ("red", "pink", "yellow", "green", "cyan", "blue", "purple", "white")
SHAPES = ("circle", "square", "triangle", "star", "cross", "ring")
SIZES = ("small", "large")
ROWS = ("top", "middle", "bottom")
COLUMNS = ("left", "centre", "right")
LABELS = tuple(f"{colour} {shape}" for colour in COLOURS for shape in SHAPES)

SIDE = 64  # pixels
THINGS = 8
RADII = (5, 6, 9, 10)  # pixels; the first two are small
BARS = (len(SHAPES), len(SHAPES) + 1)  # clutter: lying and standing bars, of no named shape
GREY = len(COLOURS)  # and of no named colour
FEWEST, MOST = 3, 6  # objects
CELL_CENTRES = (12, 32, 52)
JITTER = 4  # pixels; things in different columns stay at least 12 pixels apart, so left and right are never in doubt

Split = Literal["train", "val", "test"]
SPLITS: dict[Split, range] = {"train": range(8), "val": range(8, 9), "test": range(9, 10)}  # tenths of all scenes

Things = Int[Tensor, "scene thing"]
PerScene = Int[Tensor, " scene"]


@dataclass(frozen=True)
class Scenes:
    """A batch of scenes. Things are drawn in order, so a later one hides what it overlaps."""

    shape: Things  # index into SHAPES, or one of BARS
    colour: Things  # index into COLOURS, or GREY
    radius: Things  # index into RADII
    cell: Things  # row · 3 + column
    x: Things  # centre, in pixels
    y: Things
    tint: Float[Tensor, "scene thing 3"]  # what the paint departs from its colour's mean
    ground: Float[Tensor, "scene 5 5 3"]  # the background's colours, coarsely
    stripes: Float[Tensor, "scene 4"]  # two frequencies, phase and strength of the background's stripes
    grain: Float[Tensor, "scene 64 64 3"]  # pixel noise

    def __len__(self) -> int:
        return len(self.shape)

    def __getitem__(self, index: slice | Tensor) -> Scenes:
        fields = {field.name: getattr(self, field.name)[index] for field in dataclasses.fields(self)}
        return Scenes(**fields)

    @property
    def is_object(self) -> Bool[Tensor, "scene thing"]:
        return self.shape < len(SHAPES)

    @property
    def size(self) -> Things:
        """Index into SIZES."""
        return self.radius // 2

    @property
    def row(self) -> Things:
        return self.cell // 3

    @property
    def column(self) -> Things:
        return self.cell % 3

    @property
    def label(self) -> Things:
        """Index into LABELS; clutter has -1. No two objects of a scene share one."""
        return torch.where(self.is_object, self.colour * len(SHAPES) + self.shape, -1)

    def to(self, device: torch.device | str) -> Scenes:
        return Scenes(**{field.name: getattr(self, field.name).to(device) for field in dataclasses.fields(self)})


def sample(count: int, split: Split = "train", *, rng: Generator | int = 0) -> Scenes:
    """`count` random scenes of a split, on the generator's device; an int seeds a generator on the CPU.

    Which split a scene belongs to is decided by its own content (`content`), so that no two splits share a scene.
    """
    if split not in SPLITS:
        raise WhyformerError(f"No split named {split!r}. Known: {', '.join(SPLITS)}.")
    if count < 1:
        raise WhyformerError(f"count is {count}: ask for one scene at least.")
    generator = torch.Generator().manual_seed(rng) if isinstance(rng, int) else rng
    share = len(SPLITS[split]) / 10
    parts: list[tuple[Tensor, ...]] = []
    found = 0
    while found < count:
        layout = _layout(int((count - found) / share * 1.1) + 16, generator)
        tenth = content(*layout[:4]) % 10
        belongs = (tenth >= SPLITS[split].start) & (tenth < SPLITS[split].stop)
        parts.append(tuple(part[belongs] for part in layout))
        found += len(parts[-1][0])
    layout = tuple(torch.cat(part)[:count] for part in zip(*parts, strict=True))
    return Scenes(*layout, *_surface(count, generator))


def content(shape: Things, colour: Things, radius: Things, cell: Things) -> PerScene:
    """A number for what a scene shows: which objects, of which size, in which cells, whatever the order."""
    code = ((shape * len(COLOURS) + colour) * len(SIZES) + radius // 2) * 9 + cell + 1
    mixed = code * 0x2545F4914F6CDD1D  # a wrapping product spreads neighbouring codes apart
    mixed = (mixed ^ (mixed >> 29)) * 0x369DEA0F31A53F85
    total = torch.where(shape < len(SHAPES), mixed ^ (mixed >> 32), 0).sum(dim=1)
    return ((total * 0x2545F4914F6CDD1D) >> 33) & 0x3FFFFFFF


def edited(scenes: Scenes, thing: PerScene, **values: PerScene) -> Scenes:
    """The same scenes with `shape`, `colour` or `radius` of one thing of each changed, and nothing else."""
    changed = {name: getattr(scenes, name).scatter(1, thing[:, None], new[:, None]) for name, new in values.items()}
    return dataclasses.replace(scenes, **changed)


def cleared(scenes: Scenes, which: Bool[Tensor, "scene thing"]) -> Scenes:
    """The same scenes with these things turned into clutter: a small grey bar lies where each was."""
    return dataclasses.replace(
        scenes,
        shape=scenes.shape.masked_fill(which, BARS[0]),
        colour=scenes.colour.masked_fill(which, GREY),
        radius=scenes.radius.masked_fill(which, 0),
    )


def _layout(count: int, rng: Generator) -> tuple[Tensor, ...]:
    """Shape, colour, radius, cell, x and y of every thing."""
    device = rng.device

    def integers(low: int, high: int, *size: int) -> Tensor:
        return torch.randint(low, high, size, generator=rng, device=device)

    def permuted(choices: int) -> Tensor:
        return torch.rand(count, choices, generator=rng, device=device).argsort(dim=1)[:, :THINGS]

    label = permuted(len(LABELS))  # eight different ones
    objects = integers(FEWEST, MOST + 1, count, 1)
    is_object = permuted(THINGS) < objects
    shape = torch.where(is_object, label % len(SHAPES), integers(BARS[0], BARS[1] + 1, count, THINGS))
    colour = torch.where(is_object, label // len(SHAPES), GREY)
    radius = torch.where(is_object, integers(0, len(RADII), count, THINGS), integers(0, 2, count, THINGS))
    cell = permuted(9)
    centres = torch.tensor(CELL_CENTRES, device=device)
    x, y = (
        (centres[place] + integers(-JITTER, JITTER + 1, count, THINGS)).clamp(max(RADII), SIDE - max(RADII))
        for place in (cell % 3, cell // 3)
    )
    return shape, colour, radius, cell, x, y


def _surface(count: int, rng: Generator) -> tuple[Tensor, ...]:
    """Tint, ground, stripes and grain: what the eye sees and no question asks about."""

    def uniform(low: float, high: float, *size: int) -> Tensor:
        return low + (high - low) * torch.rand(count, *size, generator=rng, device=rng.device)

    ground = uniform(50, 130, 1, 1, 1) + uniform(-15, 15, 1, 1, 3) + uniform(-22, 22, 5, 5, 3)
    stripes = torch.cat([uniform(-0.5, 0.5, 2), uniform(0, 6.283, 1), uniform(0, 14, 1)], dim=1)
    return uniform(-14, 14, THINGS, 3), ground, stripes, uniform(-6, 6, SIDE, SIDE, 3)

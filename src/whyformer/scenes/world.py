"""Contents of a scene: eight things in a 3 × 3 grid of cells, three to six of them objects, the rest grey clutter.

A scene is stored as numbers, not pixels, so that objects can be changed or removed exactly.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from numbers import Integral
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
BARS = (len(SHAPES), len(SHAPES) + 1)  # clutter: horizontal and vertical bars, which have no shape name
GREY = len(COLOURS)  # which has no colour name
FEWEST, MOST = 3, 6  # objects
MOST_SCENES = 100_000  # per call: 5 GB
EDITABLE = ("shape", "colour", "radius")
CELL_CENTRES = (12, 32, 52)
JITTER = 4  # pixels; things in different columns stay at least 12 pixels apart, so left and right are unambiguous

Split = Literal["train", "val", "test"]
SPLITS: dict[Split, range] = {"train": range(8), "val": range(8, 9), "test": range(9, 10)}  # tenths of all scenes

Things = Int[Tensor, "scene thing"]
PerScene = Int[Tensor, " scene"]


@dataclass(frozen=True)
class Scenes:
    """A batch of scenes with eight things each, drawn in order, so that later ones occlude earlier ones.

    `sample` creates scenes and `pictures` draws them. Index with a slice or a tensor to select some.

    Attributes:
        shape: [scene, thing]: index into SHAPES; clutter has a larger one.
        colour: [scene, thing]: index into COLOURS; clutter has a larger one.
        radius: [scene, thing]: 0 and 1 are small, 2 and 3 large.
        cell: [scene, thing]: row · 3 + column.
        x: [scene, thing]: centre, in pixels.
        y: [scene, thing]: centre, in pixels.
        tint: [scene, thing, 3]: deviation of the paint from its colour's mean.
        ground: [scene, 5, 5, 3]: coarse colours of the background.
        stripes: [scene, 4]: two frequencies, phase and strength of the background's stripes.
        grain: [scene, 64, 64, 3]: pixel noise.
    """

    shape: Things  # index into SHAPES, or one of BARS
    colour: Things  # index into COLOURS, or GREY
    radius: Things  # index into RADII
    cell: Things
    x: Things
    y: Things
    tint: Float[Tensor, "scene thing 3"]
    ground: Float[Tensor, "scene 5 5 3"]
    stripes: Float[Tensor, "scene 4"]
    grain: Float[Tensor, "scene 64 64 3"]

    def __len__(self) -> int:
        return len(self.shape)

    def __getitem__(self, index: slice | Tensor) -> Scenes:
        fields = {field.name: getattr(self, field.name)[index] for field in dataclasses.fields(self)}
        return Scenes(**fields)

    @property
    def is_object(self) -> Bool[Tensor, "scene thing"]:
        """Whether a thing is an object, not clutter."""
        return self.shape < len(SHAPES)

    @property
    def size(self) -> Things:
        """Index into SIZES."""
        return self.radius // 2

    @property
    def row(self) -> Things:
        """0 is the top row."""
        return self.cell // 3

    @property
    def column(self) -> Things:
        """0 is the left column."""
        return self.cell % 3

    @property
    def label(self) -> Things:
        """Index into LABELS; clutter has -1. No two objects of a scene share one."""
        return torch.where(self.is_object, self.colour * len(SHAPES) + self.shape, -1)

    def to(self, device: torch.device | str) -> Scenes:
        """The same scenes on another device."""
        return Scenes(**{field.name: getattr(self, field.name).to(device) for field in dataclasses.fields(self)})


def sample(count: int, split: Split = "train", *, rng: Generator | int = 0) -> Scenes:
    """Sample random scenes of a split.

    A scene's content (`content`) determines its split, so splits never share a scene.

    Args:
        count: How many scenes, at most 100,000: one takes about 50 kB of memory.
        split: "train", "val" or "test".
        rng: A generator, which determines the device; a number seeds a generator on the CPU.

    Returns:
        The scenes, as numbers: `pictures` draws them.

    Raises:
        WhyformerError: If the split is unknown, or the count is not an integer from 1 to 100,000.

    Example:
        >>> from whyformer.scenes import LABELS, sample
        >>> scenes = sample(3, "test", rng=0)
        >>> len(scenes)
        3
        >>> [LABELS[label] for label in scenes.label[0] if label >= 0]
        ['pink triangle', 'blue star', 'pink ring', 'purple circle']
    """
    if split not in SPLITS:
        raise WhyformerError(f"No split named {split!r}. Known: {', '.join(SPLITS)}.")
    _check_count(count)
    generator = torch.Generator().manual_seed(rng) if isinstance(rng, int) else rng
    share = len(SPLITS[split]) / 10
    parts: list[tuple[Tensor, ...]] = []
    missing = count
    while missing > 0:
        layout = _layout(int(missing / share * 1.1) + 16, generator)
        tenth = content(*layout[:4]) % 10
        belongs = (tenth >= SPLITS[split].start) & (tenth < SPLITS[split].stop)
        parts.append(tuple(part[belongs] for part in layout))
        missing -= len(parts[-1][0])
    layout = tuple(torch.cat(part)[:count] for part in zip(*parts, strict=True))
    return Scenes(*layout, *_surface(count, generator))


def _check_count(count: int) -> None:
    """Validate the number of scenes; too many would exhaust memory."""
    if not isinstance(count, Integral):
        raise WhyformerError(f"count is {count!r}: give a whole number of scenes, such as 100.")
    if count < 1:
        raise WhyformerError(f"count is {count}: give at least one scene.")
    if count > MOST_SCENES:
        raise WhyformerError(
            f"count is {count:,}: at most {MOST_SCENES:,} scenes fit one call, about 50 kB each. "
            "Sample fewer, and others with another seed."
        )


def content(shape: Things, colour: Things, radius: Things, cell: Things) -> PerScene:
    """Hash of a scene's content: which objects, of which size, in which cells, in any order."""
    code = ((shape * len(COLOURS) + colour) * len(SIZES) + radius // 2) * 9 + cell + 1
    hashed = code * 0x2545F4914F6CDD1D  # an overflowing product spreads similar codes
    hashed = (hashed ^ (hashed >> 29)) * 0x369DEA0F31A53F85
    total = torch.where(shape < len(SHAPES), hashed ^ (hashed >> 32), 0).sum(dim=1)
    return ((total * 0x2545F4914F6CDD1D) >> 33) & 0x3FFFFFFF


def edit_things(scenes: Scenes, thing: PerScene, **values: PerScene) -> Scenes:
    """Change one thing of each scene.

    Args:
        scenes: The scenes.
        thing: [scene]: the thing to change.
        **values: [scene]: its new `shape`, `colour` or `radius`, encoded as in `Scenes`.

    Returns:
        New scenes; the input is not modified.

    Raises:
        WhyformerError: If a value is not `shape`, `colour` or `radius`.

    Example:
        >>> from whyformer.scenes import COLOURS, edit_things, sample
        >>> scenes = sample(2, "test")
        >>> thing = scenes.is_object.long().argmax(dim=1)
        >>> pink = thing * 0 + COLOURS.index("pink")
        >>> edit_things(scenes, thing, colour=pink).colour.gather(1, thing[:, None])[:, 0].equal(pink)
        True
    """
    for name in values:
        if name not in EDITABLE:
            raise WhyformerError(f"A thing's {name!r} cannot be edited. Choose from: {', '.join(EDITABLE)}.")
    columns = {name: getattr(scenes, name).scatter(1, thing[:, None], new[:, None]) for name, new in values.items()}
    return dataclasses.replace(scenes, **columns)


def clear_things(scenes: Scenes, things: Bool[Tensor, "scene thing"]) -> Scenes:
    """Replace some things with clutter: a small grey bar each.

    Args:
        scenes: The scenes.
        things: [scene, thing]: the things to replace.

    Returns:
        New scenes; the input is not modified.

    Example:
        >>> from whyformer.scenes import clear_things, sample
        >>> scenes = sample(2, "test")
        >>> clear_things(scenes, scenes.is_object).is_object.any()
        tensor(False)
    """
    return dataclasses.replace(
        scenes,
        shape=scenes.shape.masked_fill(things, BARS[0]),
        colour=scenes.colour.masked_fill(things, GREY),
        radius=scenes.radius.masked_fill(things, 0),
    )


def _layout(count: int, rng: Generator) -> tuple[Tensor, ...]:
    """Shape, colour, radius, cell, x and y of every thing."""
    device = rng.device

    def integers(low: int, high: int, *size: int) -> Tensor:
        return torch.randint(low, high, size, generator=rng, device=device)

    def permutation(choices: int) -> Tensor:
        return torch.rand(count, choices, generator=rng, device=device).argsort(dim=1)[:, :THINGS]

    label = permutation(len(LABELS))  # eight different ones
    objects = integers(FEWEST, MOST + 1, count, 1)
    is_object = permutation(THINGS) < objects
    shape = torch.where(is_object, label % len(SHAPES), integers(BARS[0], BARS[1] + 1, count, THINGS))
    colour = torch.where(is_object, label // len(SHAPES), GREY)
    radius = torch.where(is_object, integers(0, len(RADII), count, THINGS), integers(0, 2, count, THINGS))
    cell = permutation(9)
    centres = torch.tensor(CELL_CENTRES, device=device)
    x, y = (
        (centres[place] + integers(-JITTER, JITTER + 1, count, THINGS)).clamp(max(RADII), SIDE - max(RADII))
        for place in (cell % 3, cell // 3)
    )
    return shape, colour, radius, cell, x, y


def _surface(count: int, rng: Generator) -> tuple[Tensor, ...]:
    """Tint, ground, stripes and grain: appearance that no question asks about."""

    def uniform(low: float, high: float, *size: int) -> Tensor:
        return low + (high - low) * torch.rand(count, *size, generator=rng, device=rng.device)

    ground = uniform(50, 130, 1, 1, 1) + uniform(-15, 15, 1, 1, 3) + uniform(-22, 22, 5, 5, 3)
    stripes = torch.cat([uniform(-0.5, 0.5, 2), uniform(0, 6.283, 1), uniform(0, 14, 1)], dim=1)
    return uniform(-14, 14, THINGS, 3), ground, stripes, uniform(-6, 6, SIDE, SIDE, 3)

"""Grids of four pictures of four classes, which locate a class without a mask."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from whyformer.data.examples import BACKGROUND, OBJECT, Examples, Photo
from whyformer.data.folders import image_folder
from whyformer.data.image_datasets import photos
from whyformer.data.readers import reader
from whyformer.errors import WhyformerError

CELLS = 4  # top left, top right, bottom left, bottom right


@reader("photo_grids")
def photo_grids(folder: str | Path, split: str = "val", *, count: int = 500, seed: int = 0) -> Examples[Photo]:
    """`count` random grids of the photos pack, each with the label of one of its four pictures."""
    return grids(photos(folder, split), count, seed)


@reader("image_grids")
def image_grids(folder: str | Path, *, count: int = 500, seed: int = 0) -> Examples[Photo]:
    """`count` random grids of pictures in one folder per class, read by `image_folder`."""
    return grids(image_folder(folder), count, seed)


def grids(examples: Examples[Photo], count: int, seed: int = 0) -> Examples[Photo]:
    """Grids of pictures whose names start with their class, such as cat/1.jpg; the mask is the cell of the label."""
    by_class: dict[str, list[int]] = {}
    for number, name in enumerate(examples.names):
        by_class.setdefault(name.split("/")[0], []).append(number)
    if len(by_class) < CELLS:
        raise WhyformerError(
            f"A grid has pictures of {CELLS} classes; here are {len(by_class)}: {', '.join(by_class)}."
        )
    if count < 1:
        raise WhyformerError(f"count={count}: a whole number, 1 or more.")
    rng, classes = np.random.default_rng(seed), list(by_class)
    rows = []
    for _ in range(count):
        kinds = [classes[place] for place in rng.permutation(len(classes))[:CELLS]]
        rows.append((tuple(int(rng.choice(by_class[kind])) for kind in kinds), int(rng.integers(CELLS))))
    names = tuple(f"grid {seed}.{number}: {examples.names[cells[own]]}" for number, (cells, own) in enumerate(rows))
    return Examples(names, partial(_grid, examples, names, rows))


def _grid(
    examples: Examples[Photo], names: tuple[str, ...], rows: list[tuple[tuple[int, ...], int]], number: int
) -> Photo:
    cells, own = rows[number]
    members = [examples[cell] for cell in cells]
    width, height = members[own].image.size
    image, mask = Image.new("RGB", (2 * width, 2 * height)), np.full((2 * height, 2 * width), BACKGROUND, np.uint8)
    for cell, member in enumerate(members):
        left, top = width * (cell % 2), height * (cell // 2)
        image.paste(member.image.convert("RGB").resize((width, height)), (left, top))
        if cell == own:
            mask[top : top + height, left : left + width] = OBJECT
    return Photo(names[number], image, members[own].label, mask)

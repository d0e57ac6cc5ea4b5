"""Mask files: the meaning of their values, given or recognised."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from whyformer.data.dataset_files import bytes_in, mask, mask_values
from whyformer.data.examples import BACKGROUND, OBJECT, UNLABELLED
from whyformer.errors import WhyformerError

Marks = Mapping[int, int]  # a mask's value = BACKGROUND, OBJECT or UNKNOWN
TRIMAP: Marks = {1: OBJECT, 2: BACKGROUND, 3: UNLABELLED}  # Oxford-IIIT Pet's own values
# Recognised by default: 0 and 1, black and white, trimaps.
CONVENTIONS: tuple[Marks, ...] = (
    {0: BACKGROUND, 1: OBJECT},
    {0: BACKGROUND, 255: OBJECT},
    TRIMAP,
)


def check_marks(marks: Mapping[int, int] | Mapping[str, int] | None) -> Marks | None:
    """Convert the keys of `marks` to integers, since TOML keys are strings; None if not given."""
    if marks is None:
        return None
    try:
        return {int(value): (BACKGROUND, OBJECT, UNLABELLED).index(mark) for value, mark in marks.items()}
    except (AttributeError, ValueError) as error:
        way_out = "a table, a mask's value = 0 (background), 1 (object) or 2 (unknown)"
        raise WhyformerError(f"marks={marks!r:.60}: {way_out}.") from error


def read_mask(path: Path, marks: Marks | None) -> np.ndarray:
    """Read a mask file."""
    return meaning_of(mask_values(bytes_in(path), str(path)), marks, str(path))


def meaning_of(values: np.ndarray, marks: Marks | None, name: str) -> np.ndarray:
    """Translate a mask's values to BACKGROUND, OBJECT and UNLABELLED; raise on unknown values, or without an object."""
    present = [int(value) for value in np.unique(values)]
    meaning = next((known for known in CONVENTIONS if known.keys() >= set(present)), None) if marks is None else marks
    if meaning is None or not meaning.keys() >= set(present):
        known = "0 and 1, 0 and 255, 1 to 3" if marks is None else _listed(sorted(marks))
        raise WhyformerError(
            f"The mask {name!r} has the values {_listed(present)}; known are {known}. Say what they mean, as in "
            "marks = {255 = 1, 0 = 0}: 0 is background, 1 object, 2 unknown."
        )
    pixels = mask(values, meaning)
    if OBJECT not in pixels:
        missing = "pixel of the object" if BACKGROUND in pixels else "known pixel"
        raise WhyformerError(f"The mask {name!r} has no {missing}: its values are {_listed(present)}.")
    return pixels


def _listed(values: list[int]) -> str:
    return ", ".join(map(str, values[:8])) + (" …" if len(values) > 8 else "")

"""Sounds as the data of a survey: a folder for each class, or a list."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from whyformer.data.examples import Examples
from whyformer.errors import WhyformerError, with_article
from whyformer.files import IMAGE_SUFFIXES
from whyformer.inputs.sound import SOUND_SUFFIXES, Sound, sound_of


@dataclass(frozen=True, eq=False)
class Recording:
    """A sound with its label."""

    name: str
    sound: Sound
    label: str | None = None


def holds_sounds(folder: Path) -> bool:
    """Whether a folder has sounds; raise if it has pictures, too."""
    sound, picture = (next(_files(folder, suffixes), None) for suffixes in (SOUND_SUFFIXES, IMAGE_SUFFIXES))
    if sound is not None and picture is not None:
        raise WhyformerError(
            f"The folder {str(folder)!r} has sounds ({sound.name}) and pictures ({picture.name}): move one kind away."
        )
    return sound is not None


def sound_folder(folder: Path) -> Examples[Recording]:
    """Sounds in one folder per class, whose name is the label: `bell/1.wav`, `rain/2.flac`."""
    paths = sorted(_files(folder, SOUND_SUFFIXES))
    loose = next((path for path in paths if path.parent == folder), None)
    if loose is not None:
        raise WhyformerError(f"{str(loose)!r} is not in a class folder: move it to one, such as bell/{loose.name}.")
    names = tuple(path.relative_to(folder).as_posix() for path in paths)
    return Examples(names, partial(_recording, folder, names))


def are_sounds(data: Any) -> bool:
    """Whether a list has sounds, by its first item."""
    if not isinstance(data, (list, tuple)) or not data:
        return False
    first = data[0]
    if isinstance(first, Mapping):
        return "audio" in first or _is_sound(first)
    return _is_sound(first) or (isinstance(first, (tuple, list)) and len(first) == 2 and _is_sound(first[0]))


def sound_list(data: Sequence[Any]) -> Examples[Recording]:
    """The sounds of a list: sounds, pairs of one with its label, or rows {'audio': …, 'label': …}."""
    names = tuple(f"example {number}" for number in range(len(data)))
    return Examples(names, partial(_item, data, names))


def _is_sound(item: Any) -> bool:
    if isinstance(item, Mapping):
        return {"array", "sampling_rate"} <= item.keys()
    if isinstance(item, (tuple, list)):  # a flat array with its rate: pictures have two axes or more
        return (
            len(item) == 2 and isinstance(item[0], np.ndarray) and item[0].ndim == 1 and hasattr(item[1], "__index__")
        )
    return isinstance(item, Sound) or (isinstance(item, Path) and item.suffix.lower() in SOUND_SUFFIXES)


def _item(data: Sequence[Any], names: Sequence[str], number: int) -> Recording:
    item, label = data[number], None
    if isinstance(item, Mapping) and "audio" in item:
        item, label = item["audio"], item.get("label")
    elif isinstance(item, (tuple, list)) and len(item) == 2 and not _is_sound(item):
        item, label = item
    if not _is_sound(item) and not isinstance(item, (str, Path)):
        raise WhyformerError(
            f"{names[number]} is {with_article(type(item).__name__)}: give a whyformer.Sound, (array, rate) or the "
            "path of a file, a pair of one with its label, or a row {'audio': …, 'label': …}."
        )
    return Recording(names[number], sound_of(item, None), None if label is None else str(label))


def _files(folder: Path, suffixes: frozenset[str]) -> Iterator[Path]:
    """The files in a folder and its sub-folders, without hidden ones."""
    paths = (path for path in folder.rglob("*") if path.suffix.lower() in suffixes and path.is_file())
    return (path for path in paths if not any(part.startswith(".") for part in path.relative_to(folder).parts))


def _recording(folder: Path, names: Sequence[str], number: int) -> Recording:
    name = names[number]
    return Recording(name, sound_of(folder / name, None), Path(name).parent.as_posix())

"""Pictures, most with masks: ImageNet, ImageNet-Segmentation, Oxford-IIIT Pet and folders like it, the photos pack."""

from __future__ import annotations

import csv
import io
import operator
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from whyformer.data.dataset_files import (
    existing,
    fields,
    inside,
    mask,
    mask_values,
    member,
    picture,
    same_size,
    text_in,
)
from whyformer.data.examples import BACKGROUND, OBJECT, UNLABELLED, Examples, Photo
from whyformer.data.mask_files import Marks, check_marks, read_mask
from whyformer.data.readers import reader
from whyformer.errors import WhyformerError
from whyformer.extras import extra
from whyformer.inputs.read import image_of

OURS = {BACKGROUND: BACKGROUND, OBJECT: OBJECT}
PICTURE_SUFFIXES = (".jpg", ".jpeg", ".png")
PHOTO_FIELDS = ("shard", "image", "label", "split")


@reader("imagenet")
def imagenet(
    folder: str | Path, *, per_class: int | None = None, seed: int = 0, indices: str | Path | None = None
) -> Examples[Photo]:
    """ImageNet's validation pictures, in one folder per class (n01440764, …); the label is the class index.

    Selects all, `per_class` random ones of each class, or those listed in `indices`: a .npy file, or a text file with
    an index per line. Pictures are sorted by name.
    """
    for name, value, least in (("per_class", per_class, 1), ("seed", seed, 0)):
        if value is not None and value < least:
            raise WhyformerError(f"{name}={value}: a whole number, {least} or more.")
    folder = existing(folder, "folder")
    classes = sorted(path for path in folder.iterdir() if path.is_dir())
    by_class = [
        [(path, str(label)) for path in sorted(kind.iterdir()) if path.suffix.lower() in PICTURE_SUFFIXES]
        for label, kind in enumerate(classes)
    ]
    if per_class is not None:
        rng = np.random.default_rng(seed)
        by_class = [[kind[place] for place in sorted(rng.permutation(len(kind))[:per_class])] for kind in by_class]
    pictures = [pair for kind in by_class for pair in kind]
    if indices is not None:
        pictures = [pictures[number] for number in _numbers(existing(indices, "file"), len(pictures))]
    names = tuple(f"{path.parent.name}/{path.name}" for path, _ in pictures)
    return Examples(names, partial(_labelled_photo, pictures))


@reader("imagenet_segmentation")
def imagenet_segmentation(path: str | Path) -> Examples[Photo]:
    """ImageNet-Segmentation (Guillaumin et al. 2014): gtsegs_ijcv.mat, 4,276 pictures with masks, without labels."""
    path = existing(path, "file")
    try:
        with extra("h5py").File(path, "r") as file:
            count = len(file["value/img"])
    except (OSError, KeyError) as error:
        raise WhyformerError(f"{str(path)!r} is not a gtsegs_ijcv.mat (HDF5 with value/img): {error}") from error
    return Examples(tuple(f"{path.name} {number}" for number in range(count)), partial(_read_segmentation, path))


@reader("oxford_pets")
def oxford_pets(
    folder: str | Path,
    *,
    images: str = "images",
    masks: str = "annotations/trimaps",
    marks: Mapping[int, int] | Mapping[str, int] | None = None,
) -> Examples[Photo]:
    """Pictures and masks of the same names in two folders, as in Oxford-IIIT Pet: `Siamese_30` is a Siamese.

    Masks are trimaps (1 object, 2 background, 3 unknown), 0 and 1, or 0 and 255; else `marks` translates their values
    to 0 (background), 1 (object), 2 (unknown). Masks with other values, or without an object, raise when
    they are read.
    """
    folder, known = existing(folder, "folder"), check_marks(marks)
    image_folder, mask_folder = (existing(inside(folder, name), "folder") for name in (images, masks))
    pictures = {path.stem: path for path in sorted(image_folder.iterdir()) if path.suffix.lower() in PICTURE_SUFFIXES}
    pairs = [
        (pictures[path.stem], path)
        for path in sorted(mask_folder.iterdir())
        if path.stem in pictures and path.suffix.lower() == ".png" and not path.name.startswith(".")
    ]
    return Examples(tuple(path.stem for path, _ in pairs), partial(_pet, pairs, known))


@reader("photos")
def photos(folder: str | Path, split: str = "val", *, only_masked: bool = False) -> Examples[Photo]:
    """The photos pack: index.csv (shard, image, mask, label, split) beside tar files; all, or those with masks."""
    folder = existing(folder, "folder")
    index = folder / "index.csv"
    rows = list(csv.DictReader(io.StringIO(text_in(index))))
    for line, row in enumerate(rows, start=2):
        fields(row, PHOTO_FIELDS, f"Line {line} of {str(index)!r}")
    split_rows = [row for row in rows if row["split"] == split and (row.get("mask") or not only_masked)]
    if not split_rows:
        known = ", ".join(sorted({row["split"] for row in rows}))
        raise WhyformerError(f"{str(index)!r} has no such photos of split {split!r}. Its splits: {known}.")
    return Examples(tuple(row["image"] for row in split_rows), partial(_photo, folder, split_rows))


def _numbers(path: Path, count: int) -> list[int]:
    try:
        values = np.load(path, allow_pickle=False) if path.suffix == ".npy" else np.loadtxt(path, dtype=int, ndmin=1)
        numbers = [operator.index(value) for value in values.ravel()]
    except (OSError, TypeError, ValueError) as error:
        raise WhyformerError(f"The file {str(path)!r} is not a list of whole numbers: {error}") from error
    wrong = next((number for number in numbers if not 0 <= number < count), None)
    if wrong is not None:
        raise WhyformerError(f"{str(path)!r} names picture {wrong}: there are {count}, from 0 on.")
    return numbers


def _labelled_photo(pictures: list[tuple[Path, str]], number: int) -> Photo:
    path, label = pictures[number]
    return Photo(f"{path.parent.name}/{path.name}", image_of(path), label)


def _read_segmentation(path: Path, number: int) -> Photo:
    name = f"{path.name} {number}"
    try:
        with extra("h5py").File(path, "r") as file:
            # MATLAB stores columns first, a cell as a reference, and each picture's masks as a cell in a cell.
            pixels = np.asarray(file[file["value/img"][number, 0]]).transpose(2, 1, 0)
            values = np.asarray(file[file[file["value/gt"][number, 0]][0, 0]]).T
        image, marks = Image.fromarray(pixels), np.where(np.isin(values, (0, 1)), values, UNLABELLED).astype(np.uint8)
    except (OSError, KeyError, ValueError, TypeError) as error:
        raise WhyformerError(f"Picture {number} of {str(path)!r} cannot be read: {error}") from error
    same_size(image, marks, name)
    return Photo(name, image_of(image), mask=marks)


def _pet(pairs: list[tuple[Path, Path]], marks: Marks | None, number: int) -> Photo:
    path, mask_path = pairs[number]
    image, pixels = image_of(path), read_mask(mask_path, marks)
    same_size(image, pixels, str(path))
    return Photo(path.stem, image, path.stem.rpartition("_")[0] or None, pixels)


def _photo(folder: Path, rows: list[dict[str, Any]], number: int) -> Photo:
    row = rows[number]
    shard = inside(folder, row["shard"])
    image = picture(member(shard, row["image"]), f"{shard}: {row['image']}")
    pixels = None
    if row.get("mask"):
        pixels = mask(mask_values(member(shard, row["mask"]), f"{shard}: {row['mask']}"), OURS)
        same_size(image, pixels, f"{shard}: {row['image']}")
    return Photo(row["image"], image, row["label"], pixels)

"""Folders of pictures: one folder per class, or pictures beside masks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from whyformer.data.dataset_files import existing, same_size
from whyformer.data.examples import Examples, Photo
from whyformer.data.mask_files import Marks, check_marks, read_mask
from whyformer.data.readers import reader
from whyformer.errors import WhyformerError
from whyformer.files import IMAGE_SUFFIXES
from whyformer.inputs.read import image_of


@reader("image_folder")
def image_folder(folder: str | Path) -> Examples[Photo]:
    """Pictures in one folder per class, whose name is the label: `cat/1.jpg`, `dog/2.png`.

    Args:
        folder: The folder of the classes' folders.

    Returns:
        The pictures sorted by name, each a `Photo`.

    Raises:
        WhyformerError: If there is no such folder, or a picture is not in a class folder.

    Example:
        >>> import pathlib, tempfile
        >>> from PIL import Image
        >>> from whyformer.data import image_folder
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> (folder / "cat").mkdir()
        >>> Image.new("RGB", (8, 8)).save(folder / "cat" / "1.png")
        >>> [(photo.name, photo.label) for photo in image_folder(folder)]
        [('cat/1.png', 'cat')]
    """
    folder = existing(folder, "folder")
    paths = _pictures(folder)
    loose = next((path for path in paths if path.parent == folder), None)
    if loose is not None:
        raise WhyformerError(f"{str(loose)!r} is not in a class folder: move it to one, such as cat/{loose.name}.")
    names = tuple(path.relative_to(folder).as_posix() for path in paths)
    return Examples(names, partial(_photo, folder, names))


@reader("image_masks")
def image_masks(
    images: str | Path, masks: str | Path, *, marks: Mapping[int, int] | Mapping[str, int] | None = None
) -> Examples[Photo]:
    """Pictures, each with a mask of the same name in another folder: `images/cat/1.jpg`, `masks/cat/1.png`.

    Args:
        images: The folder of the pictures, with an optional sub-folder per class, whose name is the label.
        masks: The folder of the masks; pictures without one are skipped.
        marks: The meaning of the masks' values: 0 (background), 1 (object) or 2 (unknown) by value. By default 0 and 1,
            0 and 255, and trimaps (1 object, 2 background, 3 unknown) are recognised.

    Returns:
        The pictures sorted by name, each a `Photo` with its mask.

    Raises:
        WhyformerError: If there is no such folder, no picture has a mask, or `marks` is invalid.

    Example:
        >>> import pathlib, tempfile
        >>> from PIL import Image
        >>> from whyformer.data import image_masks
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> for name, mode, colour in (("images", "RGB", "red"), ("masks", "L", 255)):
        ...     (folder / name).mkdir()
        ...     Image.new(mode, (2, 1), colour).save(folder / name / "1.png")
        >>> image_masks(folder / "images", folder / "masks")[0].mask.tolist()
        [[1, 1]]
    """
    folder, mask_folder = existing(images, "folder"), existing(masks, "folder")
    by_name = {path.relative_to(folder).with_suffix("").as_posix(): path for path in _pictures(folder)}
    by_mask = {path.relative_to(mask_folder).with_suffix("").as_posix(): path for path in _pictures(mask_folder)}
    pairs = [(by_name[name], by_mask[name]) for name in by_name if name in by_mask]
    if by_name and not pairs:
        first = next(iter(by_name))
        raise WhyformerError(f"No picture has a mask: {str(mask_folder)!r} has none of the name {first!r}.")
    names = tuple(path.relative_to(folder).as_posix() for path, _ in pairs)
    return Examples(names, partial(_masked_photo, folder, pairs, names, check_marks(marks)))


def _pictures(folder: Path) -> list[Path]:
    """The pictures in a folder and its sub-folders, without hidden files."""
    paths = (path for path in folder.rglob("*") if path.suffix.lower() in IMAGE_SUFFIXES and path.is_file())
    return sorted(path for path in paths if not any(part.startswith(".") for part in path.relative_to(folder).parts))


def _label(name: str) -> str | None:
    return Path(name).parent.as_posix() if "/" in name else None


def _photo(folder: Path, names: Sequence[str], number: int) -> Photo:
    name = names[number]
    return Photo(name, image_of(folder / name), _label(name))


def _masked_photo(
    folder: Path, pairs: Sequence[tuple[Path, Path]], names: Sequence[str], marks: Marks | None, number: int
) -> Photo:
    path, mask_path = pairs[number]
    image, pixels = image_of(path), read_mask(mask_path, marks)
    same_size(image, pixels, str(path))
    return Photo(names[number], image, _label(names[number]), pixels)

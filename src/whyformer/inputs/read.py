"""Read examples, mostly from files, as pictures and texts."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from whyformer.arrays import npz_shapes, open_npz
from whyformer.errors import WhyformerError, with_article
from whyformer.inputs.table_files import TABLE_SUFFIXES, table_texts

Text = str | tuple[str, str]
# Limits for files: models attend between all regions, and scale a picture's shorter side to hundreds of pixels.
MOST_REGIONS, MOST_ASPECT = 1000, 1000
CHANNELS = (1, 3, 4)  # of a picture's array: grey, RGB, RGBA
_MAY_NAME_FILES = ContextVar("may_name_files", default=True)


@contextmanager
def strings_are_texts() -> Iterator[None]:
    """Treat every string as text, even if it names a file: remote users must not learn which files exist."""
    before = _MAY_NAME_FILES.set(False)
    try:
        yield
    finally:
        _MAY_NAME_FILES.reset(before)


def names_file(example: str | Path) -> bool:
    """Whether the example names a file rather than being a text."""
    return (isinstance(example, Path) or _MAY_NAME_FILES.get()) and os.path.isfile(example)


@dataclass(frozen=True)
class Regions:
    """A picture's detected regions, for models that take regions instead of pixels (LXMERT, VisualBERT).

    Args:
        image: The picture.
        boxes: [region, 4]: left, top, right and bottom of each region, in pixels.
        features: [region, feature]: the detector's features of each region.

    Raises:
        WhyformerError: If the shapes do not match, or there are no regions.

    Example:
        >>> import numpy, PIL.Image, whyformer
        >>> picture = PIL.Image.new("RGB", (32, 32))
        >>> regions = whyformer.Regions(picture, numpy.array([[0, 0, 16, 32]]), numpy.zeros((1, 8)))
        >>> regions.shares.tolist()
        [[0.0, 0.0, 0.5, 1.0]]
    """

    image: Image.Image
    boxes: np.ndarray
    features: np.ndarray

    def __post_init__(self) -> None:
        boxes, features = np.shape(self.boxes), np.shape(self.features)
        if len(boxes) != 2 or boxes[1] != 4 or len(features) != 2 or features[0] != boxes[0] or not boxes[0]:
            raise WhyformerError(
                f"Regions have boxes [region, 4] and features [region, feature], not {boxes} and {features}."
            )

    @property
    def shares(self) -> np.ndarray:
        """The boxes as shares of the picture's width and height."""
        return np.asarray(self.boxes, dtype=np.float32) / np.array(self.image.size * 2, dtype=np.float32)

    def save(self, path: str | Path) -> None:
        """Write to an .npz file."""
        np.savez_compressed(path, image=np.asarray(self.image), boxes=self.boxes, features=self.features)

    @classmethod
    def load(cls, path: str | Path) -> Regions:
        """Load a file written by `save`."""
        check_file(Path(path))
        return cls.read(Path(path), str(path))

    @classmethod
    def read(cls, source: Path | BinaryIO, name: str) -> Regions:
        """Read regions from a file or its bytes; `name` is used in errors."""
        regions_size(source, name)
        with _readable_regions(name), open_npz(source) as stored:
            return cls(Image.fromarray(stored["image"]), stored["boxes"], stored["features"])


@contextmanager
def _readable_regions(name: str) -> Iterator[None]:
    """Report errors in a regions file in one line."""
    try:
        yield
    except Exception as error:  # A damaged archive can fail anywhere in its readers.
        raise WhyformerError(
            f"{name!r} holds no regions (image, boxes and features in an .npz file): {error}"
        ) from error


def regions_size(source: Path | BinaryIO, name: str) -> tuple[int, int, int]:
    """Width, height and number of regions of a file, read from its headers; raise if it is too large."""
    with _readable_regions(name):
        shapes = npz_shapes(source)
        (height, width), (count, _) = shapes["image"][:2], shapes["boxes"]
    most = Image.MAX_IMAGE_PIXELS
    if most and width * height > most:
        raise WhyformerError(f"The image of {name!r} has {width:,} × {height:,} pixels, more than {most:,}: shrink it.")
    _check_aspect(width, height, f" of {name!r}")
    if count > MOST_REGIONS:
        raise WhyformerError(
            f"{name!r} has {count:,} regions, and at most {MOST_REGIONS:,} are read: keep the most confident ones."
        )
    return width, height, count


def _check_aspect(width: int, height: int, title: str) -> None:
    """Raise if a picture is extremely elongated: resized, it would take gigabytes."""
    if max(width, height) > MOST_ASPECT * min(width, height):
        raise WhyformerError(
            f"The image{title} has {width:,} × {height:,} pixels, and one side may be {MOST_ASPECT:,} times the other: "
            "crop it."
        )


def regions_of(example: Any) -> Regions:
    """Read the example as regions, given as such or as an .npz file."""
    if isinstance(example, Regions):
        return example
    if isinstance(example, (str, Path)) and str(example).lower().endswith(".npz"):
        return Regions.load(example)
    raise WhyformerError(
        "This model takes regions of a picture, not the picture: give whyformer.Regions(image, boxes, features), or "
        f"the .npz file they were saved to, not {_excerpt(example)}."
    )


def two_of(example: Any, what: str) -> tuple[Any, Any]:
    """The example as a pair."""
    if not isinstance(example, (tuple, list)) or len(example) != 2:
        raise WhyformerError(f"This model takes {what}, not {_excerpt(example)}.")
    return example[0], example[1]


def point_or_box(prompt: Any) -> tuple[float, ...]:
    """Validate a point (x, y) or a box (left, top, right, bottom), in shares of a picture's width and height."""
    numbers = tuple(prompt) if isinstance(prompt, (tuple, list, np.ndarray)) else ()
    is_place = len(numbers) in (2, 4) and all(isinstance(one, (int, float, np.number)) for one in numbers)
    is_box = is_place and len(numbers) == 4
    if not is_place or not all(0 <= one <= 1 for one in numbers) or (is_box and not _has_area(numbers)):
        raise WhyformerError(
            "A point is (x, y) and a box (left, top, right, bottom), as shares of the picture's width and height from "
            f"0 to 1, not {_excerpt(prompt)}."
        )
    return tuple(map(float, numbers))


def _several(example: Any) -> str:
    """A hint for lists of examples."""
    return " explain_batch takes a list of examples." if isinstance(example, (list, tuple)) else ""


def _has_area(box: tuple[float, ...]) -> bool:
    left, top, right, bottom = box
    return left < right and top < bottom


def _excerpt(example: Any) -> str:
    """A short form of the example for errors; paths are kept verbatim."""
    return f"{str(example) if isinstance(example, Path) else example!r:.60}"


def image_of(example: Any) -> Image.Image:
    """Read the example as an upright RGB image: a file, a PIL image or a uint8 array."""
    if isinstance(example, np.ndarray):
        example = Image.fromarray(_pixels(example))
    if isinstance(example, Image.Image):
        return _rgb(ImageOps.exif_transpose(example))
    if isinstance(example, (str, Path)):
        check_file(Path(example))
        return read_image(Path(example), str(example))
    raise WhyformerError(
        f"An image is a file, a PIL image or a uint8 array, not {with_article(type(example).__name__)}."
        f"{_several(example)}"
    )


def is_image(content: bytes) -> bool:
    """Whether these bytes start like a readable image."""
    try:
        with Image.open(BytesIO(content)):
            return True
    except (Image.DecompressionBombWarning, Image.DecompressionBombError):
        return True
    except Exception:  # openers may fail on files that only resemble their format
        return False


def text_of(example: Any) -> Text:
    """Read the example as a text or a pair of texts; a `Path` is read as a UTF-8 file."""
    if isinstance(example, tuple) and len(example) == 2:
        first, second = (text_of(part) for part in example)
        if isinstance(first, str) and isinstance(second, str):
            return first, second
    if isinstance(example, Path):
        example = _read_text(example)
    if isinstance(example, str) and names_file(example):
        raise WhyformerError(f"{example!r} is {_other_kind(example)}.")
    if not isinstance(example, str):
        raise WhyformerError(
            f"A text is a string, a Path to a text file, or a pair of them, not {with_article(type(example).__name__)}."
            f"{_several(example)}"
        )
    try:
        example.encode()
    except UnicodeEncodeError as error:
        raise WhyformerError(f"The text is not Unicode (character {error.start}): give it as UTF-8.") from error
    if not example.strip():
        raise WhyformerError("The text is empty: there is nothing to explain.")
    return example


def texts_in_file(file: str | Path, column: str | None) -> list[str]:
    """Read the texts of a table given instead of a list of examples."""
    if Path(file).suffix.lower() not in TABLE_SUFFIXES:
        raise WhyformerError(f"explain_batch takes a list of examples, not {str(file)[:40]!r} alone: use explain.")
    if not names_file(file):
        raise WhyformerError(f"No file {str(file)!r:.200}.")
    return table_texts(Path(file), column)


def _other_kind(file: str) -> str:
    """The kind of a file that was given as a text, with a hint."""
    from whyformer.inputs.modality import known_modalities  # which read by this module

    suffix = os.path.splitext(file)[1].lower()
    files = [modality.files for modality in known_modalities().values()]
    kinds = (kind.not_a_text for kind in files if suffix in kind.suffixes)
    return next(filter(None, kinds), "a file: pass a Path to read its text")


def _pixels(array: np.ndarray) -> np.ndarray:
    """Validate an image array, and bring it to PIL's [height, width] or [height, width, channel].

    If both the first and the last axis could be channels, the last is.
    """
    if array.dtype == np.uint8 and array.ndim == 3 and array.shape[2] not in CHANNELS and array.shape[0] in CHANNELS:
        array = np.moveaxis(array, 0, 2)
    is_picture = array.ndim == 2 or (array.ndim == 3 and array.shape[2] in CHANNELS)
    if array.dtype != np.uint8 or not is_picture or not array.size:
        raise WhyformerError(
            "An image array is uint8 [height, width] or [height, width, channel] with 1, 3 or 4 channels, not "
            f"{array.dtype} of shape {array.shape}: convert it first."
        )
    return array[:, :, 0] if array.ndim == 3 and array.shape[2] == 1 else array


def read_image(source: Path | BinaryIO, name: str) -> Image.Image:
    """Read an upright RGB image from a file or its bytes; `name` is used in errors."""
    with open_image(source, name=name) as image:
        _check_aspect(*image.size, f" {name!r}")
        return _rgb(ImageOps.exif_transpose(image))


@contextmanager
def open_image(
    source: Path | BinaryIO, *, formats: tuple[str, ...] | None = None, name: str = ""
) -> Iterator[Image.Image]:
    """Open an image, to be decoded inside the block; report unreadable or oversized ones in one line."""
    title = f" {str(name or source)!r}" if name or isinstance(source, Path) else ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # images with damaged metadata are still readable
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(source, formats=formats) as image:
                yield image
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        raise WhyformerError(f"The image{title} is too large to be safe, shrink it first: {error}") from error
    except WhyformerError:
        raise
    except UnidentifiedImageError as error:
        raise WhyformerError(f"The file{title} is not an image that can be read.") from error
    except Exception as error:  # A damaged image can fail anywhere in the decoders.
        raise WhyformerError(f"The image{title} cannot be read, save it again: {error}") from error


def _read_text(path: Path) -> str:
    check_file(path)
    if path.suffix.lower() in TABLE_SUFFIXES:
        raise WhyformerError(
            f"{str(path)!r} is a table, not one text: explain_batch and `whyformer explain` explain its rows, "
            "`whyformer response --batch` its prompts."
        )
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise WhyformerError(
            f"The file {str(path)!r} is not UTF-8 text (byte {error.start}): convert it first."
        ) from error
    except OSError as error:
        raise WhyformerError(f"The file {str(path)!r} cannot be read: {error.strerror}.") from error


def check_file(path: Path) -> None:
    """Raise if a path is not a file, or the file is empty."""
    url = re.fullmatch(r"([A-Za-z][A-Za-z0-9+.-]+):/+(.+)", str(path))  # a Path collapses its slashes
    if url is not None and not os.path.exists(path):
        raise WhyformerError(f"'{url[1]}://{url[2]:.60}' is a URL, and URLs are not fetched: download it first.")
    if os.path.isdir(path):
        raise WhyformerError(f"{str(path)!r} is a folder, not a file: name the files in it.")
    if not os.path.isfile(path):  # unlike Path.is_file, returns False for names that are too long
        raise WhyformerError(f"No file {str(path)!r}.")
    if path.stat().st_size == 0:
        raise WhyformerError(f"The file {str(path)!r} is empty.")


def _rgb(image: Image.Image) -> Image.Image:
    """Convert to 8-bit RGB, with transparency composited on white."""
    if image.mode.startswith("I") or image.mode == "F":
        values = np.array(image, dtype=np.float64)
        if not np.isfinite(values).all():
            raise WhyformerError("Some pixels are not finite numbers.")
        darkest, brightest = values.min(initial=0), values.max(initial=0)
        # A 32-bit image does not state its white level: take the smallest usual one that no pixel exceeds.
        top = 65535.0 if image.mode.startswith("I;16") or brightest > 255 else 255.0 if brightest > 1 else 1.0
        if darkest < 0 or brightest > top:
            raise WhyformerError(
                f"Pixels run from {darkest:g} to {brightest:g}: scale them to 0 … 1 or 0 … 255 (16 bits: 0 … 65,535)."
            )
        values /= top
        values *= 255
        image = Image.fromarray(values.round(out=values).astype(np.uint8))
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("RGB")

"""Examples as people have them, files above all, made into pictures and texts."""

from __future__ import annotations

import os
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from whyformer.errors import WhyformerError, with_article

Text = str | tuple[str, str]


@dataclass(frozen=True)
class Regions:
    """A picture as a detector cut it up: a box (left, top, right, bottom, in pixels) and features of each region."""

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
        """Read back what `save` wrote."""
        _check_file(Path(path))
        try:
            with np.load(path, allow_pickle=False) as stored:
                return cls(Image.fromarray(stored["image"]), stored["boxes"], stored["features"])
        except (KeyError, ValueError, OSError, zipfile.BadZipFile) as error:
            raise WhyformerError(
                f"{str(path)!r} holds no regions (image, boxes and features in an .npz file): {error}"
            ) from error


def regions_of(example: Any) -> Regions:
    """The example as regions: themselves, or the .npz file they were saved to."""
    if isinstance(example, Regions):
        return example
    if isinstance(example, (str, Path)) and str(example).lower().endswith(".npz"):
        return Regions.load(example)
    raise WhyformerError(
        "This model sees regions of a picture, not the picture: give whyformer.Regions(image, boxes, features), or the "
        f".npz file they were saved to, not {_shown(example)}."
    )


def two_of(example: Any, what: str) -> tuple[Any, Any]:
    """The example as a pair."""
    if not isinstance(example, (tuple, list)) or len(example) != 2:
        raise WhyformerError(f"This model is given {what}, not {_shown(example)}.")
    return example[0], example[1]


def _shown(example: Any) -> str:
    """What was given, in a few words; a path as it was written."""
    return f"{str(example) if isinstance(example, Path) else example!r:.60}"


def image_of(example: Any) -> Image.Image:
    """The example as an upright RGB picture: a file, a PIL image or a uint8 array."""
    if isinstance(example, np.ndarray):
        if example.dtype != np.uint8 or example.ndim not in (2, 3):
            raise WhyformerError(
                f"An image array is uint8 [height, width, channel], not {example.dtype} of shape {example.shape}."
            )
        example = Image.fromarray(example)
    if isinstance(example, Image.Image):
        return _rgb(ImageOps.exif_transpose(example))
    if isinstance(example, (str, Path)):
        return _read_image(Path(example))
    raise WhyformerError(
        f"An image is a file, a PIL image or a uint8 array, not {with_article(type(example).__name__)}."
    )


def text_of(example: Any) -> Text:
    """The example as a text, or a pair of texts; a `Path` is read as a UTF-8 file."""
    if isinstance(example, tuple) and len(example) == 2:
        first, second = (text_of(part) for part in example)
        if isinstance(first, str) and isinstance(second, str):
            return first, second
    if isinstance(example, Path):
        example = _read_text(example)
    if isinstance(example, str) and os.path.isfile(example):
        raise WhyformerError(f"{example!r} is a file: give it as a Path to have its text read.")
    if not isinstance(example, str):
        raise WhyformerError(
            f"A text is a string, a Path to a text file, or a pair of them, not {with_article(type(example).__name__)}."
        )
    try:
        example.encode()
    except UnicodeEncodeError as error:
        raise WhyformerError(f"The text is not Unicode (character {error.start}): give it as UTF-8.") from error
    if not example.strip():
        raise WhyformerError("The text is empty: there is nothing to explain.")
    return example


def _read_image(path: Path) -> Image.Image:
    _check_file(path)
    with open_image(path) as image:
        return _rgb(ImageOps.exif_transpose(image))


@contextmanager
def open_image(source: Path | BinaryIO, *, formats: list[str] | None = None) -> Iterator[Image.Image]:
    """A picture, to be decoded inside the block: one that is too large, damaged or no picture is refused."""
    name = f" {str(source)!r}" if isinstance(source, Path) else ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what can be read in spite of damaged metadata is read
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(source, formats=formats) as image:
                yield image
    except (Image.DecompressionBombWarning, Image.DecompressionBombError) as error:
        raise WhyformerError(f"The image{name} is too large to be safe, shrink it first: {error}") from error
    except UnidentifiedImageError as error:
        raise WhyformerError(f"The file{name} is not an image that can be read.") from error
    except Exception as error:  # A damaged image can fail anywhere in the decoders.
        raise WhyformerError(f"The image{name} cannot be read, save it anew: {error}") from error


def _read_text(path: Path) -> str:
    _check_file(path)
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise WhyformerError(
            f"The file {str(path)!r} is not UTF-8 text (byte {error.start}): convert it first."
        ) from error
    except OSError as error:
        raise WhyformerError(f"The file {str(path)!r} cannot be read: {error.strerror}.") from error


def _check_file(path: Path) -> None:
    if os.path.isdir(path):
        raise WhyformerError(f"{str(path)!r} is a folder, not a file: name the files in it.")
    if not os.path.isfile(path):  # unlike Path.is_file, False for a name too long to be one
        raise WhyformerError(f"No file {str(path)!r}.")
    if path.stat().st_size == 0:
        raise WhyformerError(f"The file {str(path)!r} is empty.")


def _rgb(image: Image.Image) -> Image.Image:
    """RGB, with 16-bit and float pictures brought to 8 bits and transparency laid on white."""
    if image.mode.startswith("I") or image.mode == "F":
        values = np.asarray(image, dtype=np.float64)
        if not np.isfinite(values).all():
            raise WhyformerError("Some pixels are not finite numbers.")
        brightest = values.max(initial=0)
        # A picture of 32 bits does not say what white is: the least of the usual values that none exceeds.
        top = 65535.0 if image.mode.startswith("I;16") or brightest > 255 else 255.0 if brightest > 1 else 1.0
        image = Image.fromarray((values / top * 255).clip(0, 255).round().astype(np.uint8))
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("RGB")

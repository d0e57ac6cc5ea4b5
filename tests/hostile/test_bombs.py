"""Small files that become large: they are refused by what their headers say, before anything is decoded."""

import io
import struct
import zlib
from contextlib import suppress

import numpy as np
import pytest
from PIL import Image

from whyformer import Regions, WhyformerError, explain
from whyformer.app.limits import Limits
from whyformer.app.uploads import read_upload, regions_of_file


def chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png_header(width, height):
    """A PNG that has a size, and no pixel."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"")


def npz(**shapes):
    """An .npz file of zeros."""
    file = io.BytesIO()
    np.savez_compressed(file, **{name: np.zeros(shape, np.uint8) for name, shape in shapes.items()})
    return file.getvalue()


@pytest.mark.parametrize(("width", "height"), [(40_000_000, 1), (1, 40_000_000), (5005, 5)])
def test_a_picture_that_is_a_line_is_refused_before_it_is_decoded(tmp_path, width, height):
    path = tmp_path / "line.png"
    path.write_bytes(png_header(width, height))
    line = f"has {width:,} × {height:,} pixels, and one side may be 1,000 times the other: crop it."
    with pytest.raises(WhyformerError) as error:
        read_upload(str(path), Limits())
    assert str(error.value) == f"The image 'line.png' {line}"
    with pytest.raises(WhyformerError, match=line):
        explain(path, "mini-vit")


def test_a_picture_of_a_thousand_to_one_is_read(tmp_path):
    path = tmp_path / "strip.png"
    Image.new("RGB", (5000, 5), "red").save(path)
    assert read_upload(str(path), Limits()).size == (5000, 5)


def test_a_picture_with_too_many_pixels_is_refused_before_it_is_decoded(tmp_path):
    path = tmp_path / "large.png"
    path.write_bytes(png_header(8000, 8000))
    with pytest.raises(
        WhyformerError, match=r"large.png has 8,000 × 8,000 pixels, but this page takes at most 40 million"
    ):
        read_upload(str(path), Limits())


@pytest.mark.parametrize(
    ("shapes", "line"),
    [
        (
            {"image": (8, 8, 3), "boxes": (20_000, 4), "features": (20_000, 8)},
            r"'a.npz' has 20,000 regions, and at most 1,000 are read: keep the most confident ones.",
        ),
        (
            {"image": (13_000, 13_000), "boxes": (1, 4), "features": (1, 8)},
            r"The image of 'a.npz' has 13,000 × 13,000 pixels, more than [\d,]+: shrink it.",
        ),
        (
            {"image": (1, 1001, 3), "boxes": (1, 4), "features": (1, 8)},
            r"The image of 'a.npz' has 1,001 × 1 pixels, and one side may be 1,000 times the other: crop it.",
        ),
        ({"image": (8,), "boxes": (1, 4), "features": (1, 8)}, r"'a.npz' holds no regions"),
        ({"image": (8, 8), "boxes": (4,), "features": (1, 8)}, r"'a.npz' holds no regions"),
        ({"boxes": (1, 4), "features": (1, 8)}, r"'a.npz' holds no regions"),
    ],
)
def test_regions_that_become_large_are_refused_before_they_are_decoded(tmp_path, monkeypatch, shapes, line):
    path = tmp_path / "a.npz"
    path.write_bytes(npz(**shapes))
    assert path.stat().st_size < 300_000
    monkeypatch.setattr(np, "load", pytest.fail)
    with pytest.raises(WhyformerError, match=line):
        regions_of_file(str(path), "", Limits())
    with pytest.raises(WhyformerError, match=line.replace("'a.npz'", ".*a.npz'")):
        Regions.load(path)


@pytest.mark.parametrize(
    ("shapes", "line"),
    [
        ({"image": (8, 8, 3), "boxes": (257, 4), "features": (257, 8)}, "257 regions, but this page takes at most 256"),
        ({"image": (7000, 7000), "boxes": (1, 4), "features": (1, 8)}, "a.npz has 7,000 × 7,000 pixels, but this page"),
    ],
)
def test_the_page_takes_smaller_regions_than_the_library(tmp_path, shapes, line):
    path = tmp_path / "a.npz"
    path.write_bytes(npz(**shapes))
    with pytest.raises(WhyformerError, match=line):
        regions_of_file(str(path), "", Limits())


@pytest.mark.parametrize("position", [*range(0, 400, 13), *range(-400, 0, 13)])
def test_damaged_regions_are_refused_or_read(tmp_path, position):
    content = bytearray(npz(image=(8, 8, 3), boxes=(2, 4), features=(2, 8)))
    content[position] ^= 0xFF
    path = tmp_path / "a.npz"
    path.write_bytes(content)
    with suppress(WhyformerError):  # or read, where nothing was harmed
        regions_of_file(str(path), "", Limits())

"""Files of arrays are measured before they are read."""

import io
import zipfile

import numpy as np
import pytest

from whyformer import arrays
from whyformer.arrays import open_npz
from whyformer.errors import WhyformerError
from whyformer.results.explanation import Explanation


def npz(**content):
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **content)
    return buffer


def lying_npz(shape):
    """An archive whose array says it has this shape, and has eight bytes."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": shape})
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("metadata.npy", header.getvalue() + bytes(8))
    return buffer


def test_arrays_are_read_from_files_and_from_memory(tmp_path):
    (tmp_path / "a.npz").write_bytes(npz(a=np.arange(3), b=np.array("é")).getvalue())
    for source in (tmp_path / "a.npz", npz(a=np.arange(3), b=np.array("é"))):
        with open_npz(source) as stored:
            assert (stored["a"].tolist(), stored["b"].item()) == ([0, 1, 2], "é")


def test_an_archive_that_unpacks_to_too_much_is_refused_unread(tmp_path, monkeypatch):
    bomb = npz(metadata=np.zeros(3 * 2**20, np.uint8))
    assert len(bomb.getvalue()) < 10_000
    monkeypatch.setattr(arrays, "MOST_BYTES", 2**20)
    monkeypatch.setattr(np, "load", None)
    (tmp_path / "bomb.npz").write_bytes(bomb.getvalue())
    with pytest.raises(WhyformerError, match=r"bomb\.npz .* unpack to 3 MiB, and at most 1 MiB are safe to read\)\.$"):
        Explanation.load(tmp_path / "bomb.npz")


@pytest.mark.parametrize("shape", [(10**13,), (2,), (0,)])
def test_a_header_that_lies_about_its_size_is_refused(shape):
    with (
        pytest.raises(WhyformerError, match=r"'metadata\.npy' has 8 bytes, which does not fit float64"),
        open_npz(lying_npz(shape)),
    ):
        pass

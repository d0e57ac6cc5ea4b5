"""Files are there with all their bytes or not at all."""

from __future__ import annotations

import pytest

from whyformer.files import is_unfinished, whole_file, write_whole


def test_a_file_takes_the_place_of_the_old_one_when_it_is_whole(tmp_path):
    path = tmp_path / "deep" / "file.bin"
    write_whole(path, b"old")
    with whole_file(path) as unfinished:
        unfinished.write_bytes(b"new")
        assert is_unfinished(unfinished)
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert not is_unfinished(path)
    assert list(path.parent.iterdir()) == [path]


def test_what_fails_half_way_leaves_the_old_file_and_no_rest(tmp_path):
    path = tmp_path / "file.bin"
    write_whole(path, b"old")

    def write_half():
        with whole_file(path) as unfinished:
            unfinished.write_bytes(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_half()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]

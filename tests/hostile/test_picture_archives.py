"""Zip files that lead out of their folder, or become large: refused by their directory, before anything is unpacked."""

import io
import re
import stat
import struct
import zipfile

import pytest
from PIL import Image
from test_bombs import png_header

from whyformer import WhyformerError
from whyformer.app import picture_archives
from whyformer.app.limits import Limits
from whyformer.app.picture_archives import MOST_ARCHIVED, unpack_pictures


def picture():
    file = io.BytesIO()
    Image.new("RGB", (8, 8), "red").save(file, "PNG")
    return file.getvalue()


def archive_of(tmp_path, entries):
    path = tmp_path / "sent.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries:
            archive.writestr(name, content)
    return path


@pytest.fixture
def folder(tmp_path):
    own = tmp_path / "unpacked" / "here"
    own.mkdir(parents=True)
    return own


def refused(path, folder, message, limits=None):
    with pytest.raises(WhyformerError, match=re.escape(message)) as error:
        unpack_pictures(path, folder, limits or Limits())
    assert str(path.parent) not in str(error.value)
    assert "\n" not in str(error.value)
    return sorted(one for one in folder.parent.rglob("*") if one.is_file())


@pytest.mark.parametrize(
    "name",
    ["../out.png", "a/../../out.png", "/out.png", "..\\out.png", "C:/out.png", "a/b/c/d/e/f/g.png", "x" * 300 + ".png"],
)
def test_an_entry_that_leads_elsewhere_is_refused_before_anything_is_unpacked(tmp_path, folder, name):
    path = archive_of(tmp_path, [("cat/1.png", picture()), (name, picture())])
    assert refused(path, folder, "sent.zip has an entry") == []


def test_a_link_is_refused(tmp_path, folder):
    link = zipfile.ZipInfo("cat/1.png")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    assert refused(archive_of(tmp_path, [(link, "/etc/passwd")]), folder, "which is not a plain file") == []


def test_a_bomb_is_refused_by_the_sizes_that_it_states(tmp_path, folder):
    zeros = bytes(11 << 20)
    path = archive_of(tmp_path, [("cat/1.png", zeros)])
    assert path.stat().st_size < 1 << 16
    assert refused(path, folder, "cat/1.png has 11 MB unpacked, but this page takes at most 10 MB per picture.") == []
    many = archive_of(tmp_path, [(f"cat/{n}.png", bytes(1 << 20)) for n in range(3)])
    limits = Limits(unpacked_bytes=2 << 20)
    assert refused(many, folder, "sent.zip has 3 MB unpacked, but this page takes at most 2 MB", limits) == []


def test_a_bomb_that_states_a_false_size_is_cut_where_it_said(tmp_path, folder):
    path = archive_of(tmp_path, [("cat/1.png", bytes(5 << 20))])
    content = bytearray(path.read_bytes())
    for signature, offset in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        place = content.index(signature) + offset
        content[place : place + 4] = struct.pack("<I", 100)
    path.write_bytes(content)
    left = refused(path, folder, "sent.zip is not a readable zip file")
    assert sum(one.stat().st_size for one in left) <= 100


def test_too_many_pictures_or_entries_are_refused(tmp_path, folder, monkeypatch):
    path = archive_of(tmp_path, [(f"cat/{n}.png", b"") for n in range(9)])
    message = "9 pictures and masks, but this page takes at most 8: leave some out."
    assert refused(path, folder, message, Limits(survey_pictures=4)) == []
    assert MOST_ARCHIVED <= 5000
    monkeypatch.setattr(picture_archives, "MOST_ARCHIVED", 8)
    assert refused(path, folder, "sent.zip has 9 entries, but this page takes at most 8.") == []


def test_a_picture_of_too_many_pixels_is_refused_by_its_header(tmp_path, folder):
    path = archive_of(tmp_path, [("cat/1.png", png_header(8000, 8000))])
    refused(path, folder, "cat/1.png has 8,000 × 8,000 pixels, but this page takes at most 40 million")


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ([], "sent.zip has no pictures: pack a folder of them for each class."),
        ([("notes.txt", b"x"), ("__MACOSX/cat/1.png", b"x"), ("cat/.1.png", b"x")], "sent.zip has no pictures"),
        ([("cat/1.png", b"x"), ("CAT/1.PNG", b"x")], "sent.zip has two pictures of the same name"),
        ([("cat/1.png", b"x"), ("cat/1.png/2.png", b"x")], "sent.zip is not a readable zip file"),
        ([("cat/1.png", b"no picture")], "cat/1.png is not a readable picture: leave it out."),
    ],
)
def test_what_is_no_archive_of_pictures_says_why(tmp_path, folder, entries, message):
    refused(archive_of(tmp_path, entries), folder, message)


def test_what_is_damaged_is_one_line(tmp_path, folder):
    path = archive_of(tmp_path, [("cat/1.png", picture())])
    whole = path.read_bytes()
    for cut in range(1, len(whole), 7):
        path.write_bytes(whole[:cut])
        refused(path, folder, "is not a readable zip file")


def test_the_folder_of_the_classes_is_returned(tmp_path, folder):
    path = archive_of(tmp_path, [("photos/cat/1.png", picture()), ("photos/dog/1.png", picture()), ("a.txt", b"")])
    assert unpack_pictures(path, folder, Limits()) == folder / "photos"
    assert sorted(one.name for one in (folder / "photos").iterdir()) == ["cat", "dog"]

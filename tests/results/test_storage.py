"""Files of results: those of earlier versions, and those that were tampered with."""

import base64
import io
import json
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from whyformer.errors import WhyformerError
from whyformer.inputs.layouts import Boxes, Patches, WordPieces
from whyformer.results.continuation import Continuation
from whyformer.results.explanation import Explanation
from whyformer.results.part import Part

VERSION_1 = Path(__file__).parent / "version1"


def explanation():
    """What the files of version 1 hold."""
    image = Image.fromarray((np.arange(8 * 12 * 3) % 256).astype(np.uint8).reshape(8, 12, 3))
    grid = Patches(image, 2, 3, (2.0, 0.0, 10.0, 8.0), (1.0, 1.0, 5.5, 7.0))
    tokens = ("a", "great", "film", "so"), (0, 0, 0, 1), ((0, 1), (2, 7), (8, 12), (0, 2))
    parts = {
        "image": Part(grid, np.linspace(0, 1, 6, dtype=np.float32)),
        "regions": Part(Boxes(image, ((0.5, 1.0, 4.25, 7.0), (2, 0, 12, 8))), np.array([0.1, -0.9])),
        "text": Part(WordPieces(("a great film", "so so"), *tokens), np.array([0.1, 0.9, -0.2, 0.0], np.float16)),
    }
    return Explanation(parts, "cat", 0.93, "bi_token", "mini-vit", {"first_block": 0}, ("a note",), 0.125)


def continuation():
    def written(text, target):
        part = Part(WordPieces((text,), ("a", "Ġgr"), (0, 0), ((0, 1), (1, 4))), np.array([0.25, 0.5], np.float32))
        return Explanation({"text": part}, target, None, "rollout", "mini-gpt")

    return Continuation(" film.", (written("a gre", " film"), written("a grea", ".")))


@pytest.mark.parametrize("suffix", ["json", "npz"])
def test_files_of_the_first_version_are_still_read(suffix):
    assert Explanation.load(VERSION_1 / f"explanation.{suffix}") == explanation()
    assert Continuation.load(VERSION_1 / f"continuation.{suffix}") == continuation()


def changed(document, path, value):
    *before, last = path
    place = document
    for step in before:
        place = place[step]
    if value is KeyError:
        del place[last]
    else:
        place[last] = value
    return document


@pytest.mark.parametrize(
    ("place", "value", "reason"),
    [
        (["target"], 5, "its target is 5, not a text"),
        (["target"], KeyError, "'target' is missing"),
        (["method"], None, "its method is None, not a text"),
        (["model"], ["a"], "its model is ['a'], not a text"),
        (["probability"], "high", "its probability is 'high', not a number"),
        (["completeness"], True, "True, not a number"),
        (["options"], [], "its options is [], not an object"),
        (["notes"], "a note", "its notes is 'a note', not a list"),
        (["notes"], [1], "its notes is 1, not a text"),
        (["parts"], [], "its parts are [], not objects with scores"),
        (["parts", "text"], 3, "not objects with scores"),
        (["parts", "image", "rows"], 2.5, "its rows is 2.5, not an integer"),
        (["parts", "image", "box"], [0, 0, 1], "its box is [0, 0, 1], not four numbers"),
        (["parts", "image", "image"], "?", "its image is not base64"),
        (["parts", "image", "image"], KeyError, "'image' is missing"),
        (["parts", "image", "layout"], 1, "its layout is 1, not a text"),
        (["parts", "regions", "boxes"], [[0, 0, 1, "a"]], "its boxes is 'a', not a number"),
        (["parts", "text", "texts"], "a great film", "its texts is 'a great film', not a list"),
        (["parts", "text", "tokens"], [1, 2, 3, 4], "its tokens is 1, not a text"),
        (["parts", "text", "offsets"], [[0, 1, 2]] * 4, "its offsets is [0, 1, 2], not two integers"),
        (["parts", "text", "scores"], ["a"] * 4, "not a list of numbers"),
        (["parts", "text", "dtype"], "object", "its scores are of 'object', not of float16, float32, float64"),
        (["version"], "2", "its version is '2', and this Whyformer reads versions 1 and 2"),
    ],
)
def test_a_field_of_the_wrong_type_is_named_when_the_file_is_loaded(tmp_path, place, value, reason):
    path = tmp_path / "e.json"
    explanation().save(path)
    path.write_text(json.dumps(changed(json.loads(path.read_text()), place, value)))
    with pytest.raises(WhyformerError) as caught:
        Explanation.load(path)
    assert reason in str(caught.value)
    assert str(caught.value).startswith(f"{path} is not a readable Whyformer explanation (")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [None, [1], "text"])
def test_a_continuation_without_explanations_is_refused(tmp_path, value):
    path = tmp_path / "c.json"
    continuation().save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"explanations": value}))
    with pytest.raises(WhyformerError, match=r"its (explanations|parts) are"):
        Continuation.load(path)


def chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def test_a_picture_that_would_unpack_to_gigabytes_is_refused(tmp_path):
    size = struct.pack(">IIBBBBB", 50_000, 50_000, 8, 2, 0, 0, 0)
    bomb = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", size) + chunk(b"IDAT", zlib.compress(bytes(9))) + chunk(b"IEND", b"")
    path = tmp_path / "e.json"
    explanation().save(path)
    document = json.loads(path.read_text())
    document["parts"]["image"]["image"] = base64.b64encode(bomb).decode()
    path.write_text(json.dumps(document))
    with pytest.raises(WhyformerError, match=r"The image is too large to be safe"):
        Explanation.load(path)


def test_only_png_pictures_are_opened(tmp_path):
    buffer = io.BytesIO()
    Image.new("RGB", (12, 8)).save(buffer, "BMP")
    path = tmp_path / "e.json"
    explanation().save(path)
    document = json.loads(path.read_text())
    document["parts"]["image"]["image"] = base64.b64encode(buffer.getvalue()).decode()
    path.write_text(json.dumps(document))
    with pytest.raises(WhyformerError, match="is not an image that can be read"):
        Explanation.load(path)

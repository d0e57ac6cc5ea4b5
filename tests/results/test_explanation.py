"""The result object: its checks, its words, its files."""

import json
import math
import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image

from whyformer.inputs.layouts import Boxes, Patches, WordPieces
from whyformer.results.explanation import Explanation
from whyformer.results.part import Part, Word


def photo(width=12, height=8, mode="RGB"):
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 4), dtype=np.uint8)
    return Image.fromarray(pixels).convert(mode)


def picture(scores=None, rows=2, columns=3, **changes):
    scores = np.linspace(0, 1, rows * columns, dtype=np.float32) if scores is None else scores
    part = Part(Patches(photo(), rows, columns, (2.0, 0.0, 10.0, 8.0)), scores)
    return replace(Explanation({"image": part}, "cat", 0.93, "bi_token", "mini-vit", {"first_block": 0}), **changes)


def text(texts, pieces, scores, **changes):
    """pieces: (token, segment, start, end)."""
    layout = WordPieces(
        tuple(texts), tuple(p[0] for p in pieces), tuple(p[1] for p in pieces), tuple((p[2], p[3]) for p in pieces)
    )
    part = Part(layout, np.array(scores, np.float64))
    return replace(Explanation({"text": part}, "positive", None, "rollout", "mini-bert"), **changes)


def sample_text():
    return text(["a great film"], [("a", 0, 0, 1), ("great", 0, 2, 7), ("film", 0, 8, 12)], [0.1, 0.9, -0.2])


def regions():
    part = Part(Boxes(photo(), ((0.5, 1.0, 4.25, 7.0), (2, 0, 12, 8))), np.array([0.1, 0.9]))
    return replace(picture(), parts={**sample_text().parts, "image": part})


def detection():
    part = Part(Patches(photo(), 1, 2, (0, 0, 12, 8), (1 / 3, 0.1, 5.0, 7.9)), np.ones(2))
    return replace(picture(), parts={"image": part})


EXAMPLES = {"picture": picture, "text": sample_text, "regions": regions, "detection": detection}


def test_one_part_lends_the_explanation_its_scores_and_tokens():
    explanation = picture()
    assert explanation.scores is explanation.parts["image"].scores
    assert explanation.tokens[:4] == ("row 1, column 1", "row 1, column 2", "row 1, column 3", "row 2, column 1")
    assert sample_text().tokens == ("a", "great", "film")


@pytest.mark.parametrize("wanted", ["scores", "tokens"])
def test_several_parts_must_be_named(wanted):
    both = replace(picture(), parts={**picture().parts, **sample_text().parts})
    with pytest.raises(ValueError, match=rf"Several parts have {wanted}: image, text\. .*parts\['image'\]\.{wanted}"):
        getattr(both, wanted)
    assert [word.text for word in both.words()] == ["a", "great", "film"]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_score_that_is_not_finite_is_named(bad):
    with pytest.raises(ValueError, match=f"'row 1, column 2' is {bad}"):
        picture(np.array([0, bad, 0, 0, 0, 0]))


@pytest.mark.parametrize("scores", [np.zeros(5), np.zeros((2, 3)), np.zeros(0)])
def test_scores_that_do_not_fit_the_layout_are_refused(scores):
    with pytest.raises(ValueError, match=r"2×3 patches need 6 scores in one row"):
        picture(scores)


def test_scores_that_are_not_floats_are_refused():
    with pytest.raises(ValueError, match="float64 array, not int64"):
        picture(np.zeros(6, np.int64))


def test_layouts_check_themselves():
    with pytest.raises(ValueError, match="not 0×3"):
        Patches(photo(), 0, 3, (0, 0, 1, 1))
    with pytest.raises(ValueError, match="left < right"):
        Patches(photo(), 1, 1, (5, 0, 5, 1))
    with pytest.raises(ValueError, match="outline is"):
        Patches(photo(), 1, 1, (0, 0, 5, 1), (0, 3, 5, 3))
    with pytest.raises(ValueError, match="A region's box is"):
        Boxes(photo(), ((0, 0, 1, 1), (0, 0, math.nan, 1)))
    with pytest.raises(ValueError, match=r"'x' has offsets \(0, 9\) in a text of 2 characters"):
        WordPieces(("ab",), ("x",), (0,), ((0, 9),))
    with pytest.raises(ValueError, match="'x' is in segment 1, but there are 1 texts"):
        WordPieces(("ab",), ("x",), (1,), ((0, 1),))
    with pytest.raises(ValueError, match="1 tokens, 0 segments and 1 offsets"):
        WordPieces(("ab",), ("x",), (), ((0, 1),))
    with pytest.raises(ValueError, match="parts is empty"):
        Explanation({}, "cat", None, "rollout", "m")
    with pytest.raises(ValueError, match="probability is finite or None, not nan"):
        picture(probability=math.nan)


PAIR = ["It's unbelievable!", "so so"]
PIECES = [
    *[("[CLS]", 0, 0, 0), ("It", 0, 0, 2), ("'", 0, 2, 3), ("s", 0, 3, 4), ("un", 0, 5, 7), ("##believ", 0, 7, 13)],
    *[
        ("##able", 0, 13, 17),
        ("!", 0, 17, 18),
        ("[SEP]", 0, 0, 0),
        ("so", 1, 0, 2),
        ("so", 1, 3, 5),
        ("[SEP]", 1, 5, 5),
    ],
]
SCORES = [9.0, 0.25, -1.0, 0.5, -0.5, -0.25, -2.0, -4.0, 9.0, 0.125, 1.5, 9.0]


def test_word_pieces_of_a_pair_of_texts_become_words_with_their_punctuation():
    assert text(PAIR, PIECES, SCORES).words("max") == [
        Word("It's", 0, 0, 4, -1.0),
        Word("unbelievable!", 0, 5, 18, -4.0),
        Word("so", 1, 0, 2, 0.125),
        Word("so", 1, 3, 5, 1.5),
    ]
    assert [word.score for word in text(PAIR, PIECES, SCORES).words()] == [-0.25, -6.75, 0.125, 1.5]


def test_byte_level_pieces_count_where_their_visible_characters_are():
    pieces = [
        ("A", 0, 0, 1),
        ("Ġwon", 0, 1, 5),
        ("der", 0, 5, 8),
        ("Ċ", 0, 8, 9),
        ("Ġ", 0, 9, 10),
        ("Ġfilm", 0, 10, 15),
    ]
    words = text(["A wonder\n  film"], pieces, [1, 2, 4, 8, 16, 32]).words("sum")
    assert [(word.text, word.score) for word in words] == [("A", 1), ("wonder", 6), ("film", 32)]


def test_bytes_of_one_emoji_belong_to_its_word():
    pieces = [("ðŁ", 0, 0, 1), ("ĺĢ", 0, 0, 1), ("Ġok", 0, 1, 4)]
    assert [word.score for word in text(["😀 ok"], pieces, [1, 2, 4]).words("sum")] == [3, 4]


def test_a_piece_over_two_words_counts_for_both_and_a_word_without_pieces_is_left_out():
    words = text(["New York is cut"], [("New▁York", 0, 0, 8)], [0.5]).words()
    assert words == [Word("New", 0, 0, 3, 0.5), Word("York", 0, 4, 8, 0.5)]


def test_words_come_in_the_order_of_the_text():
    words = text(["a b"], [("b", 0, 2, 3), ("a", 0, 0, 1)], [1, 2]).words()
    assert [word.text for word in words] == ["a", "b"]


def test_words_refuse_what_they_cannot_do():
    with pytest.raises(ValueError, match=r"No aggregate named 'mean'\. Known: max, sum\."):
        sample_text().words("mean")
    with pytest.raises(ValueError, match=r"the parts of this explanation are: image"):
        picture().words()
    with pytest.raises(ValueError, match="Only word pieces make words; this part is 2×3 patches"):
        picture().parts["image"].words()
    part = sample_text().parts["text"]
    with pytest.raises(ValueError, match=r"Several parts have words\(\): one, two"):
        replace(sample_text(), parts={"one": part, "two": part}).words()


@given(st.lists(st.text("ab.\n ", min_size=1, max_size=5), max_size=12), st.data())
def test_pieces_that_tile_a_text_sum_to_its_words(chunks, data):
    whole = "".join(chunks)
    ends = np.cumsum([len(chunk) for chunk in chunks]).tolist()
    inside_one_word = [len(chunk.split()) <= 1 for chunk in chunks]
    scores = data.draw(st.lists(st.integers(-9, 9), min_size=len(chunks), max_size=len(chunks)))
    kept = [i for i, single in enumerate(inside_one_word) if single]
    pieces = [(chunks[i], 0, ends[i] - len(chunks[i]), ends[i]) for i in kept]
    words = text([whole], pieces, [float(scores[i]) for i in kept]).words("sum")
    assert sum(word.score for word in words) == sum(scores[i] for i in kept if chunks[i].strip())
    assert all(whole[word.start : word.end] == word.text and re.fullmatch(r"\S+", word.text) for word in words)


@pytest.mark.parametrize("suffix", [".json", ".npz"])
@pytest.mark.parametrize("example", EXAMPLES)
def test_a_saved_explanation_comes_back_the_same(tmp_path, suffix, example):
    explanation = EXAMPLES[example](notes=("one", "two")) if example == "picture" else EXAMPLES[example]()
    explanation.save(tmp_path / f"e{suffix}")
    loaded = Explanation.load(str(tmp_path / f"e{suffix}"))
    assert loaded == explanation
    assert [os.listdir(tmp_path), list(loaded.parts)] == [[f"e{suffix}"], list(explanation.parts)]


@pytest.mark.parametrize("suffix", [".json", ".npz"])
@given(
    scores=st.sampled_from([np.float16, np.float32, np.float64]).flatmap(
        lambda dtype: hnp.arrays(dtype, 6, elements={"allow_nan": False, "allow_infinity": False})
    )
)
def test_scores_come_back_bit_for_bit(tmp_path_factory, suffix, scores):
    path = tmp_path_factory.mktemp("saved") / f"e{suffix}"
    picture(scores).save(path)
    loaded = Explanation.load(path).scores
    assert (loaded.dtype, loaded.tobytes()) == (scores.dtype, scores.tobytes())


@pytest.mark.parametrize("suffix", [".json", ".npz"])
@given(
    content=st.text(st.characters(), max_size=20),
    token=st.text(st.characters(), max_size=5),
    target=st.text(st.characters(), max_size=9),
)
def test_any_text_comes_back(tmp_path_factory, suffix, content, token, target):
    path = tmp_path_factory.mktemp("saved") / f"e{suffix}"
    explanation = text([content, ""], [(token, 0, 0, len(content)), ("", 1, 0, 0)], [1, -0.0], target=target)
    explanation.save(path)
    assert Explanation.load(path) == explanation


@pytest.mark.parametrize("suffix", [".json", ".npz"])
@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA"])
def test_pixels_come_back_in_their_mode(tmp_path, suffix, mode):
    explanation = picture(parts={"image": Part(Patches(photo(mode=mode), 1, 1, (0, 0, 1, 1)), np.ones(1))})
    explanation.save(tmp_path / f"e{suffix}")
    image = Explanation.load(tmp_path / f"e{suffix}").parts["image"].layout.image
    assert (image.mode, image.tobytes()) == (mode, photo(mode=mode).tobytes())


@pytest.mark.parametrize("suffix", [".json", ".npz"])
@pytest.mark.parametrize(("mode", "kept"), [("1", "L"), ("P", "RGB"), ("CMYK", "RGB")])
def test_other_modes_are_kept_as_what_they_look_like(tmp_path, suffix, mode, kept):
    original = photo().convert(mode)
    picture(parts={"image": Part(Patches(original, 1, 1, (0, 0, 1, 1)), np.ones(1))}).save(tmp_path / f"e{suffix}")
    image = Explanation.load(tmp_path / f"e{suffix}").parts["image"].layout.image
    assert (image.mode, image.tobytes()) == (kept, original.convert(kept).tobytes())


def test_a_layout_of_another_whyformer_is_named(tmp_path):
    path = tmp_path / "e.json"
    picture().save(path)
    path.write_text(path.read_text().replace('"patches"', '"voxels"'))
    with pytest.raises(ValueError, match="no layout is named 'voxels'"):
        Explanation.load(path)


def test_a_file_from_before_outlines_still_loads(tmp_path):
    path = tmp_path / "e.json"
    detection().save(path)
    document = json.loads(path.read_text())
    del document["parts"]["image"]["outline"]
    path.write_text(json.dumps(document))
    layout = Explanation.load(path).parts["image"].layout
    assert layout == replace(detection().parts["image"].layout, outline=None)


@pytest.mark.parametrize("suffix", [".json", ".npz"])
def test_options_that_json_cannot_hold_are_kept_as_their_repr(tmp_path, suffix):
    options = {"steps": 10, "which": [1, None, "a"], "nan": math.nan, "where": Path("x")}
    picture(options=options).save(tmp_path / f"e{suffix}")
    loaded = Explanation.load(tmp_path / f"e{suffix}").options
    assert loaded == {"steps": 10, "which": [1, None, "a"], "nan": "nan", "where": repr(Path("x"))}


def test_the_json_says_what_it_is(tmp_path):
    picture().save(tmp_path / "e.json")
    document = json.loads((tmp_path / "e.json").read_text())
    assert (document["format"], document["version"]) == ("whyformer-explanation", 2)
    assert document["parts"]["image"]["scores"] == picture().scores.tolist()
    assert document["parts"]["image"]["dtype"] == "float32"


def test_the_npz_holds_no_pickle(tmp_path):
    picture().save(tmp_path / "e.npz")
    with np.load(tmp_path / "e.npz", allow_pickle=False) as arrays:
        assert {name: arrays[name].dtype.kind for name in arrays} == {"metadata": "U", "array_0": "u", "array_1": "f"}


@pytest.mark.parametrize("name", ["e.jpg", "e", "e.json.bak"])
def test_an_unknown_suffix_is_answered_with_the_known_ones(tmp_path, name):
    with pytest.raises(ValueError, match=r"Known: \.html, \.json, \.npz, \.png\."):
        picture().save(tmp_path / name)
    with pytest.raises(ValueError, match=r"Known: \.json, \.npz\."):
        Explanation.load(tmp_path / name)
    assert not any(tmp_path.iterdir())


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"the folder .*nowhere does not exist"):
        picture().save(tmp_path / "nowhere" / "e.json")


def _failure(*_):
    raise OSError("disk full")


def _half_written(path, content):
    path.open("wb").close()
    raise OSError("disk full")


@pytest.mark.parametrize("suffix", [".html", ".png", ".json", ".npz"])
@pytest.mark.parametrize("broken", ["write_bytes", "replace"])
def test_a_failed_save_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, suffix, broken):
    path = tmp_path / f"e{suffix}"
    path.write_bytes(b"old")
    if broken == "replace":
        monkeypatch.setattr(os, "replace", _failure)
    else:
        monkeypatch.setattr(Path, "write_bytes", _half_written)
    with pytest.raises(OSError, match="disk full"):
        picture().save(path)
    assert (path.read_bytes(), os.listdir(tmp_path)) == (b"old", [f"e{suffix}"])


def _damaged(kind, suffix, good):
    document = {"format": "whyformer-explanation", "version": 3}
    return {
        "empty": b"",
        "cut": good[: len(good) // 2],
        "noise": bytes(range(256)) * 4,
        "foreign": b'{"a": 1}',
        "list": b"[1]",
        "future": json.dumps(document).encode(),
        "deep": b"[" * 100_000,
    }[kind]


@pytest.mark.parametrize("suffix", [".json", ".npz"])
@pytest.mark.parametrize("kind", ["empty", "cut", "noise", "foreign", "list", "future", "deep"])
def test_a_damaged_or_foreign_file_is_named_in_one_line(tmp_path, suffix, kind):
    path = tmp_path / f"e{suffix}"
    picture().save(path)
    path.write_bytes(_damaged(kind, suffix, path.read_bytes()))
    with pytest.raises(ValueError, match=re.escape(f"{path} is not a readable Whyformer explanation (")) as caught:
        Explanation.load(path)
    assert "\n" not in str(caught.value)


def test_a_pickled_array_is_never_opened(tmp_path):
    np.savez(tmp_path / "e.npz", metadata=np.array([{"format": "whyformer-explanation"}], dtype=object))
    with pytest.raises(ValueError, match="allow_pickle=False"):
        Explanation.load(tmp_path / "e.npz")


def test_a_missing_file_is_said_to_be_missing(tmp_path):
    with pytest.raises(FileNotFoundError):
        Explanation.load(tmp_path / "e.json")


def test_explanations_are_equal_by_value():
    assert picture() == picture()
    assert picture() != picture(np.ones(6, np.float32))
    assert picture(np.zeros(6, np.float32)) != picture(np.zeros(6, np.float64))
    assert picture().parts["image"] != "image"
    assert picture().parts["image"].layout != "image"
    assert detection() != replace(detection(), parts=picture().parts)
    assert regions() == regions()
    assert regions().parts["image"].layout != replace(regions().parts["image"].layout, boxes=())
    assert regions().parts["image"].layout != detection().parts["image"].layout


def test_repr_is_one_short_line():
    assert repr(picture()) == "<Explanation of cat (0.93) by bi_token on mini-vit; image: 2×3 patches>"
    assert (
        repr(regions()) == "<Explanation of cat (0.93) by bi_token on mini-vit; text: 3 word pieces, image: 2 regions>"
    )
    assert repr(sample_text()) == "<Explanation of positive by rollout on mini-bert; text: 3 word pieces>"

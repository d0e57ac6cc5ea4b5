import numpy as np
import pytest

from whyformer.data.examples import BACKGROUND, OBJECT
from whyformer.errors import WhyformerError
from whyformer.surveys.cues import Cue, phrases_of, picture_cue, region_parts, text_cue, text_parts, word_name
from whyformer.surveys.proof_run import pixel_parts
from whyformer.surveys.scored_samples import ScoredSample


@pytest.mark.parametrize(
    ("word", "name"),
    [("Film.", "film"), ("“Don't”", "don't"), ("well-made", "well-made"), ("!!", "!!"), ("ÉTÉ", "été")],
)
def test_a_word_is_named_without_its_case_and_the_punctuation_around_it(word, name):
    assert word_name(word) == name


def test_phrases_end_where_a_clause_ends():
    words = "Not bad, but dull.".split()
    assert list(phrases_of(words, 2)) == [(0, "not bad"), (2, "but dull")]
    assert list(phrases_of(words, 3)) == []


def test_a_cue_is_wherever_it_occurs():
    words = "bad film , not a bad one and the end is a bad end too , all of it and more".split()
    parts = text_parts(words)
    assert np.flatnonzero(parts[Cue("word", "bad")]).tolist() == [0, 5, 12]
    assert np.flatnonzero(parts[Cue("phrase", "a bad")]).tolist() == [4, 5, 11, 12]
    assert np.flatnonzero(parts[Cue("position", "beginning")]).tolist() == [0, 1]
    assert np.flatnonzero(parts[Cue("position", "end")]).tolist() == [19, 20]


def test_only_the_wanted_cues_are_looked_up():
    wanted = frozenset({Cue("phrase", "a film"), Cue("word", "nowhere")})
    assert text_parts("a film is a film".split(), wanted).keys() == {Cue("phrase", "a film")}


def test_a_short_text_has_no_positions():
    assert not [cue for cue in text_parts(["good", "film"]) if cue.kind == "position"]


def test_regions_cover_what_they_are_called():
    parts = region_parts((32, 64))
    area = {cue.name: mask.mean() for cue, mask in parts.items()}
    assert area["border"] == 1 - (3 / 4) ** 2
    assert area["centre"] == 1 / 4
    assert all(area[f"{one} {other} corner"] == 1 / 16 for one in ("top", "bottom") for other in ("left", "right"))
    assert parts[Cue("region", "top right corner")][:8, 48:].all()
    assert parts[Cue("region", "border")][:4].all()
    assert not parts[Cue("region", "border")][4:28, 8:56].any()


def test_a_user_names_cues_by_their_text_or_region():
    assert text_cue("Wonderful!") == Cue("word", "wonderful")
    assert text_cue("not a Film") == Cue("phrase", "not a film")
    assert picture_cue("centre") == Cue("region", "centre")
    assert picture_cue("background") == Cue("mask", "background")


def test_what_is_no_cue_is_said_in_a_line():
    with pytest.raises(WhyformerError, match=r"The cue 'one two three four' has 4 words: 1 to 3 make a cue\."):
        text_cue("one two three four")
    with pytest.raises(WhyformerError, match=r"No region of a picture is named 'middle'\. Known: border, top edge"):
        picture_cue("middle")


def test_cues_chosen_from_data_are_told_from_those_that_are_fixed():
    assert [Cue(kind, "x").is_fixed for kind in ("word", "phrase", "cluster")] == [False] * 3
    assert [Cue(kind, "x").is_fixed for kind in ("position", "region", "mask")] == [True] * 3


def test_corners_edges_and_centre_tile_a_picture():
    parts = region_parts((32, 64))
    tiles = [part for cue, part in parts.items() if cue.name != "border"]
    assert len(tiles) == 9
    assert (np.sum(tiles, axis=0) == 1).all()
    assert parts[Cue("region", "bottom edge")][24:, 16:48].all()


def test_a_region_of_a_picture_with_a_mask_is_what_lies_beside_the_object():
    mask = np.full((8, 8), BACKGROUND)
    mask[:1, :2] = OBJECT  # half of the top left corner
    corner = Cue("region", "top left corner")
    whole = region_parts((8, 8))[corner]
    removed = pixel_parts((8, 8), mask, {}, frozenset({corner}))[corner]
    assert (removed == (whole & (mask != OBJECT))).all()
    assert (whole.sum(), removed.sum()) == (4, 2)
    shares = tuple((mask == kind).astype(float).ravel() for kind in (OBJECT, BACKGROUND))
    sample = ScoredSample(0, "0", None, "a", None, (), (8, 8), None, np.ones(64), "random", shares)
    assert (sample.parts()[corner] == removed.ravel()).all()
    assert (pixel_parts((8, 8), None, {}, frozenset({corner}))[corner] == whole).all()

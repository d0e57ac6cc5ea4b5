"""Fonts for what the usual one lacks, advice where there is none, and how words without spaces are set."""

import subprocess
from pathlib import Path

import numpy as np
import pytest

from whyformer.inputs.layouts import WordPieces
from whyformer.modalities import word_pieces
from whyformer.render import canvas, figure, fonts
from whyformer.render.fonts import FontFile
from whyformer.render.text_spans import part_scale, spans
from whyformer.results.explanation import Explanation
from whyformer.results.part import Part

HAN = "这是一部很棒的电影"


@pytest.fixture
def machine(monkeypatch):
    """Makes the machine have these fonts beside the usual one."""

    def make(*files):
        for known in (fonts._other_file, fonts._has_main, fonts._font_files):
            known.cache_clear()
        monkeypatch.setattr(fonts, "_font_files", lambda: files)

    yield make
    monkeypatch.undo()
    for known in (fonts._other_file, fonts._has_main, fonts._font_files):
        known.cache_clear()


def written(text, scores=1.0):
    characters = [index for index, character in enumerate(text) if not character.isspace()]
    offsets = tuple((index, index + 1) for index in characters)
    layout = WordPieces((text,), tuple(text[index] for index in characters), (0,) * len(characters), offsets)
    return Explanation({"text": Part(layout, np.full(len(characters), scores))}, "good", None, "rollout", "mini-bert")


def test_the_usual_font_draws_what_it_has(machine):
    machine()
    assert [run.text for run in fonts.text_runs("It's – naïve", 20)] == ["It's – naïve"]
    assert fonts.missing_characters("It's – naïve\n") == ""


def test_characters_that_no_font_has_are_named_in_one_line_of_advice(machine):
    machine()
    assert fonts.missing_characters(f"a {HAN}是") == HAN
    with_advice, without = figure.explanation_figure(written(f"a {HAN}")), figure.explanation_figure(written("a b"))
    assert figure._font_advice(written(HAN)) == [
        "No font of this machine has some of these characters, drawn as boxes: save as .html to read them."
    ]
    assert figure._font_advice(written("film")) == []
    assert with_advice.height > without.height


def test_another_font_of_the_machine_draws_the_rest(machine, monkeypatch):
    file = FontFile(str(Path(pytest.importorskip("matplotlib").get_data_path()) / "fonts/ttf/DejaVuSans-Bold.ttf"))
    machine(FontFile("none.ttf"), FontFile(file.path, 0, (range(0x20, 0x7F),)), file)
    own = fonts._has_glyph
    monkeypatch.setattr(fonts, "_has_glyph", lambda face, character: character in HAN or own(face, character))
    monkeypatch.setattr(fonts, "_has_main", lambda character: character not in HAN)
    runs = fonts.text_runs(f"a{HAN}b", 20)
    assert [run.text for run in runs] == ["a", HAN, "b"]
    assert fonts._other_file("这") == file
    assert fonts.text_width(f"a{HAN}b", 20) == pytest.approx(sum(run.width for run in runs))
    assert fonts.missing_characters(HAN) == ""


def test_fontconfig_says_which_characters_a_font_has(monkeypatch):
    listing = "/f/Serif.ttf\t0\tRegular\t20-7e 4e00-4e02\n/f/Sans.ttc\t65536\tBold,Regular\t4e00\n/f/broken\n"
    answer = subprocess.CompletedProcess([], 0, stdout=listing)
    monkeypatch.setattr(fonts.subprocess, "run", lambda *_, **__: answer)
    files = fonts._font_files.__wrapped__()
    assert [(file.path, file.index) for file in files] == [("/f/Sans.ttc", 0), ("/f/Serif.ttf", 0)]
    assert [[file.may_have(character) for character in "A一丁"] for file in files] == [
        [False, True, False],
        [True, True, True],
    ]


def test_a_machine_without_fontconfig_is_searched_for_common_fonts(monkeypatch):
    def missing(*_, **__):
        raise FileNotFoundError("fc-list")

    monkeypatch.setattr(fonts.subprocess, "run", missing)
    assert [file.path for file in fonts._font_files.__wrapped__()] == list(fonts.COMMON_FILES)


@pytest.mark.skipif(not fonts._other_file("这"), reason="the machine has no Chinese font")
def test_chinese_is_drawn_where_the_machine_has_a_font():
    (run,) = fonts.text_runs("这是", 20)
    first, second = (np.asarray(canvas.paragraph([canvas.Chip(text)], 200, 20)) for text in ("这", "是"))
    assert run.ratio == 1
    assert not np.array_equal(first, second)


@pytest.mark.skipif(not fonts._other_file("👍"), reason="the machine has no emoji font")
def test_emoji_are_drawn_where_the_machine_has_a_font():
    assert fonts.text_width("👍", 20) < 60
    assert np.ptp(np.asarray(canvas.paragraph([canvas.Chip("👍")], 200, 20))) > 50


def test_words_without_spaces_stand_close_and_wrap():
    apart, close = (
        canvas.paragraph([canvas.Chip("a", (9, 9, 9)), canvas.Chip("b", (250, 0, 0), follows_space=space)], 300, 20)
        for space in (True, False)
    )
    assert apart.width > close.width + 4
    chips = [canvas.Chip("a", (9, 9, 9), follows_space=False)] * 100
    wrapped = canvas.paragraph(chips, 100, 20)
    assert wrapped.width <= 100
    assert wrapped.height > 5 * 31


def test_every_character_of_a_text_without_spaces_has_its_own_colour(machine):
    machine()
    part = written(HAN).parts["text"]
    chips = word_pieces._chips(part_scale(part), spans(part, 0))
    assert [chip.text for chip in chips] == list(HAN)
    assert [chip.follows_space for chip in chips] == [True, *[False] * 8]

"""Where the words of a text are."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from whyformer.inputs.layouts import WordPieces
from whyformer.inputs.words import tokens_by_word, word_ranges


def words(text):
    return [text[start:end] for start, end in word_ranges(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("这是一部很棒的电影", ["这", "是", "一", "部", "很", "棒", "的", "电", "影"]),
        ("《电影》很好，我", ["《电", "影》", "很", "好，", "我"]),
        ("我喜欢Python3。很好", ["我", "喜", "欢", "Python3。", "很", "好"]),
        ("カタカナー語です", ["カタカナー", "語", "で", "す"]),
        ("很😀好", ["很", "😀", "好"]),
        ("a 电影 b", ["a", "电", "影", "b"]),
    ],
)
def test_scripts_without_spaces_are_cut_at_unicode_word_boundaries(text, expected):
    assert words(text) == expected


@pytest.mark.parametrize("text", ["ภาพยนตร์เรื่องนี้", "ကောင်းတယ်", "ខ្មែរ", "ພາສາລາວ"])
def test_a_run_of_any_script_without_spaces_is_several_words(text):
    assert len(words(text)) > 1
    assert "".join(words(text)) == text


def test_elsewhere_a_word_keeps_its_punctuation():
    assert words("It's a well-made “film.”\n 3.14") == ["It's", "a", "well-made", "“film.”", "3.14"]


@given(st.text(st.characters(max_codepoint=0x5FF)))
def test_scripts_with_spaces_are_cut_at_spaces_alone(text):
    assert words(text) == re.findall(r"\S+", text)


@given(st.text(st.sampled_from("a.(《》，电影カー ไทย\n😀")))
def test_words_cover_every_character_but_the_spaces(text):
    covered = {index for start, end in word_ranges(text) for index in range(start, end)}
    assert covered == {index for index, character in enumerate(text) if not character.isspace()}
    assert word_ranges(text) == sorted(word_ranges(text))


def test_a_token_belongs_to_every_word_it_shares_a_character_with():
    layout = WordPieces(("很好 ok",), ("很好", "Ġok", "[SEP]"), (0, 0, 0), ((0, 2), (2, 5), (0, 0)))
    assert tokens_by_word(layout) == {(0, 0, 1): [0], (0, 1, 2): [0], (0, 3, 5): [1]}

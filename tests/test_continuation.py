"""What a model writes, token by token."""

from __future__ import annotations

import numpy as np
import pytest

from whyformer import continuation, explain, load
from whyformer.errors import WhyformerError
from whyformer.pieces import spelt


def test_tokens_that_are_bytes_of_one_character_all_stand_for_it():
    tokenizer = load("mini-gpt", device="cpu").tokenizer
    given = "a😀é日本 b"
    encoded = tokenizer(given, add_special_tokens=False, return_offsets_mapping=True)
    text, _, offsets = spelt(encoded["input_ids"], tokenizer)
    assert text == given
    # The tokenizer leaves the space out of a word that begins with one; what is written keeps it.
    stripped = [(a + len(text[a:b]) - len(text[a:b].lstrip()), b) for a, b in offsets]
    assert stripped == encoded["offset_mapping"]


def test_a_text_that_is_too_long_is_continued_from_its_beginning_where_asked():
    found = continuation("the film " * 400, "mini-gpt", "raw_attention", tokens=1, truncate=True)
    alone = explain("the film " * 400, "mini-gpt", method="raw_attention", truncate=True)
    assert found.tokens == (alone.target,)
    assert np.allclose(found.matrix()[0], alone.scores)


def test_the_rows_of_a_matrix_are_the_scores_of_each_token_by_the_place_of_what_came_before():
    found = continuation("there is a red circle. what colour is it?", "mini-t5", "rollout", tokens=3)
    source, target = found.matrix("source"), found.matrix("target")
    assert np.array_equal(source, found.matrix())
    assert target.shape == (len(found.tokens), len(found.tokens) - 1)
    for number, explanation in enumerate(found.explanations):
        assert np.array_equal(source[number], explanation.parts["source"].scores)
        assert not target[number, number:].any()
        if number:
            assert np.array_equal(target[number, :number], explanation.parts["target"].scores)
    with pytest.raises(WhyformerError, match=r"No part named .text.\. Known: source, target"):
        found.matrix("text")

"""What a model writes, token by token."""

from __future__ import annotations

import numpy as np

from whyformer import continuation, explain, load
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

"""Sentences stay short and words idiomatic: no page may undo what was rewritten."""

from __future__ import annotations

import tomllib

import readability


def test_no_more_long_sentences_and_odd_words_than_the_ceiling_allows():
    most = tomllib.loads(readability.COUNTS.read_text())["ceiling"]
    over = {name: (number, most[name]) for name, number in readability.counts().items() if number > most[name]}
    assert not over, "list them: python docs/readability.py docs README.md src"


def test_a_page_is_split_into_sentences_without_its_code_tables_and_generated_regions(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# Title\n\nFirst one. `code` opens a second, e.g. This! Third ([a link](x.md)).\n\n"
        "```python\nx = 1  # No. Never.\n```\n\n<!-- made -->\nMade. By a program.\n<!-- /made -->\n\n"
        "- An item.\n- Another: 1.5 s.\n\n| a | b |\n| --- | --- |\n| A cell. | Its neighbour. |\n"
    )
    assert list(readability.sentences(page)) == [
        *("First one.", "CODE opens a second, e.g This!", "Third (a link).", "An item.", "Another: 1.5 s."),
        *("a", "b", "A cell.", "Its neighbour."),
    ]


def test_a_docstring_is_split_at_its_arguments_and_has_no_examples(tmp_path):
    module = tmp_path / "module.py"
    module.write_text(
        'def f(a, b):\n    """Return a. Not b.\n\n    Args:\n        a: The first\n            of two.\n'
        '        b: Unused.\n\n    Example:\n        >>> f(1, 2)\n        1\n    """\n'
    )
    assert list(readability.sentences(module)) == ["Return a.", "Not b.", "The first of two.", "Unused.", "1"]


def test_over_thirty_words_is_long_and_code_is_one_word():
    assert not readability.is_long(" ".join(["word"] * 30) + ".")
    assert readability.is_long(" ".join(["word"] * 31) + ".")
    (sentence,) = readability.split("Call `f(a, b, c, d)` on [these models](some/long/address.md).")
    assert sentence == "Call CODE on these models."


def test_odd_words_are_named_with_what_to_write_instead():
    assert readability.odd_words("Whyformer explains models as they are.") == ["models as they are → unmodified models"]
    assert readability.odd_words("Remove a word.") == []

"""Citations in responses, and the sources that they name."""

from __future__ import annotations

import pytest

from whyformer.errors import WhyformerError
from whyformer.inputs.citations import citation_markers, without_markers

NAMES = ["weather", "doc-7", "Annual report, 2024"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It rained. [1]", [("[1]", (0,))]),
        ("It rained [1, 2][3].", [("[1, 2]", (0, 1)), ("[3]", (2,))]),
        ("It rained [doc-7].", [("[doc-7]", (1,))]),
        ("It rained [doc 2].", [("[doc 2]", (1,))]),
        ("It rained [Annual report, 2024].", [("[Annual report, 2024]", (2,))]),
        ("It rained (source: Weather).", [("(source: Weather)", (0,))]),
        ("It rained (sources: weather; doc-7).", [("(sources: weather; doc-7)", (0, 1))]),
        ("It rained [12].", [("[12]", (None,))]),
        ("It [sic] rained (heavily).", []),
    ],
)
def test_markers_name_sources_by_name_or_number(text, expected):
    assert [(one.text, one.documents) for one in citation_markers(text, NAMES)] == expected


def test_a_pattern_and_a_mapping_replace_the_default():
    assert [one.documents for one in citation_markers("It rained <2> [1].", NAMES, r"<(\d)>")] == [(1,)]
    markers = citation_markers("It rained*. All day†.", NAMES, {"*": "weather", "†": ["weather", "doc-7"]})
    assert [one.documents for one in markers] == [(0,), (0, 1)]


@pytest.mark.parametrize(
    ("citations", "message"),
    [
        ("(", "is not a regular expression"),
        (r"\[\d\]", "has 0 groups"),
        ({"*": "nowhere"}, "'\\*' cites \\['nowhere'\\]"),
    ],
)
def test_what_cannot_be_used_is_refused(citations, message):
    with pytest.raises(WhyformerError, match=message):
        citation_markers("It rained*.", NAMES, citations)


def test_tokens_of_markers_are_left_out():
    markers = citation_markers("Rain [1].", NAMES)
    assert without_markers([(0, 4), (4, 6), (6, 7), (7, 8), (8, 9)], markers) == [0, 4]

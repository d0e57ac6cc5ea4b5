"""The page of examples, and pages that open on the answer."""

import re

import numpy as np
import pytest
from PIL import Image

from made_responses import made_response
from whyformer.inputs.layouts import Patches, WordPieces
from whyformer.render.continuation_view import continuation_view
from whyformer.render.overview import Card, overview_page
from whyformer.render.response_page import continuation_page, response_page
from whyformer.results.continuation import Continuation
from whyformer.results.explanation import Explanation
from whyformer.results.part import Part


def explained(method="evidence", target="cat"):
    picture = Patches(Image.new("RGB", (64, 64), (90, 120, 60)), 4, 4, (0, 0, 64, 64))
    part = Part(picture, np.array([9.0] + [1.0] * 15))
    return Explanation({"image": part}, target, 0.9, method, "mini-vit", answers={target: 0.9, "dog": 0.1})


def test_the_findings_come_first_and_the_methods_are_folded():
    cards = [Card(f"Why {name}?", explained(target=name), {"rollout": explained("rollout", name)}) for name in "abcd"]
    page = overview_page("Examples", "About them.", cards, 2, {"Words": "words.html"})
    assert re.findall(r"<h2[^>]*>(.*?)</h2>", page) == [
        f"{name} 90 %: evidence on 6 % of the picture" for name in "abcd"
    ]
    assert page.index("a 90 %") < page.index("b 90 %") < page.index("2 more examples") < page.index("c 90 %")
    assert page.count("<details") == 4 + 1
    assert page.count("<figcaption>rollout") == 4
    assert '<a href="words.html">Words</a>' in page
    assert "<script" not in page
    assert len(re.findall(r'<ol class="answers"', page)) == 4


def written(words, question="What colour is the star?"):
    """A continuation: each word is explained by the text before it."""
    explanations, text = [], question
    for word in words:
        tokens = [(match.group(), match.span()) for match in re.finditer(r"\S+", text)]
        names, offsets = zip(*tokens, strict=True)
        layout = WordPieces((text,), names, (0,) * len(names), offsets)
        part = Part(layout, np.linspace(0.1, 1, len(names)))
        explanations.append(Explanation({"text": part}, f" {word}", 0.9, "evidence", "mini-gpt"))
        text = f"{text} {word}"
    return Continuation(text.removeprefix(question).strip(), tuple(explanations))


@pytest.mark.parametrize(
    ("words", "row"), [(["the", "star", "is", "cyan", "."], 3), (["cyan"], 0), (["the", "star"], 1), (["the", "is"], 0)]
)
def test_a_page_opens_on_the_first_word_that_answers(words, row):
    view = continuation_view(written(words))
    assert view.opening == row
    page = continuation_page(written(words))
    assert f'data-opening="{row}"' in page
    assert f"“{words[row]}”: " in re.search(r"<h1[^>]*>(.*?)</h1>", page)[1]


def test_a_response_says_in_its_title_where_its_score_lies():
    title = re.search(r"<h1[^>]*>(.*?)</h1>", response_page(made_response()))[1]
    assert re.fullmatch(r"“.+”: \d+ % of the score on .+", title)

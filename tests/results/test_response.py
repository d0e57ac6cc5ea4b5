"""A response and its sources: pooled, ranked, saved and read back."""

import json
from dataclasses import replace

import numpy as np
import pytest

from whyformer.errors import WhyformerError
from whyformer.inputs.prompt import prompt_of
from whyformer.inputs.prompt_tokens import text_tokens
from whyformer.inputs.sources import sources_of
from whyformer.inputs.spans import spans_of
from whyformer.results.continuation import Continuation
from whyformer.results.response import Response
from whyformer.results.response_parts import ResponseToken, Sinks
from whyformer.results.source_pooling import source_scores

TEXT = " It is Oslo. Yes."


@pytest.fixture(scope="module")
def response(gpt) -> Response:
    """Two sentences explained by two documents and a question, with scores by chance."""
    prompt = prompt_of(gpt, "Where is it?", context=[("a", "Oslo is cold. It is big."), ("b", "Paris is old.")])
    written = text_tokens(TEXT, gpt.tokenizer, add_special_tokens=False)
    tokens = tuple(
        ResponseToken(
            *(one.id, one.text, one.start, one.end, -0.5 * number, 0.25, number + 1),
            alternatives=((" no", 0.125 * number),),
        )
        for number, one in enumerate(written)
    )
    rows, sources = spans_of(TEXT, tokens), sources_of(prompt)
    scores = np.random.default_rng(0).normal(size=(len(rows), len(prompt.tokens))).astype(np.float32)
    return Response(
        prompt=prompt,
        text=TEXT,
        tokens=tokens,
        rows=rows,
        sources=sources,
        scores=source_scores(scores, sources, "positive", leave_out_first=True),
        method="rollout",
        model="mini-gpt",
        token_scores=scores,
        earlier=np.ones((len(rows), len(tokens)), dtype=np.float32),
        sinks=(Sinks(0.5, 0.25, 0.125), Sinks(0.1, 0.2, 0.3)),
        options={"first_block": 0},
        notes=("A note.",),
        seed=7,
    )


POOLED = {
    "positive": lambda scores: sum(max(score, 0.0) for score in scores),
    "sum": sum,
    "mean": lambda scores: sum(scores) / len(scores),
    "max": lambda scores: max(scores, key=abs),
}


@pytest.mark.parametrize("aggregate", POOLED)
@pytest.mark.parametrize("sources", ["word", "sentence", "paragraph", "document", [(3, 7), (10, 20)]])
@pytest.mark.parametrize("leaves_out", [True, False])
def test_a_source_has_what_its_tokens_have(response, sources, aggregate, leaves_out):
    found = replace(response, leaves_out_sinks=leaves_out).by(sources, aggregate)
    assert found.sources == sources_of(response.prompt, sources)
    scores = response.token_scores.astype(float).copy()
    scores[:, 0] *= not leaves_out
    for row in range(2):
        expected = [POOLED[aggregate]([scores[row, token] for token in source.tokens]) for source in found.sources]
        np.testing.assert_allclose(found.scores[row], expected, rtol=1e-5, atol=1e-6)
    assert found.aggregate == aggregate


def test_a_token_keeps_its_own_score_and_other_sources_come_back_from_it(response):
    by_token = replace(response, leaves_out_sinks=False).by("token")
    assert np.array_equal(by_token.scores, response.token_scores[:, 1:])  # the first begins every text
    assert by_token.by("sentence") == replace(response, leaves_out_sinks=False).by("sentence")
    assert response.by() == response
    assert np.array_equal(response.matrix(), response.scores)


def test_what_scored_whole_sources_is_joined_and_not_cut(response):
    whole = replace(response, token_scores=None, earlier=None, sinks=())
    documents = whole.by("document", "sum")
    assert [source.text[:2] for source in documents.sources] == ["a:", "b:"]
    np.testing.assert_allclose(documents.scores[:, 0], whole.scores[:, :2].sum(axis=1), rtol=1e-6)
    np.testing.assert_allclose(documents.scores[:, 1], whole.scores[:, 2])
    with pytest.raises(WhyformerError, match=r"rollout scored whole sources, such as the sentence .*: explain again"):
        whole.by("word")


def test_the_strongest_sources_come_first_with_their_share(response):
    sizes = np.abs(response.scores[1])
    best = int(sizes.argmax())
    first = response.top(2, row=1)[0]
    assert (first.source, first.score) == (response.sources[best], pytest.approx(float(response.scores[1, best])))
    assert first.share == pytest.approx(float(sizes[best] / sizes.sum()))
    np.testing.assert_allclose(response.share.sum(axis=1), 1.0)
    total = response.scores.sum(axis=0)
    ranked = [item.source for item in response.top(10)]
    assert ranked == [response.sources[number] for number in np.argsort(-np.abs(total)).tolist()]
    nothing = replace(response, scores=np.zeros_like(response.scores))
    assert nothing.top(3, row=0) == []
    assert not nothing.share.any()
    with pytest.raises(WhyformerError, match="row=2: the response has 2 rows, 0 to 1"):
        response.top(1, row=2)
    with pytest.raises(WhyformerError, match=r"aggregate='most'\. Choose from: positive, sum, mean, max"):
        response.by("word", "most")


@pytest.mark.parametrize("suffix", ["json", "npz"])
def test_a_response_is_read_back_as_it_was_saved(response, suffix, tmp_path):
    path = tmp_path / f"response.{suffix}"
    for one in (response, replace(response, token_scores=None, earlier=None, sinks=(), seed=None)):
        one.save(path)
        assert Response.load(path) == one
    with pytest.raises(WhyformerError, match=r"contains a Response: load it by Response\.load"):
        Continuation.load(path)


def test_a_response_is_drawn_and_shown(response, tmp_path, capsys):
    response.save(tmp_path / "response.html")
    response.save(tmp_path / "response.png")
    assert "Paris is old." in (tmp_path / "response.html").read_text()
    assert response.image().mode == "RGB"
    response.show(where="terminal")
    assert capsys.readouterr().out == f"{response}\n"
    assert repr(response) == ("<Response It is Oslo. Yes. by rollout on mini-gpt; 2 spans, 4 sources (sentence)>")


def test_the_table_of_a_response_has_a_row_for_each_pair(response):
    frame = response.to_pandas()
    assert len(frame) == response.scores.size
    assert np.array_equal(frame["score"].to_numpy(np.float32).reshape(response.scores.shape), response.scores)
    np.testing.assert_allclose(frame["share"].to_numpy().reshape(response.scores.shape), response.share)
    assert frame["text"].tolist() == [source.text for source in response.sources] * 2
    assert frame["span"].tolist()[::4] == [row.text for row in response.rows]
    assert frame.attrs == {"response": TEXT, "method": "rollout", "model": "mini-gpt"}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"scores": [["a"]]}, "its scores is 'a', not a number"),
        ({"scores": [[1.0], [2.0, 3.0]]}, "its scores is rows of different lengths, not a table"),
        (
            {"scores": [[1.0], [2.0]]},
            r"scores of a response are finite float32 of shape \(2, 4\), not float32",
        ),
        ({"prompt": 3}, "its prompt is 3, not an object"),
        ({"seed": "x"}, "'x', not an integer"),
        ({"rows": None}, "its rows is None, not a list"),
    ],
)
def test_a_damaged_file_is_refused_with_a_reason(response, changes, reason, tmp_path):
    path = tmp_path / "damaged.json"
    response.save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(WhyformerError, match=rf"is not a readable Whyformer explanation \(.*{reason}"):
        Response.load(path)


def test_scores_that_do_not_fit_are_refused(response):
    with pytest.raises(WhyformerError, match=r"scores of a response are finite float32 of shape \(2, 4\)"):
        replace(response, scores=np.full((2, 4), np.nan, dtype=np.float32))
    with pytest.raises(WhyformerError, match=r"earlier of a response are finite float32 of shape"):
        replace(response, earlier=np.zeros((2, 1), dtype=np.float32))
    assert response.log_probability == pytest.approx(sum(token.log_probability for token in response.tokens))

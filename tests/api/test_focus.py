"""The focus of a response: weights of its tokens in the explained score."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from test_explain_response import ByHand, in_double

from whyformer import Response, explain_response, explain_responses
from whyformer.api.focus import places_but_the_question
from whyformer.api.focus_weights import gain_weights
from whyformer.errors import WhyformerError
from whyformer.inputs.prompt import Message, Prompt, prompt_of
from whyformer.inputs.prompt_tokens import Token
from whyformer.inputs.sources import sources_of
from whyformer.tracing import build
from whyformer.tracing.build import trace

PROMPT, RESPONSE = "The plot was dull. The actors were bad. The music was", " great. I liked it."
DOCUMENTS = [("plot", "A dull story."), ("sound", "Great music.")]
WEIGHTS = [0.5, 0.0, 2.0, 0.25, 1.0, 0.0]
METHODS = [
    ("generic_attention", None),
    ("generic_attention", "libra"),
    ("state_x_gradient", "attn_lrp"),
    ("integrated_gradients", None),
    ("raw_attention", None),
    ("flow_routes", None),
    ("leave_one_out", None),
    ("context_ablation", None),
]
FROM_ONE_PASS = [*METHODS[:3], *METHODS[4:6], *((one, None) for one in ("evidence", "full_grad", "lrp"))]
FOCUSED = ["generic_attention", "input_x_gradient", "flow_routes", "leave_one_out"]


@pytest.fixture(scope="module")
def double(gpt):
    return in_double(gpt)


@pytest.mark.parametrize(("method", "backward"), METHODS)
def test_a_weight_on_one_token_asks_about_that_token(gpt, method, backward):
    tokens = explain_response(PROMPT, RESPONSE, gpt, "rollout", units="token")
    one_hot = [float(number == 2) for number in range(len(tokens.tokens))]
    focused = explain_response(PROMPT, RESPONSE, gpt, method, units="response", backward=backward, focus=one_hot)
    span = tokens.rows[2]
    alone = explain_response(PROMPT, RESPONSE, gpt, method, units=[(span.start, span.end)], backward=backward)
    assert np.array_equal(focused.scores, alone.scores)
    assert focused.rows != alone.rows
    assert np.array_equal(focused.focus, [one_hot])


@pytest.mark.parametrize(("method", "backward"), METHODS)
def test_weights_of_one_are_no_focus(gpt, method, backward):
    plain = explain_response(PROMPT, RESPONSE, gpt, method, units="sentence", backward=backward)
    ones = [1.0] * len(plain.tokens)
    focused = explain_response(PROMPT, RESPONSE, gpt, method, units="sentence", backward=backward, focus=ones)
    assert np.array_equal(focused.scores, plain.scores)
    assert plain.focus is None


@pytest.mark.parametrize("method", ["input_x_gradient", "leave_one_out"])
def test_scores_that_are_linear_are_the_weighted_sum_of_each_token(double, method):
    settings = {"sources": "sentence", "aggregate": "sum"}
    tokens = explain_response(PROMPT, RESPONSE, double, method, units="token", **settings)
    focused = explain_response(PROMPT, RESPONSE, double, method, units="response", focus=WEIGHTS, **settings)
    expected = np.array(WEIGHTS) @ tokens.scores  # of float32, whose digits cancel in part
    np.testing.assert_allclose(focused.scores[0], expected, rtol=1e-5, atol=1e-6 * np.abs(tokens.scores).max())


def test_a_read_out_is_the_weighted_mean_of_each_token(double):
    tokens = explain_response(PROMPT, RESPONSE, double, "raw_attention", units="token")
    focused = explain_response(PROMPT, RESPONSE, double, "raw_attention", units="response", focus=WEIGHTS)
    expected = np.array(WEIGHTS) @ tokens.token_scores / sum(WEIGHTS)
    np.testing.assert_allclose(focused.token_scores[0], expected, rtol=1e-5, atol=1e-9)


def test_generic_attention_goes_back_once_from_the_weighted_score(double):
    focused = explain_response(PROMPT, RESPONSE, double, "generic_attention", units="response", focus=WEIGHTS)
    by_hand = ByHand(double, focused)
    gradients = torch.autograd.grad((torch.tensor(WEIGHTS).double() * by_hand.scores).sum(), by_hand.maps)
    relevance = identity = torch.eye(by_hand.embeddings.shape[1], dtype=torch.float64)
    for attention, gradient in zip(by_hand.maps, gradients, strict=True):
        relevance = relevance + (gradient * attention.detach()).clamp(min=0).mean(dim=1)[0] @ relevance
    rows = (relevance - identity)[[by_hand.first + number - 1 for number in range(len(WEIGHTS))]]
    expected = (torch.tensor(WEIGHTS).double() @ rows / sum(WEIGHTS))[: by_hand.first]
    np.testing.assert_allclose(focused.token_scores[0], expected, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("method", FOCUSED)
@pytest.mark.parametrize("batch_size", [None, 1])
def test_many_prompts_with_a_focus_are_explained_as_each_alone(double, method, batch_size):
    prompts, responses = [PROMPT, "It was dull. The film"], [RESPONSE, " was great and long. I left."]
    count = len(explain_response(prompts[1], responses[1], double, "rollout").tokens)
    for focus in ("sources", [WEIGHTS, [0.0, *range(1, count)]], ["none", "sources"]):
        settings = {"units": "word" if focus == "sources" else "response", "batch_size": batch_size}
        every = explain_responses(prompts, responses, double, method, focus=focus, **settings)
        for number, response in enumerate(every):
            own = focus if focus == "sources" else focus[number]
            alone = explain_response(prompts[number], responses[number], double, method, focus=own, **settings)
            np.testing.assert_allclose(response.scores, alone.scores, rtol=1e-4, atol=1e-7)
            assert (response.focus is None) == (own == "none")


def log_probabilities(loaded_model, prompt: str, response: list[int]) -> np.ndarray:
    """By a plain forward pass."""
    ids = prompt_of(loaded_model, prompt).ids
    with torch.no_grad():
        logits = loaded_model.model(input_ids=torch.tensor([ids + response])).logits[0].double()
    shares = logits.log_softmax(dim=-1)[len(ids) - 1 : -1]
    return shares[range(len(response)), response].numpy()


def test_sources_weigh_a_token_by_what_they_add_to_its_log_probability(gpt):
    response = explain_response(PROMPT, RESPONSE, gpt, "rollout", focus="sources", sources="sentence")
    ids = [token.id for token in response.tokens]
    gains = log_probabilities(gpt, PROMPT, ids) - log_probabilities(gpt, "The music was", ids)  # the question stays
    for row, weights in zip(response.rows, response.focus, strict=True):
        own = gains[list(row.tokens)].clip(0, 3)
        expected = own / own.sum() if own.sum() >= 0.5 else np.full(len(own), 1 / len(own))
        np.testing.assert_allclose(weights[list(row.tokens)], expected, atol=1e-4)
        assert weights.sum() == pytest.approx(1.0)
    assert response.options["focus"] == "sources"


@contextmanager
def forwards_of(model: torch.nn.Module) -> Iterator[list[int]]:
    """The lengths of the texts that a model reads while inside, one for each forward pass."""
    lengths: list[int] = []
    handle = model.register_forward_pre_hook(
        lambda _, args, kwargs: lengths.append(kwargs["input_ids"].shape[1]), with_kwargs=True
    )
    try:
        yield lengths
    finally:
        handle.remove()


@pytest.mark.parametrize("method", [None, "generic_attention", "evidence", "flow_routes", "rollout"])
def test_focus_on_sources_takes_one_more_forward_pass(gpt, method):
    settings = {"units": "response", "sources": "sentence"}
    with forwards_of(gpt.model) as plain:
        response = explain_response(PROMPT, RESPONSE, gpt, method, focus="none", **settings)
    with forwards_of(gpt.model) as focused:
        explain_response(PROMPT, RESPONSE, gpt, method, focus="sources", **settings)
    assert len(plain) == 1
    without = len(prompt_of(gpt, "The music was").ids) + len(response.tokens) - 1
    assert focused == [without, *plain]


@pytest.mark.parametrize("units", ["response", "sentence"])
@pytest.mark.parametrize(("method", "backward"), FROM_ONE_PASS)
def test_the_pass_that_explains_weighs_the_tokens_as_if_the_weights_were_given(double, method, backward, units):
    settings = {"units": units, "backward": backward, "sources": "sentence"}
    ours = explain_response(PROMPT, RESPONSE, double, method, focus="sources", **settings)
    theirs = explain_response(PROMPT, RESPONSE, double, method, focus=ours.focus.sum(axis=0).tolist(), **settings)
    assert (np.abs(theirs.scores).sum(axis=1) > 0).all()
    np.testing.assert_allclose(ours.scores, theirs.scores, rtol=1e-5, atol=1e-7 * np.abs(theirs.scores).max())
    np.testing.assert_allclose(ours.focus, theirs.focus, rtol=1e-6, atol=1e-9)


def test_weights_are_the_same_block_by_block(double, monkeypatch):
    settings = {"units": "response", "focus": "sources", "sources": "sentence"}
    plain = explain_response(PROMPT, RESPONSE, double, "generic_attention", **settings)
    tried = []

    def by_blocks(*args, **options):
        tried.append(options | {"checkpoint": True})
        return trace(*args, **tried[-1])

    monkeypatch.setattr(build, "trace", by_blocks)
    blocks = explain_response(PROMPT, RESPONSE, double, "generic_attention", **settings)
    assert len(tried) == 1
    np.testing.assert_allclose(blocks.focus, plain.focus, rtol=1e-6)
    np.testing.assert_allclose(blocks.scores, plain.scores, rtol=1e-5)


def test_tokens_that_gain_nothing_have_no_weight_unless_none_gains():
    assert gain_weights(np.array([3.0, -1.0, 1.0])) == [0.75, 0.0, 0.25]
    assert gain_weights(np.array([15.0, 0.0, 1.0])) == [0.75, 0.0, 0.25]
    assert gain_weights(np.array([0.2, 0.1])) == [0.5, 0.5]
    assert gain_weights(np.array([-2.0])) == [1.0]


def places(text: str, kind: str, **parts) -> list[str]:
    """The texts that are taken out of a prompt of one-letter tokens."""
    prompt = Prompt(text, tuple(Token(5, one, n, n + 1) for n, one in enumerate(text)), text, **parts)
    return [text[start:end] for start, end in places_but_the_question(prompt, sources_of(prompt, kind))]


def test_the_question_stays_where_it_is_known(gpt):
    assert places("A dog. A cat.\n\nWho? Say it.", "sentence") == ["A dog.", "A cat."]
    assert places("A dog. A cat. Who?", "sentence") == ["A dog.", "A cat."]
    assert places("A dog barks", "word") == ["A", "dog", "barks"]  # nothing else is left
    chat = (Message("user", 0, 12), Message("tool", 14, 20))
    assert places("A dog.\n\nWho?\n\nA cat.", "sentence", messages=chat) == ["A dog.", "A cat."]
    prompt = prompt_of(gpt, "How was it? Say.", DOCUMENTS)
    taken = places_but_the_question(prompt, sources_of(prompt, "sentence"))
    assert "".join(prompt.text[start:end] for start, end in taken) == "plot: A dull story.sound: Great music."
    own = sources_of(prompt, [(0, len(prompt.text))])
    assert places_but_the_question(prompt, own) == [(0, len(prompt.text))]


def test_a_contrast_has_a_focus_of_its_own(gpt):
    settings = {"focus": "sources", "units": "response", "sources": "sentence", "aggregate": "sum"}
    both = explain_response(PROMPT, RESPONSE, gpt, "input_x_gradient", contrast=" bad and long.", **settings)
    ours, theirs = (
        explain_response(PROMPT, text, gpt, "input_x_gradient", **settings) for text in (RESPONSE, " bad and long.")
    )
    np.testing.assert_allclose(both.scores, ours.scores - theirs.scores, rtol=1e-3, atol=1e-5)
    assert np.array_equal(both.focus, ours.focus)


def test_an_encoder_decoder_has_a_focus_too():
    prompt = "there is a red circle. what colour is it?"
    explained = explain_response(prompt, None, "mini-t5", "generic_attention", tokens=4, focus="sources")
    assert explained.focus.sum(axis=1) == pytest.approx(1.0)


def test_a_focus_is_saved_and_shown(gpt, tmp_path):
    response = explain_response(PROMPT, RESPONSE, gpt, "rollout", units="response", focus=WEIGHTS)
    for suffix in ("json", "npz"):
        response.save(tmp_path / f"focus.{suffix}")
        assert Response.load(tmp_path / f"focus.{suffix}") == response
    assert response.to_dict()["focus"] == [WEIGHTS]
    page = response._repr_html_()
    assert "that weighs more in the explained score" in page
    underlines = re.findall(r'weight ([\d.]+)" style="--underline: ([\d.]+)"', page)
    assert underlines == [("0.5", "0.25"), ("0", "0.0"), ("2", "1.0"), ("0.25", "0.12"), ("1", "0.5"), ("0", "0.0")]
    texts = [response.tokens[number].text.strip() for number in (2, 4, 0)]
    assert f"Of its tokens, {texts[0]} 53%, {texts[1]} 27%, {texts[2]} 13% count most." in str(response)
    plain = explain_response(PROMPT, RESPONSE, gpt, "rollout", units="response")
    assert "that the model found less likely" in plain._repr_html_()


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"focus": "source"}, "focus='source': 'none', 'sources', or a weight for each token of the response."),
        ({"focus": [1.0]}, "focus has 1 weights, and the response 6 tokens: give one each."),
        ({"focus": [1, 0, 0, 0, 0, -1]}, "focus has a weight of -1: a weight is 0 or more, and finite."),
        ({"focus": [1, 0, 0, 0, 0, float("nan")]}, "focus has a weight of nan: a weight is 0 or more, and finite."),
        ({"focus": [1, 1, 0, 0, 0, 0]}, "focus: every token of 'I liked it.' has weight 0"),
        ({"focus": WEIGHTS, "contrast": " bad."}, "focus has weights for the response, and a contrast has other"),
    ],
)
def test_a_focus_that_cannot_be_used_is_refused(gpt, settings, reason):
    with pytest.raises(WhyformerError) as refused:
        explain_response(PROMPT, RESPONSE, gpt, "rollout", units="sentence", **settings)
    assert reason in str(refused.value)
    assert "\n" not in str(refused.value)

"""Responses of served models: the scores of methods that remove sources, from log-probabilities alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tiny_server import reference_scores, tiny_server
from whyformer import Endpoint, Response, UnsupportedModel, estimate_requests, explain_response, explain_responses
from whyformer.api.served_scorer import ServedScorer, values_of
from whyformer.errors import WhyformerError
from whyformer.inputs.prompt_tokens import Token
from whyformer.removal.response_scorer import PromptVariant, ScoringRequest
from whyformer.served.served_tokens import RawToken, ServedToken

DOCUMENTS = [("drawer", "The key is in the drawer."), ("hat", "Anna has a hat."), ("cat", "The cat sleeps.")]
QUESTION, RESPONSE = "Where is the key?", " The key is in the drawer. The cat sleeps."
CALL = {"prompt": QUESTION, "response": RESPONSE, "context": DOCUMENTS, "sources": "document"}


def sum_of(prompt, response, first=0, last=None):
    (tokens,) = reference_scores([prompt], [response])
    return sum(value for _, value in tokens[first:last])


def own_scorer(loaded_model):
    """A function that scores texts by a plain forward of each."""

    def tiny(prompts, responses):
        rows = []
        for prompt, response in zip(prompts, responses, strict=True):
            encoding = loaded_model.tokenizer(prompt + response, return_offsets_mapping=True)
            ids = torch.tensor([encoding["input_ids"]])
            with torch.no_grad():
                steps = loaded_model.model(input_ids=ids).logits[0].double().log_softmax(dim=-1)
            ends = [(number, end) for number, (_, end) in enumerate(encoding["offset_mapping"]) if end > len(prompt)]
            starts = [len(prompt), *[end for _, end in ends]]
            rows.append(
                [
                    ((prompt + response)[start:end], float(steps[number - 1, ids[0, number]]))
                    for start, (number, end) in zip(starts, ends, strict=False)
                ]
            )
        return rows

    return tiny


@pytest.mark.parametrize("method", ["leave_one_out", "context_ablation", "kernel_shap", "lime", "rise"])
def test_a_function_gives_the_scores_of_the_loaded_model(gpt, method):
    documents = ["The plot was dull.", "The actors were bad.", "The sea was grey."]
    call = {"prompt": "The music was", "response": " great. I liked it.", "context": documents, "sources": "document"}
    loaded = explain_response(**call, model=gpt, method=method)
    served = explain_response(**call, score=own_scorer(gpt), method=method)
    np.testing.assert_allclose(served.scores, loaded.scores, atol=2e-4)
    assert [row.text for row in served.rows] == [row.text for row in loaded.rows]
    assert served.log_probability == pytest.approx(loaded.log_probability, abs=1e-4)
    assert served.model == "tiny"


@pytest.mark.parametrize("focus", ["sources", "weights"])
def test_a_focus_weighs_the_tokens_of_a_served_model_likewise(gpt, focus):
    call = {"prompt": "The plot was dull. The actors were bad. The music was", "response": " great. I liked it."}
    call |= {"method": "leave_one_out", "focus": focus if focus == "sources" else [1, 0, 0, 2, 1, 0]}
    loaded = explain_response(**call, model=gpt)
    served = explain_response(**call, score=own_scorer(gpt))
    np.testing.assert_allclose(served.scores, loaded.scores, atol=2e-4)
    np.testing.assert_allclose(served.focus, loaded.focus, atol=1e-4)


def test_a_contrast_subtracts_the_other_response(gpt):
    call = {"prompt": "The plot was dull. The music was", "response": " bad", "contrast": " great"}
    loaded = explain_response(**call, model=gpt, method="leave_one_out")
    served = explain_response(**call, score=own_scorer(gpt), method="leave_one_out")
    np.testing.assert_allclose(served.scores, loaded.scores, atol=2e-4)


@pytest.mark.parametrize("api", ["completions", "vllm", "sglang"])
def test_an_endpoint_gives_differences_made_by_hand(api):
    with tiny_server() as server:
        explained = explain_response(**CALL, score=Endpoint(server.url, "tiny", api=api), method="leave_one_out")
    texts = [f"{name}: {text}" for name, text in DOCUMENTS]
    whole = "\n\n".join([*texts, QUESTION])
    rests = ["\n\n".join([*texts[:one], *texts[one + 1 :], QUESTION]) for one in range(3)]
    for row, (first, last) in enumerate([(0, 7), (7, 11)]):
        expected = [sum_of(whole, RESPONSE, first, last) - sum_of(rest, RESPONSE, first, last) for rest in rests]
        np.testing.assert_allclose(explained.scores[row], expected, rtol=1e-5)
    assert explained.top(1, row=0)[0].source.name == "drawer"
    assert explained.top(1, row=1)[0].source.name == "cat"


def test_each_variant_of_the_prompt_is_asked_about_once():
    with tiny_server() as server:
        explain_response(**CALL, score=Endpoint(server.url, "tiny"), method="leave_one_out", focus="sources")
        texts = [body["prompt"] for body in server.requests]
    assert len(texts) == len(set(texts)) == 5  # whole, without all documents, and without each


def test_a_result_is_saved_shown_and_regrouped_without_tokens_of_the_prompt(tmp_path):
    with tiny_server() as server:
        explained = explain_response(
            QUESTION, RESPONSE, context=DOCUMENTS, score=Endpoint(server.url, "tiny"), sources="sentence", subsets=16
        )
    explained.save(tmp_path / "served.json")
    assert Response.load(tmp_path / "served.json") == explained
    explained.save(tmp_path / "served.html")
    assert "drawer" in (tmp_path / "served.html").read_text()
    by_document = explained.by("document")
    assert [source.name for source in by_document.sources] == ["drawer", "hat", "cat"]
    assert explained.method == "context_ablation"
    assert "tiny" in str(explained)
    assert explained.tokens[0].entropy is None


def test_a_number_for_the_whole_response_is_enough():
    def total(prompts, responses):
        return [sum_of(prompt, response) for prompt, response in zip(prompts, responses, strict=True)]

    explained = explain_response(**CALL, score=total, method="leave_one_out")
    with tiny_server() as server:
        same = explain_response(**CALL, score=Endpoint(server.url, "t"), method="leave_one_out", units="response")
    np.testing.assert_allclose(explained.scores, same.scores, rtol=1e-5)
    with pytest.raises(WhyformerError, match="returned one number for the response"):
        explain_response(**CALL, score=total, units="sentence")


def test_a_proxy_ranks_and_the_served_model_confirms(gpt):
    with tiny_server() as server:
        endpoint = Endpoint(server.url, "tiny")
        explained = explain_response(**CALL, score=endpoint, method="leave_one_out", proxy=gpt, confirm=2)
        assert endpoint.usage.requests == 3
        whole = explain_response(**CALL, score=endpoint, method="leave_one_out")
    ranked = explain_response(**CALL, model=gpt, units="sentence").share.max(axis=0).argsort()[::-1]
    assert set(np.flatnonzero(explained.scores.any(axis=0))) <= set(ranked[:2].tolist())
    np.testing.assert_allclose(explained.scores[:, ranked[:2]], whole.scores[:, ranked[:2]])
    assert "Of 3 sources only 2 were removed" in explained.notes[0]


def test_an_estimate_is_the_number_of_requests_and_sends_none(tmp_path):
    with tiny_server() as server:
        endpoint = Endpoint(server.url, "tiny", cache=tmp_path)
        call = {**CALL, "score": endpoint, "method": "context_ablation", "subsets": 16}
        estimate = estimate_requests(**call)
        assert not server.requests
        explain_response(**call)
        assert len(server.requests) == estimate.requests
        again = estimate_requests(**call)
    assert (again.requests, again.cached) == (0, estimate.requests)
    assert estimate.tokens > 100


def test_many_prompts_are_explained_with_one_endpoint():
    with tiny_server() as server:
        many = explain_responses(
            [QUESTION, "Who has a hat?"],
            [RESPONSE, " Anna has a hat."],
            score=Endpoint(server.url, "tiny"),
            method="leave_one_out",
            contexts=[DOCUMENTS, DOCUMENTS],
            sources="document",
        )
    assert many[1].top(1)[0].source.name == "hat"


def test_tokens_that_are_split_otherwise_are_added_where_they_end():
    tokens = [Token(-1, " foo", 0, 4), Token(-1, "bar", 4, 7)]
    scored = [ServedToken(" fo", 0, 3, -1.0), ServedToken("oba", 3, 6, -2.0), ServedToken("r", 6, 7, -4.0)]
    np.testing.assert_array_equal(values_of(tokens, scored), [-1.0, -6.0])


def test_a_scorer_of_a_served_model_follows_the_protocol_of_scorers():
    with tiny_server() as server:
        scorer = ServedScorer(Endpoint(server.url, "tiny"))
        prompt = scorer.prompt(QUESTION, DOCUMENTS)
        tokens = scorer.response(prompt, RESPONSE)
        requests = [ScoringRequest(scorer.variant(prompt, [(0, 33)]), tokens, RESPONSE)] * 2
        first, second = scorer.log_probabilities(requests, whole=scorer.variant(prompt))
        assert scorer.write(PromptVariant("Go on"), 3) == " and"
    assert "".join(token.text for token in tokens) == RESPONSE
    assert requests[0].prompt.text.startswith("hat: Anna")
    assert first.sum() == pytest.approx(sum_of(requests[0].prompt.text, RESPONSE))
    np.testing.assert_array_equal(first, second)
    with pytest.raises(UnsupportedModel, match="it writes none"):
        ServedScorer(reference_scores).write(PromptVariant("Go on"), 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "generic_attention"}, "generic_attention reads the insides of a model"),
        ({"model": "mini-gpt"}, "model=… has no effect"),
        ({"backward": "libra"}, "backward=… has no effect"),
        ({"batch_size": 3}, "batch_size=… has no effect"),
        ({"response": None}, "the text that it wrote, not None"),
        ({"response": [1, 2]}, "the text that it wrote"),
        ({"sources": "token"}, "only the server knows the tokens"),
        ({"prompt": [{"role": "user", "content": "Hi."}], "context": None, "sources": None}, "chat template"),
        ({"score": "http://127.0.0.1"}, "an Endpoint, or a function"),
        ({"proxy": "mini-gpt", "confirm": 0}, "confirm=0"),
        ({"method": "leave_one_out", "seed": 3}, "seed"),
    ],
)
def test_what_a_served_model_cannot_do_is_refused_in_one_line(arguments, message):
    with pytest.raises(WhyformerError, match=message) as caught:
        explain_response(**{**CALL, "score": reference_scores} | arguments)
    assert "\n" not in str(caught.value)


def test_a_chat_template_is_that_of_the_processor(gpt):
    gpt.tokenizer.chat_template = "{% for m in messages %}<{{ m['role'] }}> {{ m['content'] }}\n{% endfor %}"
    messages = [{"role": "user", "content": "The key is here."}, {"role": "user", "content": "Where is the key?"}]
    try:
        with tiny_server() as server:
            explained = explain_response(
                messages,
                "The key is here.",
                score=Endpoint(server.url, "tiny"),
                method="leave_one_out",
                sources="message",
                processor=gpt.tokenizer,
            )
            texts = [body["prompt"] for body in server.requests]
    finally:
        gpt.tokenizer.chat_template = None
    assert texts[0] == "<user> The key is here.\n<user> Where is the key?\nThe key is here."
    assert explained.top(1)[0].source.text == "The key is here."


def test_a_server_that_gives_tokens_the_figures_of_the_next_is_found_out():
    from whyformer.served.api_formats import API_FORMATS

    words = [" the", " key", " is", " in", " a", " box", "."]
    right = [{word: -0.1} for word in words]
    answer = {"choices": [{"logprobs": {"tokens": words, "token_logprobs": [-1.0] * 7, "top_logprobs": right}}]}
    text = "".join(words)
    assert API_FORMATS["completions"].tokens(answer, text)[1] == RawToken(" key", -1.0)
    answer["choices"][0]["logprobs"]["top_logprobs"] = [*right[1:], {" x": -0.1}]
    with pytest.raises(WhyformerError, match="figures of the next"):
        API_FORMATS["completions"].tokens(answer, text)

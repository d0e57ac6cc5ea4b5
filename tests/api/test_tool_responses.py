"""Responses in conversations with tools: calls are responses, results are documents, and parts can be removed."""

import numpy as np
import pytest
import torch

import whyformer
from tiny_agents import TOOLS, agent, called, result
from whyformer.api.loaded_scorer import LoadedScorer
from whyformer.errors import WhyformerError
from whyformer.inputs.conversation import conversation_of
from whyformer.removal.prompt_text import text_without

QWEN = agent("qwen")
MESSAGES = [
    {"role": "user", "content": "Pay the bill."},
    called("read_mail"),
    result("Pay Ann. Thanks!"),
    called("send_money", 1, recipient="Ann"),
]
CALL = '<tool_call>\n{"name": "send_money", "arguments": {"recipient": "Ann"}}\n</tool_call>'


def test_a_conversation_that_ends_with_a_call_explains_that_call():
    response = whyformer.explain_response(MESSAGES, model=QWEN, tools=TOOLS, method="rollout", units=["Ann"])
    assert response.text == CALL
    assert [one.text for one in response.rows] == ["Ann"]
    assert [one.name for one in response.by("document").sources] == ["read_mail"]
    other = whyformer.explain_response(
        MESSAGES[:-1], MESSAGES[-1], model=QWEN, tools=TOOLS, method="rollout", units=["Ann"]
    )
    assert other == response


def test_a_call_can_be_contrasted_with_another():
    contrast = {"name": "send_money", "arguments": {"recipient": "Bo"}}
    response = whyformer.explain_response(MESSAGES, model=QWEN, tools=TOOLS, method="rollout", contrast=contrast)
    assert response.options["contrast"] == CALL.replace("Ann", "Bo")


def test_removing_a_source_is_scoring_the_conversation_without_its_characters():
    response = whyformer.explain_response(
        MESSAGES, model=QWEN, tools=TOOLS, method="leave_one_out", sources="document", units="response"
    )
    scorer = LoadedScorer(QWEN)
    conversation = conversation_of(MESSAGES[:-1], TOOLS)
    prompt = scorer.prompt(conversation)
    tokens = scorer.response(prompt, CALL)
    ids = [token.id for token in tokens]
    values = []
    for text in (prompt.rendered, prompt.rendered.replace(MESSAGES[2]["content"], "")):
        before = QWEN.tokenizer(text, add_special_tokens=False)["input_ids"]
        logits = QWEN.model(torch.tensor([before + ids])).logits[0, len(before) - 1 : -1].detach()
        values.append(float(logits.double().log_softmax(-1)[range(len(ids)), ids].sum()))
    np.testing.assert_allclose(response.scores, [[values[0] - values[1]]], rtol=1e-3)


@pytest.mark.parametrize("style", ["qwen", "llama", "hermes"])
def test_a_schema_and_a_call_can_be_cut_out(style):
    prompt = LoadedScorer(agent(style)).prompt(conversation_of(MESSAGES[:-1], TOOLS))
    for message in prompt.messages:
        if ":" in message.role:
            text = text_without(agent(style), prompt, [(message.start, message.end)])
            assert prompt.text[message.start : message.end] in prompt.rendered
            assert prompt.text[message.start : message.end] not in text
            assert abs(len(prompt.rendered) - len(text) - (message.end - message.start)) <= 2


def test_a_model_that_reads_pictures_says_so():
    with pytest.raises(WhyformerError, match="mini-vlm reads more than texts: conversations with tools are explained"):
        whyformer.explain_response(MESSAGES, model="mini-vlm", tools=TOOLS)


def test_a_response_with_tools_is_saved_and_loaded(tmp_path):
    response = whyformer.explain_response(MESSAGES, model=QWEN, tools=TOOLS, method="rollout")
    response.save(tmp_path / "call.json")
    assert whyformer.Response.load(tmp_path / "call.json") == response
    assert response.prompt.places
    assert "read_mail" in response._repr_html_()

"""What a model is asked for: not more logits than the answer reads."""

from functools import partial

import pytest
import torch

import whyformer
from whyformer import attribute
from whyformer.tracing import question


@pytest.mark.parametrize("method", ["rollout", "generic_attention", "evidence"])
def test_the_logits_of_the_last_position_alone_give_the_same_scores(method, monkeypatch):
    llm = whyformer.load("mini-llm")
    inputs = llm.tokenizer("The story starts slowly, but its ending", return_tensors="pt")
    shapes = []
    handle = llm.model.register_forward_hook(lambda *call: shapes.append(call[-1].logits.shape[1]))
    try:
        whole = attribute(llm.model, inputs, method=method)
        monkeypatch.setattr(question, "MOST_LOGITS", 0)
        last = attribute(llm.model, inputs, method=method)
    finally:
        handle.remove()
    assert set(shapes) == {inputs["input_ids"].shape[1], 1}
    assert shapes[-1] == 1
    torch.testing.assert_close(last["text"], whole["text"], rtol=1e-5, atol=1e-7)


def test_all_logits_are_kept_if_any_position_may_be_asked_for():
    llm = whyformer.load("mini-llm")
    ids = torch.ones(1, 2**20, dtype=torch.long)
    padded = torch.ones_like(ids)
    padded[0, -1] = 0
    settings = partial(question.settings_of, llm.model)
    assert settings({"input_ids": ids}, reads_all=False) == {"use_cache": False, "logits_to_keep": 1}
    assert settings({"input_ids": ids}, reads_all=True) == {"use_cache": False}
    assert settings({"input_ids": ids, "attention_mask": padded}, reads_all=False) == {"use_cache": False}
    assert settings({"input_ids": ids[:, :8]}, reads_all=False) == {"use_cache": False}
    assert settings({"input_ids": ids, "logits_to_keep": 3}, reads_all=False) == {"use_cache": False}

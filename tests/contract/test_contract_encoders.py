"""Encoders that are no plain stack of attention: what works on them does, and what cannot says why."""

from __future__ import annotations

import re
from functools import cache

import pytest
import torch
from torch import Tensor, nn

from tiny_architectures import METHODS, OTHERS, READ_INPUTS, attribution_of
from tiny_models import text_inputs
from whyformer import UnsupportedModel, attribute
from whyformer.axes import Inputs
from whyformer.methods.states import OF_WORDS

ENCODERS = ["DeBERTa", "XLM", "MobileBERT", "ConvBERT", "BigBird", "BigBird in blocks", "Longformer"]
OF_MAPS = ["rollout", "generic_attention", "transformer_attribution", "bi_token"]
IN_WINDOWS = {"BigBird in blocks": "BigBirdBlockSparseAttention", "Longformer": "LongformerSelfAttention"}
# Convolutions and trigrams see the padding: the models themselves answer differently with it.
SEES_PADDING = {"MobileBERT", "ConvBERT"}
REPLACED = {
    "ConvBERT": "generic_attention by libra",
    "BigBird in blocks": "integrated_gradients",
    "Longformer": "integrated_gradients",
}
HIDES_STATES = {
    "MobileBERT": "bi_token: W_v of block 0 reads no residual state of 16 channels.",
    "ConvBERT": "bi_token needs the residual state and W_o of block 0 (path unknown): its attention output "
    "is not added to a state of its tokens, and W_o is not a linear layer that can be read (an adapter can be "
    "merged). bi_head works without.",
}
CASES = [
    (name, method)
    for name in ENCODERS
    for method in METHODS
    if not (name in IN_WINDOWS and method in OF_MAPS) and not (name in HIDES_STATES and method == "bi_token")
]


@cache
def model_of(name: str) -> nn.Module:
    return OTHERS[name]()


def scores_of(name: str, inputs: Inputs, method: str) -> Tensor:
    return attribution_of(model_of(name), inputs, method)["text"]


@pytest.mark.parametrize(("name", "method"), CASES)
def test_scores_are_finite_one_per_token_and_the_model_is_left_as_it_was(name, method):
    model, inputs = model_of(name), text_inputs()
    with torch.no_grad():
        before = model(**inputs).logits
    scores = scores_of(name, inputs, method)
    assert scores.shape == inputs["input_ids"].shape
    assert torch.isfinite(scores).all()
    assert scores.any(dim=1).all()
    with torch.no_grad():
        assert torch.equal(model(**inputs).logits, before)


# BigBird takes its blocks to long texts alone, and goes over to whole maps for good at a short one.
@pytest.mark.parametrize(
    ("name", "method"), [case for case in CASES if case[0] not in SEES_PADDING | {"BigBird in blocks"}]
)
def test_a_batch_is_explained_like_its_texts_one_by_one(name, method):
    inputs = text_inputs()
    for example, row in enumerate(scores_of(name, inputs, method)):
        length = int(inputs["attention_mask"][example].sum())
        alone = {key: value[example : example + 1, :length] for key, value in inputs.items()}
        (expected,) = scores_of(name, alone, method)
        assert (row[:length] - expected).abs().max() <= 1e-4 * expected.abs().max()


@pytest.mark.parametrize("method", OF_MAPS)
@pytest.mark.parametrize("name", IN_WINDOWS)
def test_attention_in_windows_has_no_map_to_follow(name, method):
    reason = f"attends in blocks or windows ({IN_WINDOWS[name]}), which have no map over its tokens. {READ_INPUTS}"
    with pytest.raises(UnsupportedModel, match=re.escape(reason)):
        scores_of(name, text_inputs(), method)


@pytest.mark.parametrize("name", HIDES_STATES)
def test_a_state_that_is_not_seen_has_no_perception_by_tokens(name):
    with pytest.raises(UnsupportedModel, match=re.escape(HIDES_STATES[name])):
        scores_of(name, text_inputs(), "bi_token")


@pytest.mark.parametrize("name", ENCODERS)
def test_where_no_method_is_named_there_is_an_answer(name):
    attribution = attribute(model_of(name), text_inputs(), 1)
    if name not in REPLACED:
        assert attribution.remarks == (OF_WORDS,)
    else:
        remark, *_ = attribution.remarks
        assert remark.startswith("evidence does not apply here (")
        assert remark.endswith(f"): {REPLACED[name]} instead.")

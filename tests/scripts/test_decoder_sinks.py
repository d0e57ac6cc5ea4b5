"""The measurement of sinks computes the package's own methods densely, and variants of them."""

import numpy as np
import pytest
import torch

import decoder_sinks
from whyformer import explain_response, load
from whyformer.api.replies import reply_of
from whyformer.inputs.prompt_encoding import encode_prompt

PROMPT, ANSWER = "Ben has the lamp. Anna is in Oslo.\n\nWhere is Anna?", "Anna is in Oslo."
METHODS = {
    "A, all blocks · no feedback": ("rollout", {}),
    "A, rows + I sum to 1 · no feedback": ("rollout", {"normalise_rows": True}),
    "A, last block · no feedback": ("rollout", {"first_block": 7}),
    "A α, all blocks · integrated by gradient": ("bi_token", {}),
    "A α, all blocks · gradient by libra": ("bi_token", {"feedback": "gradient", "backward": "libra"}),
    "A α of values, all blocks · gradient by gradient": ("bi_token", {"feedback": "gradient", "alpha": "values"}),
    "A by head, all blocks · gradient by gradient": ("bi_head", {"feedback": "gradient"}),
    "1 · gradient by gradient": ("bi_head", {"feedback": "gradient", "perception": "none"}),
    "generic_attention by libra": ("generic_attention", {"backward": "libra"}),
}


@pytest.fixture(scope="module")
def explained():
    model = load("mini-llm", device="cpu")
    reply = reply_of(model, encode_prompt(model, PROMPT), ANSWER)
    return model, decoder_sinks.explained(model, decoder_sinks.row_of(reply), ("gradient", "libra"), ("gradient",))


@pytest.mark.parametrize("name", METHODS)
def test_variants_that_the_package_has_are_its_own_methods(explained, name):
    model, found = explained
    method, options = METHODS[name]
    response = explain_response(PROMPT, ANSWER, model, method, units="response", **options)
    ours, theirs = found["scores"][name].numpy(), np.concatenate([response.token_scores[0], response.earlier[0]])
    length = len(response.prompt.tokens)
    np.testing.assert_allclose(ours[:length] / ours.sum(), theirs[:length] / theirs.sum(), rtol=1e-3, atol=1e-6)


def test_a_sink_that_is_left_out_leaves_the_sums_of_rows_as_they_were():
    mixing = torch.tensor([[1.0, 0.0, 0.0], [0.6, 0.4, 0.0], [0.5, 0.2, 0.3]])
    expected = torch.tensor([[0.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.4, 0.6]])
    torch.testing.assert_close(decoder_sinks.without_sink(mixing), expected)


def test_a_summary_has_every_variant_with_its_own_questions_and_chance():
    facts = {"α": [[1.0, 2.0]], "flow to the first": {"1": 0.5}}
    base = "A, all blocks · no feedback"
    lines = [
        {"seed": 1, "tokens": 4, "true": [0], "facts": facts, "scores": {base: [3.0, 1.0], "other": [1.0, 1.0]}},
        {"seed": 2, "tokens": 6, "true": [1], "facts": facts, "scores": {base: [3.0, 1.0]}},
    ]
    found = decoder_sinks.summary(lines)
    assert (found["questions"], found["tokens"], found["chance"], found["seeds"]) == (2, 5, 0.5, [1, 2])
    assert found["variants"][base]["top 1"] == 0.5
    assert found["variants"]["other"] == {"questions": 1, "top 1": 0.5, "95 %": [0.5, 0.5]}
    assert found["sink"] == {"α": [[1.0, 2.0]]}

"""Models that mix tokens outside attention: what follows attention alone is refused, what reads inputs works."""

import pytest
import torch

from tiny_models import built
from whyformer import UnsupportedModel, attribute
from whyformer.methods.registry import trace_methods

WORDS = {"input_ids": torch.tensor([[5, 9, 31, 4, 7, 52, 18, 3]])}
ENDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2}
SIZES = {"vocab_size": 60, "hidden_size": 32, "intermediate_size": 48, **HEADS, **ENDS}
STATE_SPACE = {"mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_n_groups": 1, "mamba_chunk_size": 8}
HYBRIDS = {
    "side by side": ("FalconH1", {"num_hidden_layers": 2, "mamba_d_ssm": 32, "head_dim": 8, **STATE_SPACE}),
    "by turns": ("Lfm2", {"num_hidden_layers": 2, "layer_types": ["conv", "full_attention"]}),
}
BY_INPUTS = {"input_x_gradient", "integrated_gradients", "gradient_shap", "lrp"}


def hybrid(kind):
    name, options = HYBRIDS[kind]
    return built(f"{name}ForCausalLM", f"{name}Config", **SIZES, **options)


@pytest.mark.parametrize("kind", HYBRIDS)
def test_whatever_follows_attention_is_refused_where_tokens_are_mixed_elsewhere_too(kind):
    model = hybrid(kind)
    for method in set(trace_methods()) - BY_INPUTS:
        with pytest.raises(UnsupportedModel, match="input_x_gradient, integrated_gradients and lrp work without maps"):
            attribute(model, WORDS, 1, method)


def test_a_branch_beside_attention_is_named():
    message = r"also mixes its tokens in FalconH1Mixer .*: its attention maps show only part of what a token reads\."
    with pytest.raises(UnsupportedModel, match=message):
        attribute(hybrid("side by side"), WORDS, 1, "rollout")


@pytest.mark.parametrize("kind", HYBRIDS)
def test_where_no_method_is_named_one_that_reads_inputs_takes_the_place_and_says_so(kind):
    model = hybrid(kind).double()
    default = attribute(model, WORDS, 1)
    assert "evidence does not apply here" in default.remarks[0]
    torch.testing.assert_close(default["text"], attribute(model, WORDS, 1, "integrated_gradients")["text"])


@pytest.mark.parametrize("kind", HYBRIDS)
def test_the_gradient_of_a_hybrid_s_inputs_is_that_of_plain_autograd(kind):
    model = hybrid(kind).double()
    embeddings = model.get_input_embeddings()(WORDS["input_ids"]).detach().requires_grad_()
    score = model(inputs_embeds=embeddings).logits[0, -1, 1]
    (gradient,) = torch.autograd.grad(score, embeddings)
    scores = attribute(model, WORDS, 1, "input_x_gradient")["text"]
    torch.testing.assert_close(scores, (embeddings * gradient).sum(dim=-1).detach())


def test_convolutions_between_neighbours_are_noted_by_what_follows_attention():
    sizes = {"vocab_size": 60, "hidden_size": 32, "embedding_size": 32, "intermediate_size": 48, "num_labels": 3}
    heads = {
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "head_ratio": 2,
        "conv_kernel_size": 3,
        "pad_token_id": 0,
    }
    model = built("ConvBertForSequenceClassification", "ConvBertConfig", **sizes, **heads)
    note = "The blocks also mix neighbouring tokens by convolutions (convbert.encoder.layer.0"
    assert any(remark.startswith(note) for remark in attribute(model, WORDS, 1, "rollout").remarks)
    assert not attribute(model, WORDS, 1, "input_x_gradient").remarks

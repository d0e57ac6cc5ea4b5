"""Models that mix tokens by kernels, beside attention or by turns: both are followed, and relevance adds up."""

import pytest
import torch

from tiny_hybrids import HYBRIDS
from tiny_models import built
from whyformer import UnsupportedModel, attribute
from whyformer.extend import Reads, flow, head_mean, readout_rows, trace

WORDS = {"input_ids": torch.tensor([[5, 9, 31, 4, 7, 52, 18, 3]])}
ALL = Reads(maps="all", gradients="all", edges=True, state_gradients=True)


def test_branches_side_by_side_are_two_records_that_read_one_state():
    traced = trace(HYBRIDS["Falcon-H1"](), WORDS, 1, reads=ALL)
    assert [[record.path.split(".")[-2] for record in step] for step in traced.steps] == [["mamba", "self_attn"]] * 2
    assert [record.block for record in traced.records] == [0, 0, 1, 1]
    for mamba, attention in traced.steps:
        assert mamba.kernel is not None
        assert attention.kernel is None
        for one, other in zip(mamba.query_states, attention.query_states, strict=True):
            assert torch.equal(one, other)


def test_branches_by_turns_are_followed_one_after_the_other():
    traced = trace(HYBRIDS["Qwen3-Next"](), WORDS, 1, reads=ALL)
    assert [len(step) for step in traced.steps] == [1, 1]
    assert [record.kernel is not None for record in traced.records] == [True, False]


@pytest.mark.parametrize("name", ["Falcon-H1", "Qwen3-Next"])
def test_rollout_adds_what_all_branches_of_a_block_carry(name):
    traced = trace(HYBRIDS[name](), WORDS, 1, reads=ALL)
    row = traced.readout.weights[:, None]
    for step in reversed(traced.steps):
        row = row + sum(row @ head_mean(record.map) for record in step)
    rows = flow(traced.steps, lambda record: head_mean(record.map), readout_rows(traced))["text"]
    torch.testing.assert_close(rows, row - traced.readout.weights[:, None])


def test_rows_with_signs_are_not_divided_by_their_sums():
    message = r"rows of a state space or a linear attention \(model.layers.0.linear_attn.out_proj\) have signs"
    with pytest.raises(UnsupportedModel, match=message):
        attribute(HYBRIDS["Qwen3-Next"](), WORDS, 1, "rollout", normalise_rows=True)


def test_the_edges_of_branches_share_one_whole():
    model = HYBRIDS["Falcon-H1"]()
    traced = trace(model, WORDS, 1, reads=ALL)
    scores = attribute(model, WORDS, 1, "flow_routes")["text"]
    assert (scores >= 0).all()
    assert scores.sum() < len(traced.steps)


@pytest.mark.parametrize("name", ["Qwen3.5", "Bamba", "LFM2"])
def test_the_edges_of_a_gated_operation_add_up_to_its_output(name):
    for record in trace(HYBRIDS[name]().double(), WORDS, 1, reads=ALL).records:
        gate = 1.0 if record.gate is None else record.gate
        mixed = (record.map.double() @ record.value.double().expand(1, record.map.shape[1], -1, -1)) * gate
        output = mixed.transpose(1, 2).flatten(2) @ record.output_weight.T
        before, after = record.query_states
        torch.testing.assert_close(output, after - before, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["Qwen3.5", "OLMo-hybrid", "Mamba", "Bamba", "LFM2", "RecurrentGemma", "xLSTM"])
def test_the_state_before_the_first_block_holds_the_whole_score_where_nothing_has_a_bias(name):
    model = HYBRIDS[name]().double()
    for module in model.modules():
        bias = getattr(module, "bias", None)
        if isinstance(bias, torch.nn.Parameter):
            bias.data.zero_()
    scores = attribute(model, WORDS, 1, "state_x_gradient", blocks="first", backward="libra")["text"]
    with torch.no_grad():
        torch.testing.assert_close(scores.sum(), model(**WORDS).logits[0, -1, 1].to(scores), rtol=1e-3, atol=1e-6)


def test_the_states_of_xlstm_are_those_that_enter_its_blocks_though_a_mean_is_subtracted_before_w_o():
    model, states = HYBRIDS["xLSTM"](), []
    hooks = [block.register_forward_pre_hook(lambda _, args: states.append(args[0])) for block in model.backbone.blocks]
    gradients = torch.autograd.grad(model(**WORDS).logits[0, -1, 1], states)
    for hook in hooks:
        hook.remove()
    traced = trace(model, WORDS, 1, reads=ALL)
    for record, state, gradient in zip(traced.records, states, gradients, strict=True):
        torch.testing.assert_close(record.state_scores()[0], (state * gradient).sum(dim=-1)[0])
        assert torch.equal(record.query_states[0], state)
        assert record.output_weight is None
        assert "W_o is rejected: a mean is subtracted from the mixed values before it" in record.decisions


@pytest.mark.parametrize("name", ["Falcon-H1", "LFM2"])
def test_the_gradient_of_a_hybrid_s_inputs_is_that_of_plain_autograd(name):
    model = HYBRIDS[name]().double()
    embeddings = model.get_input_embeddings()(WORDS["input_ids"]).detach().requires_grad_()
    score = model(inputs_embeds=embeddings).logits[0, -1, 1]
    (gradient,) = torch.autograd.grad(score, embeddings)
    scores = attribute(model, WORDS, 1, "input_x_gradient")["text"]
    torch.testing.assert_close(scores, (embeddings * gradient).sum(dim=-1).detach())


@pytest.mark.parametrize("name", ["Qwen3-Next", "Falcon-H1", "Mamba"])
def test_a_caller_s_inference_mode_changes_nothing(name):
    model = HYBRIDS[name]()
    expected = attribute(model, WORDS, 1, "generic_attention")["text"]
    with torch.inference_mode():
        scores = attribute(model, WORDS, 1, "generic_attention")["text"]
        rolled = attribute(model, WORDS, 1, "rollout")["text"]
    torch.testing.assert_close(scores, expected)
    torch.testing.assert_close(rolled, attribute(model, WORDS, 1, "rollout")["text"])


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

"""Several scores of one example: taken back together after one forward pass, each as if it had been the only one."""

import pytest
import torch

from tiny_models import built
from whyformer import WhyformerError, attribute
from whyformer.watching import attention_calls


@pytest.fixture(scope="module")
def gpt2():
    sizes = {"vocab_size": 60, "n_embd": 24, "n_layer": 3, "n_head": 2, "n_positions": 20}
    return built("GPT2LMHeadModel", "GPT2Config", **sizes).double()


@pytest.fixture(scope="module")
def llama():
    sizes = {"vocab_size": 60, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 20}
    return built("LlamaForCausalLM", "LlamaConfig", **sizes, **heads).double()


INPUTS = {"input_ids": torch.tensor([[5, 6, 7, 8, 9]])}
RULES = ["gradient", "libra", "attn_lrp"]
METHODS = ["generic_attention", "attention_gradient", "grad_cam", "input_x_gradient", "state_x_gradient", "evidence"]


def three(output):
    return output.logits[0, -1, :3]


def assert_each_is_as_if_alone(model, method, backward):
    together = attribute(model, INPUTS, three, method, readout="last", backward=backward)["text"]
    assert together.shape == (3, 5)
    for number in range(3):
        alone = attribute(
            model, INPUTS, lambda output, n=number: output.logits[:, -1, n], method, readout="last", backward=backward
        )
        scale = alone["text"].abs().max()
        torch.testing.assert_close(together[number], alone["text"][0], rtol=1e-9, atol=1e-9 * float(scale))


@pytest.mark.parametrize("backward", RULES)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_several_scores_of_an_example_are_each_explained_as_if_alone(family, method, backward, request):
    assert_each_is_as_if_alone(request.getfixturevalue(family), method, backward)


@pytest.mark.parametrize("backward", RULES)
def test_maps_too_large_to_keep_are_recomputed_for_several_scores(llama, monkeypatch, backward):
    monkeypatch.setattr(attention_calls, "KEPT", 10)  # the plan keeps the whole graph
    assert_each_is_as_if_alone(llama, "generic_attention", backward)


@pytest.mark.parametrize("method", ["generic_attention", "evidence"])
@pytest.mark.parametrize("backward", RULES)
def test_scores_that_cannot_be_vectorised_go_back_one_by_one_through_the_same_graph(
    llama, monkeypatch, method, backward
):
    grad, vectorised, each = torch.autograd.grad, [], []

    def fail(*args, is_grads_batched=False, **options):
        if is_grads_batched:
            vectorised.append(len(args[0]))
            raise RuntimeError("Batching rule not implemented for aten::special")
        each.append(args[0])
        return grad(*args, **options)

    runs = []
    with llama.register_forward_pre_hook(lambda *_: runs.append(1)):
        monkeypatch.setattr(torch.autograd, "grad", fail)
        attribute(llama, INPUTS, three, method, readout="last", backward=backward)
    assert (len(runs), vectorised) == (1, [3])
    assert sum(isinstance(score, torch.Tensor) and score.dim() == 0 for score in each) == 3
    assert_each_is_as_if_alone(llama, method, backward)


@pytest.mark.parametrize("method", ["lrp", "bi_token", "full_grad"])
def test_methods_of_one_backward_pass_per_score_take_one_score_per_example(gpt2, method):
    with pytest.raises(WhyformerError, match="The target returned 3 scores for 1 examples: return one per example"):
        attribute(gpt2, INPUTS, three, method)


def test_several_scores_of_several_examples_are_refused(gpt2):
    inputs = {"input_ids": INPUTS["input_ids"].repeat(2, 1)}
    with pytest.raises(WhyformerError, match="The target returned 3 scores for 2 examples: return one per example"):
        attribute(gpt2, inputs, three, "generic_attention")

"""Several scores of one example: taken back together after one forward pass, each as if it had been the only one."""

import pytest
import torch

from tiny_models import built
from whyformer import WhyformerError, attribute


@pytest.fixture(scope="module")
def model():
    sizes = {"vocab_size": 60, "n_embd": 24, "n_layer": 3, "n_head": 2, "n_positions": 20}
    return built("GPT2LMHeadModel", "GPT2Config", **sizes).double()


INPUTS = {"input_ids": torch.tensor([[5, 6, 7, 8, 9]])}


def three(output):
    return output.logits[0, -1, :3]


@pytest.mark.parametrize("method", ["generic_attention", "attention_gradient", "grad_cam", "input_x_gradient"])
def test_several_scores_of_an_example_are_each_explained_as_if_alone(model, method):
    together = attribute(model, INPUTS, three, method, readout="last")["text"]
    for number in range(3):
        alone = attribute(model, INPUTS, lambda output, n=number: output.logits[:, -1, n], method, readout="last")
        torch.testing.assert_close(together[number], alone["text"][0], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("method", "options"), [("lrp", {}), ("bi_token", {}), ("generic_attention", {"backward": "libra"})]
)
def test_rules_that_are_not_vectorised_take_one_score_per_example(model, method, options):
    with pytest.raises(WhyformerError, match="The target returned 3 scores for 1 examples: return one per example"):
        attribute(model, INPUTS, three, method, **options)


def test_several_scores_of_several_examples_are_refused(model):
    inputs = {"input_ids": INPUTS["input_ids"].repeat(2, 1)}
    with pytest.raises(WhyformerError, match="The target returned 3 scores for 2 examples: return one per example"):
        attribute(model, inputs, three, "generic_attention")

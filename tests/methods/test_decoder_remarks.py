"""Attention composed through a causal model says what it is worth there, and nowhere else."""

import json
from pathlib import Path

import pytest
import torch

from tiny_models import FAMILIES, STREAM_FAMILIES, built, inputs_of
from whyformer import attribute
from whyformer.methods.perception import ON_DECODERS

COMPOSED = ["rollout", "bi_head", "bi_token"]
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "decoder_sinks.json"
AS_OFFERED = {
    "rollout": "A, all blocks · no feedback",
    "bi_token": "A α, all blocks · gradient by gradient",
    "bi_head": "A by head, all blocks · gradient by gradient",
}


@pytest.fixture(scope="module")
def llama():
    sizes = {"vocab_size": 60, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 20}
    return built("LlamaForCausalLM", "LlamaConfig", **sizes, **heads)


IDS = torch.tensor([[5, 6, 7, 8, 9], [5, 6, 7, 8, 9]])
LEFT_PADDED = {"input_ids": IDS, "attention_mask": torch.tensor([[1, 1, 1, 1, 1], [0, 0, 1, 1, 1]])}


@pytest.mark.parametrize("checkpoint", [None, True])
@pytest.mark.parametrize("method", COMPOSED)
def test_composed_attention_says_on_a_causal_model_what_it_is_worth(llama, method, checkpoint):
    attribution = attribute(llama, LEFT_PADDED, 1, method, checkpoint=checkpoint if method == "bi_head" else None)
    assert attribution.remarks == (ON_DECODERS.format(method=method),)
    assert "\n" not in attribution.remarks[0]


@pytest.mark.parametrize(
    ("method", "options"), [("generic_attention", {}), ("raw_attention", {}), ("bi_head", {"perception": "none"})]
)
def test_what_composes_no_attention_without_the_answer_says_nothing(llama, method, options):
    assert attribute(llama, LEFT_PADDED, 1, method, **options).remarks == ()


@pytest.mark.parametrize("method", COMPOSED)
def test_encoders_and_encoder_decoders_are_left_alone(method):
    assert attribute(FAMILIES["bert"](), inputs_of("bert"), 1, method).remarks == ()
    model, inputs = (make() for make in STREAM_FAMILIES["t5"])
    assert attribute(model, inputs, 1, method).remarks == ()


@pytest.mark.parametrize("method", COMPOSED)
def test_the_remark_holds_for_what_was_measured(method):
    found = json.loads(RESULTS.read_text())["smollm2"]
    low, high = found["variants"][AS_OFFERED[method]]["95 %"]
    assert low <= found["chance"]
    assert high < 0.5

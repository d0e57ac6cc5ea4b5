"""depass and its naive twin: one part, token and neuron at a time, with the maps that transformers returns."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

import whyformer
from whyformer import WhyformerError, explain_response
from whyformer.api.part_logits import source_logits
from whyformer.errors import UnsupportedModel
from whyformer.inputs.sources import Source
from whyformer.inputs.teacher_forcing import Exchange, ResponseRow
from whyformer.models.loading import LoadedModel

PROMPT = [{"role": "user", "content": "Boris is in Oslo. Anna is a baker. Greta took the key.\n\nWhere is Boris?"}]


@pytest.fixture(scope="module")
def llm():
    return whyformer.load("mini-llm", device="cpu")


def naive_norm(norm, parts):
    whole = sum(parts)
    scale = [1 / float((state.square().mean() + norm.variance_epsilon).sqrt()) for state in whole]
    return [torch.stack([scale[t] * norm.weight * part[t] for t in range(len(part))]) for part in parts]


def naive_block(layer, parts, maps):
    states = naive_norm(layer.input_layernorm, parts)
    width = layer.self_attn.head_dim
    group = len(maps) // (layer.self_attn.v_proj.weight.shape[0] // width)
    for number, state in enumerate(states):
        out = torch.zeros_like(parts[number])
        for head, attention in enumerate(maps):
            rows = slice(head // group * width, (head // group + 1) * width)
            value = state @ layer.self_attn.v_proj.weight[rows].T
            out += attention @ value @ layer.self_attn.o_proj.weight[:, head * width : (head + 1) * width].T
        parts[number] = parts[number] + out
    states, reached = naive_norm(layer.post_attention_layernorm, parts), [part.abs().sum(dim=1) > 0 for part in parts]
    mlp = layer.mlp
    gates = [state @ mlp.gate_proj.weight.T for state in states]
    neurons = torch.nn.functional.silu(sum(gates)) * sum(state @ mlp.up_proj.weight.T for state in states)
    added = [torch.zeros_like(part) for part in parts]
    for token in range(neurons.shape[0]):
        own = [number for number in range(len(parts)) if reached[number][token]]
        for neuron in range(neurons.shape[1]):
            total = sum(float(gates[number][token, neuron].exp()) for number in own)
            for number in own:
                share = float(gates[number][token, neuron].exp()) / total
                added[number][token] += share * neurons[token, neuron] * mlp.down_proj.weight[:, neuron]
    return [part + more for part, more in zip(parts, added, strict=True)]


@torch.no_grad()
def naive_logits(model, ids, groups, places):
    model.set_attn_implementation("eager")
    output = model(ids, output_attentions=True)
    states = model.model.embed_tokens(ids)[0]
    parts = [torch.zeros_like(states) for _ in range(len(groups) + 1)]
    for token, state in enumerate(states):
        owner = next((number for number, group in enumerate(groups) if token in group), len(groups))
        parts[owner][token] = state
    for layer, maps in zip(model.model.layers, output.attentions, strict=True):
        parts = naive_block(layer, parts, maps[0])
    parts = naive_norm(model.model.norm, parts)
    rows = [[float(part[t - 1] @ model.lm_head.weight[ids[0, t]]) for part in parts] for t in places]
    return torch.tensor(rows, dtype=torch.float64)


def tiny_llama() -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=40, hidden_size=16, intermediate_size=12, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=32, initializer_range=0.3,
    )  # fmt: skip
    return LlamaForCausalLM(config).double().eval()


def sources_at(*groups: tuple[int, ...]) -> list[Source]:
    return [Source("sentence", "", 0, 0, "", group) for group in groups]


def test_the_parts_of_logits_are_those_of_the_naive_twin():
    model, groups = tiny_llama(), ((1, 2, 3), (4, 5))
    prompt, response = (1, 7, 9, 3, 12, 30, 8, 22), (5, 17, 6)
    rows = [ResponseRow(Exchange(prompt, response), (0, 1)), ResponseRow(Exchange(prompt, response), (2,), (0.5,))]
    scores = source_logits(LoadedModel(model, None, "tiny"), rows, sources_at(*groups))
    naive = naive_logits(tiny_llama(), torch.tensor([[*prompt, *response]]), groups, [8, 9, 10]).numpy()
    expected = np.stack([naive[:2, :2].sum(axis=0), 0.5 * naive[2, :2]])
    np.testing.assert_allclose(scores, expected, rtol=1e-6)  # transformers takes the softmax in float32


def test_all_parts_together_are_the_logits_of_the_model():
    model, prompt, response = tiny_llama(), (1, 7, 9, 3, 12), (5, 17)
    rows = [ResponseRow(Exchange(prompt, response), (0,)), ResponseRow(Exchange(prompt, response), (1,))]
    scores = source_logits(LoadedModel(model, None, "tiny"), rows, sources_at(*((place,) for place in range(6))))
    logits = model(torch.tensor([[*prompt, *response]])).logits[0].detach()
    expected = [float(logits[4, 5]), float(logits[5, 17])]  # every token read is a source
    np.testing.assert_allclose(scores.sum(axis=1), expected, rtol=1e-6)


def test_the_sentence_that_says_it_has_the_largest_part(llm):
    for answer, place in [("Boris is in Oslo.", 0), ("Anna is a baker.", 1)]:
        response = explain_response(PROMPT, answer, llm, "depass", units="response")
        assert int(response.scores[0][:3].argmax()) == place


def test_a_model_in_half_precision_has_the_same_parts_up_to_its_rounding():
    prompt, response = (1, 7, 9, 3, 12), (5, 17)
    rows = [ResponseRow(Exchange(prompt, response), (0, 1))]
    sources = sources_at((1, 2), (3, 4))
    exact = source_logits(LoadedModel(tiny_llama().float(), None, "tiny"), rows, sources)
    rounded = source_logits(LoadedModel(tiny_llama().bfloat16(), None, "tiny"), rows, sources)
    np.testing.assert_allclose(rounded, exact, atol=0.05 * float(np.abs(exact).max()))


def test_running_out_of_memory_is_not_taken_for_another_kind_of_block(monkeypatch):
    def fail(*_):
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr("whyformer.api.part_logits.after_mlp", fail)
    rows = [ResponseRow(Exchange((1, 7, 9), (5,)), (0,))]
    with pytest.raises(torch.OutOfMemoryError):
        source_logits(LoadedModel(tiny_llama(), None, "tiny"), rows, sources_at((1,)))


def test_blocks_of_another_kind_are_refused():
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=40, n_positions=32, n_embd=16, n_layer=1, n_head=2)).eval()
    rows = [ResponseRow(Exchange((1, 7, 9), (5,)), (0,))]
    with pytest.raises(UnsupportedModel, match="depass cannot follow the blocks of tiny"):
        source_logits(LoadedModel(model, None, "tiny"), rows, sources_at((1,)))


def test_blocks_that_scale_what_they_add_are_refused():
    model = tiny_llama()
    layer = model.model.layers[0].mlp
    layer.register_forward_hook(lambda _module, _inputs, output: 2 * output)
    rows = [ResponseRow(Exchange((1, 7, 9), (5,)), (0,))]
    with pytest.raises(UnsupportedModel, match="depass cannot follow"):
        source_logits(LoadedModel(model, None, "tiny"), rows, sources_at((1,)))


def test_a_served_model_shows_no_states():
    def score(prompts, responses):
        return [-1.0] * len(prompts)

    with pytest.raises(WhyformerError, match="depass reads states"):
        explain_response("It is cold. It is late.", " Yes.", score=score, method="depass")

"""A model asked without parts of its prompt: as plain forwards one by one would have it, with less to compute."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from transformers.modeling_outputs import CausalLMOutput

from tiny_models import STREAM_FAMILIES
from whyformer.methods.registry import METHODS
from whyformer.removal.response_scorer import PromptVariant, span_ablation
from whyformer.removal.response_scores import ResponseModel, response_log_probabilities
from whyformer.removal.units import Ablation

HEAD, TAIL, RESPONSE = [7, 8], [30], (11, 12, 13, 14)
SOURCES = [[20, 21], [23], [24, 25], [26], [40, 41]]
DECODERS = ["llama", "gpt2", "qwen3", "mistral in windows"]
MASKS = np.random.default_rng(1).random((24, len(SOURCES))) < 0.5


def prompt_without(mask: np.ndarray) -> list[int]:
    kept = [token for source, is_kept in zip(SOURCES, mask, strict=True) if is_kept for token in source]
    return HEAD + kept + TAIL


def writer_of(family: str) -> ResponseModel:
    model = STREAM_FAMILIES[family][0]().eval()
    return ResponseModel(model, RESPONSE, (0,) if model.config.is_encoder_decoder else None)


def ablation(writer: ResponseModel, ids_of, sources: int, rows, batch_size: int | None = None) -> Ablation:
    """The ablation of a response's rows, by `response_log_probabilities`."""
    whole = tuple(ids_of(np.ones(sources, dtype=bool)))

    def score(prompts):
        ids = [prompt.ids for prompt in prompts]
        values = response_log_probabilities(writer, ids, like=whole, batch_size=batch_size)
        return [values[one] for one in ids]

    return span_ablation(
        score, lambda mask: PromptVariant("", tuple(ids_of(mask))), sources, len(writer.response), rows
    )


def one_by_one(writer: ResponseModel, masks: np.ndarray) -> np.ndarray:
    """Every token's log-probability by a forward of its own."""
    rows = []
    for mask in masks:
        row = []
        for number, token in enumerate(RESPONSE):
            before = list(RESPONSE[:number])
            with torch.no_grad():
                if writer.start is None:
                    output = writer.model(input_ids=torch.tensor([prompt_without(mask) + before]))
                else:
                    output = writer.model(
                        input_ids=torch.tensor([prompt_without(mask)]),
                        decoder_input_ids=torch.tensor([[*writer.start, *before]]),
                    )
            row.append(float(output.logits[0, -1].double().log_softmax(dim=-1)[token]))
        rows.append(row)
    return np.array(rows)


class Counted:
    """How many tokens run through a model."""

    def __init__(self, model: nn.Module):
        self.tokens = 0
        model.register_forward_pre_hook(self.count, with_kwargs=True)

    def count(self, module, args, kwargs) -> None:
        self.tokens += kwargs["input_ids"].numel()


@pytest.mark.parametrize("batch_size", [1, 5, None])
@pytest.mark.parametrize("family", [*DECODERS, "t5", "bart"])
def test_a_batch_of_prompts_gives_what_plain_forwards_give(family, batch_size):
    writer = writer_of(family)
    rows = [(0, 1), (2, 3), (0, 1, 2, 3)]
    asked = ablation(writer, prompt_without, len(SOURCES), rows, batch_size=batch_size)
    masks = np.concatenate([MASKS, np.ones((1, len(SOURCES)), dtype=bool), np.zeros((1, len(SOURCES)), dtype=bool)])
    expected = one_by_one(writer, masks)
    expected = np.stack([expected[:, list(row)].sum(axis=1) for row in rows], axis=1)
    np.testing.assert_allclose(asked.scores_of(masks), expected, rtol=1e-5, atol=1e-5)
    assert asked.tokens == (2, 2, 4)


@pytest.mark.parametrize("family", ["llama", "t5"])
def test_leave_one_out_equals_differences_made_by_hand(family):
    writer = writer_of(family)
    asked = ablation(writer, prompt_without, len(SOURCES), [range(len(RESPONSE))])
    every = np.ones((1, len(SOURCES)), dtype=bool)
    without = ~np.eye(len(SOURCES), dtype=bool)
    expected = one_by_one(writer, every).sum() - one_by_one(writer, without).sum(axis=1)
    np.testing.assert_allclose(METHODS["leave_one_out"].of_sources(asked)[0], expected, rtol=1e-4, atol=1e-5)


def test_what_prompts_begin_with_is_computed_once():
    writer = writer_of("llama")
    whole = tuple(range(5, 35))
    prompts = [whole[:place] + whole[place + 1 :] for place in range(0, 30, 3)]
    counted = Counted(writer.model)
    plain = response_log_probabilities(writer, prompts, batch_size=2)
    tokens, counted.tokens = counted.tokens, 0
    shared = response_log_probabilities(writer, prompts, like=whole, batch_size=2)
    assert counted.tokens < 0.8 * tokens
    for prompt in prompts:
        np.testing.assert_allclose(shared[prompt], plain[prompt], rtol=1e-5, atol=1e-5)


def test_the_same_prompt_is_asked_but_once():
    writer = writer_of("gpt2")
    asked = ablation(writer, prompt_without, len(SOURCES), [[0]], batch_size=1)
    counted = Counted(writer.model)
    scores = asked.scores_of(np.repeat(MASKS[:1], 10, axis=0))
    assert counted.tokens == len(prompt_without(MASKS[0])) + len(RESPONSE) - 1
    assert len(set(scores[:, 0])) == 1


class Reader(nn.Module):
    """Writes 1 after a text that has a 5 in it, else anything: certain beyond what a float32 probability can say."""

    def __init__(self, certainty: float):
        super().__init__()
        self.certainty = certainty

    def forward(self, input_ids: torch.Tensor) -> CausalLMOutput:
        logits = torch.zeros(*input_ids.shape, 6)
        logits[..., 1] = self.certainty * (input_ids == 5).cummax(dim=1).values
        return CausalLMOutput(logits=logits)


@pytest.mark.parametrize("method", ["context_ablation", "leave_one_out"])
def test_the_one_source_that_makes_a_model_say_it_is_found(method):
    sources = [[2, 3], [3], [2, 5], [4, 4], [3, 2], [2]]

    def ids(mask: np.ndarray) -> list[int]:
        return [0] + [token for source, kept in zip(sources, mask, strict=True) if kept for token in source]

    asked = ablation(ResponseModel(Reader(9.0), (1, 1)), ids, len(sources), [[0], [0, 1]])
    scores = METHODS[method].of_sources(asked)
    assert scores.argmax(axis=1).tolist() == [2, 2]
    assert (np.abs(np.delete(scores, 2, axis=1)) < 1e-6).all()


def test_a_probability_near_one_keeps_its_digits():
    (figures,) = response_log_probabilities(ResponseModel(Reader(40.0), (1,)), [(5,)]).values()
    assert figures[0] == pytest.approx(-5 * np.exp(-40.0), rel=1e-5)


def test_the_callers_gradient_mode_stays_as_it_is():
    writer = writer_of("llama")
    response_log_probabilities(writer, [(7, 8, 20)])
    assert torch.is_grad_enabled()
    assert all(parameter.grad is None for parameter in writer.model.parameters())

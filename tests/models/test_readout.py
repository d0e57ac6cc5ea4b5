"""Read-outs as weights per position, against what each kind of head reads."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tiny_models import FAMILIES, text_inputs
from whyformer import WhyformerError, attribute
from whyformer.models.readout import ReadOut, read_out_reached, read_out_weights
from whyformer.watching.mixing import KeptMap, reached_queries

MASK = torch.tensor([[1, 1, 1, 1, 1, 1], [0, 0, 1, 1, 1, 0]]).bool()


def test_each_kind_weighs_what_its_head_reads():
    third = 1 / 3
    expected = {
        "first": [[1, 0, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0]],
        "last": [[0, 0, 0, 0, 0, 1], [0, 0, 0, 0, 1, 0]],
        "both class tokens": [[0.5, 0.5, 0, 0, 0, 0]] * 2,
        "mean": [[0, 0.2, 0.2, 0.2, 0.2, 0.2], [0, 0, third, third, third, 0]],
        "first+mean": [[1, 0.2, 0.2, 0.2, 0.2, 0.2], [1, 0, third, third, third, 0]],
    }
    for kind, weights in expected.items():
        torch.testing.assert_close(read_out_weights(kind, MASK, prefix=1), torch.tensor(weights).float())


def test_a_position_counts_from_either_end():
    assert read_out_weights(-2, MASK, prefix=0)[0].tolist() == [0, 0, 0, 0, 1, 0]
    assert read_out_weights(np.int64(1), MASK, prefix=0)[0].tolist() == [0, 1, 0, 0, 0, 0]


@given(st.lists(st.lists(st.sampled_from([0.0, 0.25, -1.0, 2.0]), min_size=5, max_size=5), min_size=1, max_size=4))
def test_rows_and_their_weights_are_the_read_out_again(values):
    weights = torch.tensor(values)
    readout = ReadOut("text", weights)
    positions, shares = readout.rows
    assert torch.equal((readout.one_hot(positions) * shares[:, :, None]).sum(dim=1), weights)


def test_the_read_out_of_an_unknown_head_is_where_its_gradient_is():
    gradient = torch.zeros(2, 3, 4, 4)
    gradient[0, 1, 2, 0] = -0.5
    gradient[1, :, 1:3] = 1.0
    assert read_out_reached(reached_queries(KeptMap(gradient))).tolist() == [[0, 0, 1, 0], [0, 0.5, 0.5, 0]]


@pytest.mark.parametrize("position", [-1, -2])
@pytest.mark.parametrize("method", ["rollout", "generic_attention", "raw_attention"])
def test_a_negative_position_counts_from_the_last_real_token(method, position):
    model, inputs = FAMILIES["bert"](), text_inputs()
    together = attribute(model, inputs, 1, method, readout=position)["text"]
    for row, length in enumerate(inputs["attention_mask"].sum(dim=1).tolist()):
        alone = {name: value[row : row + 1, :length] for name, value in inputs.items()}
        expected = attribute(model, alone, 1, method, readout=position)["text"][0]
        torch.testing.assert_close(together[row, :length], expected, rtol=1e-4, atol=1e-6)


def test_a_negative_position_before_a_text_is_refused():
    with pytest.raises(WhyformerError, match=r"Read-out position -5 is outside a text of 4 tokens in this batch"):
        attribute(FAMILIES["bert"](), text_inputs(), 1, "rollout", readout=-5)

"""What a trace says of itself: enough to find a wrong decision."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tiny_models import FAMILIES, built, inputs_of, text_inputs
from whyformer import load
from whyformer.api.plan_report import plan_report
from whyformer.extend import Reads
from whyformer.tracing.build import trace
from whyformer.tracing.describe import describe
from whyformer.watching import watcher

EVERYTHING = Reads(maps="all", edges=True)


@pytest.mark.parametrize("family", ["bert", "vit", "roberta"])
def test_every_block_says_what_was_seen_of_it(family):
    model, inputs = FAMILIES[family](), inputs_of(family)
    found = trace(model, inputs, 1, reads=EVERYTHING)
    blocks = describe(found).split("\nblock ")[1:]
    assert len(blocks) == len(found.records)
    for block, record in zip(blocks, found.records, strict=True):
        assert block.startswith(f"{record.block}: ")
        assert record.path in block
        assert f"map        {tuple(record.source.shape)} computed from queries and keys" in block
        assert f"W_o        {tuple(record.output_weight.shape)}" in block
        assert "its output is added to the residual state" in block
        assert "the values are projected from it" in block
        assert ", gives the model's values\n" in block


def test_a_wrong_slice_of_the_values_weight_shows(monkeypatch):
    sizes = {"n_embd": 48, "n_layer": 3, "n_head": 3, "vocab_size": 60, "n_positions": 40}
    model, inputs = built("GPT2LMHeadModel", "GPT2Config", **sizes), text_inputs()
    assert describe(trace(model, inputs, 1, reads=EVERYTHING)).count("gives the model's values") == 3
    monkeypatch.setattr(watcher, "part_of", lambda move, number: lambda x: move(x)[0])
    assert describe(trace(model, inputs, 1, reads=EVERYTHING)).count("does NOT give the model's values") == 3


def test_maps_that_come_block_by_block_say_so():
    model, inputs = FAMILIES["bert"](), inputs_of("bert")
    described = describe(trace(model, inputs, 1, checkpoint=True))
    assert "graph       block by block" in described
    assert described.count("computed when the backward pass reaches its block") == 2 * 3


class Odd(nn.Module):
    """Attention whose mixed values two linear layers read, and whose output is added to nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, inputs_embeds):
        heads = inputs_embeds.unflatten(-1, (2, 4)).transpose(1, 2)
        mixed = F.scaled_dot_product_attention(heads, heads, heads).transpose(1, 2).flatten(2)
        return (self.first(mixed) * self.second(mixed).sigmoid()).sum(dim=1)


def test_what_was_refused_is_said_with_its_reason():
    states = torch.randn(1, 5, 8, generator=torch.Generator().manual_seed(0))
    found = trace(Odd().eval(), {"inputs_embeds": states}, lambda x: x[:, 0], reads=EVERYTHING, readout="first")
    (record,) = found.records
    assert record.decisions == (
        "W_v is not known: no linear layer was seen to give the values",
        "W_o is not known: 2 linear layers read the mixed values",
        "the residual state is not known: its output was not seen to be added to anything",
    )
    assert "W_o        not known" in describe(found)


def test_the_report_of_an_example_has_the_plan_of_the_method_and_every_block():
    report = plan_report(load("mini-bert"), "A wonderful film.", "generic_attention")
    assert report.startswith("generic_attention\nmaps        kept\n")
    assert report.count("\nblock ") == 6
    assert report.endswith("read-out of text: token 0 of 6")

"""Models that do not do as most do: followed rightly, or refused with a reason; never explained wrongly."""

from __future__ import annotations

import re
from collections import namedtuple
from dataclasses import dataclass

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tiny_models import FAMILIES, IMAGE, TEXT, built, image_inputs, inputs_of, text_inputs
from whyformer import FAMILIES as ROWS
from whyformer import Family, UnsupportedModel, WhyformerError, attribute
from whyformer.tracing.build import trace
from whyformer.tracing.reads import Reads


class Blocks(nn.Module):
    """Pre-norm blocks on given embeddings, read at the first token; what differs is left to subclasses."""

    def __init__(self, blocks: int = 2) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.norms = nn.ModuleList(nn.LayerNorm(16) for _ in range(blocks))
        self.qkvs = nn.ModuleList(nn.Linear(16, 48) for _ in range(blocks))
        self.outs = nn.ModuleList(nn.Linear(16, 16) for _ in range(blocks))
        self.ups = nn.ModuleList(nn.Linear(16, 16) for _ in range(blocks))
        self.head = nn.Linear(16, 4)

    def projected(self, block: int, z: Tensor) -> Tensor:
        return self.qkvs[block](self.norms[block](z)).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)

    def attended(self, block: int, z: Tensor) -> Tensor:
        mixed = F.scaled_dot_product_attention(*self.projected(block, z))
        return self.outs[block](mixed.transpose(1, 2).flatten(2))

    def block(self, number: int, z: Tensor) -> Tensor:
        z = z + self.attended(number, z)
        return z + self.ups[number](z).relu()

    def embedded(self, x: Tensor) -> Tensor:
        return x

    def states(self, x: Tensor) -> list[Tensor]:
        """What each block reads, and last what the head reads."""
        states = [self.embedded(x)]
        for number in range(len(self.norms)):
            states.append(self.block(number, states[-1].clone()))
        return states

    def forward(self, x: Tensor) -> Tensor:
        z = self.embedded(x)
        for number in range(len(self.norms)):
            z = self.block(number, z)
        return self.head(z[:, 0])


class InPlace(Blocks):
    def block(self, number: int, z: Tensor) -> Tensor:
        z = z.clone()
        z += self.attended(number, z)
        return z + self.ups[number](z).relu()


class LinearEmbedding(Blocks):
    """A linear layer feeds the blocks, with nothing added: its output is a state, not a branch."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Linear(16, 16)

    def embedded(self, x: Tensor) -> Tensor:
        return self.embedding(x)


class ScaledParallel(Blocks):
    """Attention and MLP side by side, each with a LayerScale of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.scales = nn.ParameterList(torch.rand(16) for _ in range(4))

    def block(self, number: int, z: Tensor) -> Tensor:
        attention = self.scales[2 * number] * self.attended(number, z)
        mlp = self.scales[2 * number + 1] * self.ups[number](self.norms[number](z).relu())
        return z + (attention + mlp)


class Einsum(Blocks):
    def attended(self, block: int, z: Tensor) -> Tensor:
        query, key, value = self.projected(block, z)
        weights = torch.einsum("bhqd,bhkd->bhqk", query, key).mul(8**-0.5).softmax(dim=-1)
        return self.outs[block](torch.einsum("bhqk,bhkd->bqhd", weights, value).flatten(2))


X = torch.randn(3, 5, 16, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("model_class", [Blocks, InPlace, LinearEmbedding, ScaledParallel, Einsum])
@pytest.mark.parametrize("batch", [1, 3])
def test_the_state_each_block_read_is_found(model_class, batch):
    model = model_class().eval()
    with torch.no_grad():
        states, plain = model.states(X[:batch]), model(X[:batch])
    asked = trace(model, {"x": X[:batch]}, 1, reads=Reads(maps="all", states=True))
    torch.testing.assert_close(asked.output, plain)
    for record, state in zip(asked.records, states[:-1], strict=True):
        torch.testing.assert_close(record.key_state, state)
        weight = model.qkvs[record.block].weight.detach()[32:]
        torch.testing.assert_close(record.value_weight, weight)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_state_of_a_record_is_its_blocks_input(family):
    model, inputs = FAMILIES[family](), inputs_of(family)
    read: list[Tensor] = []
    handles = []
    paths = [record.path for record in trace(model, inputs, 1).records]
    for path in dict.fromkeys(re.match(r".*\.\d+(?=\.)", path)[0] for path in paths):
        block = model.get_submodule(path)
        hook = block.register_forward_pre_hook(
            lambda _, args, kwargs: read.append([*args, *kwargs.values()][0]), with_kwargs=True
        )
        handles.append(hook)
    records = trace(model, inputs, 1, reads=Reads(maps="all", states=True)).records
    for handle in handles:
        handle.remove()
    for record, state in zip(records, read[: len(records)], strict=True):
        torch.testing.assert_close(record.key_state, state)


class Gated(Blocks):
    """A softmax that chooses experts after the last block is no attention."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.experts = nn.Linear(16, 5), nn.Parameter(torch.randn(5, 16))

    def forward(self, x: Tensor) -> Tensor:
        z = x
        for number in range(2):
            z = self.block(number, z)
        return self.head((z + self.gate(z).softmax(dim=-1) @ self.experts)[:, 0])


class LinearAttention(Blocks):
    """Softmax over features: what it multiplies is no map of tokens."""

    def attended(self, block: int, z: Tensor) -> Tensor:
        query, key, value = self.projected(block, z)
        mixed = query.softmax(dim=-1) @ (key.softmax(dim=-2).mT @ value)
        return self.outs[block](mixed.transpose(1, 2).flatten(2))


class Transposed(Blocks):
    """The map's transpose on the right of the values: its rows are no queries."""

    def attended(self, block: int, z: Tensor) -> Tensor:
        query, key, value = self.projected(block, z)
        weights = (query @ key.mT * 8**-0.5).softmax(dim=-1)
        return self.outs[block]((value.mT @ weights.transpose(-1, -2)).mT.transpose(1, 2).flatten(2))


class HeadsFirst(Blocks):
    """Heads folded into the batch axis before the examples."""

    def attended(self, block: int, z: Tensor) -> Tensor:
        query, key, value = self.projected(block, z).transpose(1, 2).flatten(1, 2)
        mixed = (query @ key.mT * 8**-0.5).softmax(dim=-1) @ value
        return self.outs[block](mixed.unflatten(0, (2, len(z))).permute(1, 2, 0, 3).flatten(2))


def test_a_gate_is_no_attention():
    assert len(trace(Gated().eval(), {"x": X}, 1).records) == 2


@pytest.mark.parametrize("model_class", [LinearAttention, Transposed])
def test_products_that_are_no_map_of_tokens_are_not_taken_for_one(model_class):
    with pytest.raises(UnsupportedModel, match="ran no attention operation"):
        attribute(model_class().eval(), {"x": X}, 1, "rollout")


def test_heads_folded_before_examples_are_explained_one_by_one():
    model = HeadsFirst().eval()
    with pytest.raises(UnsupportedModel, match="explain one example at a time"):
        attribute(model, {"x": X}, 1, "generic_attention")
    plain = Blocks().eval()
    torch.testing.assert_close(
        attribute(model, {"x": X[:1]}, 1, "generic_attention"), attribute(plain, {"x": X[:1]}, 1, "generic_attention")
    )


def test_an_encoder_with_a_decoder_outside_the_table_is_refused(monkeypatch):
    monkeypatch.delitem(ROWS, "t5")
    config = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2, "decoder_start_token_id": 0}
    model = built("T5ForSequenceClassification", "T5Config", vocab_size=60, num_labels=3, eos_token_id=2, **config)
    with pytest.raises(UnsupportedModel, match="whose attention is whose"):
        attribute(model, {"input_ids": torch.tensor([[5, 6, 7, 2]])}, 0, "rollout")


def test_a_module_that_is_never_called_cannot_be_scaled(monkeypatch):
    monkeypatch.setitem(ROWS, "bert", Family("text", "first", "pooler.activation"))
    model = FAMILIES["bert"]()
    model.bert.pooler.forward = lambda states: states[:, 0]
    with pytest.raises(UnsupportedModel, match=r"'pooler.activation' of BertForSequenceClassification is never called"):
        attribute(model, text_inputs(), 0, "bi_token")
    monkeypatch.setitem(ROWS, "bert", Family("text", "first", "no.such.module"))
    with pytest.raises(UnsupportedModel, match=r"no module 'no.such.module' to scale. Write its row"):
        attribute(FAMILIES["bert"](), text_inputs(), 0, "bi_token")


def test_windows_of_the_last_map_are_not_taken_for_examples(monkeypatch):
    monkeypatch.delitem(ROWS, "swin")
    sizes = {"embed_dim": 8, "depths": [1, 1], "num_heads": [2, 2], "window_size": 4, "image_size": 64, "patch_size": 4}
    model = built("SwinForImageClassification", "SwinConfig", num_labels=3, **sizes)
    with pytest.raises(UnsupportedModel, match="8 rows for 2 examples"):
        attribute(model, {"pixel_values": torch.randn(2, 3, 64, 64)}, 0, "raw_attention")


class SpelledPadding(nn.Module):
    """PyTorch's encoder with a padding mask that is not called attention_mask."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(16, 2, 16, batch_first=True), 2, enable_nested_tensor=False
        )
        self.head = nn.Linear(16, 4)

    def forward(self, x: Tensor, padded: Tensor) -> Tensor:
        return self.head(self.encoder(x, src_key_padding_mask=padded)[:, 0])


@pytest.mark.parametrize("method", ["grad_cam", "bi_token", "generic_attention"])
def test_padding_is_seen_whatever_its_mask_is_called(method):
    model = SpelledPadding().eval()
    padded = torch.tensor([[False] * 5, [False] * 3 + [True] * 2, [False] * 4 + [True]])
    together = attribute(model, {"x": X, "padded": padded}, 2, method)["image"]
    for row, length in enumerate((5, 3, 4)):
        alone = attribute(model, {"x": X[row : row + 1, :length], "padded": padded[row : row + 1, :length]}, 2, method)
        torch.testing.assert_close(together[row, :length], alone["image"][0], rtol=1e-4, atol=1e-7)
        assert not together[row, length:].any()


Pair = namedtuple("Pair", "scores other")


@dataclass
class Held:
    scores: Tensor


@pytest.mark.parametrize(
    ("wrapped", "scores"),
    [
        (lambda logits: {"scores": logits}, lambda output: output["scores"][:, 1]),
        (lambda logits: Pair(logits, None), lambda output: output.scores[:, 1]),
        (Held, lambda output: output.scores[:, 1]),
        (lambda logits: (logits, logits), lambda output: output[0][:, 1]),
    ],
    ids=["dict", "named tuple", "dataclass", "tuple"],
)
def test_any_output_is_cut_into_its_copies(wrapped, scores):
    class Wrapped(Blocks):
        def forward(self, x: Tensor) -> object:
            return wrapped(super().forward(x))

    expected = attribute(Blocks().eval(), {"x": X}, 1, "bi_token", inputs_at_once=3)["image"]
    for at_once in (1, 6, 40):
        got = attribute(Wrapped().eval(), {"x": X}, scores, "bi_token", inputs_at_once=at_once)["image"]
        torch.testing.assert_close(got, expected)


def test_a_score_must_be_one_finite_number_per_example():
    for target in (lambda output: output.sum(), lambda output: output[:, 0] * torch.nan, lambda output: 3):
        with pytest.raises(WhyformerError, match="one finite number per example"):
            attribute(Blocks().eval(), {"x": X}, target, "generic_attention")


def test_another_head_on_a_known_encoder_is_read_where_it_reads():
    tagger = built("BertForTokenClassification", "BertConfig", **TEXT)
    asked = trace(tagger, text_inputs(), lambda output: output.logits[:, 3, 1])
    assert asked.readout.weights.argmax(dim=1).tolist() == [3, 3, 3]

    class MeanPooled(type(FAMILIES["vit"]())):
        def forward(self, pixel_values: Tensor) -> Tensor:
            return self.classifier(self.vit(pixel_values=pixel_values).last_hidden_state[:, 1:].mean(dim=1))

    model = FAMILIES["vit"]()
    model.__class__ = MeanPooled
    weights = trace(model, image_inputs(), 1).readout.weights
    torch.testing.assert_close(weights, torch.tensor([0.0] + [1 / 16] * 16).expand(2, 17))


def test_a_row_of_ones_own_applies_to_a_class_of_ones_own(monkeypatch):
    class MyModel(type(FAMILIES["vit"]())):
        pass

    model = FAMILIES["vit"]()
    model.__class__ = MyModel
    monkeypatch.setitem(ROWS, "vit", Family("image", "last"))
    assert trace(model, image_inputs(), 1).readout.weights[0].tolist() == [0.0] * 16 + [1.0]


def test_attention_that_does_not_reach_the_answer_is_left_out():
    vision = {name: value for name, value in IMAGE.items() if name != "num_labels"}
    model = built("SiglipForImageClassification", "SiglipConfig", vision_config=vision, num_labels=4)
    expected = None
    for method in ("generic_attention", "rollout", "bi_token", "grad_cam", "raw_attention"):
        asked = attribute(model, image_inputs(), 1, method)["image"]
        assert asked.shape == (2, 16)
        expected = asked
    assert expected is not None
    records = trace(model, image_inputs(), 1).records
    assert [record.map.shape[-2:] for record in records] == [(16, 16)] * 3
    torch.testing.assert_close(expected, records[-1].map.mean(dim=(1, 2)))


def test_a_decoders_cache_is_left_off():
    config = {"n_embd": 48, "n_layer": 2, "n_head": 3, "n_positions": 40, "vocab_size": 60, "num_labels": 4}
    model = built("GPT2ForSequenceClassification", "GPT2Config", pad_token_id=0, **config)
    assert model.config.use_cache
    scores = attribute(model, text_inputs(), 1, "bi_token")["text"]
    assert torch.isfinite(scores).all()
    assert trace(model, text_inputs(), 1).readout.weights.argmax(dim=1).tolist() == [8, 5, 3]


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("BloomForSequenceClassification", {"hidden_size": 48, "n_layer": 2, "n_head": 3}),
        ("XLNetForSequenceClassification", {"d_model": 48, "n_layer": 2, "n_head": 3, "d_inner": 64}),
    ],
    ids=["baddbmm", "tokens before examples"],
)
def test_other_ways_to_write_attention_are_seen(name, config):
    config_name = name.replace("ForSequenceClassification", "Config")
    model = built(name, config_name, vocab_size=60, num_labels=4, pad_token_id=0, **config)
    inputs = text_inputs()
    maps = trace(model, inputs, 1, reads=Reads(maps="all")).records
    assert [record.map.shape for record in maps] == [(3, 1, 9, 9)] * 2
    for method in ("raw_attention", "rollout", "generic_attention"):
        scores = attribute(model, inputs, 1, method)["text"]
        assert torch.isfinite(scores).all()
        assert scores.any()


class OverwrittenState(Blocks):
    def block(self, number: int, z: Tensor) -> Tensor:
        normed = self.norms[number](z)
        z += self.attended(number, z)
        z += normed
        return z


def test_a_model_whose_gradient_is_overwritten_is_refused():
    with pytest.raises(UnsupportedModel, match="in place that its own gradient needs"):
        attribute(OverwrittenState().eval(), {"x": X.clone()}, 1, "generic_attention")


class InPlaceAdapter(nn.Module):
    def __init__(self, linear: nn.Linear):
        super().__init__()
        self.linear, self.down, self.up = linear, nn.Linear(48, 2, bias=False), nn.Linear(2, 48, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        result = self.linear(x)
        result += self.up(self.down(x))
        return result


def test_an_adapter_added_in_place_is_read_too():
    model, merged = FAMILIES["vit"](), FAMILIES["vit"]()
    adapted = InPlaceAdapter(model.vit.layers[1].attention.v_proj)
    model.vit.layers[1].attention.v_proj = adapted
    with torch.no_grad():
        merged.vit.layers[1].attention.v_proj.weight += adapted.up.weight @ adapted.down.weight
    scores = (attribute(one.eval(), image_inputs(), 0, "bi_token")["image"] for one in (model, merged))
    torch.testing.assert_close(*scores, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("baseline", [None, 0.0, "grey", np.zeros(3)], ids=str)
def test_a_baseline_of_no_known_kind_is_refused(baseline):
    with pytest.raises(WhyformerError, match="baseline"):
        attribute(FAMILIES["bert"](), text_inputs(), 0, "bi_token", baseline=baseline)


def test_a_baseline_may_differ_from_example_to_example():
    model, inputs = FAMILIES["vit"](), image_inputs()
    baseline = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(6))
    together = attribute(model, inputs, 1, "bi_token", baseline=baseline)["image"]
    for row in range(2):
        alone = {"pixel_values": inputs["pixel_values"][row : row + 1]}
        expected = attribute(model, alone, 1, "bi_token", baseline=baseline[row : row + 1])["image"][0]
        torch.testing.assert_close(together[row], expected)

"""Information flow routes against a naive twin: every edge written out, in float64, from the model's own states."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from tiny_architectures import DECODERS, OTHERS
from tiny_models import FAMILIES, STREAM_FAMILIES, image_inputs, inputs_of, text_inputs
from whyformer import attribute
from whyformer.api.memory_estimate import peak_bytes, random_text
from whyformer.errors import UnsupportedModel, WhyformerError
from whyformer.methods import flow_routes
from whyformer.methods.flow_routes import proximity
from whyformer.tracing.build import trace
from whyformer.tracing.reads import Reads
from whyformer.watching import mixing


@dataclass(frozen=True)
class Block:
    """A block's parts: where the state enters, where it has the attention added, what W_v reads of it, W_v, W_o."""

    entry: nn.Module
    after: nn.Module
    linearised: Callable[[Tensor], Tensor]
    value_weight: Tensor
    output_weight: Tensor


def layer_norm_without_bias(norm: nn.LayerNorm) -> Callable[[Tensor], Tensor]:
    return lambda x: F.layer_norm(x, norm.normalized_shape, norm.weight, None, norm.eps)


def llama_blocks(model: nn.Module) -> list[Block]:
    return [
        Block(
            layer.input_layernorm,
            layer.post_attention_layernorm,
            layer.input_layernorm,
            layer.self_attn.v_proj.weight,
            layer.self_attn.o_proj.weight,
        )
        for layer in model.model.layers
    ]


def gpt2_blocks(model: nn.Module) -> list[Block]:
    blocks = []
    for layer in model.transformer.h:
        values = layer.attn.c_attn.weight.chunk(3, dim=1)[2].T
        linearised = layer_norm_without_bias(layer.ln_1)
        blocks.append(Block(layer.ln_1, layer.ln_2, linearised, values, layer.attn.c_proj.weight.T))
    return blocks


def bert_blocks(model: nn.Module) -> list[Block]:
    """Post-norm: the state is what W_v reads, and has the attention added before the norm."""
    return [
        Block(
            layer,
            layer.attention.output.LayerNorm,
            lambda x: x,
            layer.attention.self.value.weight,
            layer.attention.output.dense.weight,
        )
        for layer in model.bert.encoder.layer
    ]


def vit_blocks(model: nn.Module) -> list[Block]:
    blocks = []
    for layer in model.vit.layers:
        attention = layer.attention
        linearised = layer_norm_without_bias(layer.layernorm_before)
        output = attention.o_proj.weight
        blocks.append(Block(layer.layernorm_before, layer.layernorm_after, linearised, attention.v_proj.weight, output))
    return blocks


CASES = {
    "llama": (lambda: STREAM_FAMILIES["llama"][0](), llama_blocks, text_inputs),
    "gpt2": (lambda: STREAM_FAMILIES["gpt2"][0](), gpt2_blocks, text_inputs),
    "bert": (lambda: FAMILIES["bert"](), bert_blocks, text_inputs),
    "vit": (lambda: FAMILIES["vit"](), vit_blocks, image_inputs),
}


def double(name: str):
    build, blocks_of, inputs = CASES[name]
    model = build().double()
    with torch.no_grad():  # biases of zero would hide whether they are left out
        for number, (path, parameter) in enumerate(model.named_parameters()):
            if path.endswith("bias"):
                parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(number)))
    return model, blocks_of(model), {k: v.double() if v.is_floating_point() else v for k, v in inputs().items()}


def states_at(model: nn.Module, inputs, modules: list[nn.Module]) -> list[Tensor]:
    """The first tensor that each module is given."""
    states: list[Tensor] = []
    hooks = [
        module.register_forward_pre_hook(
            lambda _, args, kwargs: states.append((args or [*kwargs.values()])[0]), with_kwargs=True
        )
        for module in modules
    ]
    with torch.no_grad():
        model(**inputs)
    for hook in hooks:
        hook.remove()
    return states


def naive_proximity(part: Tensor, whole: Tensor) -> float:
    return max(0.0, float(whole.abs().sum() - (part - whole).abs().sum()))


def twin(model: nn.Module, blocks: list[Block], inputs, weights: Tensor, example: int) -> Tensor:
    """SPEC 13: Σ_l e_j, with the sink's states and edges added up by its weights."""
    maps = [r.map for r in trace(model, inputs, 1, reads=Reads(maps="all", edges=True)).records]
    befores = states_at(model, inputs, [block.entry for block in blocks])
    afters = states_at(model, inputs, [block.after for block in blocks])
    scores = torch.zeros(weights.shape[1], dtype=torch.float64)
    for block, attention, before, after in zip(blocks, maps, befores, afters, strict=True):
        heads, tokens = attention.shape[1], attention.shape[3]
        width = block.output_weight.shape[1] // heads
        shared = heads * width // block.value_weight.shape[0]  # query heads that read one value head
        state_before, state_after = (
            sum(w * x for w, x in zip(weights[example], y[example], strict=True)) for y in (before, after)
        )
        near = torch.zeros(tokens, dtype=torch.float64)
        with torch.no_grad():
            for key in range(tokens):
                read = block.linearised(before[example : example + 1, key : key + 1])[0, 0]
                for head in range(heads):
                    rows = slice(head // shared * width, (head // shared + 1) * width)
                    value = block.value_weight[rows] @ read
                    carried = block.output_weight[:, head * width : (head + 1) * width] @ value
                    edge = sum(
                        w * attention[example, head, query, key] * carried for query, w in enumerate(weights[example])
                    )
                    near[key] += naive_proximity(edge, state_after)
        scores += near / (near.sum() + naive_proximity(state_before, state_after))
    return scores


def read_out(inputs) -> Tensor:
    """Weights on up to three positions of each example, none on padding."""
    mask = inputs["attention_mask"] if "attention_mask" in inputs else torch.ones(2, 17)
    weights = torch.rand(mask.shape, generator=torch.Generator().manual_seed(8), dtype=torch.float64) * mask
    weights[:, [1, *range(4, mask.shape[1])]] = 0
    return weights / weights.sum(dim=1, keepdim=True)


@pytest.mark.parametrize("name", CASES)
def test_flow_routes_equals_its_naive_twin(name):
    model, blocks, inputs = double(name)
    weights = read_out(inputs)
    (scores,) = attribute(model, inputs, 1, "flow_routes", readout=weights).values()
    for example, row in enumerate(scores):
        expected = twin(model, blocks, inputs, weights.float().double(), example)
        torch.testing.assert_close(row, expected, rtol=1e-9, atol=1e-9)


def test_hops_hand_on_what_falls_on_the_span():
    model, blocks, inputs = double("llama")
    span = torch.tensor([0, 0, 1, 1, 0, 0, 0, 0, 0], dtype=torch.bool)
    weights = torch.zeros(3, 9, dtype=torch.float64)
    weights[:, 3] = 1.0
    scores = attribute(model, inputs, 1, "flow_routes", readout=weights, hops=2, span=span)["text"]
    for example, row in enumerate(scores):
        sink, share, expected = weights.clone(), 1.0, torch.zeros(9, dtype=torch.float64)
        for hop in range(3):
            once = twin(model, blocks, inputs, sink, example)
            expected += share * once * (1.0 if hop == 2 else ~span)
            share *= float((once * span).sum() / once.sum())
            sink[example] = once * span / (once * span).sum()
        torch.testing.assert_close(row, expected, rtol=1e-9, atol=1e-9)


# Each token has a rest of its own where the MLP is added in the same sum, or the rows of a map do not add up to 1.
OWN_REST = {"Phi", "Falcon", "GPT-NeoX"} | {"GPT-OSS"}


@pytest.mark.parametrize(
    "name", [*FAMILIES, *sorted(DECODERS.keys() - {"Qwen3-Next"})]
)  # which has layers without maps
def test_residual_edges_and_biases_add_up_to_the_state_after(name):
    """What is left of each token is its biases, the same for all."""
    model = (FAMILIES[name] if name in FAMILIES else DECODERS[name])()
    found = trace(model, inputs_of(name), 1, reads=Reads(maps="all", edges=True), readout="mean")
    for record in found.records:
        values = record.value.repeat_interleave(record.source.shape[1] // record.value.shape[1], dim=1)
        assert_same_for_all((values - record.linear_value()).transpose(1, 2)[found.mask])
        before, after = record.query_states
        carried = (record.map @ record.linear_value()).transpose(1, 2).flatten(2) @ record.output_weight.T
        scale = 1.0 if record.output_scale is None else record.output_scale[..., None]
        rest = (after - before - carried * scale)[found.mask]
        if name not in OWN_REST:
            assert_same_for_all(rest)


def assert_same_for_all(tokens: Tensor) -> None:
    torch.testing.assert_close(tokens, tokens[:1].expand_as(tokens), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", ["vit", "bert", "modernbert mean"])
def test_a_blocks_edges_and_its_residual_share_out_one(family):
    model, inputs = FAMILIES[family](), inputs_of(family)
    (scores,) = attribute(model, inputs, 1, "flow_routes").values()
    assert (scores >= 0).all()
    assert (scores.sum(dim=1) <= model.config.num_hidden_layers).all()
    assert (scores.sum(dim=1) > 0).all()


def test_only_the_ratio_of_the_sinks_weights_counts():
    model, inputs = STREAM_FAMILIES["llama"][0](), text_inputs()
    weights = read_out(inputs)
    once, thrice = (attribute(model, inputs, 1, "flow_routes", readout=n * weights)["text"] for n in (1, 3))
    torch.testing.assert_close(once, thrice)


@pytest.mark.parametrize("name", ["llama", "vit"])
def test_tiles_give_what_whole_maps_give(name, monkeypatch):
    model, _, inputs = double(name)
    (whole,) = attribute(model, inputs, 1, "flow_routes", readout="mean").values()
    monkeypatch.setattr(mixing, "TILE", 1)
    monkeypatch.setattr(flow_routes, "TILE", 1)
    (tiled,) = attribute(model, inputs, 1, "flow_routes", readout="mean").values()
    torch.testing.assert_close(tiled, whole, rtol=1e-9, atol=1e-12)


def test_memory_grows_with_the_tokens_and_not_with_their_square():
    model = STREAM_FAMILIES["llama"][0]()

    def peak(length: int) -> int:
        inputs = random_text(model, length)
        return peak_bytes(lambda: attribute(model, inputs, 1, "flow_routes", readout="last"), model)

    assert peak(1024) < 4.5 * peak(256)


def test_a_pools_query_hops_nowhere():
    model, inputs = (part() for part in STREAM_FAMILIES["siglip"])
    once = attribute(model, inputs, "predicted", "flow_routes")
    span = torch.ones(1, dtype=torch.bool)
    with pytest.raises(WhyformerError, match="span has"):
        attribute(model, inputs, "predicted", "flow_routes", hops=1, span=torch.ones(7))
    hopped = attribute(model, inputs, "predicted", "flow_routes", hops=1, span=span)
    torch.testing.assert_close(hopped["image"], once["image"])


numbers = st.floats(-100, 100, allow_subnormal=False)


@given(st.lists(st.tuples(numbers, st.one_of(numbers, st.just(0.0))), min_size=1, max_size=6))
def test_the_proximity_is_a_difference_of_norms(pairs):
    part, whole = torch.tensor(pairs, dtype=torch.float64).T
    expected = whole.abs().sum() - (part - whole).abs().sum()
    torch.testing.assert_close(proximity(part, whole), expected, rtol=1e-9, atol=1e-9)


def test_a_part_far_smaller_than_the_whole_keeps_its_digits():
    whole = torch.full((64,), 1000.0)
    torch.testing.assert_close(proximity(torch.full((64,), 1e-6), whole), torch.tensor(6.4e-5))


def test_a_model_whose_values_do_not_go_straight_to_the_stream_is_refused():
    reasons = (
        r"flow_routes needs the residual state and W_o of block 1 \(path unknown\): its attention output "
        r"is not added to a state of its tokens, and W_o is not a linear layer that can be read \(an adapter can be "
        r"merged\)\. rollout works without\."
    )
    with pytest.raises(UnsupportedModel, match=reasons):
        attribute(OTHERS["ConvBERT"](), text_inputs(), 1, "flow_routes")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"hops": -1}, r"flow_routes: hops=-1\. It must be 0 or more\."),
        ({"hops": 2}, r"flow_routes: hops=2 needs span=…, a mask of the 9 positions to hop through\."),
        ({"hops": 1, "span": torch.ones(4)}, r"flow_routes: span has 4 positions, the stream 9 tokens\."),
    ],
)
def test_hops_that_go_nowhere_are_refused(options, message):
    with pytest.raises(WhyformerError, match=message):
        attribute(FAMILIES["bert"](), text_inputs(), 1, "flow_routes", **options)

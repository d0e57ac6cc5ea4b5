"""W_v and W_o of blocks that are more than two linear layers on a residual stream, against the models' own parts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tiny_architectures import DECODERS, OTHERS
from tiny_models import FAMILIES, image_inputs, text_inputs
from whyformer import attribute
from whyformer.tracing.build import trace
from whyformer.tracing.reads import Reads
from whyformer.tracing.trace import Trace

STATES = Reads(maps="all", states=True)


def seen(model: nn.Module, *modules: nn.Module) -> list[Tensor]:
    """What these modules gave, and the first argument of those that are layers."""
    given: list[Tensor] = []

    def note(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        first = args[0] if args else kwargs["hidden_states"]
        given.append(first if isinstance(output, tuple) or module in layers else output)

    layers = list(model.model.layers)
    hooks = [module.register_forward_hook(note, with_kwargs=True) for module in modules]
    with torch.no_grad():
        model(**text_inputs())
    for hook in hooks:
        hook.remove()
    return given


def repeated(weight: Tensor, heads: int, shared: int) -> Tensor:
    """W_v with the rows of each value head once for every head that reads it."""
    return weight.unflatten(0, (shared, -1)).repeat_interleave(heads // shared, dim=0).flatten(0, 1)


def naive_rows(asked: Trace, mixing: list[Tensor]) -> Tensor:
    """The read-out's row of (M_L + I)…(M_1 + I), in full."""
    product = torch.eye(mixing[0].shape[-1], dtype=mixing[0].dtype).expand_as(mixing[0])
    for matrix in mixing:
        product = (matrix + torch.eye(matrix.shape[-1], dtype=matrix.dtype)) @ product
    return torch.einsum("bq,bqk->bk", asked.readout.weights.to(product.dtype), product)


@pytest.mark.parametrize("name", ["Gemma 2", "Gemma 3", "OLMo 2"])
def test_a_norm_between_the_output_projection_and_the_residual_stream_scales_each_query(name):
    model = DECODERS[name]()  # whose norms compute in float32, whatever it is in
    asked = trace(model, text_inputs(), 1, reads=STATES)
    mixing = []
    for record, layer in zip(asked.records, model.model.layers, strict=True):
        state, written = seen(model, layer, layer.self_attn.o_proj)[::-1]  # a layer ends after what it holds
        norm = layer.post_attention_layernorm
        gamma = 1 + norm.weight if "Gemma" in name else norm.weight
        size = (written**2).mean(dim=-1) + getattr(norm, "variance_epsilon", getattr(norm, "eps", None))
        value = repeated(layer.self_attn.v_proj.weight, 4, 2)
        moved = state @ value.T @ layer.self_attn.o_proj.weight.T * gamma
        alpha = moved.norm(dim=-1) / state.norm(dim=-1)
        mixing.append(record.map.mean(dim=1) * alpha[:, None, :] / size.sqrt()[:, :, None])
        torch.testing.assert_close(record.output_scale, size.rsqrt())
        torch.testing.assert_close(record.output_weight, gamma[:, None] * layer.self_attn.o_proj.weight)
    scores = attribute(model, text_inputs(), 1, "bi_token", feedback="none")["text"]
    torch.testing.assert_close(scores, naive_rows(asked, mixing).detach(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", [nn.LayerNorm, nn.RMSNorm])
def test_a_norm_of_pytorch_there_is_followed_like_one_written_in_python(kind):
    model = FAMILIES["vit"]().double()
    projection = model.vit.layers[1].attention.o_proj
    norm = kind(48, eps=1e-5).double()
    nn.init.normal_(norm.weight)
    model.vit.layers[1].attention.o_proj = nn.Sequential(projection, norm)
    inputs = {"pixel_values": image_inputs()["pixel_values"].double()}
    asked = trace(model.eval(), inputs, 1, reads=STATES)
    record = asked.records[1]
    centred = projection.weight - projection.weight.mean(dim=0) if kind is nn.LayerNorm else projection.weight
    torch.testing.assert_close(record.output_weight, norm.weight[:, None] * centred)
    hook = projection.register_forward_hook(lambda module, args, output: setattr(model, "written", output))
    with torch.no_grad():
        model(**inputs)
    hook.remove()
    written = model.written
    spread = written.var(dim=-1, correction=0) if kind is nn.LayerNorm else (written**2).mean(dim=-1)
    torch.testing.assert_close(record.output_scale, (spread + 1e-5).rsqrt())
    assert asked.records[0].output_scale is None


def test_values_from_a_latent_are_weighed_by_both_of_its_projections():
    model = DECODERS["DeepSeek-V3"]()
    record = trace(model, text_inputs(), 1, reads=STATES).records[1]
    attention = model.model.layers[1].self_attn
    down = attention.kv_a_proj_with_mqa.weight[:12]
    up = attention.kv_b_proj.weight.unflatten(0, (4, 14))[:, 8:].flatten(0, 1)
    torch.testing.assert_close(record.value_weight, up @ (attention.kv_a_layernorm.weight[:, None] * down))
    torch.testing.assert_close(record.output_weight, attention.o_proj.weight)


def test_a_linear_layer_written_as_a_product_is_one_and_all_heads_may_share_their_values():
    model = DECODERS["Falcon"]()
    record = trace(model, text_inputs(), 1, reads=STATES).records[1]
    attention = model.transformer.h[1].self_attention
    torch.testing.assert_close(record.output_weight, attention.dense.weight)
    torch.testing.assert_close(record.value_weight, attention.query_key_value.weight[-8:].repeat(4, 1))
    assert record.value.shape == (3, 4, 9, 8)
    assert record.path == "transformer.h.1.self_attention.dense"


def test_a_bias_of_its_own_and_a_cache_leave_the_values_what_they_are():
    deberta, xlm = OTHERS["DeBERTa"](), OTHERS["XLM"]()
    record = trace(deberta, text_inputs(), 1, reads=STATES).records[1]
    fused = deberta.deberta.encoder.layer[1].attention.self.in_proj.weight
    torch.testing.assert_close(record.value_weight, fused.unflatten(0, (4, 24))[:, 16:].flatten(0, 1))
    record = trace(xlm, text_inputs(), 1, reads=STATES).records[1]
    torch.testing.assert_close(record.value_weight, xlm.transformer.attentions[1].v_lin.weight)

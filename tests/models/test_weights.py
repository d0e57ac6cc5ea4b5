"""Weights as people load them: spread over devices, adapted, stored in fewer bits."""

import copy
import importlib.util
from contextlib import suppress
from functools import cache

import peft
import pytest
import torch
import torch.nn.functional as F
from optimum.quanto import freeze, qint8, quantize
from torch import nn

from tiny_models import TEXT, built, text_inputs
from whyformer import UnsupportedModel, WhyformerError, attribute, explain, load
from whyformer.extend import Reads, trace
from whyformer.methods.registry import trace_methods
from whyformer.models.loading import resolve_model
from whyformer.models.structure import device_of, unwrapped
from whyformer.models.weights import opaque_layers, plain_weight, readable_weights
from whyformer.watching.watcher import Watcher

DECODER = {name: value for name, value in TEXT.items() if name != "num_labels"} | {"num_key_value_heads": 1}
# What each adapter is put on: where values are made and read, or where only the maps are.
ADAPTED = {
    "bert": (["value", "attention.output.dense"], ["query", "key"]),
    "llama": (["v_proj", "o_proj"], ["q_proj", "k_proj"]),
    "gpt2": (["c_attn", "attn.c_proj"], None),
}
CALLS = [(name, {}) for name in trace_methods()] + [
    ("bi_token", {"backward": "libra"}),
    ("bi_token", {"alpha": "values"}),
]
RELEVANCE = ("lrp", "partial_lrp", "transformer_attribution")


def tiny(name: str) -> nn.Module:
    if name == "bert":
        return built("BertForSequenceClassification", "BertConfig", **TEXT)
    if name == "gpt2":
        sizes = {"n_embd": 48, "n_layer": 3, "n_head": 3, "vocab_size": 60, "n_positions": 40}
        return built("GPT2LMHeadModel", "GPT2Config", **sizes)
    return built("LlamaForCausalLM", "LlamaConfig", **DECODER)


def assert_same_scores(model, twin, method, options, tolerance=1e-5):
    ours, theirs = (attribute(one, text_inputs(), 1, method, **options) for one in (model, twin))
    assert ours.keys() == theirs.keys()
    for stream, scores in ours.items():
        torch.testing.assert_close(
            scores, theirs[stream], rtol=tolerance, atol=tolerance * float(theirs[stream].abs().max())
        )


def offloaded_map(model: nn.Module, layers: str) -> dict[str, str]:
    """Every module on the CPU, but for the layers after the first, which stay on the disk."""
    leaves = [name for name, module in model.named_modules() if not any(True for _ in module.children())]
    outside = {name: "cpu" for name in leaves if not name.startswith(layers)}
    return outside | {f"{layers}.{number}": "disk" if number else "cpu" for number in range(3)}


@pytest.fixture(scope="module")
def offloaded(tmp_path_factory):
    models = {}
    for name, layers in {"bert": "bert.encoder.layer", "llama": "model.layers"}.items():
        model, folder = tiny(name), tmp_path_factory.mktemp(name)
        model.save_pretrained(folder)
        places = offloaded_map(model, layers)
        disk = tmp_path_factory.mktemp("disk")
        models[name] = model, type(model).from_pretrained(folder, device_map=places, offload_folder=disk).eval()
    return models


@pytest.mark.parametrize("family", ["bert", "llama"])
@pytest.mark.parametrize(("method", "options"), CALLS)
def test_a_model_that_stays_on_the_disk_is_explained_like_one_in_memory(offloaded, family, method, options):
    model, spread = offloaded[family]
    assert any(parameter.is_meta for parameter in spread.parameters())
    assert_same_scores(spread, model, method, options)
    kept = (parameter for module in spread.modules() for parameter in module._parameters.values())
    assert all(parameter is None or isinstance(parameter, nn.Parameter) for parameter in kept)


def test_weights_on_the_disk_keep_their_own_precision(tmp_path):
    model = tiny("llama").bfloat16()
    model.save_pretrained(tmp_path)
    places = offloaded_map(model, "model.layers")
    spread = type(model).from_pretrained(tmp_path, device_map=places, offload_folder=tmp_path, dtype="auto").eval()
    before = spread(**text_inputs()).logits
    assert_same_scores(spread, model, "lrp", {"rules": "attn_lrp"}, tolerance=1e-3)
    assert {parameter.dtype for parameter in spread.parameters()} == {torch.bfloat16}
    assert torch.equal(spread(**text_inputs()).logits, before)


def test_attention_of_lent_weights_is_known_by_its_module(offloaded):
    records = trace(offloaded["llama"][1], text_inputs(), 1, reads=Reads(maps="all")).records
    assert [record.path for record in records] == [f"model.layers.{n}.self_attn.o_proj" for n in range(3)]


def adapted(name: str, modules: list[str], dtype: torch.dtype = torch.float32) -> nn.Module:
    sizes = {"r": 4, "lora_alpha": 8, "lora_dropout": 0.1, "fan_in_fan_out": name == "gpt2"}
    settings = peft.LoraConfig(target_modules=modules, **sizes)
    model = peft.get_peft_model(tiny(name), settings).eval()
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for path, parameter in model.named_parameters():
            if "lora_" in path:
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2)
            else:
                parameter.data = parameter.data.to(dtype)
    return model


@cache
def adapted_and_merged(name: str) -> tuple[nn.Module, nn.Module]:
    model = adapted(name, ADAPTED[name][0])
    return model, copy.deepcopy(model).merge_and_unload().eval()


@pytest.mark.parametrize("family", ADAPTED)
@pytest.mark.parametrize(("method", "options"), [call for call in CALLS if call[0] not in RELEVANCE])
def test_an_adapter_is_explained_like_the_weight_it_is_merged_into(family, method, options):
    assert_same_scores(*adapted_and_merged(family), method, options)


@pytest.mark.parametrize("family", ["bert", "llama"])
def test_an_adapter_of_queries_and_keys_leaves_the_values_alone(family):
    model = adapted(family, ADAPTED[family][1])
    merged = copy.deepcopy(model).merge_and_unload().eval()
    assert_same_scores(model, merged, "bi_token", {"backward": "libra"})


@pytest.mark.parametrize("family", ADAPTED)
def test_an_adapter_in_float32_on_a_model_in_half_precision_is_read_too(family):
    model = adapted(family, ADAPTED[family][0], torch.bfloat16)
    merged = copy.deepcopy(model).merge_and_unload().eval()
    assert_same_scores(model, merged, "bi_token", {}, tolerance=3e-2)


def test_without_its_adapter_a_layer_would_give_other_scores():
    model = adapted("bert", ADAPTED["bert"][0])
    ours = attribute(model, text_inputs(), 1, "bi_token", feedback="none")["text"]
    with model.disable_adapter():
        theirs = attribute(model, text_inputs(), 1, "bi_token", feedback="none")["text"]
    assert float((ours - theirs).abs().max() / theirs.abs().max()) > 0.1


def test_an_adapter_that_is_no_sum_is_refused_with_the_reason():
    settings = peft.LoraConfig(target_modules=["value"], r=4, use_dora=True)
    model = peft.get_peft_model(tiny("bert"), settings).eval()
    with pytest.raises(WhyformerError, match=r"bi_token needs W_v of block \d .*: W_v is not a linear layer that"):
        attribute(model, text_inputs(), 1, "bi_token")


def test_peft_is_looked_through():
    model = adapted("bert", ["value"])
    assert type(unwrapped(model)).__name__ == "BertForSequenceClassification"
    assert unwrapped(tiny("bert")).__class__ is unwrapped(model).__class__
    assert type(resolve_model(model).model).__name__ == "BertForSequenceClassification"


@cache
def quantised(name: str) -> tuple[nn.Module, nn.Module]:
    """A model with int8 weights, and one that has the same values as plain tensors."""
    model = tiny(name).requires_grad_(False)
    quantize(model, weights=qint8)
    freeze(model)
    twin = tiny(name)
    for path, module in twin.named_modules():
        if isinstance(module, nn.Linear):
            module.weight.data = plain_weight(model.get_submodule(path).weight).clone()
    return model.eval(), twin


@pytest.mark.parametrize("family", ["bert", "llama"])
@pytest.mark.parametrize(("method", "options"), [call for call in CALLS if call[0] not in RELEVANCE])
def test_int8_weights_are_explained_like_the_values_they_stand_for(family, method, options):
    assert_same_scores(*quantised(family), method, options, tolerance=1e-4)


@pytest.mark.parametrize("method", RELEVANCE)
def test_relevance_goes_through_int8_weights(method):
    assert_same_scores(*quantised("bert"), method, {}, tolerance=2e-2)


class Kernel(torch.autograd.Function):
    """A product that a mode cannot look into, and that has no gradient."""

    @staticmethod
    def forward(ctx, x, packed, scale):
        with torch._C.DisableTorchFunction():
            return F.linear(x, packed.to(x.dtype) * scale)

    @staticmethod
    def backward(ctx, grad_output):
        return None, None, None


class OpaqueLinear(nn.Module):
    """A linear layer that multiplies in a kernel of its own."""

    def __init__(self, layer: nn.Linear):
        super().__init__()
        self.in_features, self.out_features, self.bias = layer.in_features, layer.out_features, layer.bias
        self.scale = float(layer.weight.detach().abs().max()) / 127
        self.register_buffer("packed", (layer.weight.detach() / self.scale).round().to(torch.int8))

    def dequantize(self):
        return self.packed.float() * self.scale

    def forward(self, x):
        product = Kernel.apply(x, self.packed, self.scale)
        return product if self.bias is None else product + self.bias


def opaque(name: str) -> tuple[nn.Module, nn.Module]:
    model, twin = tiny(name), tiny(name)
    for path, module in list(model.named_modules()):
        if isinstance(module, nn.Linear):
            layer = OpaqueLinear(module)
            parent, _, attribute_name = path.rpartition(".")
            setattr(model.get_submodule(parent), attribute_name, layer)
            twin.get_submodule(path).weight.data = layer.dequantize()
    return model.eval(), twin.eval()


shared_opaque = cache(opaque)


@pytest.mark.parametrize("family", ["bert", "llama"])
@pytest.mark.parametrize(("method", "options"), [call for call in CALLS if call[0] not in RELEVANCE])
def test_layers_that_hide_their_product_are_explained_by_their_weights(family, method, options):
    assert_same_scores(*shared_opaque(family), method, options, tolerance=1e-4)


def test_hidden_products_are_hidden_again_afterwards():
    model, _ = opaque("bert")
    layers = opaque_layers(model)
    assert len(layers) == 3 * 6 + 2
    with suppress(RuntimeError), readable_weights(model):
        assert all("forward" in vars(layer) for layer in layers)
        raise RuntimeError
    assert not any(name in vars(layer) for layer in layers for name in ("forward", "_whyformer_own"))


def test_a_block_may_be_read_while_its_model_is():
    model, _ = opaque("bert")
    block = model.bert.encoder.layer[0]
    with readable_weights(model):
        with readable_weights(block):
            pass
        assert all("forward" in vars(layer) for layer in opaque_layers(model))
    assert not any("forward" in vars(layer) for layer in opaque_layers(model))


@pytest.mark.parametrize("family", ["bert", "llama"])
def test_hidden_products_are_read_block_by_block_too(family):
    model, twin = opaque(family)
    assert_same_scores(model, twin, "generic_attention", {"checkpoint": True}, tolerance=1e-4)


def test_a_model_on_the_disk_goes_block_by_block_and_keeps_its_hooks(offloaded):
    model, spread = offloaded["llama"]
    for _ in range(2):
        assert_same_scores(spread, model, "generic_attention", {"checkpoint": True})
    torch.testing.assert_close(spread(**text_inputs()).logits, model(**text_inputs()).logits)


def test_the_scores_of_a_hidden_product_are_those_of_the_models_own_kernel(monkeypatch):
    model, _ = opaque("bert")
    monkeypatch.setattr(OpaqueLinear, "forward", lambda self, x: F.linear(x, self.dequantize(), self.bias) * 1.01)
    plain = model(**text_inputs()).logits
    torch.testing.assert_close(Watcher(3).run(model, **text_inputs()).logits, plain)


@pytest.mark.parametrize("method", ["generic_attention", "bi_token", "input_x_gradient"])
def test_a_layer_that_does_not_say_its_weight_is_named_as_the_reason(monkeypatch, method):
    model, _ = opaque("bert")
    monkeypatch.delattr(OpaqueLinear, "dequantize")
    assert opaque_layers(model) == []
    reason = "BertForSequenceClassification has OpaqueLinear layers, and their kernel has no gradient"
    with pytest.raises(UnsupportedModel, match=reason):
        attribute(model, text_inputs(), 1, method)
    assert torch.isfinite(attribute(model, text_inputs(), 1, "rollout")["text"]).all()


@pytest.mark.skipif(importlib.util.find_spec("bitsandbytes") is None, reason="bitsandbytes is no part of the set-up")
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize(("method", "options"), CALLS)
def test_bitsandbytes_layers_are_explained_by_their_weights(bits, method, options):
    import bitsandbytes

    wide = {"hidden_size": 96, "intermediate_size": 128}
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = built("LlamaForCausalLM", "LlamaConfig", **DECODER | wide)
    for path, module in list(model.named_modules()):
        if isinstance(module, nn.Linear) and path != "lm_head":
            sizes = module.in_features, module.out_features, module.bias is not None
            if bits == 4:
                layer = bitsandbytes.nn.Linear4bit(*sizes)
            else:
                layer = bitsandbytes.nn.Linear8bitLt(*sizes, has_fp16_weights=False)
            layer.load_state_dict(module.state_dict())
            parent, _, name = path.rpartition(".")
            setattr(model.get_submodule(parent), name, layer)
    inputs = {name: value.to(device) for name, value in text_inputs().items()}
    scores = attribute(model.to(device).eval(), inputs, 1, method, **options)
    assert all(bool(torch.isfinite(values).all()) for values in scores.values())


def test_a_model_is_spread_as_the_map_says(vit, bert):
    loaded_model = load(bert, device_map={"": "cpu"})
    ours = explain("the film was good", loaded_model, method="generic_attention")
    assert ours.parts["text"].scores.tolist() == pytest.approx(
        explain("the film was good", load(bert, device="cpu"), method="generic_attention").parts["text"].scores.tolist()
    )
    assert load(vit, device_map="cpu").model.device.type == "cpu"


def test_inputs_go_where_the_embeddings_run(offloaded):
    assert device_of(offloaded["llama"][1]) == torch.device("cpu")
    spread = copy.copy(tiny("llama"))
    spread.hf_device_map = {"": "disk"}
    spread.model.embed_tokens._hf_hook = type("Hook", (), {"execution_device": 1})()
    assert device_of(spread) == torch.device("cuda:1")

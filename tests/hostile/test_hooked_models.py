"""Hooks that copy what enters or leaves a module change no score."""

import pytest
import torch
from torch import Tensor

from pairs import pairs
from tiny_models import FAMILIES, built, inputs_of
from whyformer import WhyformerError, attribute
from whyformer.backward.blocks import find_blocks
from whyformer.methods.registry import trace_methods

WORDS = {"input_ids": torch.arange(3, 21)[None], "logits_to_keep": 1}
LLAMA = {"hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4}
GPT2 = {"n_embd": 48, "n_layer": 3, "n_head": 3, "n_positions": 40, "bos_token_id": 1, "eos_token_id": 2}
MODELS = {
    "bert": (FAMILIES["bert"], inputs_of("bert")),
    "vit": (FAMILIES["vit"], inputs_of("vit")),
    "llama": (lambda: built("LlamaForCausalLM", "LlamaConfig", vocab_size=60, num_key_value_heads=2, **LLAMA), WORDS),
    "gpt2": (lambda: built("GPT2LMHeadModel", "GPT2Config", vocab_size=60, **GPT2), WORDS),
}
pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook is firing")  # PyTorch, of blocks without a graph
OPTIONS = {"integrated_gradients": {"steps": 2}, "gradient_shap": {"samples": 2}, "bi_token": {"steps": 2}}


def copied(x):
    return x.clone() if isinstance(x, Tensor) and x.is_floating_point() else x


def copy_inputs(module, args, kwargs):
    return tuple(map(copied, args)), {name: copied(value) for name, value in kwargs.items()}


def copy_outputs(module, args, output):
    return tuple(map(copied, output)) if type(output) is tuple else copied(output)


HOOKS = {
    "backward hooks": lambda module: module.register_full_backward_hook(lambda *_: None),
    "backward pre-hooks": lambda module: module.register_full_backward_pre_hook(lambda *_: None),
    "clones of inputs": lambda module: module.register_forward_pre_hook(copy_inputs, with_kwargs=True),
    "clones of outputs": lambda module: module.register_forward_hook(copy_outputs),
}


def prepared(name):
    make, inputs = MODELS[name]
    values = {key: x.double() if isinstance(x, Tensor) and x.is_floating_point() else x for key, x in inputs.items()}
    return make().double(), values


def check_same(model, hooked, inputs, method, **options):
    try:
        expected = attribute(model, inputs, 1, method, **options)
    except WhyformerError as error:  # a method that does not apply says the same of both
        with pytest.raises(type(error)):
            attribute(hooked, inputs, 1, method, **options)
        return
    for stream, scores in attribute(hooked, inputs, 1, method, **options).items():
        largest = float(expected[stream].abs().max())
        torch.testing.assert_close(scores, expected[stream], rtol=1e-6, atol=1e-9 * largest)


@pytest.mark.parametrize(("hook", "name"), pairs([*HOOKS], [*MODELS], with_all={"bert", "clones of outputs"}, every=4))
def test_copies_by_hooks_on_every_module_change_no_score_of_any_method(name, hook):
    (model, inputs), (hooked, _) = prepared(name), prepared(name)
    for block in find_blocks(hooked):
        for module in block.modules():
            HOOKS[hook](module)
    for method in trace_methods():
        check_same(model, hooked, inputs, method, **OPTIONS.get(method, {}))


@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("part", ["attention", "attention.self", "attention.self.value", "attention.output"])
def test_copies_in_front_of_one_part_of_bert_change_no_score(part, hook, checkpoint):
    (model, inputs), (hooked, _) = prepared("bert"), prepared("bert")
    for block in find_blocks(hooked):
        HOOKS[hook](block.get_submodule(part))
    for method in ("evidence", "state_x_gradient", "bi_token", "flow_routes", "full_grad"):
        check_same(model, hooked, inputs, method, checkpoint=checkpoint, **OPTIONS.get(method, {}))

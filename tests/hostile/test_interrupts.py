"""An interrupt anywhere in a pass leaves the model as it was, and no mode behind."""

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.overrides import _get_current_function_mode_stack

from tiny_models import FAMILIES, inputs_of
from whyformer import attribute
from whyformer.backward.blocks import find_blocks
from whyformer.models import calls, substitutes

# Every kind of pass: maps alone, gradients, rules, relevance, block by block, and inputs as leaves.
PASSES = [
    ("rollout", {}),
    ("generic_attention", {"checkpoint": False}),
    ("generic_attention", {"checkpoint": True}),
    ("evidence", {}),
    ("lrp", {"rules": "z_plus"}),
    ("transformer_attribution", {"checkpoint": True}),
    ("integrated_gradients", {}),
]


class Interrupt(torch.autograd.Function):
    """The identity, whose backward pass is interrupted."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad_output):
        raise KeyboardInterrupt


def in_forward(_module: nn.Module, _args: object, _output: object) -> None:
    raise KeyboardInterrupt


def in_backward(_module: nn.Module, _args: object, output: object) -> object:
    if isinstance(output, torch.Tensor):
        return Interrupt.apply(output)
    return Interrupt.apply(output[0]), *output[1:]


def state_of(model: nn.Module) -> list[object]:
    """Everything that a pass might leave behind: attributes, hooks, parameters, their gradients and versions."""
    parts: list[object] = [torch.is_grad_enabled(), list(_get_current_function_mode_stack())]
    for module in model.modules():
        hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
        parts += [module.training, sorted(vars(module)), [list(each.values()) for each in hooks]]
        parts += [vars(module).get("forward"), vars(module).get(calls.COMPILED_CALL)]
        parts += [(id(x), x.requires_grad, x.grad, x._version) for x in module._parameters.values() if x is not None]
    return parts


INTERRUPTS = [(in_forward, *one) for one in PASSES] + [(in_backward, *one) for one in PASSES if one[0] != "rollout"]


@pytest.mark.parametrize("family", ["bert", "vit"])
@pytest.mark.parametrize(("where", "method", "options"), INTERRUPTS)
def test_an_interrupted_pass_leaves_the_model_and_the_modes_as_they_were(
    family: str, where: Callable[..., object], method: str, options: dict[str, object]
) -> None:
    model, inputs = FAMILIES[family](), inputs_of(family)
    expected = attribute(model, inputs, 1, method, **options)
    handle = find_blocks(model)[1].register_forward_hook(where)
    before = state_of(model)
    with pytest.raises(KeyboardInterrupt):
        attribute(model, inputs, 1, method, **options)
    assert state_of(model) == before
    assert not _get_current_function_mode_stack()
    assert not calls._USERS
    assert not substitutes._SUBSTITUTES
    handle.remove()
    again = attribute(model, inputs, 1, method, **options)
    for stream, scores in expected.items():
        assert torch.equal(again[stream], scores)

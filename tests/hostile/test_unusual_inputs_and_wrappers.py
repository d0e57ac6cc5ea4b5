"""Read-outs, inputs and models that nobody expects: each works as if unwrapped, or is refused in one line."""

import copy

import pytest
import torch
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, checkpoint_wrapper

from tiny_models import FAMILIES, inputs_of, text_inputs
from whyformer import WhyformerError, attribute
from whyformer.backward.blocks import find_blocks
from whyformer.methods.registry import trace_methods

OPTIONS = {"integrated_gradients": {"steps": 2}, "gradient_shap": {"samples": 2}, "bi_token": {"steps": 2}}


@pytest.mark.parametrize("readout", [1.5, 2.0, float("nan"), True, [0]])
def test_a_read_out_that_is_no_whole_number_is_refused(readout):
    with pytest.raises(WhyformerError, match=r"^readout=.*: a position is a whole number\.") as error:
        attribute(FAMILIES["bert"](), text_inputs(), 1, "rollout", readout=readout)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("family", "name", "shape"),
    [
        ("bert", "input_ids", (0, 5)),
        ("bert", "input_ids", (1, 0)),
        ("vit", "pixel_values", (0, 3, 32, 32)),
        ("vit", "pixel_values", (1, 3, 0, 0)),
    ],
)
@pytest.mark.parametrize("method", ["evidence", "rollout", "integrated_gradients"])
def test_an_input_without_values_is_refused(family, name, shape, method):
    inputs = {name: torch.zeros(shape, dtype=torch.long if name == "input_ids" else torch.float32)}
    with pytest.raises(WhyformerError, match=rf"^{name} has the shape \(.*\): there is nothing to explain\.$"):
        attribute(FAMILIES[family](), inputs, 1, method)


def test_parameters_made_in_inference_mode_are_refused_where_gradients_are_read():
    with torch.inference_mode():
        model = FAMILIES["bert"]()
    expected = FAMILIES["bert"]()
    for method, registered in trace_methods().items():
        options = OPTIONS.get(method, {})
        if registered.reads.has_graph or registered.reads.path:
            with pytest.raises(WhyformerError, match=r"created under torch\.inference_mode.*copy\.deepcopy\(model\)"):
                attribute(model, text_inputs(), 1, method, **options)
        else:
            scores = attribute(model, text_inputs(), 1, method, **options)
            torch.testing.assert_close(scores["text"], attribute(expected, text_inputs(), 1, method, **options)["text"])
    scores = attribute(copy.deepcopy(model), text_inputs(), 1, "evidence")["text"]
    assert torch.equal(scores, attribute(expected, text_inputs(), 1, "evidence")["text"])


@pytest.mark.parametrize("checkpoint", [None, True])
@pytest.mark.parametrize("implementation", CheckpointImpl)
@pytest.mark.parametrize("family", ["bert", "vit"])
def test_blocks_in_checkpoint_wrappers_are_explained_as_without(family, implementation, checkpoint):
    model, inputs = FAMILIES[family](), inputs_of(family)
    wrapped = copy.deepcopy(model)
    stack = next(m for m in wrapped.modules() if isinstance(m, torch.nn.ModuleList) and m[0] is find_blocks(wrapped)[0])
    for number, block in enumerate(stack):
        stack[number] = checkpoint_wrapper(block, checkpoint_impl=implementation)
    wrapped.eval()
    for method in trace_methods():
        options = OPTIONS.get(method, {}) | {"checkpoint": checkpoint}
        expected, scores = (attribute(one, inputs, 1, method, **options) for one in (model, wrapped))
        for stream, values in expected.items():
            assert torch.equal(scores[stream], values), method
    assert not any("_compiled_call_impl" in vars(module) for module in wrapped.modules())


def test_a_model_in_data_parallel_is_explained_as_without():
    model = FAMILIES["bert"]()
    scores = attribute(torch.nn.DataParallel(model).eval(), text_inputs(), "LABEL_2", "evidence")["text"]
    assert torch.equal(scores, attribute(model, text_inputs(), "LABEL_2", "evidence")["text"])

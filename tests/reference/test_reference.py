"""Each formula against a naive twin: loops over examples, heads and tokens, straight from the papers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from tiny_models import FAMILIES, inputs_of
from whyformer import attribute
from whyformer.methods.beyond_intuition import head_theta, token_alpha
from whyformer.methods.registry import trace_methods
from whyformer.tracing.build import trace
from whyformer.tracing.formulas import map_relevances
from whyformer.tracing.path import nodes_and_weights
from whyformer.tracing.reads import Reads
from whyformer.tracing.trace import Trace
from whyformer.watching.mixing import KeptMap

CASES = ["vit", "beit mean", "dinov2", "deit distilled", "bert", "modernbert mean", "deberta-v2"]


def double(family: str):
    model = FAMILIES[family]().double()
    inputs = {k: v.double() if v.is_floating_point() else v for k, v in inputs_of(family).items()}
    return model, inputs


def composed(mixings: list[Tensor]) -> Tensor:
    """(M_L + I)…(M_1 + I), by full matrices."""
    product = torch.eye(len(mixings[0]), dtype=mixings[0].dtype)
    for mixing in mixings:
        product = (mixing + torch.eye(len(mixing), dtype=mixing.dtype)) @ product
    return product


def through_read_out(matrix: Tensor, weights: Tensor) -> Tensor:
    return sum((weight * row for weight, row in zip(weights, matrix, strict=True)), torch.zeros_like(matrix[0]))


def twin_raw_attention(asked: Trace, example: int) -> Tensor:
    heads = asked.last.map[example]
    return through_read_out(sum(heads) / len(heads), asked.readout.weights[example])


def twin_rollout(asked: Trace, example: int) -> Tensor:
    means = [sum(record.map[example]) / len(record.map[example]) for record in asked.records]
    weights = asked.readout.weights[example]
    return through_read_out(composed(means), weights) - weights


def twin_generic_attention(asked: Trace, example: int) -> Tensor:
    mixings = []
    for record in asked.records:
        products = [torch.relu(g * a) for g, a in zip(record.gradient[example], record.map[example], strict=True)]
        mixings.append(sum(products) / len(products))
    weights = asked.readout.weights[example]
    return through_read_out(composed(mixings), weights) - weights


def twin_grad_cam(asked: Trace, example: int) -> Tensor:
    attention, gradient = asked.last.map[example], asked.last.gradient[example]
    heat = torch.zeros(attention.shape[-1], dtype=attention.dtype)
    for query, weight in enumerate(asked.readout.weights[example]):
        keys = [k for k in range(attention.shape[-1]) if k != query and asked.mask[example, k]]
        for a, g in zip(attention, gradient, strict=True):
            heat += weight * g[query, keys].mean() * a[query] / len(attention)
    return torch.relu(heat)


def twin_feedback(asked: Trace, model, inputs, example: int, target: int, steps: int) -> Tensor:
    """Gauss-Legendre nodes, one forward and backward per step on pixels scaled by hand."""
    total = 0
    for node, weight in zip(*np.polynomial.legendre.leggauss(steps), strict=True):
        scaled = {"pixel_values": inputs["pixel_values"][example : example + 1] * (node + 1) / 2}
        total = total + trace(model, scaled, target).last.gradient[0] * weight / 2
    return torch.relu(total).mean(dim=0)


def twin_text_feedback(model, inputs, example: int, target: int, steps: int) -> Tensor:
    """As above for a text: the output of the embedding module is scaled by hand, without the padding."""
    real = inputs["attention_mask"][example].bool()
    alone = {name: value[example : example + 1, real] for name, value in inputs.items()}
    total = 0
    for node, weight in zip(*np.polynomial.legendre.leggauss(steps), strict=True):
        scale = (node + 1) / 2
        hook = model.base_model.embeddings.register_forward_hook(lambda *call, scale=scale: call[-1] * scale)
        total = total + trace(model, alone, target).last.gradient[0] * weight / 2
        hook.remove()
    return torch.relu(total).mean(dim=0)


def twin_bi(asked: Trace, example: int, mixings: list[Tensor], feedback: Tensor) -> Tensor:
    return through_read_out(composed(mixings) * feedback, asked.readout.weights[example])


def twin_head_mixing(record, example: int) -> Tensor:
    pairs = list(zip(record.map[example], record.gradient[example], strict=True))
    importance = [abs(float((a * g).sum())) for a, g in pairs]
    return sum(share / sum(importance) * a for share, (a, _) in zip(importance, pairs, strict=True))


def twin_token_mixing(record, example: int) -> Tensor:
    state = record.key_state[example]
    carried_state = state @ record.value_weight.T @ record.output_weight.T
    mixing = record.map[example].mean(dim=0).clone()
    for key in range(mixing.shape[1]):
        mixing[:, key] *= carried_state[key].norm() / state[key].norm()
    return mixing


TWINS = {
    "raw_attention": twin_raw_attention,
    "rollout": twin_rollout,
    "generic_attention": twin_generic_attention,
    "grad_cam": twin_grad_cam,
}


@pytest.mark.parametrize("family", CASES)
@pytest.mark.parametrize("method", TWINS)
def test_a_method_equals_its_naive_twin(method, family):
    model, inputs = double(family)
    asked = trace(model, inputs, 2)
    (scores,) = attribute(model, inputs, 2, method).values()
    for example, row in enumerate(scores):
        torch.testing.assert_close(row, TWINS[method](asked, example), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("family", ["vit", "beit mean", "dinov2", "deit distilled"])
def test_bi_head_equals_its_naive_twin(family):
    model, inputs = double(family)
    asked = trace(model, inputs, 2)
    (scores,) = attribute(model, inputs, 2, "bi_head", steps=4).values()
    for example, row in enumerate(scores):
        mixings = [twin_head_mixing(record, example) for record in asked.records]
        feedback = twin_feedback(asked, model, inputs, example, 2, 4)
        torch.testing.assert_close(row, twin_bi(asked, example, mixings, feedback), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("family", ["vit", "beit mean", "dinov2", "deit distilled"])
def test_bi_token_equals_its_naive_twin(family):
    model, inputs = double(family)
    asked = trace(model, inputs, 2, reads=Reads(maps="all", states=True))
    (scores,) = attribute(model, inputs, 2, "bi_token", steps=4).values()
    for example, row in enumerate(scores):
        mixings = [twin_token_mixing(record, example) for record in asked.records]
        feedback = twin_feedback(asked, model, inputs, example, 2, 4)
        torch.testing.assert_close(row, twin_bi(asked, example, mixings, feedback), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "albert", "deberta-v2", "modernbert mean"])
@pytest.mark.parametrize("method", ["bi_head", "bi_token"])
def test_the_bi_methods_on_text_equal_their_naive_twins(method, family):
    model, inputs = double(family)
    asked = trace(model, inputs, 2, reads=trace_methods()[method].reads)
    (scores,) = attribute(model, inputs, 2, method, steps=3).values()
    mixing = twin_head_mixing if method == "bi_head" else twin_token_mixing
    for example, row in enumerate(scores):
        length = int(inputs["attention_mask"][example].sum())
        mixings = [mixing(record, example)[:length, :length] for record in asked.records]
        feedback = twin_text_feedback(model, inputs, example, 2, 3)
        expected = through_read_out(composed(mixings) * feedback, asked.readout.weights[example, :length])
        torch.testing.assert_close(row[:length], expected, rtol=1e-7, atol=1e-10)


# Of relevance the propagation itself has its twins in tests/backward/test_rules.py; here it is given.


def twin_partial_lrp(asked: Trace, relevances: dict[int, Tensor], example: int) -> Tensor:
    heads = [torch.relu(head) for head in relevances[asked.last.operation][example]]
    return through_read_out(sum(heads) / len(heads), asked.readout.weights[example])


def twin_transformer_attribution(asked: Trace, relevances: dict[int, Tensor], example: int) -> Tensor:
    mixings = []
    for record in asked.records:
        pairs = zip(record.gradient[example], relevances[record.operation][example], strict=True)
        products = [torch.relu(gradient * relevance) for gradient, relevance in pairs]
        mixings.append(sum(products) / len(products))
    weights = asked.readout.weights[example]
    return through_read_out(composed(mixings), weights) - weights


RELEVANCE_TWINS = {"partial_lrp": twin_partial_lrp, "transformer_attribution": twin_transformer_attribution}


@pytest.mark.parametrize("family", CASES)
@pytest.mark.parametrize("rules", ["z_plus", "dtd", "lrp", "attn_lrp"])
@pytest.mark.parametrize("method", RELEVANCE_TWINS)
def test_a_method_that_reads_relevance_equals_its_naive_twin(method, rules, family):
    model, inputs = double(family)
    asked = trace(model, inputs, 2, reads=Reads(maps="all", gradients="all", relevances="all"))
    sources = map_relevances(asked, rules, strict=True).by_operation
    relevances = {operation: source() for operation, source in sources.items()}
    (scores,) = attribute(model, inputs, 2, method, rules=rules).values()
    for example, row in enumerate(scores):
        expected = RELEVANCE_TWINS[method](asked, relevances, example)
        torch.testing.assert_close(row, expected, rtol=1e-9, atol=1e-9 * float(expected.abs().max()))


@pytest.mark.parametrize("rows", ["readout", "mean"])
@pytest.mark.parametrize("family", CASES)
def test_attention_gradient_equals_its_naive_twin(family, rows):
    model, inputs = double(family)
    asked = trace(model, inputs, 2)
    (scores,) = attribute(model, inputs, 2, "attention_gradient", rows=rows).values()
    for example, row in enumerate(scores):
        real = asked.mask[example]
        weights = asked.readout.weights[example] if rows == "readout" else real / real.sum()
        found = torch.zeros_like(row)
        for record in asked.records:
            for head in record.gradient[example]:
                found += (
                    through_read_out(torch.relu(head), weights) / len(record.gradient[example]) / len(asked.records)
                )
        torch.testing.assert_close(row[real], found[real], rtol=1e-9, atol=1e-12)


def gradient_at_pixels(model, pixels: Tensor, target: int) -> Tensor:
    pixels = pixels.clone().requires_grad_()
    return torch.autograd.grad(model(pixel_values=pixels).logits[:, target].sum(), pixels)[0]


def gradient_at_embeddings(model, inputs, scale: float, target: int) -> tuple[Tensor, Tensor]:
    """The output of the embedding module, and the gradient at `scale` times it."""
    kept = []

    def scaled(module, args, output):
        kept.extend([output.detach(), (output.detach() * scale).requires_grad_()])
        return kept[1]

    hook = model.base_model.embeddings.register_forward_hook(scaled)
    score = model(**inputs).logits[:, target].sum()
    hook.remove()
    return kept[0], torch.autograd.grad(score, kept[1])[0]


@pytest.mark.parametrize("family", ["vit", "beit mean", "dinov2"])
def test_methods_of_the_pixels_equal_their_naive_twins(family):
    model, inputs = double(family)
    pixels = inputs["pixel_values"]
    got = attribute(model, inputs, 2, "input_x_gradient")["pixels"]
    expected = (pixels * gradient_at_pixels(model, pixels, 2)).sum(dim=1).flatten(1)
    torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-6 * float(expected.abs().max()))
    got = attribute(model, inputs, 2, "integrated_gradients", steps=3)["pixels"]
    slopes = [gradient_at_pixels(model, pixels * (step + 0.5) / 3, 2) for step in range(3)]
    expected = (pixels * sum(slopes) / 3).sum(dim=1).flatten(1)
    torch.testing.assert_close(got, expected, rtol=1e-6, atol=1e-6 * float(expected.abs().max()))


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert", "albert"])
def test_methods_of_the_embeddings_equal_their_naive_twins(family):
    model, inputs = double(family)
    embedded, slope = gradient_at_embeddings(model, inputs, 1.0, 2)
    got = attribute(model, inputs, 2, "input_x_gradient")["text"]
    torch.testing.assert_close(got, (embedded * slope).sum(dim=-1), rtol=1e-9, atol=1e-10)
    slopes = [gradient_at_embeddings(model, inputs, (step + 0.5) / 3, 2)[1] for step in range(3)]
    got = attribute(model, inputs, 2, "integrated_gradients", steps=3, baseline="zero")["text"]
    torch.testing.assert_close(got, (embedded * sum(slopes) / 3).sum(dim=-1), rtol=1e-9, atol=1e-10)


def test_every_method_but_the_control_has_a_twin():
    propagated = {
        "lrp"
    }  # in tests/backward/test_rules.py, and against the authors' code in tests/golden/test_golden_relevance.py
    inputs = {"attention_gradient", "input_x_gradient", "integrated_gradients"}
    others = {"bi_head", "bi_token", "random", "flow_routes"}  # the last in tests/reference/test_flow_routes.py
    states = {"state_x_gradient", "full_grad", "evidence"}  # in tests/reference/test_states.py
    later = {"grad_eclip", "gradient_shap", "consensus"}  # in tests/reference/test_later_methods.py
    assert set(trace_methods()) == set(TWINS) | set(RELEVANCE_TWINS) | inputs | propagated | others | states | later


def test_first_block_leaves_earlier_blocks_out():
    model, inputs = double("vit")
    asked = trace(model, inputs, 2)
    (scores,) = attribute(model, inputs, 2, "rollout", first_block=1).values()
    means = [record.map[0].mean(dim=0) for record in asked.records[1:]]
    torch.testing.assert_close(scores[0, 1:], composed(means)[0, 1:], rtol=1e-9, atol=1e-12)


def test_normalised_rollout_is_the_product_of_row_normalised_blocks():
    model, inputs = double("bert")
    asked = trace(model, inputs, 2)
    (scores,) = attribute(model, inputs, 2, "rollout", normalise_rows=True).values()
    product = torch.eye(9, dtype=torch.float64)
    for record in asked.records:
        block = record.map[0].mean(dim=0) + torch.eye(9, dtype=torch.float64)
        product = block / block.sum(dim=1, keepdim=True) @ product
    torch.testing.assert_close(scores[0, 1:], product[0, 1:], rtol=1e-9, atol=1e-12)


def test_perception_and_feedback_can_be_left_out_alone():
    model, inputs = double("vit")
    asked = trace(model, inputs, 2)
    last = asked.last.map.mean(dim=1)[:, 0]
    gradient = asked.last.gradient.clamp(min=0).mean(dim=1)[:, 0]

    def bi(**options):
        (scores,) = attribute(model, inputs, 2, "bi_head", **options).values()
        return scores[:, 1:]

    rollout = attribute(model, inputs, 2, "rollout")["image"][:, 1:]
    torch.testing.assert_close(bi(perception="none", feedback="gradient"), gradient[:, 1:])
    torch.testing.assert_close(bi(perception="last", feedback="none"), last[:, 1:])
    torch.testing.assert_close(bi(perception="last", feedback="gradient"), (last * gradient)[:, 1:])
    torch.testing.assert_close(bi(perception="mean", feedback="none"), rollout)


def test_layer_scale_is_part_of_the_output_projection():
    model, inputs = double("dinov2")
    record = trace(model, inputs, 2, reads=Reads(maps="all", states=True)).records[1]
    layer = model.dinov2.encoder.layer[1]
    expected = layer.layer_scale1.lambda1[:, None] * layer.attention.o_proj.weight
    torch.testing.assert_close(record.output_weight, expected.detach())
    torch.testing.assert_close(record.value_weight, layer.attention.v_proj.weight.detach())


def test_heads_without_importance_count_alike():
    model, inputs = double("vit")
    record = trace(model, inputs, 2).last
    silent = replace(record, gradient_source=KeptMap(torch.zeros_like(record.map)))
    assert torch.equal(head_theta(silent, "inner"), torch.full((2, 3), 1 / 3, dtype=torch.float64))


def test_a_token_without_a_state_carries_nothing():
    model, inputs = double("vit")
    record = trace(model, inputs, 2, reads=Reads(maps="all", states=True)).last
    state = record.key_state.clone()
    state[:, 5] = 0
    empty = replace(record, key_state=state)
    assert torch.isfinite(token_alpha(empty, "paper")).all()
    assert (token_alpha(empty, "paper")[:, 5] == 0).all()


@pytest.mark.parametrize("quadrature", ["midpoint", "gauss"])
def test_a_quadrature_integrates_straight_lines_exactly(quadrature):
    nodes, weights = nodes_and_weights(quadrature, 5)
    assert float((weights * (3 * nodes + 1)).sum()) == pytest.approx(2.5, abs=1e-14)


def test_the_papers_and_the_authors_nodes():
    assert nodes_and_weights("uniform", 4)[0].tolist() == [0.25, 0.5, 0.75, 1.0]
    assert nodes_and_weights("inclusive", 3)[0].tolist() == [0.0, 0.5, 1.0]
    assert nodes_and_weights("gauss", 3)[1].sum() == pytest.approx(1.0)


@pytest.mark.parametrize("family", ["vit", "bert"])
def test_steps_may_run_one_at_a_time_or_together(family):
    model, inputs = double(family)
    one, many = (next(iter(attribute(model, inputs, 2, "bi_token", inputs_at_once=n).values())) for n in (1, 1_000))
    torch.testing.assert_close(one, many, rtol=1e-10, atol=1e-14)

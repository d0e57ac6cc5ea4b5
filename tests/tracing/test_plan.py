"""The plan of a forward pass, as data: what each method's reads come to on each kind of model."""

from dataclasses import replace

import pytest

from tiny_models import FAMILIES, STREAM_FAMILIES, inputs_of
from whyformer.errors import UnsupportedModel, WhyformerError
from whyformer.methods.registry import METHODS
from whyformer.models.families import family_of
from whyformer.tracing import plan as planning
from whyformer.tracing.plan import Plan, plan_pass
from whyformer.tracing.question import ModelCall


def call_of(name, **changes):
    if name in STREAM_FAMILIES:
        model, inputs = (make() for make in STREAM_FAMILIES[name])
    else:
        model, inputs = FAMILIES[name](), inputs_of(name)
    return replace(ModelCall(model, inputs, family_of(model, inputs), batch=2), **changes)


def plan_of(method, name="bert", checkpoint=None, **changes):
    return plan_pass(METHODS[method].reads, call_of(name, **changes), checkpoint=checkpoint)


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("raw_attention", Plan(first_operation=2, merges_heads=True)),
        ("rollout", Plan(merges_heads=True)),
        ("generic_attention", Plan(graph=True, map_gradients="all")),
        ("grad_cam", Plan(first_operation=2, graph=True, map_gradients="last")),
        ("bi_token", Plan(merges_heads=True, states=True, weights=True, path=True)),
        (
            "transformer_attribution",
            Plan(graph=True, relevance=True, precise=True, map_gradients="all", keeps_graph=True),
        ),
        ("input_x_gradient", Plan(graph=True, input_leaves=True, keeps_graph=True, needs_maps=False)),
        (
            "state_x_gradient",
            Plan(maps="folded", states=True, graph=True, map_gradients="all", state_gradients=True, input_leaves=True),
        ),
    ],
)
def test_what_a_method_reads_decides_what_a_pass_over_one_stack_keeps(method, expected):
    assert plan_of(method, backward="gradient") == expected


def test_the_last_maps_of_several_streams_are_the_last_of_each_pair():
    plan = plan_of("grad_cam", "clip")
    assert (plan.first_operation, plan.map_gradients) == (0, "last of each pair")


def test_one_example_may_have_several_scores_where_they_share_a_backward_pass():
    assert plan_of("generic_attention", batch=1).several_scores
    assert not plan_of("generic_attention", batch=2).several_scores
    assert plan_of("generic_attention", batch=1, backward="libra").several_scores
    assert plan_of("evidence", batch=1, backward="attn_lrp").several_scores
    assert not plan_of("full_grad", batch=1, backward="libra").several_scores
    assert not plan_of("generic_attention", batch=1, checkpoint=True).several_scores
    assert not plan_of("transformer_attribution", batch=1).several_scores


def test_block_by_block_a_pass_notes_shapes_alone():
    plan = plan_of("generic_attention", checkpoint=True)
    assert (plan.maps, len(plan.blocks)) == ("shapes only", 3)
    assert not plan_of("raw_attention", checkpoint=True).blocks  # takes nothing back


def test_the_memory_that_is_free_decides_whether_a_pass_goes_block_by_block(monkeypatch):
    reads, call = METHODS["generic_attention"].reads, call_of("bert")
    assert not plan_pass(reads, call).blocks
    assert not plan_pass(reads, call, memory=10**9).blocks
    assert plan_pass(reads, call, memory=10).blocks
    assert not plan_pass(reads, call, memory=10, checkpoint=False).blocks
    monkeypatch.setattr(planning, "KEPT", 0)
    assert plan_pass(reads, call).blocks


def test_what_cannot_go_block_by_block_is_refused():
    with pytest.raises(UnsupportedModel, match="is not a single stack of blocks"):
        plan_of("generic_attention", "clip", checkpoint=True)
    with pytest.raises(WhyformerError, match="checkpoint=1: use True, False, or None"):
        plan_of("generic_attention", checkpoint=1)


def test_a_plan_is_printed_line_by_line():
    assert str(plan_of("transformer_attribution", backward="libra")).splitlines() == [
        "maps        kept",
        "operations  all",
        "noted       none",
        "graph       whole",
        "backward    libra, relevance in float32",
        "gradients   all",
        "leaves      none",
    ]
    assert "graph       block by block, 3 blocks" in str(plan_of("generic_attention", checkpoint=True))
    assert "graph       none" in str(plan_of("rollout"))

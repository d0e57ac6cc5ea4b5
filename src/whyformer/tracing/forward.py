"""Run a model once on its inputs, with everything recorded that a plan asks for."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from whyformer.axes import Inputs
from whyformer.backward.biases import BiasTerms
from whyformer.backward.blocks import BlockPass, NoStack, graph_from
from whyformer.backward.rule_graph import RuleGraph, make_rule_graph
from whyformer.backward.rules import Backward
from whyformer.models.bridges import bridge_of
from whyformer.models.families import family_of
from whyformer.models.structure import main_input
from whyformer.targets.scores import Target
from whyformer.tracing.checks import check_model, check_size, check_texts, missing_attention
from whyformer.tracing.leaves import Leaf, inputs_as_they_are
from whyformer.tracing.plan import Plan, plan_pass
from whyformer.tracing.positions import PositionLeaf, position_leaves
from whyformer.tracing.question import ModelCall, Noise, settings_of
from whyformer.tracing.reads import Reads
from whyformer.watching.watcher import Watcher


@dataclass(frozen=True, eq=False)
class ForwardPass:
    """The result of a forward pass: the output, and everything recorded by its plan."""

    output: Any
    watcher: Watcher
    rule_graph: RuleGraph | None
    blocks: BlockPass | None
    biases: BiasTerms | None
    leaves: dict[str, Leaf]
    positions: list[PositionLeaf]

    @property
    def refusal(self) -> str | None:
        """Why the backward pass cannot run block by block as planned."""
        return None if self.blocks is None else self.blocks.refusal


def forward_pass(
    model: nn.Module,
    inputs: Inputs,
    target: Target,
    reads: Reads,
    backward: Backward,
    noise: Noise | None,
    checkpoint: bool | None,
) -> tuple[ModelCall, Plan, ForwardPass]:
    """The call of a model, the plan for these reads, and the forward pass."""
    check_size(inputs)
    check_texts(model, inputs)
    inputs = {name: _own(value) for name, value in inputs.items()}
    call = _model_call(model, inputs, backward, noise)
    plan = plan_pass(reads, call, checkpoint=checkpoint)
    check_model(model, plan)
    settings = settings_of(model, inputs, reads_all=callable(target) or plan.every_logit)
    call = replace(call, inputs=inputs | settings)
    forward = _run(call, plan)
    if forward.refusal is not None:
        if checkpoint:
            raise NoStack(forward.refusal)
        plan = plan_pass(reads, call, checkpoint=False)
        forward = _run(call, plan)
    return call, plan, forward


def _model_call(model: nn.Module, inputs: Inputs, backward: Backward, noise: Noise | None) -> ModelCall:
    family = family_of(model, inputs)
    bridge = bridge_of(model, inputs, family.sight) if family.sight and "pixel_values" in inputs else None
    batch = len(main_input(inputs)[1]) if bridge is None else bridge.batch
    return ModelCall(model, inputs, family, batch, backward, bridge, noise)


def _rule_graph(call: ModelCall, plan: Plan) -> RuleGraph | None:
    """The rule graph, if the backward pass needs one."""
    if plan.relevance:
        examples = None if call.bridge is None else call.bridge.row_examples()
        return RuleGraph(call.model, call.batch, precise=plan.precise, examples=examples)
    return make_rule_graph(call.model, call.batch, plan.backward) if plan.graph else None


def _run(call: ModelCall, plan: Plan) -> ForwardPass:
    """Run and record the forward pass, with inputs and positions as leaves of the graph if the plan says so."""
    rule_graph, biases = _rule_graph(call, plan), BiasTerms() if plan.biases else None
    blocks = BlockPass(call.model, call.batch, plan.blocks, biases) if plan.blocks else None
    outputs = None if blocks is None else blocks.outputs
    watcher = Watcher(call.batch, plan, rules=rule_graph, biases=biases, outputs=outputs)
    leaves: dict[str, Leaf] = {}
    no_leaves: AbstractContextManager[list[PositionLeaf]] = nullcontext([])
    at_positions = position_leaves(call) if plan.position_leaves else no_leaves
    late = nullcontext() if plan.graph_start is None else graph_from(plan.graph_start, call.model)
    with inputs_as_they_are(call, leaves if plan.input_leaves else None) as inputs, at_positions as positions, late:
        output = watcher.run(call.model, **inputs) if blocks is None else blocks.run(watcher, rule_graph, inputs)
    forward = ForwardPass(output, watcher, rule_graph, blocks, biases, leaves, positions)
    error = missing_attention(watcher, call) if plan.needs_maps and forward.refusal is None else None
    if error is not None:
        raise error
    return forward


def _own(value: Any) -> Any:
    """Detach a tensor from the caller's graph and inference mode."""
    if not isinstance(value, Tensor):
        return value
    return value.clone() if value.is_inference() else value.detach()

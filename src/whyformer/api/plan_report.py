"""Report the plan for an example and the recorded blocks: `whyformer doctor MODEL --plan EXAMPLE`."""

from __future__ import annotations

from typing import Any

from whyformer.api.attribute import choose_method, default_for
from whyformer.api.doctor import encode_with_target
from whyformer.errors import UnsupportedModel, reason_of
from whyformer.inputs.collate import model_inputs
from whyformer.models.loading import LoadedModel
from whyformer.tracing.build import trace
from whyformer.tracing.describe import describe
from whyformer.tracing.reads import Reads

EVERYTHING = Reads(maps="all", edges=True)  # with states and weights


def plan_report(loaded_model: LoadedModel, example: Any, method: str | None = None) -> str:
    """The plan of a method for an example, and a complete recording of the model, block by block."""
    model = loaded_model.model
    encoded, target = encode_with_target(loaded_model, example)
    inputs = model_inputs(loaded_model, [encoded])
    chosen, backward = choose_method(method, default=default_for(model))
    try:
        plan = str(trace(model, inputs, target, reads=chosen.reads, backward=backward).plan)
    except UnsupportedModel as error:
        plan = f"refused: {reason_of(error)}"
    try:
        seen = describe(trace(model, inputs, target, reads=EVERYTHING))
    except UnsupportedModel as error:
        seen = f"refused: {reason_of(error)}"
    return f"{chosen.name}\n{plan}\n\nEverything that can be recorded\n{seen}"

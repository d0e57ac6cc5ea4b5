"""Tensors in, raw scores out; and which method is taken where nobody names one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from torch import Tensor, nn

from whyformer.axes import Inputs
from whyformer.errors import WhyformerError, check_choice, with_article
from whyformer.methods.registry import Method, check_options, method_named
from whyformer.propagation.mode import Backward
from whyformer.targets.scores import Target
from whyformer.tracing import build
from whyformer.tracing.attribution import Attribution

# What is computed where nobody names a method: the best of those measured (docs/results.md).
DEFAULT_METHOD = "bi_token"
DEFAULT_BACKWARD: Backward = "libra"


def attribute(
    model: nn.Module,
    inputs: Inputs,
    target: Target = "predicted",
    method: str | None = None,
    *,
    readout: str | int | Tensor | None = None,
    inputs_at_once: int | None = None,
    backward: Backward | None = None,
    checkpoint: bool | None = None,
    **options: Any,
) -> Attribution:
    """Raw scores at every position of every stream, for a batch of tensors as the model takes them.

    Args:
        model: The model, in evaluation mode.
        inputs: Its inputs, tensors by name.
        target: What is asked about: a label's name or index, a sequence with one of them for each example,
            "predicted", a contrast, a detection, or any function of the model's output that gives one number per
            example.
        method: The name of a method (`whyformer.METHODS`). Without one it is what docs/results.md found best, bi_token
            with backward="libra"; a method that is named is its paper's, with backward="gradient".
        readout: Where the answer is read if the model's family does not say: "first", "mean", "first+mean", "last", a
            position (negative ones count from the last real token), or a weight per position.
        inputs_at_once: Bounds how many inputs a method that repeats the batch runs at once; the batch itself is never
            split.
        backward: "gradient", or "libra" for LibraGrad's rules, under any method that reads gradients.
        checkpoint: Go back block by block, running each again, so that only one block's activations are ever there;
            by default where a map is too large to keep.
        **options: The options of the method.

    Returns:
        An Attribution, a mapping from the name of a stream to its scores [example, token]; also how far they are from
        adding up, and remarks, where the method has any.

    Raises:
        UnsupportedModel: If the method cannot follow this model; the message says why and what works.
        WhyformerError: If the method, an option, the target or an input cannot be used as given.

    Example:
        >>> vit = whyformer.load("mini-vit")
        >>> inputs = vit.processor(PIL.Image.new("RGB", (64, 64)), return_tensors="pt").to(vit.model.device)
        >>> whyformer.attribute(vit.model, inputs, target="cat", method="rollout")["image"].shape[0]
        1
    """
    chosen, backward = choose_method(method, backward)
    check_options(chosen, options)
    if not isinstance(inputs, Mapping):
        raise WhyformerError(
            f"inputs are tensors by name, such as {{'pixel_values': …}}, not {with_article(type(inputs).__name__)}."
        )
    trace = build.trace(
        model,
        inputs,
        target,
        reads=chosen.reads_with(options),
        readout=readout,
        inputs_at_once=inputs_at_once,
        backward=backward,
        checkpoint=checkpoint,
    )
    return chosen(trace, **options)


def choose_method(name: str | None, backward: str | None = None) -> tuple[Method, Backward]:
    """The method, and how its gradients are taken."""
    method = method_named(DEFAULT_METHOD if name is None else name)
    if backward is None:
        return method, DEFAULT_BACKWARD if name is None else "gradient"
    check_choice("backward", backward, Backward)
    if backward != "gradient" and not method.reads.takes_gradients:
        raise WhyformerError(f"{method.name} reads no gradient: backward={backward!r} has nothing to do there.")
    return method, cast(Backward, backward)

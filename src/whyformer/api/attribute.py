"""Tensors in, raw scores out; and which method is taken where nobody names one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

from torch import Tensor, nn

from whyformer.axes import Inputs
from whyformer.backward.blocks import NoStack
from whyformer.backward.rules import Backward
from whyformer.errors import UnsupportedModel, WhyformerError, check_choice, reason_of, with_article
from whyformer.methods.option_checks import check_options
from whyformer.methods.registry import Method, example_method_named, method_named
from whyformer.models.families import FAMILIES
from whyformer.models.structure import config_of, unwrapped
from whyformer.targets.scores import Target
from whyformer.tracing import build
from whyformer.tracing.attribution import Attribution
from whyformer.tracing.checks import NoMaps

# What is computed where nobody names a method, by a rule fixed before measuring (docs/results/default.md).
DEFAULT_CHOICE: tuple[str, Backward] = ("evidence", "attn_lrp")
DEFAULT_METHOD = DEFAULT_CHOICE[0]
# The same of a response, where the best was measured on sentences whose truth is known (docs/guides/responses.md).
RESPONSE_DEFAULT: tuple[str, Backward] = ("generic_attention", "gradient")
# The same of a model that writes about pictures, measured on words that are read off known objects (docs/results).
PICTURED_DEFAULT: tuple[str, Backward] = ("generic_attention", "libra")
# What is computed instead where that does not apply to a model: the first of these that does. They are in the order of
# their mean rank there, each by its better backward pass. Those that read inputs alone are for models without maps,
# which are models of texts, and in the order of the figures on texts.
FALLBACKS: tuple[tuple[str, Backward], ...] = (
    ("bi_token", "libra"),
    ("generic_attention", "libra"),
    ("bi_head", "libra"),
    ("transformer_attribution", "gradient"),
    ("attention_gradient", "gradient"),
    ("partial_lrp", "gradient"),
    ("rollout", "gradient"),
    ("raw_attention", "gradient"),
    ("grad_cam", "gradient"),
    ("integrated_gradients", "gradient"),
    ("input_x_gradient", "gradient"),
)
NO_EFFECT = "checkpoint=True changes nothing: {} does not go back block by block."
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class MethodChoice:
    """A method with its options and its way back, and what a reader must know of how it was chosen."""

    method: Method
    backward: Backward
    options: Mapping[str, Any]
    remarks: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """How it is called in a sentence."""
        return f"{self.method.name} by {self.backward}" if self.way else self.method.name

    @property
    def way(self) -> dict[str, Backward]:
        """How gradients are taken, where that is not the method's own way."""
        return {} if self.backward == self.method.backward else {"backward": self.backward}

    @property
    def can_go_by_blocks(self) -> bool:
        """Whether its gradients can be taken block by block, with noise on the inputs or without."""
        return self.method.reads_with({**self.options, "noise": None}).can_go_by_blocks


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
        target: The target: a label's name or index, a sequence with one of them for each example,
            "predicted", a contrast, a detection, or any function of the model's output that gives one number per
            example.
        method: The name of a method (`whyformer.METHODS`). Without one it is evidence, chosen by the rule of
            docs/results/default.md (of models that write about pictures generic_attention by libra), or where that
            does not apply to the model the best that does, which a remark says; a method that is named is its paper's,
            which mostly means backward="gradient".
        readout: Where the answer is read if the model's family does not say: "first", "mean", "first+mean", "last", a
            position (negative ones count from the last real token), or a weight per position.
        inputs_at_once: Bounds how many inputs a method that repeats the batch runs at once; the batch itself is never
            split.
        backward: "gradient", "libra" for LibraGrad's rules, or "attn_lrp" for AttnLRP's, under any method that
            reads gradients.
        checkpoint: Go back block by block, running each again, so that only one block's activations are ever there;
            by default where a map is too large to keep, or those of all blocks are more than a GPU has free.
        **options: The options of the method. One that reads gradients takes `noise` and `noise_samples` beside its own:
            SmoothGrad, the mean over Gaussian noise on the input, its size a share of the input's range.

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
    if not isinstance(inputs, Mapping):
        raise WhyformerError(
            f"inputs are tensors by name, such as {{'pixel_values': …}}, not {with_article(type(inputs).__name__)}."
        )

    def run(choice: MethodChoice) -> Attribution:
        trace = build.trace(
            model,
            inputs,
            target,
            reads=choice.method.reads_with(choice.options),
            readout=readout,
            inputs_at_once=inputs_at_once,
            backward=choice.backward,
            checkpoint=checkpoint,
        )
        attribution = choice.method(trace, **choice.options)
        in_vain = (NO_EFFECT.format(choice.name),) if checkpoint and not choice.can_go_by_blocks else ()
        return replace(attribution, remarks=(*choice.remarks, *attribution.remarks, *in_vain))

    default = DEFAULT_CHOICE if method is not None else default_for(model)
    return first_that_applies(method, backward, options, run, default)


def default_for(model: nn.Module) -> tuple[str, Backward]:
    """The default method for this model."""
    row = FAMILIES.get(getattr(config_of(unwrapped(model)), "model_type", ""))
    return DEFAULT_CHOICE if row is None or row.sight is None else PICTURED_DEFAULT


def first_that_applies(
    name: str | None,
    backward: str | None,
    options: Mapping[str, Any],
    run: Callable[[MethodChoice], _Result],
    default: tuple[str, Backward] = DEFAULT_CHOICE,
) -> _Result:
    """Result of `run` for the named method, else for the default or, where that fails, the best method that applies."""
    chosen, way = choose_method(name, backward, default)
    check_options(chosen, options)
    choice = MethodChoice(chosen, way, options)
    try:
        return run(choice)
    except UnsupportedModel as error:
        if name is not None or isinstance(error, NoStack):
            raise
        for fallback in _fallbacks(choice, backward, error):
            with suppress(UnsupportedModel):
                return run(fallback)
        raise


def _fallbacks(default: MethodChoice, backward: str | None, error: UnsupportedModel) -> Iterator[MethodChoice]:
    """Methods that replace the default, best first; without those that read maps if there are no maps."""
    reason = reason_of(error).split(". ")[0].removesuffix(".")
    for name, way in FALLBACKS:
        method = method_named(name)
        if isinstance(error, NoMaps) and method.reads.maps != "none":
            continue
        options = {key: value for key, value in default.options.items() if key in method.all_options}
        dropped = [key for key in default.options if key not in options]
        chosen_way = default.backward if backward is not None and method.reads.takes_gradients else way
        choice = MethodChoice(method, chosen_way, options)
        without = f" It has no option {' or '.join(dropped)}." if dropped else ""
        remark = f"{default.method.name} does not apply here ({reason}): {choice.name} instead.{without}"
        yield replace(choice, remarks=(remark,))


def choose_method(
    name: str | None, backward: str | None = None, default: tuple[str, Backward] = DEFAULT_CHOICE
) -> tuple[Method, Backward]:
    """The method, and how its gradients are taken."""
    method = example_method_named(default[0] if name is None else name)
    if backward is None:
        return method, default[1] if name is None else method.backward
    check_choice("backward", backward, Backward)
    if backward != "gradient" and not method.reads.takes_gradients:
        raise WhyformerError(f"{method.name} reads no gradient: backward={backward!r} has nothing to do there.")
    return method, cast(Backward, backward)

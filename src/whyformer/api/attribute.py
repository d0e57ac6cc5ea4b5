"""Raw scores from tensors, and the choice of the default method."""

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
from whyformer.models.structure import config_of, fixed_modules, unwrapped
from whyformer.targets.scores import Target
from whyformer.tracing import build
from whyformer.tracing.attribution import Attribution
from whyformer.tracing.checks import NoMaps, check_is_module

# The default method, by a rule fixed before measuring (docs/results/default.md).
DEFAULT_CHOICE: tuple[str, Backward] = ("evidence", "attn_lrp")
DEFAULT_METHOD = DEFAULT_CHOICE[0]
# The default for responses, the best on sentences with known truth (docs/guides/responses.md).
RESPONSE_DEFAULT: tuple[str, Backward] = ("generic_attention", "gradient")
# The default for models that write about pictures, the best on words that describe known objects (docs/results).
PICTURED_DEFAULT: tuple[str, Backward] = ("generic_attention", "libra")
# Methods to use if the default does not apply to a model: the first of these that does. They are in the order of their
# mean rank there, each by its better backward pass. Those that only read inputs are for models without maps, which are
# models of texts, in the order of the figures on texts.
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
NO_EFFECT = "checkpoint=True has no effect: {} has no backward pass by blocks."
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class MethodChoice:
    """A method with its options and backward rules, and remarks on how it was chosen."""

    method: Method
    backward: Backward
    options: Mapping[str, Any]
    remarks: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Its name in a sentence."""
        return f"{self.method.name} by {self.backward}" if self.way else self.method.name

    @property
    def way(self) -> dict[str, Backward]:
        """The backward rules, if they are not the method's default."""
        return {} if self.backward == self.method.backward else {"backward": self.backward}

    @property
    def can_go_by_blocks(self) -> bool:
        """Whether its backward pass can run block by block, with or without noise on the inputs."""
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
    """Compute raw scores at every position of every stream, for a batch of tensors.

    Args:
        model: The model, in evaluation mode.
        inputs: Its inputs, tensors by name.
        target: A label's name or index, a sequence with one per example, "predicted", a contrast, a detection, or any
            function of the model's output that returns one number per example.
        method: The name of a method (`whyformer.METHODS`). By default evidence, or
            generic_attention by libra for models that write about pictures (docs/results/default.md). If that does not
            apply to the model, the best method that does, with a remark. A named method is that of its paper,
            usually with backward="gradient".
        readout: The read-out, if the model's family does not define it: "first", "mean", "first+mean", "last", a
            position (negative ones count from the last real token), or a weight per position.
        inputs_at_once: The most inputs that run at once in methods that repeat the batch; the batch itself is never
            split.
        backward: "gradient", "libra" for LibraGrad's rules, or "attn_lrp" for AttnLRP's, for any method that reads
            gradients.
        checkpoint: Whether to run the backward pass block by block, so that only one block's activations are in memory.
            By default only if a map is too large to keep, or all of them exceed the free GPU memory.
        **options: The options of the method. Methods that read gradients also take `noise` and `noise_samples`:
            SmoothGrad, the mean over Gaussian noise on the input, with its size as a share of the input's range.

    Returns:
        An Attribution: scores [example, token] by stream, with completeness and remarks if the method has any.

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
            f"inputs must be tensors by name, such as {{'pixel_values': …}}, not {with_article(type(inputs).__name__)}."
        )

    def run(choice: MethodChoice) -> Attribution:
        check_is_module(model)
        with fixed_modules(unwrapped(model)):
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
    *,
    of_response: bool = False,
) -> _Result:
    """Result of `run` for the named method, else for the default or, where that fails, the best method that applies."""
    chosen, way = choose_method(name, backward, default, of_response=of_response)
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
    name: str | None,
    backward: str | None = None,
    default: tuple[str, Backward] = DEFAULT_CHOICE,
    *,
    of_response: bool = False,
) -> tuple[Method, Backward]:
    """The method, and its backward rules."""
    method = (method_named if of_response else example_method_named)(default[0] if name is None else name)
    if backward is None:
        return method, default[1] if name is None else method.backward
    check_choice("backward", backward, Backward)
    if backward != "gradient" and not method.reads.takes_gradients:
        raise WhyformerError(f"{method.name} reads no gradients, so backward={backward!r} has no effect: leave it out.")
    return method, cast(Backward, backward)

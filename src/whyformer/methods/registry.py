"""The registry of methods: what each reads of a trace, its options, and how it is called."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import torch

from whyformer.axes import SourceScores, StreamScores, at_least_float32
from whyformer.backward.rules import Backward
from whyformer.errors import WhyformerError, check_choice, nearest, with_article
from whyformer.inputs.fills import Erasure, Fill
from whyformer.inputs.removable import UnitKind
from whyformer.models.bridges import AT_QUERIES
from whyformer.models.input_tensors import INPUT_STREAMS
from whyformer.models.mixers import convolution_in_blocks
from whyformer.removal.trace_inputs import trace_ablation
from whyformer.removal.units import Ablation, SubsetCount
from whyformer.tracing.attribution import Attribution, mean_attribution
from whyformer.tracing.question import Noise
from whyformer.tracing.reads import Kind, Reads
from whyformer.tracing.trace import Trace, on_inputs, trace_again, up_to_bridge

# For prompts with images, whether scores flow on through the image tower, or stop where image features enter the
# decoder and are distributed over the patches they are made of.
BridgeChoice = Literal["through", "stop"]
NOISE_SAMPLES = 16
# Options shared by all methods with gradients: SmoothGrad's (Smilkov et al. 2017). `noise` is the standard deviation as
# a share of the range of an example's values, `noise_samples` the number of draws.
NOISE_OPTIONS: dict[str, Any] = {"noise": float, "noise_samples": int}
ASKS_AGAIN = Reads(subsets=True, path=True)  # with noise, the unmodified inputs only give the answer
Formula = Callable[..., Any]  # returns StreamScores or an Attribution, or for an ablation a list of UnitScores


@dataclass(frozen=True)
class Method:
    """A named formula, and what it reads of a trace.

    Attributes:
        name: Its name in `explain(..., method=…)`, on the command line and in tables.
        formula: The function (trace, *, options) that returns scores by stream, or an Attribution.
        reads: The parts of a trace that it reads.
        reads_if: The parts it reads instead, by option and value.
        backward: Its default backward, that of its paper.
        kinds: What it explains: an "example", a "response", a "function" (`predict=`), or only an "image prompt".

    Example:
        >>> list(whyformer.METHODS["rollout"].options)
        ['first_block', 'normalise_rows', 'cross']
    """

    name: str
    formula: Formula
    reads: Reads
    reads_if: Mapping[tuple[str, Any], Reads] = field(default_factory=dict)
    backward: Backward = "gradient"
    kinds: tuple[Kind, ...] = ("example", "response")

    def reads_with(self, options: Mapping[str, Any]) -> Reads:
        """The parts of a trace that it reads with these options."""
        if options.get("noise") is not None:
            return ASKS_AGAIN
        chosen = [reads for (name, value), reads in self.reads_if.items() if options.get(name) == value]
        changes = [
            {name: value for name, value in vars(reads).items() if value != getattr(self.reads, name)}
            for reads in chosen
        ]
        return replace(self.reads, **{k: v for change in changes for k, v in change.items()}) if changes else self.reads

    def __call__(
        self,
        trace: Trace,
        *,
        bridge: BridgeChoice = "through",
        noise: float | None = None,
        noise_samples: int = NOISE_SAMPLES,
        **options: Any,
    ) -> Attribution:
        """Compute the scores of a trace, in float32 or wider, in any gradient mode.

        With noise, average the scores of noisy inputs, for the target resolved on the unmodified input.
        """
        if noise is not None:
            noisy = partial(trace_again, trace, self.reads_with(options))
            draws = trace.state.track(range(noise_samples))
            return mean_attribution([self(noisy(noise=Noise(noise, draw)), bridge=bridge, **options) for draw in draws])
        with torch.inference_mode(False):
            result = self._result(trace if bridge == "through" else up_to_bridge(trace), options)
        if not isinstance(result, Mapping):
            kind = "nothing" if result is None else with_article(type(result).__name__)
            raise WhyformerError(
                f"{self.name} returned {kind}: return scores by stream, {{trace.readout.stream: scores}}."
            )
        attribution = result if isinstance(result, Attribution) else Attribution(dict(result))
        self._check_scores(attribution, trace)
        is_on_inputs = self.reads.inputs != "none" or self.reads.subsets
        scores = attribution if is_on_inputs else on_inputs(trace, dict(attribution))
        scores = {stream: at_least_float32(values.detach()) for stream, values in scores.items()}
        remarks = (*attribution.remarks, *self._model_remarks(trace, scores))
        return replace(attribution, scores=scores, remarks=remarks)

    def _model_remarks(self, trace: Trace, scores: StreamScores) -> Iterator[str]:
        """Remarks on parts of the model that these scores do not cover."""
        if _ends_at_queries(trace, scores):
            yield AT_QUERIES
        of_states = self.reads.state_gradients and trace.question.is_words_alone  # which pass through everything
        reads_maps = self.reads.maps == "all" and not of_states
        convolution = convolution_in_blocks(trace.question.model) if reads_maps else None
        if convolution is not None:
            yield f"The blocks also mix neighbouring tokens by convolutions ({convolution}), which no map shows."

    def of_sources(self, ablation: Ablation, **options: Any) -> SourceScores:
        """Compute a score for each row of a response and each source, by removing sources."""
        scores: SourceScores = np.asarray(self.formula(ablation, **options))
        expected = (len(ablation.examples), ablation.examples[0].count)
        if scores.shape != expected:
            raise WhyformerError(
                f"{self.name} returned scores of shape {scores.shape}: one per row and source, {expected}."
            )
        return scores

    def _result(self, trace: Trace, options: Mapping[str, Any]) -> Any:
        """Evaluate the formula on a trace, or on the outputs for its inputs with units removed."""
        if not self.reads.subsets:
            return self.formula(trace, **options)
        shared = {name: value for name, value in options.items() if name in self.shared_options}
        own = {name: parameter.default for name, parameter in self.options.items()}
        own |= {name: value for name, value in options.items() if name not in shared}
        of_tokens, count = trace_ablation(trace, **shared), SubsetCount()
        ablation = count.counting(of_tokens.ablation)
        scores = self.formula(ablation, **own)
        return Attribution(of_tokens.on_tokens(ablation, scores), remarks=count.remarks(own))

    def _check_scores(self, attribution: Attribution, trace: Trace) -> None:
        lengths = {stream: mask.shape[1] for stream, mask in trace.masks.items()}
        for stream, values in attribution.items():
            if stream not in lengths and stream not in INPUT_STREAMS:
                raise WhyformerError(
                    f"{self.name} returned scores of {stream!r}, which is not a stream of this model. "
                    f"{nearest(stream, list(lengths))}"
                )
            expected = (trace.question.batch, lengths.get(stream, values.shape[-1] if values.dim() else 0))
            if tuple(values.shape) != expected:
                raise WhyformerError(
                    f"{self.name} returned scores of shape {tuple(values.shape)} for the stream {stream!r}: one per "
                    f"example and token, {expected}."
                )

    @property
    def options(self) -> Mapping[str, inspect.Parameter]:
        """The keyword options of the formula."""
        return {
            name: parameter
            for name, parameter in inspect.signature(self.formula).parameters.items()
            if parameter.kind == parameter.KEYWORD_ONLY
        }

    @property
    def shared_options(self) -> Mapping[str, Any]:
        """Options shared by all methods that follow tokens through the blocks, take gradients, or remove units."""
        if self.kinds == ("response",):
            return {}
        if self.reads.subsets:
            return {"units": UnitKind, "fill": Fill, "erasure": Erasure}
        follows = self.reads.maps == "all" or self.reads.state_gradients
        return ({"bridge": BridgeChoice} if follows else {}) | (NOISE_OPTIONS if self.reads.takes_gradients else {})

    @property
    def all_options(self) -> frozenset[str]:
        """The names of all its options."""
        return frozenset({*self.options, *self.shared_options})

    @property
    def summary(self) -> str:
        """The first line of its description."""
        return (inspect.getdoc(self.formula) or "").partition("\n")[0]


METHODS: dict[str, Method] = {}


def methods_of(kind: Kind) -> dict[str, Method]:
    """The methods that explain this kind."""
    return {name: method for name, method in METHODS.items() if kind in method.kinds}


def removal_methods() -> dict[str, Method]:
    """The methods that remove units, which work with any function."""
    return methods_of("function")


def source_methods() -> dict[str, Method]:
    """The methods for responses only: they remove sources, or have learned from removing them."""
    return {name: method for name, method in METHODS.items() if method.kinds == ("response",)}


def trace_methods() -> dict[str, Method]:
    """The methods that read a trace of any model; the others remove parts, or need prompts with images."""
    return {name: method for name, method in methods_of("example").items() if not method.reads.subsets}


def _ends_at_queries(trace: Trace, scores: StreamScores) -> bool:
    """Whether scores of a picture stop at the queries of a Q-Former."""
    bridge = trace.question.bridge
    return bridge is not None and bridge.is_queried and not ("image" in scores and bool(scores["image"].any()))


def method(
    name: str,
    *,
    reads: Reads,
    reads_if: Mapping[tuple[str, Any], Reads] | None = None,
    replace: bool = False,
    backward: Backward = "gradient",
    kinds: tuple[Kind, ...] | None = None,
) -> Callable[[Formula], Formula]:
    """Register a function (trace, *, options) as a method.

    The function returns a score per token for each stream, {stream: [example, token]}, or an Attribution with further
    information. With reads=Reads(subsets=True) it takes an Ablation instead, the model's score as a function of the
    kept units, and returns an array of unit scores for each example. The method is then available in `explain`, on the
    command line and in evaluations.

    Args:
        name: The name of the method.
        reads: The parts of the trace that it reads; only these are computed.
        reads_if: The parts it reads instead, by option and value: {(option, value): Reads(…)}.
        replace: Replace an existing method of this name.
        backward: The default backward: "gradient", "libra" or "attn_lrp".
        kinds: What it explains: "example", "response", "function" (`predict=`), "image prompt"; by default examples
            and responses, and functions if it reads subsets.

    Returns:
        A decorator that returns the function unchanged.

    Raises:
        WhyformerError: If the name is taken, or `reads` is not a `Reads`.

    Example:
        >>> from whyformer.extend import Reads, head_mean, method
        >>> @method("last_row", reads=Reads(maps="last"))
        ... def last_row(trace):
        ...     row = trace.readout.weights[:, None, :] @ head_mean(trace.last.map)
        ...     return {trace.last.key_stream: row[:, 0]}
        >>> whyformer.explain("A wonderful film.", model="mini-bert", method="last_row").method
        'last_row'
        >>> del whyformer.METHODS["last_row"]
    """
    if not isinstance(name, str) or not name.isidentifier():
        raise WhyformerError(f"A method's name must be a Python identifier, not {name!r}.")
    for value in (reads, *(reads_if or {}).values()):
        if not isinstance(value, Reads):
            raise WhyformerError(f'{name}: reads={value!r} is not a Reads, such as whyformer.extend.Reads(maps="all").')
    check_choice(f"{name}: backward", backward, Backward)
    for kind in kinds or ():
        check_choice(f"{name}: kinds", kind, Kind)
    if name in METHODS and not replace:
        raise WhyformerError(f"There is a method named {name!r} already: choose another name, or pass replace=True.")

    def register(function: Formula) -> Formula:
        METHODS[name] = Method(name, function, reads, reads_if or {}, backward, kinds or reads.kinds)
        return function

    return register


def method_named(name: str) -> Method:
    """The method registered under a name."""
    if not isinstance(name, str):
        raise WhyformerError(f"A method is given by name, not as {name!r:.40}. Known: {', '.join(sorted(METHODS))}.")
    if name not in METHODS:
        raise WhyformerError(f"No method named {name!r}. {nearest(name, sorted(METHODS))}")
    return METHODS[name]


def example_method_named(name: str) -> Method:
    """The method registered under a name, which must explain examples."""
    method = method_named(name)
    if name in source_methods():
        raise WhyformerError(f"{name} explains responses only: use explain_response.")
    return method

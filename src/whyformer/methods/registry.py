"""The methods by name: what each reads of a trace, which options it takes, and how it is called."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from typing import Any, Literal

import numpy as np
import torch

from whyformer.axes import (
    SourceMasks,
    SourceScores,
    StreamScores,
    SubsetExampleScores,
    SubsetScores,
    UnitMasks,
    at_least_float32,
)
from whyformer.errors import WhyformerError, check_choice, nearest, with_article
from whyformer.inputs.fills import Erasure, Fill
from whyformer.inputs.units import Ablation, SubsetCount, Units
from whyformer.models.bridges import AT_QUERIES
from whyformer.models.modalities import INPUT_STREAMS
from whyformer.models.structure import convolution_in_blocks
from whyformer.propagation.mode import Backward
from whyformer.tracing.ablation import UnitKind, ablation_of
from whyformer.tracing.attribution import Attribution, mean_of
from whyformer.tracing.noise import Noise
from whyformer.tracing.reads import OF_SOURCES, Reads
from whyformer.tracing.trace import Trace

# On models with pictures among their words, whether scores go on into the image tower, or stop where features of
# pictures enter the decoder and are shared out to the patches that they are made of.
Bridge = Literal["through", "stop"]
NOISE_SAMPLES = 16
# The options that every method which takes gradients has beside its own: SmoothGrad's (Smilkov et al. 2017). `noise` is
# the standard deviation as a share of the range of an example's values, `noise_samples` how often it is drawn.
NOISE_OPTIONS: dict[str, Any] = {"noise": float, "noise_samples": int}
ASKS_AGAIN = Reads(subsets=True, path=True)  # what noise has read of the inputs as they are: the answer alone
Formula = Callable[..., Any]  # gives StreamScores or an Attribution; of an ablation, a list of UnitScores


@dataclass(frozen=True)
class SourceAblation:
    """A model's response as a function of which sources its prompt keeps.

    Attributes:
        sources: How many sources there are.
        tokens: How many tokens each row of the response has.
        log_probabilities: What gives each row's log-probability [subset, row] for subsets of the sources, True where a
            source is kept.
    """

    sources: int
    tokens: tuple[int, ...]
    log_probabilities: Callable[[SourceMasks], SubsetScores]

    @property
    def by_rows(self) -> Ablation:
        """The same as methods that remove units take it: rows are examples, whose units are the sources."""
        units = Units(np.arange(self.sources), ((self.sources,),))

        def ask(_: Sequence[Units], masks: Sequence[UnitMasks]) -> SubsetExampleScores:
            # Rows have the same units, hence the same subsets, and one prompt answers for all of them.
            return np.asarray(self.log_probabilities(masks[0] > 0), dtype=np.float64)

        (whole,) = self.log_probabilities(np.ones((1, self.sources), dtype=bool))
        return Ablation((units,) * len(self.tokens), np.asarray(whole, dtype=np.float64), ask)


@dataclass(frozen=True)
class Method:
    """A named formula, and what it reads of a trace.

    Attributes:
        name: What it is called in `explain(..., method=…)`, on the command line and in tables.
        formula: The function (trace, *, options) that gives scores by stream, or an Attribution.
        reads: What it reads of a trace.
        reads_if: What it reads instead if an option has some value.
        backward: How its gradients are taken unless that is said: as its paper takes them.

    Example:
        >>> list(whyformer.METHODS["rollout"].options)
        ['first_block', 'normalise_rows', 'cross']
    """

    name: str
    formula: Formula
    reads: Reads
    reads_if: Mapping[tuple[str, Any], Reads] = field(default_factory=dict)
    backward: Backward = "gradient"

    def reads_with(self, options: Mapping[str, Any]) -> Reads:
        """What it reads of a trace when it is given these options."""
        if options.get("noise") is not None:
            return ASKS_AGAIN
        chosen = [reads for (name, value), reads in self.reads_if.items() if options.get(name) == value]
        changes = [
            {name: value for name, value in vars(reads).items() if value != getattr(self.reads, name)}
            for reads in chosen
        ]
        return replace(self.reads, **{name: value for change in changes for name, value in change.items()})

    def __call__(
        self,
        trace: Trace,
        *,
        bridge: Bridge = "through",
        noise: float | None = None,
        noise_samples: int = NOISE_SAMPLES,
        **options: Any,
    ) -> Attribution:
        """The scores of a trace, in float32 at least; whatever gradient mode the caller is in.

        With noise the mean of those of inputs with noise on them, about what was asked of the input as it is.
        """
        if noise is not None:
            noisy = partial(trace.once_more, self.reads_with(options))
            draws = trace.track(range(noise_samples))
            return mean_of([self(noisy(noise=Noise(noise, draw)), bridge=bridge, **options) for draw in draws])
        with torch.inference_mode(False):
            result = self._result(trace if bridge == "through" else trace.up_to_bridge, options)
        if not isinstance(result, Mapping):
            kind = "nothing" if result is None else with_article(type(result).__name__)
            raise WhyformerError(f"{self.name} gave {kind}: return scores by stream, {{trace.readout.stream: scores}}.")
        attribution = result if isinstance(result, Attribution) else Attribution(dict(result))
        self._check_scores(attribution, trace)
        is_on_inputs = self.reads.inputs != "none" or self.reads.subsets
        scores = attribution if is_on_inputs else trace.on_inputs(dict(attribution))
        scores = {stream: at_least_float32(values.detach()) for stream, values in scores.items()}
        remarks = (*attribution.remarks, *self._model_remarks(trace, scores))
        return replace(attribution, scores=scores, remarks=remarks)

    def _model_remarks(self, trace: Trace, scores: StreamScores) -> Iterator[str]:
        """What the model does that these scores do not show."""
        if _ends_at_queries(trace, scores):
            yield AT_QUERIES
        convolution = convolution_in_blocks(trace.question.model) if self.reads.maps == "all" else None
        if convolution is not None:
            yield f"The blocks also mix neighbouring tokens by convolutions ({convolution}), which no map shows."

    def _result(self, trace: Trace, options: Mapping[str, Any]) -> Any:
        """What the formula gives of a trace, or of the answers to its inputs without some of their units."""
        if not self.reads.subsets:
            return self.formula(trace, **options)
        shared = {name: value for name, value in options.items() if name in self.shared_options}
        own = {name: parameter.default for name, parameter in self.options.items()}
        own |= {name: value for name, value in options.items() if name not in shared}
        of_tokens, count = ablation_of(trace, **shared), SubsetCount()
        ablation = count.counting(of_tokens.ablation)
        scores = self.formula(ablation, **own)
        return Attribution(of_tokens.on_tokens(ablation, scores), remarks=count.remarks(own))

    def _check_scores(self, attribution: Attribution, trace: Trace) -> None:
        lengths = {stream: mask.shape[1] for stream, mask in trace.masks.items()}
        for stream, values in attribution.items():
            if stream not in lengths and stream not in INPUT_STREAMS:
                raise WhyformerError(
                    f"{self.name} gave scores of {stream!r}, which is no stream of this model. "
                    f"{nearest(stream, list(lengths))}"
                )
            expected = (trace.question.batch, lengths.get(stream, values.shape[-1] if values.dim() else 0))
            if tuple(values.shape) != expected:
                raise WhyformerError(
                    f"{self.name} gave scores of shape {tuple(values.shape)} for the stream {stream!r}: one per "
                    f"example and token, {expected}."
                )

    @property
    def options(self) -> Mapping[str, inspect.Parameter]:
        """The keyword options the formula takes."""
        return _options_of(self.formula)

    @property
    def shared_options(self) -> Mapping[str, Any]:
        """What all methods take that follow tokens from block to block, take gradients, or remove units."""
        if self.reads.subsets:
            return {"units": UnitKind, "fill": Fill, "erasure": Erasure}
        follows = self.reads.maps == "all" or self.reads.state_gradients
        return ({"bridge": Bridge} if follows else {}) | (NOISE_OPTIONS if self.reads.takes_gradients else {})

    @property
    def all_options(self) -> frozenset[str]:
        """The names of the options it takes, shared or its own."""
        return frozenset({*self.options, *self.shared_options})

    @property
    def summary(self) -> str:
        """The first line of its description."""
        return _summary_of(self.formula)


@dataclass(frozen=True)
class SourceMethod:
    """A named formula over an ablation: what a model says when parts of its prompt, the sources, are left out."""

    name: str
    formula: Callable[..., SourceScores]
    reads: str = OF_SOURCES

    def __call__(self, ablation: SourceAblation, **options: Any) -> SourceScores:
        """A score for each row and source."""
        scores = self.formula(ablation, **options)
        expected = (len(ablation.tokens), ablation.sources)
        if scores.shape != expected:
            raise WhyformerError(
                f"{self.name} gave scores of shape {scores.shape}: one per row and source, {expected}."
            )
        return scores

    @property
    def options(self) -> Mapping[str, inspect.Parameter]:
        """The keyword options the formula takes."""
        return _options_of(self.formula)

    @property
    def summary(self) -> str:
        """The first line of its description."""
        return _summary_of(self.formula)


METHODS: dict[str, Method] = {}
SOURCE_METHODS: dict[str, SourceMethod] = {}
ABLATION_METHODS: dict[str, Method] = {}  # that cost as many forward passes as there are units, or as they are allowed
PICTURE_METHODS: dict[str, Method] = {}  # of models with pictures among their words alone


def _ends_at_queries(trace: Trace, scores: StreamScores) -> bool:
    """Whether scores of a picture get no further than the queries of a Q-Former."""
    bridge = trace.question.bridge
    return bridge is not None and bridge.is_queried and not ("image" in scores and bool(scores["image"].any()))


def _options_of(formula: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    parameters = inspect.signature(formula).parameters
    return {name: parameter for name, parameter in parameters.items() if parameter.kind == parameter.KEYWORD_ONLY}


def _summary_of(formula: Callable[..., Any]) -> str:
    return (inspect.getdoc(formula) or "").partition("\n")[0]


def method(
    name: str,
    *,
    reads: Reads,
    reads_if: Mapping[tuple[str, Any], Reads] | None = None,
    replace: bool = False,
    backward: Backward = "gradient",
) -> Callable[[Formula], Formula]:
    """Register a function (trace, *, options) as a method.

    The function gives a score per token for each stream, {stream: [example, token]}, or an Attribution where it has
    more to tell. It is then a method like any other: in `explain`, on the command line, in evaluations.

    Args:
        name: The name of the method.
        reads: What it reads of the trace; only that is computed.
        reads_if: What it reads instead if an option has some value: {(option, value): Reads(…)}.
        replace: Take the place of a method that has this name already.
        backward: How its gradients are taken unless the caller says: "gradient", "libra" or "attn_lrp".

    Returns:
        A decorator that gives the function back as it is.

    Raises:
        WhyformerError: If the name is taken, or `reads` is no `Reads`.

    Example:
        >>> @whyformer.method("last_row", reads=whyformer.Reads(maps="last"))
        ... def last_row(trace):
        ...     row = trace.readout.weights[:, None, :] @ whyformer.head_mean(trace.last.map)
        ...     return {trace.last.key_stream: row[:, 0]}
        >>> whyformer.explain("A wonderful film.", model="mini-bert", method="last_row").method
        'last_row'
        >>> del whyformer.METHODS["last_row"]
    """
    if not isinstance(name, str) or not name.isidentifier():
        raise WhyformerError(f"A method's name is a Python identifier, not {name!r}.")
    for value in (reads, *(reads_if or {}).values()):
        if not isinstance(value, Reads):
            raise WhyformerError(f'{name}: reads={value!r} is no Reads, such as whyformer.Reads(maps="all").')
    check_choice(f"{name}: backward", backward, Backward)
    if name in METHODS and not replace:
        raise WhyformerError(f"There is a method named {name!r} already: choose another name, or say replace=True.")

    def register(function: Formula) -> Formula:
        METHODS[name] = Method(name, function, reads, reads_if or {}, backward)
        return function

    return register


def source_method(name: str) -> Callable[[Callable[..., SourceScores]], Callable[..., SourceScores]]:
    """Register a function (ablation, *, options) that gives an array [row, source] as a method of responses."""

    def register(function: Callable[..., SourceScores]) -> Callable[..., SourceScores]:
        SOURCE_METHODS[name] = SourceMethod(name, function)
        return function

    return register


def ablation_method(name: str) -> Callable[[Formula], Formula]:
    """Register a function (ablation, *, options) that gives a score for each unit of each example.

    It is a method like any other, but for lists of all methods: it asks the model hundreds of times.
    """

    def register(function: Formula) -> Formula:
        ABLATION_METHODS[name] = Method(name, function, Reads(subsets=True))
        return function

    return register


def source_method_named(name: str | None) -> SourceMethod | None:
    """The method of sources under a name, if there is one; those that remove units take the sources for units."""
    removal = ABLATION_METHODS.get(name or "")
    if removal is None:
        return SOURCE_METHODS.get(name or "")

    @wraps(removal.formula)
    def formula(ablation: SourceAblation, **options: Any) -> SourceScores:
        return np.stack(removal.formula(ablation.by_rows, **options))

    return SourceMethod(removal.name, formula)


def picture_method(name: str, *, reads: Reads) -> Callable[[Formula], Formula]:
    """Register a function (trace, *, options) as a method of models with pictures among their words, and no others."""

    def register(function: Formula) -> Formula:
        PICTURE_METHODS[name] = Method(name, function, reads)
        return function

    return register


def method_named(name: str) -> Method:
    """The method registered under a name."""
    if not isinstance(name, str):
        raise WhyformerError(
            f"A method is given by its name, not as {name!r:.40}. Known: {', '.join(sorted(METHODS))}."
        )
    if name in SOURCE_METHODS:
        raise WhyformerError(f"{name} asks a model what it would respond to less of a prompt: use explain_response.")
    methods = METHODS | ABLATION_METHODS | PICTURE_METHODS
    if name not in methods:
        raise WhyformerError(f"No method named {name!r}. {nearest(name, sorted(METHODS | ABLATION_METHODS))}")
    return methods[name]

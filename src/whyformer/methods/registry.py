"""The methods by name: what each reads of a trace, which options it takes, and how it is called."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args, get_origin, get_type_hints

import torch
from torch import Tensor

from whyformer.axes import SourceMasks, SourceScores, SubsetScores, at_least_float32
from whyformer.errors import WhyformerError, check_choice, nearest, with_article
from whyformer.inputs.fills import Erasure, Fill
from whyformer.models.modalities import INPUT_STREAMS
from whyformer.propagation.mode import Backward
from whyformer.tracing.ablation import UnitKind, ablation_of
from whyformer.tracing.attribution import Attribution
from whyformer.tracing.reads import OF_SOURCES, Reads
from whyformer.tracing.trace import Trace

# On models with pictures among their words, whether scores go on into the image tower, or stop where features of
# pictures enter the decoder and are shared out to the patches that they are made of.
Bridge = Literal["through", "stop"]
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
        return next((reads for (name, value), reads in self.reads_if.items() if options.get(name) == value), self.reads)

    def __call__(self, trace: Trace, *, bridge: Bridge = "through", **options: Any) -> Attribution:
        """The scores of a trace, in float32 at least; whatever gradient mode the caller is in."""
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
        return Attribution(scores, attribution.completeness, attribution.remarks)

    def _result(self, trace: Trace, options: Mapping[str, Any]) -> Any:
        """What the formula gives of a trace, or of the answers to its inputs without some of their units."""
        if not self.reads.subsets:
            return self.formula(trace, **options)
        shared = {name: value for name, value in options.items() if name in self.shared_options}
        of_tokens = ablation_of(trace, **shared)
        ablation = of_tokens.ablation
        scores = self.formula(ablation, **{name: value for name, value in options.items() if name not in shared})
        return of_tokens.on_tokens(ablation, scores)

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
        """What all methods take that follow tokens from block to block, or that remove units, and which values."""
        if self.reads.subsets:
            return {"units": UnitKind, "fill": Fill, "erasure": Erasure}
        return {"bridge": Bridge} if self.reads.maps == "all" or self.reads.state_gradients else {}

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
    known = METHODS | ABLATION_METHODS | PICTURE_METHODS
    if name not in known:
        raise WhyformerError(f"No method named {name!r}. {nearest(name, sorted(METHODS | ABLATION_METHODS))}")
    return known[name]


def check_options(method: Method | SourceMethod, options: Mapping[str, Any]) -> None:
    """Refuse options the method does not take, and values an option does not take."""
    shared = method.shared_options if isinstance(method, Method) else {}
    for name in (name for name in shared.keys() & options.keys() if isinstance(options[name], str)):
        check_choice(f"{method.name}: {name}", options[name], shared[name])
    options = {name: value for name, value in options.items() if name not in shared}
    unknown = [name for name in options if name not in method.options]
    if unknown:
        known = ", ".join(f"{name}={parameter.default!r}" for name, parameter in method.options.items())
        raise WhyformerError(f"{method.name} has no option {unknown[0]!r}. It takes: {known or 'none'}.")
    hints = get_type_hints(method.formula)
    for name, value in options.items():
        if name in hints:  # an option without an annotation takes anything
            _check_value(method, name, value, _members(hints[name]))


def _check_value(method: Method | SourceMethod, name: str, value: Any, kinds: tuple[Any, ...]) -> None:
    choices = [choice for kind in kinds if get_origin(kind) is Literal for choice in get_args(kind)]
    if isinstance(value, str) and choices and value not in choices:
        raise WhyformerError(f"{method.name}: {name}={value!r}. Choose from: {', '.join(map(str, choices))}.")
    is_default = value is method.options[name].default
    if Tensor in kinds and not isinstance(value, (str, Tensor)) and not is_default:
        raise WhyformerError(f"{method.name}: {name}={value!r:.40}. Choose from: {', '.join(choices)}, or a tensor.")
    plain = next((kind for kind in (bool, int, float) if kind in kinds), None)
    if plain is float and type(value) is int:
        return
    if plain and type(value) is not plain and not (value is None and type(None) in kinds):
        raise WhyformerError(f"{method.name}: {name}={value!r} is no {plain.__name__}.")


def _members(hint: Any) -> tuple[Any, ...]:
    return (hint,) if get_origin(hint) is Literal else get_args(hint) or (hint,)

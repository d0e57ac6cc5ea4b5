"""The methods: each a formula over a trace, registered by its name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args, get_origin, get_type_hints

from torch import Tensor

from whyformer.axes import StreamScores
from whyformer.errors import WhyformerError, nearest
from whyformer.tracing.trace import Reads


@dataclass(frozen=True)
class Method:
    """A named formula, and what it reads of a trace."""

    name: str
    scores: Callable[..., StreamScores]
    reads: Reads
    reads_if: Mapping[tuple[str, Any], Reads] = field(default_factory=dict)

    def reading(self, options: Mapping[str, Any]) -> Reads:
        """What it reads of a trace when it is given these options."""
        return next((reads for (name, value), reads in self.reads_if.items() if options.get(name) == value), self.reads)

    @property
    def options(self) -> Mapping[str, inspect.Parameter]:
        """The keyword options the formula takes."""
        parameters = inspect.signature(self.scores).parameters
        return {name: parameter for name, parameter in parameters.items() if parameter.kind == parameter.KEYWORD_ONLY}

    @property
    def summary(self) -> str:
        """The first line of its description."""
        return (inspect.getdoc(self.scores) or "").partition("\n")[0]


METHODS: dict[str, Method] = {}


def method(
    name: str, *, reads: Reads, reads_if: Mapping[tuple[str, Any], Reads] | None = None
) -> Callable[[Callable[..., StreamScores]], Callable[..., StreamScores]]:
    """Register a function (trace, *, options) -> scores per stream under a name, and what it reads of the trace.

    `reads_if` names what it reads instead if an option has some value.
    """

    def register(function: Callable[..., StreamScores]) -> Callable[..., StreamScores]:
        METHODS[name] = Method(name, function, reads, reads_if or {})
        return function

    return register


def method_named(name: str) -> Method:
    """The method registered under a name."""
    if name not in METHODS:
        raise WhyformerError(f"No method named {name!r}. {nearest(name, sorted(METHODS))}")
    return METHODS[name]


def check_options(method: Method, options: Mapping[str, Any]) -> None:
    """Refuse options the method does not take, and values an option does not take."""
    unknown = [name for name in options if name not in method.options]
    if unknown:
        known = ", ".join(f"{name}={parameter.default!r}" for name, parameter in method.options.items())
        raise WhyformerError(f"{method.name} has no option {unknown[0]!r}. It takes: {known or 'none'}.")
    hints = get_type_hints(method.scores)
    for name, value in options.items():
        choices = [c for part in _members(hints[name]) if get_origin(part) is Literal for c in get_args(part)]
        if isinstance(value, str) and choices and value not in choices:
            raise WhyformerError(f"{method.name}: {name}={value!r}. Choose from: {', '.join(map(str, choices))}.")
        if (
            Tensor in _members(hints[name])
            and not isinstance(value, (str, Tensor))
            and value is not method.options[name].default
        ):
            raise WhyformerError(
                f"{method.name}: {name}={value!r:.40}. Choose from: {', '.join(choices)}, or a tensor."
            )
        plain = next((kind for kind in (bool, int) if kind in _members(hints[name])), None)
        if plain and type(value) is not plain and not (value is None and type(None) in _members(hints[name])):
            raise WhyformerError(f"{method.name}: {name}={value!r} is no {plain.__name__}.")


def _members(hint: Any) -> tuple[Any, ...]:
    return (hint,) if get_origin(hint) is Literal else get_args(hint) or (hint,)

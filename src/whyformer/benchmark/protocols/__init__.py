"""Protocols: functions over a shard of samples, registered by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Literal

import numpy as np
from torch import Tensor

from whyformer.benchmark.shard import Shard
from whyformer.errors import WhyformerError, nearest
from whyformer.metrics.statistics import RESAMPLES

Better = Literal["higher", "lower", "neither"]


@dataclass(frozen=True, eq=False)
class Line:
    """A curve per sample: heights [sample, point], and the positions of the points."""

    at: tuple[float, ...]
    values: Tensor


# The results of a protocol, by method and measure: a value, several, a curve or a text per sample.
Column = Tensor | Line | list[str]
Columns = dict[tuple[str, str], Column]


@dataclass(frozen=True)
class Figure:
    """A figure of a table: its measure, how samples are aggregated, and which direction is better.

    `most` is the maximum of a share under given options of the protocol, if not 1, as for areas under curves over part
    of the range. `of_texts` is for measures that are texts: given those of all samples, by one or several methods, it
    returns a function of the samples' counts, [… sample].

    Example:
        >>> whyformer.extend.Figure("area", better="lower").measure
        'area'
    """

    measure: str
    of: Callable[[Any], float] = np.mean
    better: Better = "higher"
    is_share: bool = True  # shown in percent
    of_texts: Callable[..., Callable[..., Any]] | None = None
    resamples: int = RESAMPLES
    most: Callable[[Mapping[str, Any]], float] | None = None


@dataclass(frozen=True)
class Protocol:
    """A function (shard, *, options) -> columns of values, and the figures computed from them."""

    name: str
    measure: Callable[..., Columns]
    figures: Mapping[str, Figure]

    @property
    def summary(self) -> str:
        """The first line of its description."""
        return (self.measure.__doc__ or "").partition("\n")[0]


PROTOCOLS: dict[str, Protocol] = {}
Measure = Callable[..., Columns]


def protocol(name: str, figures: Mapping[str, Figure], *, replace: bool = False) -> Callable[[Measure], Measure]:
    """Register a protocol under a name, for suites and `evaluate`.

    Args:
        name: Its name in suites.
        figures: The figures of its table, by title, each for a measure that the function returns.
        replace: Whether it may replace a protocol of the same name.

    Returns:
        A decorator for a function (shard, *, options) that returns, by method and measure, a tensor with one or more
        values per sample, a `Line` or a list of texts. The first line of its docstring is shown in reports.

    Raises:
        WhyformerError: If there is a protocol of that name already.

    Example:
        >>> from whyformer.extend import Figure, explained_labels, explanations, protocol
        >>> @protocol("spread", {"patches above the mean": Figure("share", better="neither")}, replace=True)
        ... def spread(shard):
        ...     "How much of the picture a map calls relevant."
        ...     maps = explanations(shard, explained_labels(shard, "predicted"), "image")
        ...     above = {name: m > m.mean(dim=(1, 2), keepdim=True) for name, m in maps.items()}
        ...     return {(name, "share"): m.float().mean(dim=(1, 2)) for name, m in above.items()}
    """

    def register(function: Measure) -> Measure:
        if name in PROTOCOLS and not replace:
            raise WhyformerError(f"There is a protocol named {name!r} already: choose another name, or replace=True.")
        PROTOCOLS[name] = Protocol(name, function, figures)
        return function

    return register


def protocol_named(name: str) -> Protocol:
    """The protocol registered under a name."""
    if name not in PROTOCOLS:
        raise WhyformerError(f"No protocol named {name!r}. {nearest(name, sorted(PROTOCOLS))}")
    return PROTOCOLS[name]


def require(condition: bool, shard: Shard, name: str, needs: str) -> None:
    """Raise unless the model and the data meet a protocol's requirement."""
    if not condition:
        raise WhyformerError(f"{name} needs {needs}, which {shard.loaded_model.name} on this data lacks.")


for _module in iter_modules(__path__):  # they register themselves
    import_module(f"{__name__}.{_module.name}")

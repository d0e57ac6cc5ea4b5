"""The protocols as a suite names them: each a function over a shard of samples, registered by its name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from torch import Tensor

from whyformer.benchmark.shard import Shard
from whyformer.errors import WhyformerError, nearest
from whyformer.metrics.statistics import RESAMPLES

Better = Literal["higher", "lower", "neither"]


@dataclass(frozen=True, eq=False)
class Line:
    """A curve for each sample: its heights [sample, point], and where the points are."""

    at: tuple[float, ...]
    values: Tensor


# What a protocol measures, by method and measure: a value, several, a curve or a text for each sample.
Column = Tensor | Line | list[str]
Columns = dict[tuple[str, str], Column]


@dataclass(frozen=True)
class Figure:
    """A figure of a table: of which measure, what it makes of all samples' values, and which way is better.

    `most` says how large a share can be with some options of the protocol, where that is not 1, as for areas under
    curves that do not reach over the whole range. `of_texts` is for measures that are texts: of all samples', by one
    method or by several mixed, it makes a function of how often each counts, [… sample].

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
    """A function (shard, *, options) -> columns of values, and the figures that are made of them."""

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
        name: What suites call it.
        figures: The figures of its table, by their titles: each of a measure that the function gives.
        replace: Whether it may take the place of a protocol of the same name.

    Returns:
        The decorator of a function (shard, *, options) that gives, for a method and a measure, a tensor with one or
        more values for each sample, a `Line` or a list of texts. Its first line of description is shown in reports.

    Raises:
        WhyformerError: If there is a protocol of that name already.

    Example:
        >>> from whyformer.extend import Figure, explained_labels, explanations, protocol
        >>> @protocol("spread", {"patches above the mean": Figure("share", better="neither")}, replace=True)
        ... def spread(shard):
        ...     "How much of the picture a map calls relevant."
        ...     maps = explanations(shard, explained_labels(shard, "predicted"), "image")
        ...     return {(name, "share"): (m > m.mean()).float().mean(dim=(1, 2)) for name, m in maps.items()}
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
    """Refuse a protocol that the model or the data is not made for."""
    if not condition:
        raise WhyformerError(f"{name} needs {needs}, which {shard.loaded_model.name} on this data lacks.")


from whyformer.benchmark.protocols import (  # noqa: E402  (they register themselves)
    controls,  # noqa: F401
    deletion,  # noqa: F401
    grid,  # noqa: F401
    localisation,  # noqa: F401
    objects,  # noqa: F401
    perturbation,  # noqa: F401
    rationales,  # noqa: F401
    source_attribution,  # noqa: F401
    word_localisation,  # noqa: F401
)

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


# What a protocol found: for a method and a measure a value, several or a curve for each sample, or a text.
Column = Tensor | Line | list[str]
Found = dict[tuple[str, str], Column]


@dataclass(frozen=True)
class Figure:
    """A figure of a table: of which measure, what it makes of all samples' values, and which way is better.

    `of_texts` is for measures that are texts: of all samples', by one method or by several mixed, it makes a function
    of how often each counts, [… sample].
    """

    measure: str
    of: Callable[[Any], float] = np.mean
    better: Better = "higher"
    is_share: bool = True  # shown in percent
    of_texts: Callable[..., Callable[..., Any]] | None = None
    resamples: int = RESAMPLES


@dataclass(frozen=True)
class Protocol:
    """A function (shard, *, options) -> what it found, and the figures that are made of it."""

    name: str
    found: Callable[..., Found]
    figures: Mapping[str, Figure]

    @property
    def summary(self) -> str:
        return (self.found.__doc__ or "").partition("\n")[0]


PROTOCOLS: dict[str, Protocol] = {}
Registered = Callable[..., Found]


def protocol(name: str, figures: Mapping[str, Figure]) -> Callable[[Registered], Registered]:
    """Register a function (shard, *, options) -> found under a name, with the figures its tables have."""

    def register(function: Registered) -> Registered:
        PROTOCOLS[name] = Protocol(name, function, figures)
        return function

    return register


def protocol_named(name: str) -> Protocol:
    """The protocol registered under a name."""
    if name not in PROTOCOLS:
        raise WhyformerError(f"No protocol named {name!r}. {nearest(name, sorted(PROTOCOLS))}")
    return PROTOCOLS[name]


def checked(condition: bool, shard: Shard, name: str, needs: str) -> None:
    """Refuse a protocol that the model or the data is not made for."""
    if not condition:
        raise WhyformerError(f"{name} needs {needs}, which {shard.loaded_model.name} on this data has not.")


from whyformer.benchmark.protocols import (  # noqa: E402  (they register themselves)
    controls,  # noqa: F401
    localisation,  # noqa: F401
    objects,  # noqa: F401
    perturbation,  # noqa: F401
    rationales,  # noqa: F401
)

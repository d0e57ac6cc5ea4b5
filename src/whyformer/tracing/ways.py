"""How something is taken back through a model, as a gradient or by rules, and what the maps then have of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from torch import Tensor

from whyformer.axes import by_head
from whyformer.propagation.mode import Backward
from whyformer.propagation.rules import BACKWARD_RULES, MAP_SHARES, Rule, map_quotient
from whyformer.tracing.mixing import KeptMap, MixedGradient, Mixing
from whyformer.tracing.tap import Tap


@dataclass(frozen=True)
class WayBack:
    """How something is taken back: by rules, or as a gradient where there are none."""

    rules: Mapping[str, Rule] | None = None
    precise: bool = False
    strict: bool = False
    map_share: float = 1.0  # of the gradient of what a map has mixed
    is_gradient: bool = False  # by rules: relevance is that times the value there

    @property
    def can_fold(self) -> bool:
        """Whether attention can be one operation on the way: as a gradient, or by a rule for it as a whole."""
        return self.rules is None or "attention" in self.rules

    def relevance(self, part: Tensor, value: Tensor) -> Tensor:
        """The relevance of a value, of what has come back to it."""
        return part * value if self.is_gradient else part

    def worth(self, part: Tensor, mixed: Tensor) -> Tensor:
        """What each unit of the values that a map mixed is worth, of what has come back to them."""
        assert self.rules is not None
        return part if self.is_gradient else map_quotient(self.rules)(part, mixed)


def way_back(backward: Backward, *, precise: bool = False) -> WayBack:
    """Gradients as they are, or by LibraGrad's or AttnLRP's rules."""
    return WayBack(BACKWARD_RULES.get(backward), precise, map_share=MAP_SHARES[backward])


def map_relevance(tap: Tap, passes: Sequence[tuple[WayBack, Tensor | None]], batch: int) -> Mixing | None:
    """The relevance of a map; None where none has come back.

    Of two passes the first is of what speaks for the score, the second of what speaks against it.
    """
    assert tap.probe is not None
    value = tap.probe.detach()
    parts = [(way, part) for way, part in passes if part is not None]
    if len(parts) < len(passes):
        return None
    if isinstance(tap.map, Tensor):
        return KeptMap(by_head(difference([way.relevance(part, value) for way, part in parts]), batch))
    return MixedGradient(tap.map, difference([way.worth(part, value) for way, part in parts]), map_share=0.5)


def difference(parts: Sequence[Tensor]) -> Tensor:
    """What speaks for something, less what speaks against it where that is told apart."""
    return parts[0] if len(parts) == 1 else parts[0] - parts[1]

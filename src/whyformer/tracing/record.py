"""One attention operation, as far as a method may want to know it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from whyformer.axes import AttentionMap, State, TokenScores, Values
from whyformer.tracing.kernels import Attention

Gradient = Callable[[], AttentionMap]  # called, it makes the gradient of a map: one at a time is large enough


@dataclass(frozen=True)
class AttentionRecord:
    """One attention operation: which tokens read which, how strongly, and what was read.

    Attributes:
        path: The name of its output projection W_o among the model's modules; "" where that is unknown.
        block: Its block, counted from 0 in the stream of its queries.
        query_stream: The stream whose tokens read.
        key_stream: The stream whose tokens are read.
        source: The map [example, head, query, key], or the attention call that makes it anew whenever it is read.
        gradient_source: What makes the gradient of the map; None where it was not asked for.
        value: The values of the keys, where states were asked for, as all that follows.
        value_weight: W_v.
        output_weight: W_o, with the weights of a norm between it and the residual stream.
        output_scale: What such a norm multiplies with what each query token is given; None where there is none.
        key_state: The residual state of the key tokens.
        operation: Its number among all attention operations that ran.
    """

    path: str
    block: int
    query_stream: str
    key_stream: str
    source: AttentionMap | Attention
    gradient_source: Gradient | None = None
    value: Values | None = None
    value_weight: Tensor | None = None
    output_weight: Tensor | None = None
    output_scale: TokenScores | None = None
    key_state: State | None = None
    operation: int = 0

    @property
    def map(self) -> AttentionMap:
        """The attention map; a large one is made each time it is read, so read it once."""
        return self.source() if isinstance(self.source, Attention) else self.source

    @property
    def gradient(self) -> AttentionMap | None:
        """The gradient of the score with respect to the map, made each time it is read."""
        return None if self.gradient_source is None else self.gradient_source()

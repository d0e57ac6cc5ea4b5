"""Contributions of biases to a score: each times the gradient where it is added, token by token."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from whyformer.axes import TokenScores, at_least_float32
from whyformer.errors import UnsupportedModel
from whyformer.models.readout import ReadOut

ADDS = ("add", "add_", "__add__", "__radd__", "__iadd__")


class BiasTerms:
    """Collect the biases and constants that a pass adds; a backward pass then sums their products with the gradient.

    Those added before the tensor of `begin_at` are part of its value, and left out.
    """

    def __init__(self) -> None:
        self._start = -1
        self._sums: dict[torch.Size, Tensor] = {}  # by shape of the result, without channels

    def begin_at(self, state: GradientEdge | None) -> None:
        """Leave out what was added before this tensor was computed."""
        self._start = -1 if state is None else state.node._sequence_nr()

    @staticmethod
    def added(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | float | None:
        """The bias or constant that an operation is about to add."""
        if name == "multi_head_attention_forward":
            raise UnsupportedModel(
                "full_grad cannot see the biases inside nn.MultiheadAttention. state_x_gradient works without biases."
            )
        bias: Any = None
        if name == "linear":
            bias = kwargs.get("bias", args[2] if len(args) > 2 else None)
        elif name == "addmm":
            bias = args[0]
        elif name == "layer_norm":
            bias = kwargs.get("bias", args[3] if len(args) > 3 else None)
        elif name in ADDS and len(args) > 1 and not kwargs:
            constants = [x for x in args[:2] if not (isinstance(x, Tensor) and x.requires_grad) or _is_parameter(x)]
            bias = constants[0] if len(constants) == 1 else None
        return bias if isinstance(bias, (Tensor, float, int)) else None

    def note(self, bias: Tensor | float | None, result: Any) -> None:
        """Register the bias that an operation has added to its result."""
        if bias is None or not isinstance(result, Tensor) or not result.requires_grad:
            return
        constant = bias.detach() if isinstance(bias, Tensor) else bias
        assert result.grad_fn is not None
        order = result.grad_fn._sequence_nr()

        def add(gradient: Tensor | None) -> None:
            if gradient is None or order <= self._start:
                return
            part = (at_least_float32(gradient) * constant).sum(dim=-1)
            self._sums[part.shape] = self._sums[part.shape] + part if part.shape in self._sums else part

        result.register_hook(add)

    def scores(self, batch: int, tokens: int, readout: ReadOut) -> TokenScores:
        """Sum each bias at its token; those added after the read-out count at the read-out's tokens."""
        scores, shares = torch.zeros_like(readout.weights), readout.weights / readout.weights.sum(dim=1, keepdim=True)
        for shape, part in self._sums.items():
            if shape == (batch, tokens):
                scores = scores + part
            elif shape == (tokens, batch):
                scores = scores + part.T
            elif shape == (batch * tokens,):  # GPT-2's Conv1D flattens its input
                scores = scores + part.unflatten(0, (batch, tokens))
            elif shape.numel() == batch:
                scores = scores + part.reshape(batch, 1) * shares
            else:
                raise UnsupportedModel(
                    f"full_grad cannot assign a bias of shape {tuple(shape)} to {batch} × {tokens} tokens. "
                    "state_x_gradient works without biases."
                )
        return scores


def _is_parameter(x: Tensor) -> bool:
    return isinstance(x, torch.nn.Parameter)

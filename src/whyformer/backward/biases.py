"""What biases have of a score: each times the gradient where it is added, token by token."""

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
    """Every bias and constant that a pass adds; a backward pass then adds up its products with the gradient there.

    What was added before `begin_at` a tensor is part of that tensor's own value, and left out.
    """

    def __init__(self) -> None:
        self._start = -1
        self._sums: dict[torch.Size, Tensor] = {}  # by the shape of what they were added to, without channels

    def begin_at(self, state: GradientEdge | None) -> None:
        """Leave out what was added before this tensor was made."""
        self._start = -1 if state is None else state.node._sequence_nr()

    @staticmethod
    def added(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor | float | None:
        """What an operation is about to add to its result that is no activation."""
        if name == "multi_head_attention_forward":
            raise UnsupportedModel(
                "full_grad cannot see the biases inside nn.MultiheadAttention: state_x_gradient has all but those."
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
        """Note what an operation has added to its result."""
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
        """Each bias at its token; what is added after the answer is read counts where that is."""
        scores, shares = torch.zeros_like(readout.weights), readout.weights / readout.weights.sum(dim=1, keepdim=True)
        for shape, part in self._sums.items():
            if shape == (batch, tokens):
                scores = scores + part
            elif shape == (tokens, batch):
                scores = scores + part.T
            elif shape == (batch * tokens,):  # GPT-2's Conv1D flattens what it reads
                scores = scores + part.unflatten(0, (batch, tokens))
            elif shape.numel() == batch:
                scores = scores + part.reshape(batch, 1) * shares
            else:
                raise UnsupportedModel(
                    f"full_grad: a bias is added to {tuple(shape)} places of {batch} × {tokens} tokens. "
                    "state_x_gradient has all but biases."
                )
        return scores


def _is_parameter(x: Tensor) -> bool:
    return isinstance(x, torch.nn.Parameter)

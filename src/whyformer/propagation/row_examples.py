"""Whose each row of a tensor is, where rows were picked out of their order: tokens sorted by their experts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary


class RowExamples:
    """The example of each row of the tensors that were picked by an index, and of what becomes of them row by row.

    `lengths` says it of first axes of some length; else rows lie examples first, as a batch is flattened.
    """

    def __init__(self, batch: int, lengths: Mapping[int, Tensor]):
        self._batch, self._lengths = batch, lengths
        self._known = WeakIdKeyDictionary()

    def forget(self) -> None:
        """Forget the tensors of a pass that is over."""
        self._known.clear()

    def of(self, tensors: Iterable[Tensor]) -> Mapping[int, Tensor]:
        """The examples by the length of a first axis, of the tensors together."""
        rows = next((self._known[x] for x in tensors if x in self._known), None)
        return self._lengths if rows is None else {**self._lengths, len(rows): rows}

    def pick(self, name: str, args: tuple[Any, ...], result: Any) -> None:
        """Note what moves or picks rows has made of them."""
        source = args[0] if args else None
        if self._batch == 1 or not isinstance(source, Tensor) or not source.requires_grad:
            return
        index = args[1] if name == "__getitem__" else args[2] if name == "index_select" and args[1] == 0 else None
        if isinstance(index, Tensor) and index.dim() == 1:
            rows = self._rows(source)
            if rows is not None:
                self._known[result] = rows[index]
        else:
            self.carry([source], result)

    def carry(self, given: Iterable[Tensor], result: Any) -> None:
        """What is computed row by row is whose its rows were; what has another number of them is not."""
        rows = next((self._known[x] for x in given if x in self._known), None)
        if rows is not None and isinstance(result, Tensor) and result.dim() and len(result) == len(rows):
            self._known[result] = rows

    def _rows(self, x: Tensor) -> Tensor | None:
        known: Tensor | None = self._known.get(x, self._lengths.get(len(x)))
        if known is not None or x.dim() != 2 or len(x) % self._batch:
            return known
        return torch.arange(self._batch, device=x.device).repeat_interleave(len(x) // self._batch)

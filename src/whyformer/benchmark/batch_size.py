"""How many inputs a model is asked about at once: halved where memory runs out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch

Answer = TypeVar("Answer")


@dataclass
class BatchSize:
    """The only thing that changes during a run: what did not fit once is not tried again."""

    size: int

    def parts(self, count: int, ask: Callable[[slice], Answer], *, unit: int = 1) -> list[Answer]:
        """The answers to so many inputs, asked slice by slice: each holds whole units, or lies within one."""
        found: list[Answer] = []
        start = 0
        while start < count:
            fitting = self.size - self.size % unit if self.size >= unit else min(self.size, unit - start % unit)
            part = slice(start, min(count, start + fitting))
            try:
                found.append(ask(part))
            except RuntimeError as error:
                if self.size == 1 or not is_out_of_memory(error):
                    raise
                self.size = max(1, min(self.size, count) // 2)
            else:
                start = part.stop
        return found


def is_the_machines(error: Exception) -> bool:
    """Is it the trouble of the accelerator or of PyTorch's memory, and not that of what it was asked about?"""
    return isinstance(error, RuntimeError) and (isinstance(error, torch.AcceleratorError) or is_out_of_memory(error))


def is_out_of_memory(error: RuntimeError) -> bool:
    """PyTorch has a class for it on accelerators, and only words on the CPU."""
    return isinstance(error, torch.OutOfMemoryError) or any(
        words in str(error).lower() for words in ("out of memory", "can't allocate memory", "cannot allocate memory")
    )

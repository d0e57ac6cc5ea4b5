"""How many inputs a model is given at once: halved where memory runs out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch

from whyformer.api.batches import is_out_of_memory

Result = TypeVar("Result")


@dataclass
class BatchSize:
    """It changes during a run: what did not fit once is not tried again."""

    size: int

    def map_slices(self, count: int, function: Callable[[slice], Result], *, unit: int = 1) -> list[Result]:
        """The function's results on so many inputs, slice by slice; a slice holds whole units, or lies within one."""
        results: list[Result] = []
        start = 0
        while start < count:
            fitting = self.size - self.size % unit if self.size >= unit else min(self.size, unit - start % unit)
            part = slice(start, min(count, start + fitting))
            try:
                results.append(function(part))
            except RuntimeError as error:
                if self.size == 1 or not is_out_of_memory(error):
                    raise
                self.size = max(1, min(self.size, count) // 2)
            else:
                start = part.stop
        return results


def is_machine_error(error: Exception) -> bool:
    """Whether the accelerator or PyTorch's memory failed, and not the sample that was worked on."""
    of_accelerator = getattr(torch, "AcceleratorError", ())  # which PyTorch has from 2.8 on
    return isinstance(error, RuntimeError) and (isinstance(error, of_accelerator) or is_out_of_memory(error))

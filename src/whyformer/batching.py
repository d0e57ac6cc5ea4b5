"""Run work in batches: as many items at once as fit, fewer after an out-of-memory error, then block by block."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch

from whyformer.errors import UnsupportedModel, WhyformerError, check_count, reason_of
from whyformer.progress import track

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

# PyTorch's messages where it has no exception class for this, mainly on a CPU.
OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "cannot allocate memory")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out: PyTorch raises its own class on accelerators, but only a message on the CPU."""
    if not isinstance(error, RuntimeError):
        return isinstance(error, MemoryError)
    return isinstance(error, torch.OutOfMemoryError) or any(words in str(error).lower() for words in OUT_OF_MEMORY)


def check_batch_size(batch_size: int | None) -> int | None:
    """Validate the batch size and return it."""
    if batch_size is not None:
        check_count("batch_size", batch_size)
    return batch_size


@dataclass
class MemoryLimit:
    """How many items fit at once. It shrinks during a run: a size that failed is not tried again."""

    size: int
    can_go_by_blocks: bool = False
    checkpoint: bool | None = None  # None leaves it to the trace

    def map_batches(
        self, items: Sequence[_Item], function: Callable[[Sequence[_Item], bool | None], Sequence[_Result]], task: str
    ) -> list[_Result]:
        """Return the function's results on all items in their order; `task` names the work in errors."""
        results: list[_Result] = []
        while len(results) < len(items):
            batch = items[len(results) : len(results) + self.size]
            try:
                results += function(batch, self.checkpoint)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise WhyformerError(f"{task} fails in PyTorch: {reason_of(error):.300}") from error
            except UnsupportedModel:
                if not self.checkpoint:
                    raise
                raise _nothing_fits(task, "") from None
            else:
                continue
            self._lower(len(batch), task)  # outside the handler, whose traceback would keep the attempt's tensors alive
        return results

    def map_slices(
        self, count: int, function: Callable[[slice], _Result], *, unit: int = 1, most: int | None = None
    ) -> list[_Result]:
        """Return the function's results on `count` inputs, slice by slice, with at most `most` inputs each.

        A slice holds whole units or part of one.
        """
        results: list[_Result] = []
        start = 0
        while start < count:
            size = self.size if most is None else min(self.size, most)
            fitting = size - size % unit if size >= unit else min(size, unit - start % unit)
            part = slice(start, min(count, start + fitting))
            try:
                results.append(function(part))
            except (RuntimeError, MemoryError) as error:
                if size == 1 or not is_out_of_memory(error):
                    raise
                self.size = max(1, min(size, count) // 2)
            else:
                start = part.stop
        return results

    def _lower(self, tried: int, task: str) -> None:
        if tried > 1:
            self.size = max(1, tried // 2)
        elif self.can_go_by_blocks and self.checkpoint is None:
            self.checkpoint = True
        else:
            raise _nothing_fits(task, " and block by block" if self.checkpoint else "")
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def _nothing_fits(task: str, way: str) -> WhyformerError:
    return WhyformerError(
        f"Out of memory: {task} does not fit even one example at a time{way}. What would help: a shorter input, a "
        "method that keeps less (raw_attention, rollout), dtype='bfloat16' in whyformer.load, or a larger device; "
        "`whyformer doctor MODEL --tokens N` says what each method takes."
    )


def consecutive(count: int, size: int) -> list[list[int]]:
    """Split item numbers into consecutive batches."""
    return [list(range(start, min(start + size, count))) for start in range(0, count, size)]


def in_batches(
    items: Sequence[_Item],
    function: Callable[[Sequence[_Item], bool | None], Sequence[_Result]],
    batches: Sequence[Sequence[int]],
    task: str,
    *,
    progress: bool,
    can_go_by_blocks: bool = False,
) -> list[_Result]:
    """Return the function's results on all items in their order, batch by batch, or as many at once as fit."""
    limit = MemoryLimit(max(map(len, batches), default=1), can_go_by_blocks)
    results: dict[int, _Result] = {}
    for batch in track(batches, task, progress=progress):
        of_batch = limit.map_batches([items[number] for number in batch], function, task)
        results |= zip(batch, of_batch, strict=True)
    return [results[number] for number in range(len(items))]

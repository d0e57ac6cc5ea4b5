"""How many examples run at once: fewer where memory runs out, and then block by block."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch

from whyformer.api.progress import track
from whyformer.errors import WhyformerError

Item = TypeVar("Item")
Result = TypeVar("Result")

# What PyTorch says where it has no class for it, on a CPU above all.
OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "cannot allocate memory")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out: PyTorch has a class for it on accelerators, and only words on the CPU."""
    if not isinstance(error, RuntimeError):
        return isinstance(error, MemoryError)
    return isinstance(error, torch.OutOfMemoryError) or any(words in str(error).lower() for words in OUT_OF_MEMORY)


def check_batch_size(batch_size: int | None) -> int | None:
    """The batch size, refused where it is none."""
    if batch_size is not None and (type(batch_size) is not int or batch_size < 1):
        raise WhyformerError(f"batch_size={batch_size!r}: a whole number, at least 1.")
    return batch_size


@dataclass
class MemoryLimit:
    """It changes during a run: what did not fit once is not tried again."""

    size: int
    checkpoint: bool | None = None  # None leaves it to the trace

    def map_batches(
        self, items: Sequence[Item], function: Callable[[Sequence[Item], bool | None], Sequence[Result]], task: str
    ) -> list[Result]:
        """The function's results on all items in their order, as many at once as fit; `task` says what is done."""
        results: list[Result] = []
        while len(results) < len(items):
            batch = items[len(results) : len(results) + self.size]
            try:
                results += function(batch, self.checkpoint)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
            except WhyformerError:
                if self.checkpoint is not True:
                    raise
                raise self._nothing_fits(task) from None  # a model that cannot go block by block
            else:
                continue
            self._lower(len(batch), task)  # outside, where no traceback holds what the attempt has made
        return results

    def _lower(self, tried: int, task: str) -> None:
        if tried > 1:
            self.size = max(1, tried // 2)
        elif self.checkpoint is None:
            self.checkpoint = True
        else:
            raise self._nothing_fits(task)
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _nothing_fits(self, task: str) -> WhyformerError:
        return WhyformerError(
            f"Out of memory: {task} does not fit even one example at a time and block by block. What would help: a "
            "shorter input, a method that keeps less (raw_attention, rollout), dtype='bfloat16' in whyformer.load, or "
            "a larger device; `whyformer doctor MODEL --tokens N` says what each method takes."
        )


def in_batches(
    groups: Sequence[Sequence[Item]],
    function: Callable[[Sequence[Item], bool | None], Sequence[Result]],
    size: int,
    task: str,
    *,
    progress: bool,
) -> list[Result]:
    """The function's results on all items in their order, `size` of a group at once, or as many as fit."""
    limit = MemoryLimit(size)
    batches = [items[start : start + size] for items in groups for start in range(0, len(items), size)]
    tracked = track(batches, task, progress=progress)
    return [result for batch in tracked for result in limit.map_batches(batch, function, task)]

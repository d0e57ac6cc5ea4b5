"""Which examples run at once: those of like length; fewer where memory runs out, and then block by block."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch

from whyformer.api.progress import track
from whyformer.errors import WhyformerError, check_count, reason_of
from whyformer.inputs.encode import EncodedExample
from whyformer.models.answering import keeps_its_answer
from whyformer.models.loading import LoadedModel
from whyformer.models.structure import device_of
from whyformer.tracing.blocks import NoStack
from whyformer.tracing.reads import Reads

Item = TypeVar("Item")
Result = TypeVar("Result")

# What PyTorch says where it has no class for it, on a CPU above all.
OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "cannot allocate memory")

# On a CPU, as measured by benchmarks/batches.py. What runs at once is to stay in its caches: so many tokens, those of
# texts longer than SHORT counting for more, as they attend to more. A text is filled up with less padding than a pass
# of its own would cost; along a path its padding is computed again and again.
TOKENS, SHORT = 480, 256
PICTURES = 2  # which have about half of these tokens
PADDING, PATH_PADDING = 32, 6
BATCH_SIZE = {"cpu": 8, "cuda": 64}


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out: PyTorch has a class for it on accelerators, and only words on the CPU."""
    if not isinstance(error, RuntimeError):
        return isinstance(error, MemoryError)
    return isinstance(error, torch.OutOfMemoryError) or any(words in str(error).lower() for words in OUT_OF_MEMORY)


def check_batch_size(batch_size: int | None) -> int | None:
    """The batch size, refused where it is none."""
    if batch_size is not None:
        check_count("batch_size", batch_size)
    return batch_size


@dataclass
class MemoryLimit:
    """It changes during a run: what did not fit once is not tried again."""

    size: int
    can_go_by_blocks: bool = False
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
                    raise WhyformerError(f"{task} fails in PyTorch: {reason_of(error):.300}") from error
            except NoStack:
                raise _nothing_fits(task, "") from None
            else:
                continue
            self._lower(len(batch), task)  # outside, where no traceback holds what the attempt has made
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


def texts_at_once(tokens: int) -> int:
    """How many texts of so many tokens a CPU runs at once."""
    return max(1, TOKENS * SHORT // (max(1, tokens) * max(SHORT, tokens)))


def padding_that_pays(reads: Reads) -> int:
    """How much shorter than the longest of its batch a text may be on a CPU, in tokens."""
    return PATH_PADDING if reads.path else PADDING


def consecutive(count: int, size: int) -> list[list[int]]:
    """Items in batches as they stand, by their numbers."""
    return [list(range(start, min(start + size, count))) for start in range(0, count, size)]


def like_lengths(lengths: Sequence[int], most: Callable[[int], int], padding: float = math.inf) -> list[list[int]]:
    """Items in batches of like length, by their numbers, the shortest first.

    A batch has at most as many items as `most` says of its longest, none of them shorter than that by more than
    `padding`.
    """
    batches: list[list[int]] = []
    for number in sorted(range(len(lengths)), key=lambda number: lengths[number]):
        length, last = lengths[number], batches[-1] if batches else []
        if last and len(last) < most(length) and length - lengths[last[0]] <= padding:
            last.append(number)
        else:
            batches.append([number])
    return batches


def in_batches(
    items: Sequence[Item],
    function: Callable[[Sequence[Item], bool | None], Sequence[Result]],
    batches: Sequence[Sequence[int]],
    task: str,
    *,
    progress: bool,
    can_go_by_blocks: bool = False,
) -> list[Result]:
    """The function's results on all items in their order, batch by batch, or as many as fit; with a bar if wanted."""
    limit = MemoryLimit(max(map(len, batches), default=1), can_go_by_blocks)
    results: dict[int, Result] = {}
    for batch in track(batches, task, progress=progress):
        of_batch = limit.map_batches([items[number] for number in batch], function, task)
        results |= zip(batch, of_batch, strict=True)
    return [results[number] for number in range(len(items))]


def example_batches(
    loaded_model: LoadedModel, encoded: Sequence[EncodedExample], batch_size: int | None, reads: Reads
) -> list[list[int]]:
    """Which examples run together, by their numbers: those whose texts are of like length."""
    device = device_of(loaded_model.model).type
    lengths = [sum(len(text.encoding["input_ids"]) for text in (one.chunk, one.written) if text) for one in encoded]
    is_text = not any(one.picture or one.regions or one.hearing for one in encoded)
    # Of equal length, where padding is read: some models hear that of a shorter sound, BLIP answers that of a question.
    if any(one.hearing for one in encoded) or keeps_its_answer(loaded_model.model):
        sounds = [len(one.hearing.sound.samples) for one in encoded if one.hearing]
        lengths = sounds or lengths
        most = batch_size or (PICTURES if device == "cpu" else BATCH_SIZE.get(device, PICTURES))
        return like_lengths(lengths, lambda _: most, padding=0)
    if batch_size is None and device == "cpu":
        return like_lengths(lengths, texts_at_once if is_text else lambda _: PICTURES, padding_that_pays(reads))
    size = batch_size or BATCH_SIZE.get(device, BATCH_SIZE["cpu"])
    return like_lengths(lengths, lambda _: size)

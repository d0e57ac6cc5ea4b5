"""Group examples of similar length into batches."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from whyformer.inputs.encode import EncodedExample
from whyformer.models.answering import hides_logits
from whyformer.models.loading import LoadedModel
from whyformer.models.structure import device_of
from whyformer.tracing.reads import Reads

# On a CPU, as measured by benchmarks/batches.py: the tokens that run at once and stay in its caches, where those of
# texts longer than SHORT weigh more, since they attend to more. A text joins a batch if its padding costs less than a
# separate pass; along a path the padding is computed repeatedly.
TOKENS, SHORT_TEXT = 480, 256
PICTURES_AT_ONCE = 2  # with about half as many tokens
PADDING, PATH_PADDING = 32, 6
BATCH_SIZE = {"cpu": 8, "cuda": 64}


def texts_at_once(tokens: int) -> int:
    """The number of texts of this length that a CPU runs at once."""
    return max(1, TOKENS * SHORT_TEXT // (max(1, tokens) * max(SHORT_TEXT, tokens)))


def padding_that_pays(reads: Reads) -> int:
    """The most padding that is worthwhile on a CPU, in tokens."""
    return PATH_PADDING if reads.path else PADDING


def like_lengths(lengths: Sequence[int], most: Callable[[int], int], padding: float = math.inf) -> list[list[int]]:
    """Group indices of items into batches of similar length, the shortest first.

    A batch has at most `most(longest)` items, and none is shorter than the longest by more than `padding`.
    """
    batches: list[list[int]] = []
    for number in sorted(range(len(lengths)), key=lambda number: lengths[number]):
        length, last = lengths[number], batches[-1] if batches else []
        if last and len(last) < most(length) and length - lengths[last[0]] <= padding:
            last.append(number)
        else:
            batches.append([number])
    return batches


def example_batches(
    loaded_model: LoadedModel, encoded: Sequence[EncodedExample], batch_size: int | None, reads: Reads
) -> list[list[int]]:
    """Group indices of examples by the length of their texts."""
    device = device_of(loaded_model.model).type
    lengths = [sum(len(text.encoding["input_ids"]) for text in (one.chunk, one.written) if text) for one in encoded]
    is_text = all(one.parts.keys() <= {"text", "written", "image_text"} for one in encoded)
    # Only equal lengths where padding is read: some models of waves read it, and BLIP decodes that of a question.
    fixed = [one.length for one in encoded if one.length is not None]
    if fixed or hides_logits(loaded_model.model):
        lengths = fixed or lengths
        most = batch_size or (PICTURES_AT_ONCE if device == "cpu" else BATCH_SIZE.get(device, PICTURES_AT_ONCE))
        return like_lengths(lengths, lambda _: most, padding=0)
    if batch_size is None and device == "cpu":
        return like_lengths(lengths, texts_at_once if is_text else lambda _: PICTURES_AT_ONCE, padding_that_pays(reads))
    size = batch_size or BATCH_SIZE.get(device, BATCH_SIZE["cpu"])
    return like_lengths(lengths, lambda _: size)

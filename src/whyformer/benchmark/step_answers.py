"""Run the model on a shard with parts removed, step by step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TypeVar

import torch
from torch import Tensor

from whyformer.axes import Inputs, Logits, StepLogits
from whyformer.benchmark.shard import Shard
from whyformer.metrics.perturbation_curves import step_logits

MakeRemoval = Callable[[], Tensor]  # returns a Removal or PixelRemoval
Perturb = Callable[[Tensor, slice], Inputs]  # the inputs of these samples at every removal step
Key = TypeVar("Key", str, tuple[str, str])


def step_answers(
    shard: Shard, removals: Mapping[Key, MakeRemoval], steps: int, perturb: Perturb
) -> dict[Key, StepLogits]:
    """The answers to every sample at every step, by the key of each removal.

    Steps of all keys share batches of the batch size. If memory runs out while masks or perturbed inputs are made, the
    batch size is halved, as for the answers themselves.
    """
    makers, rows = list(removals.values()), len(shard)
    removal = lru_cache(maxsize=1)(lambda number: makers[number]())  # slices arrive in order

    def logits(part: slice) -> Logits:
        first, last = part.start // rows, (part.stop - 1) // rows + 1
        here = slice(part.start % rows, (part.stop - 1) % rows + 1)
        numbers = range(first // steps, (last - 1) // steps + 1)
        masks = [removal(n)[max(0, first - n * steps) : last - n * steps, here] for n in numbers]
        return step_logits(shard.questions.logits, perturb(torch.cat(masks), here)).flatten(0, 1)

    answers = torch.cat(shard.batch_size.map_slices(len(makers) * steps * rows, logits, unit=rows))
    return dict(zip(removals, answers.unflatten(0, (-1, rows)).split(steps), strict=True))


def repeat_steps(inputs: Inputs, steps: int) -> Inputs:
    """Repeat every input for every step."""
    return {name: value.expand(steps, *value.shape) for name, value in inputs.items()}

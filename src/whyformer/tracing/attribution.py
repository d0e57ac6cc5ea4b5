"""The result of a method: scores, and remarks on them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from whyformer.axes import ExampleScores, StreamScores, TokenScores

MOST_MOVED = 0.01  # as a share of the largest score, for a rounding error of the input
UNSTABLE = (
    f"Unstable in float32: moving the input by its rounding error moves these scores by over {MOST_MOVED:.0%} of the "
    "largest. Use rules='attn_lrp', or the model in float64."
)


@dataclass(frozen=True, eq=False)
class Attribution(Mapping[str, TokenScores]):
    """Scores [example, token] as a mapping by stream, with figures that the method measured along with them.

    Attributes:
        scores: For each stream, a score per position of every example.
        completeness: For each example, the difference between the sum of its scores and the expected sum, relative to
            it; None if the method has no expected sum.
        remarks: Remarks on how the scores were computed.
        instability: For each example, the largest change of a score under a rounding error of the input, as a share of
            the largest score. None if the method does not measure it.

    Example:
        >>> import torch
        >>> attribution = whyformer.extend.Attribution({"text": torch.tensor([[0.1, 0.7]])}, remarks=("Rounded.",))
        >>> attribution["text"].argmax().item(), attribution.remarks
        (1, ('Rounded.',))
    """

    scores: StreamScores
    completeness: ExampleScores | None = None
    remarks: tuple[str, ...] = ()
    instability: ExampleScores | None = None

    def remarks_on(self, example: int) -> tuple[str, ...]:
        """The remarks, including those on this example only."""
        is_unstable = self.instability is not None and not bool(self.instability[example] <= MOST_MOVED)
        return (*self.remarks, UNSTABLE) if is_unstable else self.remarks

    def __getitem__(self, stream: str) -> TokenScores:
        return self.scores[stream]

    def __iter__(self) -> Iterator[str]:
        return iter(self.scores)

    def __len__(self) -> int:
        return len(self.scores)


def instability(scores: StreamScores, moved: StreamScores) -> ExampleScores:
    """The largest change of a score under a rounding error of the input, as a share of the largest, by example."""
    change = torch.stack([(moved[stream] - values).abs().amax(dim=1) for stream, values in scores.items()]).amax(dim=0)
    return change / torch.stack([values.abs().amax(dim=1) for values in scores.values()]).amax(dim=0)


def mean_attribution(attributions: Sequence[Attribution]) -> Attribution:
    """The mean of several attributions of one question, without completeness."""
    streams = dict.fromkeys(stream for one in attributions for stream in one)
    scores = {name: torch.stack([one[name] for one in attributions]).mean(dim=0) for name in streams}
    remarks = dict.fromkeys(remark for one in attributions for remark in one.remarks)
    return Attribution(scores, remarks=tuple(remarks))

"""What a method returns: scores, and what there is to know of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from whyformer.axes import ExampleScores, StreamScores, TokenScores


@dataclass(frozen=True, eq=False)
class Attribution(Mapping[str, TokenScores]):
    """Scores [example, token] by the name of their stream, a mapping; with them what the method measured on its way.

    Attributes:
        scores: For each stream a score for every position of every example.
        completeness: For each example how far its scores are from adding up to what they should, as a share of it;
            None where the method promises no sum.
        remarks: What a reader of the scores must know of how they came about.

    Example:
        >>> import torch
        >>> attribution = whyformer.Attribution({"text": torch.tensor([[0.1, 0.7]])}, remarks=("Rounded.",))
        >>> attribution["text"].argmax().item(), attribution.remarks
        (1, ('Rounded.',))
    """

    scores: StreamScores
    completeness: ExampleScores | None = None
    remarks: tuple[str, ...] = ()

    def __getitem__(self, stream: str) -> TokenScores:
        return self.scores[stream]

    def __iter__(self) -> Iterator[str]:
        return iter(self.scores)

    def __len__(self) -> int:
        return len(self.scores)


def mean_of(attributions: Sequence[Attribution]) -> Attribution:
    """The mean of several attributions of one question; its sum is that of none of their scores."""
    streams = dict.fromkeys(stream for one in attributions for stream in one)
    scores = {name: torch.stack([one[name] for one in attributions]).mean(dim=0) for name in streams}
    remarks = dict.fromkeys(remark for one in attributions for remark in one.remarks)
    return Attribution(scores, remarks=tuple(remarks))

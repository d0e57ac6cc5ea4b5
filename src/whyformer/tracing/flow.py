"""Information followed backwards through the residual blocks: the one recursion of rollout, TA, GA and BI."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch

from whyformer.axes import Mixing, Rows
from whyformer.tracing.fused import fold_on_chip
from whyformer.tracing.record import AttentionRecord

Step = tuple[AttentionRecord, ...]
Mix = Callable[[AttentionRecord], Mixing]  # M of a record, or of a tile of it


def flow(
    steps: Sequence[Step],
    mixing: Mix,
    start: dict[str, Rows],
    *,
    normalise_rows: bool = False,
) -> dict[str, Rows]:
    """What attention adds to `start` in start · (M_L + I)…(M_1 + I), later blocks on the left (BI Eq. 16).

    The start itself, which the residual connections hand down unmixed, is left out of the result: it says where the
    answer is read, not why. The records of one step read the same state. `normalise_rows` divides each row of M + I
    by its sum.
    """
    kept = dict(start)
    moved = {stream: torch.zeros_like(rows) for stream, rows in start.items()}
    for step in reversed(steps):
        records = [record for record in step if record.query_stream in moved]
        if normalise_rows:
            for stream, total in _row_sums(records, mixing).items():
                moved[stream] = moved[stream] / total
                kept |= {stream: kept[stream] / total} if stream in kept else {}
        added = []
        for record in records:
            stream = record.query_stream
            reached = moved[stream] + kept[stream] if stream in kept else moved[stream]
            added.append((record.key_stream, fold(reached, record, mixing)))
        for stream, rows in added:
            moved[stream] = moved[stream] + rows if stream in moved else rows
    return moved


def fold(rows: Rows, record: AttentionRecord, mixing: Mix) -> Rows:
    """rows @ mixing(record), tile by tile, or on chip: a map that is not kept is never whole."""
    folded = fold_on_chip(rows, record, mixing)
    if folded is not None:
        return folded
    sums: Rows | None = None
    for part, tile in record.tiles():
        weights = rows[..., part]
        if sums is not None and not bool(weights.any()):  # nothing flows here: most of a read-out's first row
            continue
        product = weights @ mixing(tile)
        sums = product if sums is None else sums + product
    assert sums is not None
    return sums


def _row_sums(records: Iterable[AttentionRecord], mixing: Mix) -> dict[str, Rows]:
    """Per query stream, the sum of each row of M + I."""
    sums: dict[str, Rows] = {}
    for record in records:
        stream = record.query_stream
        total = torch.cat([mixing(tile).sum(dim=-1) for _, tile in record.tiles()], dim=1)
        sums[stream] = sums.get(stream, 1) + total.unsqueeze(1)
    return sums

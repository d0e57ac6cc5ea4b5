"""The flow of information backwards through the residual blocks: the recursion shared by rollout, TA, GA and BI."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from whyformer.axes import MixingMatrix, Rows, TokenScores, head_mean
from whyformer.models.joined import Transfer
from whyformer.tracing.record import AttentionRecord
from whyformer.watching.closed_maps import fold_band
from whyformer.watching.folds import fold_whole
from whyformer.watching.mixing import KeptMap

# Attention operations that read the same state, or a transfer from one stream to another between them.
Step = tuple[AttentionRecord, ...] | Transfer
Mix = Callable[[AttentionRecord], MixingMatrix]  # M of a record, or of one of its tiles


@dataclass(frozen=True)
class HeadMean:
    """The mean over heads of A, or of (A ⊙ ∇A)⁺ (GA Eq. 5), optionally with a scale per key token.

    It is called with a record or one of its tiles; whole records can be folded by a kernel.
    """

    times_gradient: bool = False
    key_scales: Mapping[int, TokenScores] | None = None  # by operation

    def __call__(self, tile: AttentionRecord) -> MixingMatrix:
        mixed = head_mean((tile.map * tile.gradient).clamp(min=0) if self.times_gradient else tile.map)
        if self.key_scales is None:
            return mixed
        mixed = mixed * self.key_scales[tile.operation][:, None, :]
        scale = tile.output_scale  # of a norm between W_o and the residual stream, constant per query
        return mixed if scale is None else mixed * scale[:, :, None].to(mixed.dtype)

    def fold(self, rows: Rows, record: AttentionRecord) -> Rows | None:
        """Compute rows @ self(record) by a kernel; None if none applies."""
        if record.kernel is not None and not self.times_gradient:
            return self._scaled(head_mean(record.kernel.rows(self._weights(rows, record))), record)
        call, gradient = record.call, record.mixed_gradient if self.times_gradient else None
        if record.kernel is not None and gradient is not None and gradient.map_share is None:
            band = record.kernel.band(gradient.of_mixed)
            return None if band is None else self._scaled(fold_band(self._weights(rows, record), band), record)
        if call is None or (self.times_gradient and (gradient is None or gradient.map_share is not None)):
            return None
        folded = fold_whole(self._weights(rows, record), call, None if gradient is None else gradient.of_mixed)
        return None if folded is None else self._scaled(folded, record)

    def _weights(self, rows: Rows, record: AttentionRecord) -> Rows:
        """The rows with the scale of each query, if keys have scales."""
        scale = None if self.key_scales is None else record.output_scale
        return rows if scale is None else rows * scale[:, None, :].to(rows.dtype)

    def _scaled(self, rows: Rows, record: AttentionRecord) -> Rows:
        return rows if self.key_scales is None else rows * self.key_scales[record.operation][:, None, :]


def flow(
    steps: Sequence[Step],
    mixing: Mix,
    start: dict[str, Rows],
    *,
    normalise_rows: bool = False,
) -> dict[str, Rows]:
    """Carry rows of scores back through the blocks: start · (M_L + I)…(M_1 + I) without `start` itself (BI Eq. 16).

    The start, which the residual connections carry down unmixed, is left out: it says where the answer is read, not
    why. The records of one step read the same state. At a transfer between streams (a merge of patches, a bridge),
    r ← r · B.

    Args:
        steps: The steps of a trace.
        mixing: A function that returns M [example, query, key] of a record, or of one of its tiles.
        start: Rows [example, row, token] by stream, such as `readout_rows(trace)`.
        normalise_rows: Whether to divide each row of M + I by its sum.

    Returns:
        The rows by stream.

    Example:
        >>> from whyformer.extend import Reads, flow, head_mean, readout_rows, trace
        >>> bert = whyformer.load("mini-bert", device="cpu")
        >>> inputs = bert.tokenizer("A wonderful film.", return_tensors="pt")
        >>> traced = trace(bert.model, inputs, reads=Reads(maps="all"))
        >>> rows = flow(traced.steps, lambda record: head_mean(record.map), readout_rows(traced))
        >>> tuple(rows["text"].shape)
        (1, 1, 6)
    """
    kept = dict(start)
    moved = {stream: torch.zeros_like(rows) for stream, rows in start.items()}
    for step in reversed(steps):
        if isinstance(step, Transfer):
            kept, moved = step.carry(kept), step.carry(moved)
            continue
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


def carry(rows: dict[str, Rows], steps: Sequence[Step]) -> dict[str, Rows]:
    """Carry rows through the transfers among some steps, skipping attention."""
    for step in reversed(steps):
        rows = step.carry(rows) if isinstance(step, Transfer) else rows
    return rows


def records_of(steps: Iterable[Step]) -> Iterator[AttentionRecord]:
    """The attention records of steps, in order."""
    return (record for step in steps if not isinstance(step, Transfer) for record in step)


def each_record(steps: Iterable[Step], change: Callable[[AttentionRecord], AttentionRecord]) -> tuple[Step, ...]:
    """Apply a function to every record of the steps."""
    return tuple(step if isinstance(step, Transfer) else tuple(map(change, step)) for step in steps)


def select_records(steps: Iterable[Step], is_kept: Callable[[AttentionRecord], bool]) -> tuple[Step, ...]:
    """Filter the records of the steps, dropping empty steps."""
    parts = (step if isinstance(step, Transfer) else tuple(filter(is_kept, step)) for step in steps)
    return tuple(part for part in parts if part)


def fold(rows: Rows, record: AttentionRecord, mixing: Mix) -> Rows:
    """Compute rows @ mixing(record), between the tokens of its maps."""
    if record.tokens is None:
        return _fold(rows, record, mixing)
    return record.tokens.to_keys(_fold(record.tokens.of_queries(rows), record, mixing))


def dense(record: AttentionRecord, mixing: Mix) -> MixingMatrix:
    """Compute mixing(record) as one matrix over all tokens of its streams, tile by tile."""
    if record.tokens is None:
        return torch.cat([mixing(tile) for _, tile in record.tiles()], dim=1)
    positions = torch.arange(record.lengths[0], device=record.source.device).expand(record.batch, -1)
    return record.tokens.rows_at(mixing(record)[:, None], positions)[:, 0]


def _fold(rows: Rows, record: AttentionRecord, mixing: Mix) -> Rows:
    """Compute rows @ mixing(record) by a kernel or tile by tile, never building a map that is not kept."""
    if isinstance(record.source, KeptMap):
        return rows @ mixing(record)
    if isinstance(mixing, HeadMean):
        folded = mixing.fold(rows, record)
        if folded is not None:
            return folded
    sums: Rows | None = None
    for part, tile in record.tiles():
        weights = rows[..., part]
        if sums is not None and not bool(weights.any()):  # zero in most tiles of a read-out
            continue
        product = weights @ mixing(tile)
        sums = product if sums is None else sums + product
    assert sums is not None
    return sums


def _row_sums(records: Iterable[AttentionRecord], mixing: Mix) -> dict[str, Rows]:
    """Per query stream, the sum of each row of M + I."""
    sums: dict[str, Rows] = {}
    for record in records:
        stream, tokens = record.query_stream, record.tokens
        if tokens is None:
            total = torch.cat([mixing(tile).sum(dim=-1) for _, tile in record.tiles()], dim=1).unsqueeze(1)
        else:
            is_token = (tokens.keys >= 0)[:, None]
            parts = [(mixing(tile) * is_token).sum(dim=-1) for _, tile in record.tiles()]
            total = tokens.to_queries(torch.cat(parts, dim=1).unsqueeze(1))
        sums[stream] = sums.get(stream, 1) + total
    return sums

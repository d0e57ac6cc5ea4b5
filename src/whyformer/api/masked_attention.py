"""The attention of a response to the sources of its prompt, with some of them hidden by the attention mask."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from whyformer.api.exchange_scores import row_predictions
from whyformer.api.row_scores import read_at
from whyformer.errors import UnsupportedModel
from whyformer.inputs.sources import Source
from whyformer.inputs.teacher_forcing import ResponseRow, first_logit, row_inputs, row_weights
from whyformer.methods.learned_attention import BY_HEAD, head_rows
from whyformer.models.loading import LoadedModel
from whyformer.targets.span_scores import log_probability
from whyformer.tracing import build


def masked_attention(
    loaded_model: LoadedModel, rows: Sequence[ResponseRow], sources: Sequence[Source], kept: np.ndarray
) -> list[np.ndarray]:
    """For each source the mean attention, over blocks and heads, of each row to its tokens: [row, token].

    The sources that are not kept are hidden, in place: the others stand where they stood.
    """
    if loaded_model.task.has_decoder:
        raise UnsupportedModel(
            f"{loaded_model.name} writes in a separate stream: attention is read in decoder-only models."
        )
    exchange = rows[0].exchange
    whole = ResponseRow(exchange, tuple(range(len(exchange.response))))
    inputs = row_inputs(loaded_model, [whole])
    hidden = [token for source, is_kept in zip(sources, kept, strict=True) if not is_kept for token in source.tokens]
    inputs["attention_mask"] = inputs["attention_mask"].index_fill(
        1, torch.tensor(hidden, dtype=torch.long, device=inputs["attention_mask"].device), 0
    )
    score = log_probability(row_predictions([whole], first_logit(inputs)), 1)
    weights = row_weights([whole], whole.length)
    trace = build.trace(loaded_model.model, inputs, score, reads=BY_HEAD, readout=weights)
    by_row = []
    for row in rows:
        heads = torch.cat([values[0] for _, values in head_rows(read_at(trace, [row]))])
        by_row.append(heads.mean(dim=0).float().cpu().numpy())
    attention = np.stack(by_row)
    return [attention[:, list(source.tokens)] for source in sources]

"""Convert results to pandas tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from whyformer.extras import extra
from whyformer.render.layout_kinds import kind_of
from whyformer.results.continuation import Continuation
from whyformer.results.explanation import Explanation
from whyformer.results.response import Response

# Columns of some layouts only: nullable integers.
_INTEGERS = ("row", "column", "segment", "start", "end")


def explanation_frame(explanation: Explanation) -> Any:
    """A row for each token of each part; the model and target are in the table's `attrs`."""
    return _frame(list(_rows(explanation)), explanation)


def continuation_frame(continuation: Continuation) -> Any:
    """A row for each pair of a written token and a token before it."""
    rows = [
        {"written": number, "written_token": explanation.target, **row}
        for number, explanation in enumerate(continuation.explanations)
        for row in _rows(explanation)
    ]
    frame = _frame(rows, continuation.explanations[0])
    frame.attrs["target"] = continuation.text
    return frame


def response_frame(response: Response) -> Any:
    """A row for each pair of a span of the response and a source in the prompt."""
    shares = response.share
    rows = [
        {
            "row": number,
            "span": row.text,
            "source": column,
            **{name: getattr(source, name) for name in ("kind", "name", "text", "start", "end")},
            "score": float(response.scores[number, column]),
            "share": float(shares[number, column]),
        }
        for number, row in enumerate(response.rows)
        for column, source in enumerate(response.sources)
    ]
    frame = extra("pandas").DataFrame(rows)
    frame.attrs.update(response=response.text, method=response.method, model=response.model)
    return frame


def _frame(rows: Sequence[dict[str, Any]], explanation: Explanation) -> Any:
    frame = extra("pandas").DataFrame(rows)
    frame = frame.astype({name: "Int64" for name in _INTEGERS if name in frame})
    frame.attrs.update(target=explanation.target, method=explanation.method, model=explanation.model)
    return frame


def _rows(explanation: Explanation) -> Iterator[dict[str, Any]]:
    for name, part in explanation.parts.items():
        places = kind_of(part.layout).places(part.layout)
        for token, score, place in zip(part.tokens, part.scores.tolist(), places, strict=True):
            yield {"part": name, "token": token, "score": score, **place}

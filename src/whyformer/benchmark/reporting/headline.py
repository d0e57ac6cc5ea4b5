"""The findings of a run, a sentence for each protocol, from the first figure of its table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whyformer.render.text_spans import visible

ALPHA = 0.05  # a paired test below it tells two methods apart


def headlines(document: Mapping[str, Any]) -> list[str]:
    """`evidence is better than rollout by 20.0 points [15.1, 24.8]`, for each protocol with a best method."""
    sentences = [_sentence(protocol) for protocol in document["protocols"] if protocol["tables"]]
    return [sentence for sentence in sentences if sentence]


def _sentence(protocol: Mapping[str, Any]) -> str:
    table = protocol["tables"][0]
    rows, about = table["rows"], f" ({visible(protocol['protocol'])}: {visible(table['figure'])})"
    if len(rows) < 2 or table["better"] == "neither":
        return ""
    best = visible(rows[0]["method"])
    rivals = [row for row in rows[1:] if row.get("to_best")]
    if not rivals:
        return f"{best} is first, on too few samples for a test{about}."
    tied = [visible(row["method"]) for row in rivals if _is_tied(row)]
    if tied:
        return f"{best} is first, but not told apart from {_listed(tied)}{about}."
    second = rivals[0]
    return f"{best} is better than {visible(second['method'])} by {_difference(second['to_best'], table)}{about}."


def _is_tied(row: Mapping[str, Any]) -> bool:
    p = row["to_best"]["p"]
    return p is None or p >= ALPHA


def _difference(test: Mapping[str, float], table: Mapping[str, Any]) -> str:
    """The size of a difference with its interval, in points of a share."""
    sign = -1 if test["value"] < 0 else 1
    edges = sorted(sign * test[edge] for edge in ("low", "high"))
    value, low, high = (
        f"{100 * one:.1f}" if table["is_share"] else f"{one:.3f}" for one in (abs(test["value"]), *edges)
    )
    unit = " points" if table["is_share"] else ""
    return f"{value}{unit} [{low}, {high}]"


def _listed(names: list[str]) -> str:
    shown = names if len(names) < 4 else [*names[:2], f"{len(names) - 2} more"]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} or {shown[-1]}"

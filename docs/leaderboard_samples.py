"""Which cells of the leaderboard have methods on fewer samples than others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evaluations import lines
from leaderboard import Cell, cell_names, cells_of, listed


def fewer_samples(found: Mapping[str, Mapping[str, Any]]) -> str:
    """The cells in which listed methods were measured on a part of the samples, by its size, and which these are."""
    cells = cells_of(found)
    groups: dict[tuple[int, tuple[str, ...]], list[Cell]] = {}
    for cell in cells:
        rows = {method: cell.rows[method]["n"] for method in listed() if method in cell.rows}
        for count in sorted(set(rows.values()) - {max(rows.values(), default=0)}):
            methods = tuple(method for method, own in rows.items() if own == count)
            groups.setdefault((count, methods), []).append(cell)
    table = [
        [str(count), "; ".join(cell_names(some, cells)), ", ".join(f"`{one}`" for one in methods)]
        for (count, methods), some in sorted(groups.items(), key=lambda group: -group[0][0])
    ]
    return lines(["samples", "cells", "methods"], table) if table else "None."

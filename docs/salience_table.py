"""The table of what is seen at a glance on photographs, from what benchmarks/salience.py measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from evaluations import NONE
from evaluations import lines as table

KINDS = ("all", "light", "dark", "busy", "other")
SOURCES = {"evidence": "evidence", "shuffled": "the same, shuffled", "random": "`random`"}
LOOKS = ("photograph", "former", "now")


def salience(path: Path) -> str:
    """The AUC of a map's top tenth in the photograph and in two looks, by kind of photograph and map; its outlines."""
    if not path.is_file():
        return NONE
    document = json.loads(path.read_text())
    groups = document["median and 10th percentile of the AUC by kind of photograph"]
    rows = [_row(kind, groups[kind], source) for kind in KINDS for source in SOURCES]
    return table(["photographs", "map", "the photograph alone", "until November 2026", "now", "with outlines"], rows)


def _row(kind: str, group: dict[str, Any], source: str) -> list[str]:
    figures = [group[f"{source}, {look}"] for look in LOOKS]
    count = group["photographs"]
    cells = [f"{median:.2f} ({low:.2f})" for median, low in figures]
    return [f"{kind} ({count})", SOURCES[source], *cells, f"{group[f'{source}, outlined']} of {count}"]

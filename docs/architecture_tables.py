"""The tables of architectures, from what benchmarks/architectures.py measured."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from evaluations import lines as table

from whyformer.methods.registry import METHODS

Row = dict[str, Any]

# Numbers and shapes of the tiny instance, which say nothing of the architecture.
OWN_NUMBERS = [
    (r"maps? of shape \([\d, ]+\)", "maps of another shape"),
    (r"\b(block|layer|layers\.|layer\.|blocks\.|stages\.) ?\d+[\w.]*", r"\1 …"),
    (
        r"has \d+ layers but only \d+ attention operations were recorded",
        "has more layers than attention operations recorded",
    ),
    (r"\d+ (rows|keys) for \d+ (examples|tokens)", r"other \1 than \2"),
]


def rows(path: Path) -> list[Row]:
    measured: list[Row] = json.loads(path.read_text())["architectures"]
    return measured


def works(cell: dict[str, Any]) -> bool:
    return "differs_by" in cell


def is_whole(row: Row) -> bool:
    """Whether every method works on the architecture."""
    return all(map(works, row["methods"].values()))


def reason(row: Row, cell: dict[str, Any]) -> str:
    """A refusal without what is the tiny instance's own."""
    text = str(cell.get("refused") or f"Breaks the contract: {cell['fails']}").replace(row["class"], "the model")
    for pattern, words in OWN_NUMBERS:
        text = re.sub(pattern, words, text)
    return re.sub("^the ", "The ", text)


def reasons(measured: Iterable[Row]) -> list[str]:
    texts = (reason(row, cell) for row in measured for cell in row["methods"].values() if not works(cell))
    return list(dict.fromkeys(texts))


def count(path: Path) -> str:
    """How many architectures there are, and on how many every method works."""
    measured = rows(path)
    versions = json.loads(path.read_text())["versions"]
    refused = [row for row in measured if not any(map(works, row["methods"].values()))]
    whole = [row for row in measured if is_whole(row)]
    others = len(measured) - len(whole) - len(refused)
    types = {row["type"] for row in measured}
    columns = len(measured[0]["methods"])
    return (
        f"{len(measured)} tiny models of {len(types)} architectures of transformers {versions['transformers']}, "
        f"{columns} methods: all work on {len(whole)} models, some on {others}"
        f"{f', none on {len(refused)}' if refused else ''}."
    )


def summary(path: Path) -> str:
    """Models on which every method works, by kind; of the others which methods do not, and why."""
    measured, whole = rows(path), []
    for kind in dict.fromkeys(row["kind"] for row in measured):
        names = [row["architecture"] for row in measured if row["kind"] == kind and is_whole(row)]
        if names:
            whole.append([kind, str(len(names)), " · ".join(names)])
    texts, others = reasons(measured), []
    for row in measured:
        if is_whole(row):
            continue
        cells = row["methods"]
        by_reason: dict[int, list[str]] = {}
        for column, cell in cells.items():
            if not works(cell):
                by_reason.setdefault(texts.index(reason(row, cell)) + 1, []).append(column)
        working = sum(map(works, cells.values()))
        why = "; ".join(f"{_named(columns, cells)} ({number})" for number, columns in by_reason.items())
        default = cells["no method named"].get("instead", "the default" if works(cells["no method named"]) else "–")
        others.append([row["architecture"], row["kind"], f"{working} of {len(cells)}", default, why])
    notes = "\n".join(f"{number}. {text}" for number, text in enumerate(texts, 1))
    return "\n\n".join(
        [
            count(path),
            table(["every method works on", "models", ""], whole),
            table(["some do not on", "kind", "work", "where no method is named", "refused (reason)"], others),
            notes,
            _beside_padding(measured),
        ]
    )


def _named(columns: list[str], cells: dict[str, Any]) -> str:
    if len(columns) == len(cells):
        return "all"
    of_maps = [column for column in cells if column in METHODS and METHODS[column].reads.inputs == "none"]
    others = [column for column in columns if column not in of_maps]
    return ", ".join(["all that read maps", *others] if set(of_maps) <= set(columns) else columns)


def _beside_padding(measured: list[Row]) -> str:
    rows_of_padding = [row for row in measured if row["reads_padding"]]
    if not rows_of_padding:
        return ""
    texts = "; ".join(f"{row['architecture']} ({row['reads_padding']})" for row in rows_of_padding)
    return f"Some compute something else beside padding, and are compared with it: {texts}."


def hybrids(path: Path) -> str:
    """How many methods work on the hybrids."""
    sys.path.append(str(Path(__file__).parents[1] / "tests"))
    from tiny_hybrids import HYBRIDS

    cells = [cell for row in rows(path) if row["architecture"] in HYBRIDS for cell in row["methods"].values()]
    working = sum(map(works, cells))
    return (
        f"Of {len(HYBRIDS)} models and {len(cells) // len(HYBRIDS)} methods, {working} of {len(cells)} pairs work "
        f"({working / len(cells):.1%}); the others are refused with the reason ([all](../results/architectures.md))."
    )


def grid(path: Path) -> str:
    """Every model and method: ✓, what took the default's place, or the number of the reason."""
    measured = rows(path)
    texts = reasons(measured)
    body = []
    for row in measured:
        cells = [
            cell.get("instead", "✓") if works(cell) else f"✗ {texts.index(reason(row, cell)) + 1}"
            for cell in row["methods"].values()
        ]
        body.append([row["architecture"], f"`{row['class']}`", row["kind"], *cells])
    notes = "\n".join(f"{number}. {text}" for number, text in enumerate(texts, 1))
    return f"{table(['architecture', 'class', 'kind', *measured[0]['methods']], body)}\n\n{notes}"

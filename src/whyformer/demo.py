"""The demo: the bundled examples through the bundled models, by every method, in one page."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.progress import track

from whyformer.attribution import explain
from whyformer.errors import UnsupportedModel
from whyformer.explanation import Explanation
from whyformer.loading import ZOO, loaded
from whyformer.methods import METHODS
from whyformer.render import html
from whyformer.score import Target, contrast
from whyformer.storage import whole_file

# model, example, target
SHOWN: list[tuple[str, Path, Target]] = [
    ("mini-vit", ZOO / "cat.jpg", "predicted"),
    ("mini-vit", ZOO / "cat.jpg", contrast("cat", "dog")),
    ("mini-vit", ZOO / "cat.jpg", "dog"),
]


def write_report(folder: Path) -> Path:
    """Explain every bundled example by every method that applies, and write the page that shows them."""
    folder.mkdir(parents=True, exist_ok=True)
    terminal = Console(stderr=True)
    rows: list[list[Explanation | None]] = []
    titles: list[str] = []
    for name, example, target in SHOWN:
        subject = loaded(name)
        row: list[Explanation | None] = []
        shown = track(
            list(METHODS),
            f"{name} on {example.name}",
            console=terminal,
            transient=True,
            disable=not terminal.is_terminal,
        )
        for method in shown:
            try:
                row.append(explain(example, subject, target, method))
            except UnsupportedModel:
                row.append(None)
        rows.append(row)
        titles.append(next(f"{cell.answer} · {name}" for cell in row if cell is not None))
    report = folder / "index.html"
    with whole_file(report) as unfinished:
        page = html.comparison(rows, titles, list(METHODS), "Why these answers?")
        unfinished.write_text(page, encoding="utf-8")
    return report

"""The demo: bundled examples through the bundled models, by every method, in one page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import track

from whyformer.api.attribution import explain
from whyformer.errors import UnsupportedModel
from whyformer.files import whole_file
from whyformer.methods.registry import METHODS
from whyformer.models.loading import ZOO, resolve_model
from whyformer.render import html
from whyformer.results.explanation import Explanation
from whyformer.scenes import example
from whyformer.targets.scores import Target, contrast

CAT = ZOO / "cat.jpg"
REVIEW = (
    "I had heard so much about this film that I was ready to be let down. The first half hour is slow, but then it "
    "turns into a wonderful, moving story with superb performances. I loved it."
)
POST = "Has anybody seen pictures of the last shuttle launch? The orbit looked lower than NASA had announced."
SCENE = 3  # the seed of a plain scene with a plain question


def shown() -> Iterator[tuple[str, Any, Target]]:
    """Model, example and target of each row."""
    scene = example(SCENE)
    yield "mini-vit", CAT, "predicted"
    yield "mini-vit", CAT, contrast("cat", "dog")
    yield "mini-vit-mae", CAT, "predicted"
    yield "mini-bert", REVIEW, "predicted"
    yield "mini-news", POST, "predicted"
    yield "mini-clip", (scene.image, scene.caption), "predicted"
    yield "mini-clip", (CAT, ["a photo of a cat", "a photo of a dog"]), "predicted"
    yield "mini-detr", scene.image, "predicted"
    yield "mini-lxmert", (scene.regions, scene.question), "predicted"
    yield "mini-visualbert", (scene.regions, scene.question), "predicted"
    yield "mini-gpt", "The acting is great, but the story is", "predicted"
    yield "mini-t5", (f"{scene.question} {scene.description}", scene.reply.rpartition(" ")[0]), "predicted"


def write_report(folder: Path) -> Path:
    """Explain every bundled example by every method that applies, and write the page that shows them."""
    folder.mkdir(parents=True, exist_ok=True)
    terminal = Console()
    rows: list[list[Explanation | None]] = []
    titles: list[str] = []
    steps = list(shown())
    watched = track(steps, "Explaining", console=terminal, transient=True, disable=not terminal.is_terminal)
    for number, (name, given, target) in enumerate(watched, start=1):
        loaded_model = resolve_model(name)
        row = [_explained(given, loaded_model, target, method) for method in METHODS]
        rows.append(row)
        titles.append(next(f"{cell.answer} · {name}" for cell in row if cell is not None))
        if not terminal.is_terminal:  # a log shows no bar
            print(f"{number} of {len(steps)}: {titles[-1]}", flush=True)
    report = folder / "index.html"
    with whole_file(report) as unfinished:
        page = html.comparison(rows, titles, list(METHODS), "Why these answers?")
        unfinished.write_text(page, encoding="utf-8")
    return report


def _explained(given: Any, loaded_model: Any, target: Target, method: str) -> Explanation | None:
    try:
        return explain(given, loaded_model, target, method)
    except UnsupportedModel:
        return None

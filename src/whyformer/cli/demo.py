"""The demo: bundled examples explained with the bundled models by every method, in one page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console

from whyformer.api.explain import explain
from whyformer.api.explain_continuation import continuation
from whyformer.cli.call_arguments import ABOUT_METHODS, DEFAULT_NAME
from whyformer.errors import UnsupportedModel
from whyformer.files import whole_file
from whyformer.methods.registry import trace_methods
from whyformer.models.loading import LoadedModel, resolve_model
from whyformer.models.zoo import ZOO
from whyformer.progress import track
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
REPLY_WORDS = 12  # at most, of the reply to it


def demo_examples() -> Iterator[tuple[str, Any, Target]]:
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


def write_demo(folder: Path, *, quiet: bool = False) -> list[Path]:
    """Explain every bundled example by the default and every method that applies, and write two pages.

    The first has a row per example, the second each word that mini-vlm writes about a scene, on its picture.
    """
    folder.mkdir(parents=True, exist_ok=True)
    is_terminal = Console(stderr=True).is_terminal
    columns: dict[str, str | None] = {DEFAULT_NAME: None, **{name: name for name in trace_methods()}}
    rows: list[list[Explanation | None]] = []
    titles: list[str] = []
    examples = list(demo_examples())
    for name, content, target in track(examples, "Explaining", progress=is_terminal and not quiet):
        model = resolve_model(name)
        row = [_explanation(content, model, target, method) for method in columns.values()]
        rows.append(row)
        titles.append(next(f"{cell.answer} · {name}" for cell in row if cell is not None))
        if not is_terminal and not quiet:  # a log shows no bar
            print(f"{len(rows)} of {len(examples)}: {titles[-1]}", flush=True)
    page = folder / "index.html"
    with whole_file(page) as unfinished:
        unfinished.write_text(
            html.comparison_page(rows, titles, list(columns), "Why these answers?", about=ABOUT_METHODS),
            encoding="utf-8",
        )
    scene = example(SCENE)
    words = folder / "words.html"
    continuation((scene.image, scene.question), model="mini-vlm", tokens=REPLY_WORDS).save(words)
    return [page, words]


def _explanation(content: Any, model: LoadedModel, target: Target, method: str | None) -> Explanation | None:
    try:
        return explain(content, model, target, method)
    except UnsupportedModel:
        return None

"""The demo: bundled examples explained with the bundled models by every method, in one page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from whyformer.api.explain import explain
from whyformer.api.explain_continuation import continuation
from whyformer.errors import UnsupportedModel
from whyformer.files import whole_file
from whyformer.methods.registry import trace_methods
from whyformer.models.loading import LoadedModel, resolve_model
from whyformer.models.zoo import ZOO
from whyformer.progress import track
from whyformer.render.coverage import finding
from whyformer.render.overview import Card, overview_page
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
OPEN_EXAMPLES = 3  # examples that are open
ABOUT = (
    "These answers are by small models that come with the package. Each explanation shows what its answer depends on: "
    "orange supports it, blue contradicts it. A colour is full at four times the average score of its map; random is "
    "noise, for comparison."
)


@dataclass(frozen=True)
class DemoExample:
    """An example of the demo: its model, its content, its target, its question in words, and its own page, if any."""

    model: str
    content: Any
    target: Target
    question: str
    page: str = ""


def demo_examples() -> Iterator[DemoExample]:
    """The examples, the most telling first."""
    scene = example(SCENE)
    question = scene.question.capitalize()
    yield DemoExample("mini-vit", CAT, "predicted", "Why cat?", "cat.html")
    yield DemoExample("mini-bert", REVIEW, "predicted", "Is this review positive?", "review.html")
    yield DemoExample("mini-lxmert", (scene.regions, scene.question), "predicted", question, "scene.html")
    yield DemoExample("mini-vit", CAT, contrast("cat", "dog"), "Why cat rather than dog?")
    yield DemoExample("mini-vit-mae", CAT, "predicted", "Why cat, for another model?")
    yield DemoExample("mini-news", POST, "predicted", "Which newsgroup?")
    yield DemoExample("mini-clip", (scene.image, scene.caption), "predicted", "Does the caption fit?")
    yield DemoExample("mini-clip", (CAT, ["a photo of a cat", "a photo of a dog"]), "predicted", "Which caption fits?")
    yield DemoExample("mini-detr", scene.image, "predicted", "Why was this object found?")
    yield DemoExample("mini-visualbert", (scene.regions, scene.question), "predicted", question)
    yield DemoExample("mini-gpt", "The acting is great, but the story is", "predicted", "What comes next?")
    described = f"{scene.question} {scene.description}", scene.reply.rpartition(" ")[0]
    yield DemoExample("mini-t5", described, "predicted", "What does it answer?")


def write_demo(folder: Path, *, quiet: bool = False) -> list[Path]:
    """Explain every bundled example by the default and every method that applies, and write pages.

    The index has each finding, with the other methods folded. Further pages let their reader remove parts of the first
    examples, and show each word that mini-vlm writes about a scene, on its picture.
    """
    folder.mkdir(parents=True, exist_ok=True)
    is_terminal = Console(stderr=True).is_terminal
    examples, cards, pages = list(demo_examples()), list[Card](), list[Path]()
    for one in track(examples, "Explaining", progress=is_terminal and not quiet):
        card = _card(one, resolve_model(one.model))
        cards.append(card)
        if one.page:
            pages.append(folder / one.page)
            card.explanation.save(pages[-1])
        if not is_terminal and not quiet:  # a log shows no bar
            print(f"{len(cards)} of {len(examples)}: {finding(card.explanation)}", flush=True)
    index, words, scene = folder / "index.html", folder / "words.html", example(SCENE)
    continuation((scene.image, scene.question), model="mini-vlm", tokens=REPLY_WORDS).save(words)
    links = {"Every word that a model writes about a picture, with its sources": words.name}
    with whole_file(index) as unfinished:
        unfinished.write_text(overview_page("Why these answers?", ABOUT, cards, OPEN_EXAMPLES, links), encoding="utf-8")
    return [index, words, *pages]


def _card(one: DemoExample, model: LoadedModel) -> Card:
    """The explanation by the default, and by each other method that applies."""
    default = explain(one.content, model, one.target)
    others = {name: _explanation(one, model, name) for name in trace_methods()}
    different = {
        name: other
        for name, other in others.items()
        if other is not None and (other.method, other.options) != (default.method, default.options)
    }
    return Card(one.question, default, different, one.page)


def _explanation(one: DemoExample, model: LoadedModel, method: str) -> Explanation | None:
    try:
        return explain(one.content, model, one.target, method)
    except UnsupportedModel:
        return None

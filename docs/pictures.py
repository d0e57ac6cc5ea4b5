"""Makes the pictures of README and docs from the bundled models.

python docs/pictures.py             # all of them
python docs/pictures.py strip       # those whose file names begin so
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path

import numpy as np
from PIL import Image

import whyformer
from whyformer.methods.registry import METHODS
from whyformer.models.zoo import ZOO
from whyformer.render import canvas
from whyformer.render.colour import rgb, score_scale
from whyformer.render.coverage import percent
from whyformer.render.heatmaps import overlay
from whyformer.render.text_spans import spans
from whyformer.results.explanation import Explanation
from whyformer.results.part import Part
from whyformer.results.response import Response
from whyformer.results.response_parts import TopSource
from whyformer.scenes import example

PICTURES = Path(__file__).parent / "pictures"
MOST_BYTES = 200_000
CAT = ZOO / "cat.jpg"
REVIEW = "The first half hour is slow, but then it turns into a wonderful, moving story with superb performances."
QUESTION = "Where is the key? Who has the hat?"
DOCUMENTS = [
    "Anna gave the key to Boris. Clara painted the violin green.",
    "Boris went to Rome. The hat is in the box. Hugo left the lamp in Lima.",
    "David has the box. Emil works as a tailor.",
]
SCENE = 3  # the seed of a plain scene with a plain question
PANEL, GAP = 312, 28
LEAST_SHARE = 0.1  # of a source in the strip: smaller ones are noise as often as sources


def text_picture(part: Part, width: int, size: int) -> Image.Image:
    """A text whose words are on the colours of their scores."""
    scale = score_scale(part.scores)

    def ground(score: float | None) -> canvas.RGB | None:
        return None if score is None else rgb(scale.colours(scale.strength(np.array(score)), "light"))

    words = canvas.chips((span.text, ground(span.score)) for span in spans(part, 0))
    return canvas.paragraph(words, width, size)


def panel(title: str, *bodies: Image.Image) -> Image.Image:
    heading = canvas.label(title, PANEL, 21, colour=canvas.INK, bold=True)
    return canvas.on_sheet(canvas.stack([heading, *bodies], gap=10), width=PANEL)


def caption(text: str) -> Image.Image:
    return canvas.label(text, PANEL, 18)


def strip() -> Image.Image:
    """What the library is for: two labels of one photograph, a review, a response with its sources, a written word."""
    panels = [labels_panel(), review_panel(), response_panel(), word_panel()]
    return canvas.on_sheet(canvas.side_by_side(panels, gap=GAP), margin=16)


def labels_panel() -> Image.Image:
    bodies = [
        body
        for explanation in whyformer.explain_targets(CAT, vit(), ["cat", "dog"])
        for body in (overlay(explanation.parts["image"], longest_side=250), caption(what_supports(explanation)))
    ]
    return panel("One photo, two labels", *bodies, legend())


def what_supports(explanation: Explanation) -> str:
    probability = explanation.probability
    assert probability is not None
    return f"supports “{explanation.target.strip()}” ({percent(probability)})"


def review_panel() -> Image.Image:
    explanation = whyformer.explain(REVIEW, bert())
    words = text_picture(explanation.parts["text"], PANEL, 23)
    return panel("A review", words, caption(what_supports(explanation)), legend())


def legend() -> Image.Image:
    """Which colour supports an answer, and which contradicts it."""
    scale = score_scale(np.array([-1.0, 1.0]))
    grounds = [rgb(scale.colours(np.array(strength), "light")) for strength in (0.8, -0.8)]
    return canvas.paragraph(canvas.chips([("for it", grounds[0]), (" ", None), ("against it", grounds[1])]), PANEL, 17)


def response_panel() -> Image.Image:
    response = explained_response(None)
    bodies = []
    for row, span in enumerate(response.rows):
        bodies.append(canvas.label(f"“{span.text.strip()}” comes from", PANEL, 19, colour=canvas.INK))
        bodies += sources_picture(first_sources(response, row, LEAST_SHARE), PANEL, 18)
    least = caption(f"sources of {LEAST_SHARE:.0%} or more")
    return panel("A reply and its sources", *bodies, caption(f"asked: {QUESTION}"), least)


def first_sources(response: Response, row: int, least: float = 0) -> list[TopSource]:
    """The two sentences of the documents that count most for a row, if they have this share at least."""
    ranked = response.top(len(response.sources), row=row)
    return [item for item in ranked if item.source.name != "user" and item.share >= least][:2]


def sources_picture(items: Sequence[TopSource], width: int, size: int) -> list[Image.Image]:
    """Sentences, each on the colour of its share."""
    scale = score_scale(np.array([item.share for item in items]))
    pictures = []
    for item in items:
        ground = rgb(scale.colours(scale.strength(np.array(item.share)), "light"))
        pictures.append(canvas.paragraph(canvas.chips([(f"{item.share:.0%} {item.source.text}", ground)]), width, size))
    return pictures


def word_panel() -> Image.Image:
    scene = example(SCENE)
    reply = whyformer.continuation((scene.image, scene.question), model="mini-vlm", tokens=len(scene.reply.split()))
    word = next(each for each in reply.explanations if each.target.strip() == scene.answer)
    side = (PANEL - 12) // 2
    picture = scene.image.resize((side, side), Image.Resampling.NEAREST)
    return panel(
        "A word about a scene",
        canvas.side_by_side([picture, overlay(word.parts["image"], longest_side=side)], gap=12),
        caption(f"asked: {scene.question}"),
        caption(what_supports(word)),
    )


def explained_response(method: str | None) -> Response:
    return whyformer.explain_response(QUESTION, model="mini-llm", context=DOCUMENTS, method=method)


def cat() -> Image.Image:
    return whyformer.explain(CAT, vit()).image()


def response() -> Image.Image:
    return explained_response(None).image()


def response_picture() -> Image.Image:
    return whyformer.explain_response((example(SCENE).image, "Describe the scene."), model="mini-vlm").image()


def method_picture(name: str) -> Image.Image:
    """What a method shows on a photograph and in a review; in a prompt or a scene where it is for nothing else."""
    if METHODS[name].kinds == ("response",):
        by_method = explained_response(name)
        return canvas.on_sheet(
            canvas.stack(sources_picture(first_sources(by_method, 0), 700, 20), gap=8), width=740, margin=8
        )
    if METHODS[name].kinds == ("image prompt",):
        scene = example(SCENE)
        word = whyformer.explain((scene.image, scene.question), "mini-vlm", scene.answer, name)
        return canvas.on_sheet(overlay(word.parts["image"], longest_side=260), width=740, margin=8)
    photograph = overlay(whyformer.explain(CAT, vit(), method=name).parts["image"], longest_side=300)
    review = text_picture(whyformer.explain(REVIEW, bert(), method=name).parts["text"], 400, 22)
    return canvas.on_sheet(canvas.side_by_side([photograph, review], gap=32), width=740, margin=8)


@cache
def vit() -> whyformer.LoadedModel:
    return whyformer.load("mini-vit")


@cache
def bert() -> whyformer.LoadedModel:
    return whyformer.load("mini-bert")


MADE: dict[str, Callable[[], Image.Image]] = {
    "strip": strip,
    "cat": cat,
    "response": response,
    "response_picture": response_picture,
    **{f"method-{name}": partial(method_picture, name) for name in METHODS if name != "at2"},  # learned first
}


def main() -> int:
    for name, picture in MADE.items():
        if name.startswith(tuple(sys.argv[1:]) or ("",)):
            path = PICTURES / f"{name}.png"
            # By k-means: the median cut alone gives a small thing the colour of a large one, a cyan star a blue.
            picture().quantize(256, kmeans=1).save(path, optimize=True)
            print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB", flush=True)
            if path.stat().st_size > MOST_BYTES:
                print(f"{path.name} is over {MOST_BYTES // 1000} kB.")
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

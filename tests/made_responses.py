"""Responses with scores that a test chooses: no model is asked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from PIL import Image

from whyformer.inputs.layouts import Patches
from whyformer.inputs.prompt import Prompt, PromptDocument
from whyformer.inputs.prompt_tokens import Token
from whyformer.inputs.sources import sources_of
from whyformer.inputs.spans import spans_of
from whyformer.removal.units import Ablation, Units
from whyformer.results.response import Response
from whyformer.results.response_parts import PartScores, ResponseToken, Sinks, part_sources

DOCUMENTS = {
    "almanac": "Oslo is cold. It is big.",
    "review": "The film was dull. The music was great.",
    "letter": "It rained all week.",
}
OTHERS = {" dull.": ((" slow.", 0.2), (" long.", 0.05)), " music": ((" food", 0.0004),)}  # likely tokens instead
QUESTION = "How was the film?"
TEXT = " The film was dull. The music was great."
#          almanac    review     letter question
SCORES = [[0.1, 0.0, 3.0, 0.5, 0.2, 1.2], [0.3, 0.1, 0.2, 2.0, 0.0, 1.0]]


def words(text: str, start: int = 0) -> list[tuple[str, int, int]]:
    """The words of a text, each with the space before it, and where they stand."""
    cuts = [place for place, letter in enumerate(text) if letter == " " and place] + [len(text)]
    return [(text[a:b], start + a, start + b) for a, b in zip([0, *cuts], cuts, strict=False)]


def made_prompt(documents: dict[str, str] = DOCUMENTS, question: str = QUESTION) -> Prompt:
    text, places = "", []
    for name, content in documents.items():
        places.append(PromptDocument(name, len(text), len(text) + len(f"{name}: {content}")))
        text += f"{name}: {content}\n\n"
    text += question
    tokens = tuple(Token(7, *word) for word in words(text))
    return Prompt(text, tokens, text, documents=tuple(places))


def made_response(
    scores=SCORES, *, prompt: Prompt | None = None, text: str = TEXT, units=None, sources=None, **changes
):
    """A Response of two sentences to three documents and a question."""
    prompt = made_prompt() if prompt is None else prompt
    tokens = tuple(
        ResponseToken(7, *word, -0.25 * number, 0.5 * number, number + 1, alternatives=OTHERS.get(word[0], ()))
        for number, word in enumerate(words(text))
    )
    rows = spans_of(text, tokens, units)
    made = Response(
        prompt=prompt,
        text=text,
        tokens=tokens,
        rows=rows,
        sources=sources_of(prompt, sources),
        scores=np.array(scores, dtype=np.float32),
        method="rollout",
        model="mini-gpt",
        sinks=(Sinks(0.5, 0.25, 0.125),) * len(rows),
        notes=("A note.",),
    )
    return replace(made, **changes)


HEAT = [[0.0, 4.0, 1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0, 0.0, 2.0]]  # of 2 rows and 3 columns of patches


def made_pictured(**changes):
    """The same response to a picture and the documents; a strip at its left and right is cut off."""
    noise = np.random.default_rng(5).integers(0, 255, (40, 80, 3), dtype=np.uint8)
    layout = Patches(Image.fromarray(noise), 2, 3, (10.0, 0.0, 70.0, 40.0))
    parts = {"image": PartScores(layout, np.array(HEAT, dtype=np.float32))}
    response = made_response(**changes)
    scores = np.concatenate([np.sum(HEAT, axis=1, keepdims=True), response.scores], axis=1).astype(np.float32)
    return replace(response, parts=parts, sources=(*part_sources(parts), *response.sources), scores=scores)


def source_ablation(sources, tokens, log_probabilities):
    """A response whose rows have so many tokens, as a function of which of its sources are kept."""
    units = Units(np.arange(sources), ((sources,),))

    def ask(_, masks):
        return np.asarray(log_probabilities(masks[0] > 0), dtype=np.float64)

    return Ablation((units,) * len(tokens), None, ask, tuple(tokens))

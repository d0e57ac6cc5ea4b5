"""The tab Picture + text: compare a picture with texts, ask about it, or describe it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from whyformer.api.explain import explain
from whyformer.api.explain_continuation import continuation
from whyformer.app.code import call, command, complete_code, explain_code
from whyformer.app.label_tabs import DEFAULT_LABEL
from whyformer.app.labels import label_choices, label_probabilities, text_probabilities
from whyformer.app.models import Tab
from whyformer.app.setup import Setup
from whyformer.app.tab_view import TabView, explanations_view
from whyformer.app.uploads import read_upload, regions_of_file
from whyformer.app.work import Work
from whyformer.errors import WhyformerError
from whyformer.models.loading import LoadedModel
from whyformer.render.continuation_view import continuation_view

TAB: Tab = "Picture + text"


@dataclass(frozen=True)
class Pair:
    """A picture with its texts or question.

    Attributes:
        picture: The file of the picture.
        regions: Instead, for a model of regions, their .npz file.
        text: The texts to compare it with, one per line; or the question, or the prompt.
        model: The model's name; by default the first of the tab.
        target: The text or label to explain; if None or unknown, the most likely one.
        method: The method's name.
    """

    picture: str | None = None
    regions: str | None = None
    text: str = ""
    model: str | None = None
    target: str | None = None
    method: str = DEFAULT_LABEL


def explain_pair(work: Work, setup: Setup, pair: Pair) -> TabView:
    """The picture and the text with the evidence for the answer in both."""
    lines = [line.strip() for line in pair.text.splitlines() if line.strip()]
    if not lines:
        raise WhyformerError("Type a text to compare the picture with, or a question, or click an example.")
    setup.limits.check_texts(*lines)
    setup.limits.check_count("texts", len(lines), setup.limits.documents)
    name, loaded_model = setup.models.name(pair.model, TAB), setup.models.open(pair.model, TAB)
    path, seen = _seen(pair, loaded_model, setup)
    file = Path(path).name
    method = None if pair.method == DEFAULT_LABEL else pair.method
    work.step(0, 1, f"{method or DEFAULT_LABEL} on {loaded_model.name}")
    if loaded_model.task.writes:
        return _explain_words(seen, "\n".join(lines), path, name, loaded_model, method, setup.limits.picture_tokens)
    compares = loaded_model.task.compares
    texts: Any = lines if compares else " ".join(lines)
    probabilities = (text_probabilities if compares else label_probabilities)((seen, texts), loaded_model)
    known = [one for one, _ in probabilities]
    target = pair.target if pair.target in known else known[0]
    explanation = replace(explain((seen, texts), loaded_model, target, method), file=file)
    code = explain_code(path, file, (file, texts), name, target, None, [method], extra={"text": texts})
    return replace(
        explanations_view([explanation], code, is_choice=True), choices=label_choices(probabilities), choice=target
    )


def _seen(pair: Pair, loaded_model: LoadedModel, setup: Setup) -> tuple[str, Any]:
    """The file that the model reads, and its content."""
    if not loaded_model.task.sees_regions:
        return pair.picture or "", read_upload(pair.picture, setup.limits)
    missing = f"{loaded_model.name} reads regions of a picture: upload their .npz file, or click an example."
    return pair.regions or "", regions_of_file(pair.regions, missing, setup.limits)


def _explain_words(
    seen: Any, prompt: str, path: str, name: str, loaded_model: LoadedModel, method: str | None, most: int
) -> TabView:
    """Explain each word that the model writes about the picture."""
    result = continuation((seen, prompt), loaded_model, tokens=most, method=method)
    file = Path(path).name
    python_call = call("whyformer.continuation", (file, prompt), model=name, tokens=most, method=method)
    lines = [f"continuation = {python_call}", 'continuation.save("continuation.html")']
    typed = {"model": name, "text": prompt, "tokens": most, "method": method, "out": "continuation.html"}
    code = complete_code(path, lines, [command("continue", file, **typed)])
    cut = f"This page limits its text about a picture to {most} tokens: it may be cut off."
    remark = cut if len(result.tokens) == most else ""
    opening = continuation_view(result).opening
    view = explanations_view(result.explanations, code, is_chosen_by_word=True, opening=opening, remark=remark)
    return replace(view, writers=dict.fromkeys((".html", ".png", ".json"), result.save), audit=None)

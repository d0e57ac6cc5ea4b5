"""The tabs Picture and Text: explain the label of an example."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from whyformer.api.explain import explain
from whyformer.app.code import explain_code
from whyformer.app.labels import label_choices, label_probabilities
from whyformer.app.models import Tab
from whyformer.app.setup import Setup
from whyformer.app.tab_view import TabView, explanations_view
from whyformer.app.uploads import read_upload
from whyformer.app.work import Work
from whyformer.errors import WhyformerError
from whyformer.targets.scores import contrast

DEFAULT_LABEL = "default"  # the name of the default method
METHODS_BESIDE = 2  # methods side by side


@dataclass(frozen=True)
class LabelQuestion:
    """Inputs of the Picture and Text tabs.

    Attributes:
        model: Its name; by default the first that the tab offers.
        label: The label to explain; by default, or if the model lacks it, the predicted one.
        rather_than: The label to contrast with, if any.
        methods: One or two methods; `default` is the default of `explain`.
    """

    model: str | None = None
    label: str | None = None
    rather_than: str | None = None
    methods: Sequence[str] = field(default_factory=lambda: [DEFAULT_LABEL])


def explain_picture(work: Work, setup: Setup, path: str | None, question: LabelQuestion) -> TabView:
    """The picture with the evidence for its label."""
    picture = read_upload(path, setup.limits)
    file = Path(path or "").name
    return _explain(work, setup, "Picture", picture, file, question, path)


def explain_text(work: Work, setup: Setup, text: str | None, question: LabelQuestion) -> TabView:
    """The text with its words coloured by their evidence for the label."""
    text = (text or "").strip()
    if not text:
        raise WhyformerError("Type a text first, or click an example.")
    setup.limits.check_texts(text)
    return _explain(work, setup, "Text", text, text, question)


def _explain(
    work: Work, setup: Setup, tab: Tab, example: Any, argument: str, question: LabelQuestion, path: str | None = None
) -> TabView:
    methods = chosen_methods(question.methods)
    setup.limits.check_count("methods", len(methods), METHODS_BESIDE)
    name, loaded_model = setup.models.name(question.model, tab), setup.models.open(question.model, tab)
    choices = label_choices(label_probabilities(example, loaded_model))
    known = [label for _, label in choices]
    label, other = (one if one in known else None for one in (question.label, question.rather_than))
    target = label or known[0]
    if target == other:
        raise WhyformerError(f"{target!r} cannot be explained against itself: choose another label, or none.")
    explanations = []
    for done, method in enumerate(methods):
        work.step(done, len(methods), f"{method or DEFAULT_LABEL} on {loaded_model.name}")
        explanations.append(explain(example, loaded_model, contrast(target, other) if other else target, method))
    if path is not None:
        explanations = [replace(one, file=argument) for one in explanations]
    code = explain_code(path, argument, argument, name, target, other, methods)
    return replace(explanations_view(explanations, code, is_choice=True), choices=choices, choice=target)


def chosen_methods(names: Sequence[str] | None) -> list[str | None]:
    """Methods for `explain`: None is the default, also if none is chosen."""
    return [None if name == DEFAULT_LABEL else name for name in dict.fromkeys(names or [DEFAULT_LABEL])]

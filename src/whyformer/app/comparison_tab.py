"""The tab Compare: methods side by side, for one or more labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from whyformer.api.explain import explain
from whyformer.app.code import Code, Expression, call, command, complete_code
from whyformer.app.label_tabs import DEFAULT_LABEL
from whyformer.app.labels import label_choices, label_probabilities
from whyformer.app.models import Tab
from whyformer.app.setup import Setup
from whyformer.app.tab_view import TabView, comparison_writers, framed
from whyformer.app.uploads import read_upload
from whyformer.app.work import Work
from whyformer.cli.compare_command import ComparisonGrid, method_calls
from whyformer.errors import UnsupportedModel, WhyformerError
from whyformer.render import html

COMPARED_TABS: tuple[Tab, ...] = ("Picture", "Text")


@dataclass(frozen=True)
class ComparisonInputs:
    """Inputs of a comparison: methods in columns, labels in rows.

    Attributes:
        picture: The file of a picture, for a model that reads pictures.
        text: A text, for a model that reads texts.
        model: The model's name; by default the first of the tab Picture.
        labels: One row each; the predicted one if the model has none of them.
        methods: One column each.
    """

    picture: str | None = None
    text: str = ""
    model: str | None = None
    labels: Sequence[str] = ()
    methods: Sequence[str] = (DEFAULT_LABEL,)


def compare_methods(work: Work, setup: Setup, inputs: ComparisonInputs) -> TabView:
    """A table of explanations; methods that do not apply to the model are left out with a note."""
    limits = setup.limits
    limits.check_count("methods", len(inputs.methods), limits.methods)
    limits.check_count("labels", len(inputs.labels), limits.labels)
    name, loaded_model = (
        setup.models.name(inputs.model, *COMPARED_TABS),
        setup.models.open(inputs.model, *COMPARED_TABS),
    )
    path = inputs.picture if loaded_model.task.sees_pictures else None
    argument, example = _example(inputs, setup, is_picture=loaded_model.task.sees_pictures)
    calls = method_calls(list(inputs.methods) or [DEFAULT_LABEL], [], None)
    choices = label_choices(label_probabilities(example, loaded_model))
    known = [label for _, label in choices]
    labels = [label for label in inputs.labels if label in known] or known[:1]
    cells: list[Any] = []
    left_out = []
    for done, (label, one) in enumerate(product(labels, calls)):
        work.step(done, len(labels) * len(calls), f"{one.title} for {label}")
        try:
            cells.append(explain(example, loaded_model, label, **one.arguments))
        except UnsupportedModel as reason:
            cells.append(None)
            left_out.append(f"{one.title}: {reason}")
    width = len(calls)
    grid = ComparisonGrid([cells[at : at + width] for at in range(0, len(cells), width)], calls, left_out).without_gaps
    if not grid.calls:
        raise UnsupportedModel(left_out[0])
    headings = [one.title for one in grid.calls]
    title = f"{loaded_model.name}, by {len(headings)} method{'s' * (len(headings) > 1)}"
    page = html.comparison_page(grid.rows, labels, headings, title, about=" ".join(dict.fromkeys(left_out)))
    return TabView(
        framed(page, title),
        _code(path, argument, name, labels, [one.title for one in calls]),
        comparison_writers(grid.rows, labels, headings, title),
        choices,
        labels,
    )


def _example(inputs: ComparisonInputs, setup: Setup, *, is_picture: bool) -> tuple[str, Any]:
    """The example for the model, and its name in code."""
    if is_picture:
        return Path(inputs.picture or "").name, read_upload(inputs.picture, setup.limits)
    text = inputs.text.strip()
    if not text:
        raise WhyformerError("This model reads texts: type one first, or click an example.")
    setup.limits.check_texts(text)
    return text, text


def _code(path: str | None, argument: str, model: str, labels: Sequence[str], methods: Sequence[str]) -> Code:
    named = [None if method == DEFAULT_LABEL else method for method in methods]
    example, label, method = map(Expression, ("example", "label", "method"))
    lines = [
        f"example = {argument!r}",
        "table = [",
        f"    [{call('whyformer.explain', example, model=model, target=label, method=method)}",
        f"     for method in {named!r}]",
        f"    for label in {list(labels)!r}",
        "]",
        "for row in table:",
        "    for explanation in row:",
        "        print(explanation)",
    ]
    typed = command("compare", argument, model=model, target=labels, method=methods, out="comparison.html")
    return complete_code(path, lines, [typed])

"""Input components shared by several tabs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import gradio as gr

from whyformer.app.label_tabs import DEFAULT_LABEL, METHODS_BESIDE
from whyformer.app.models import ModelChoice, Tab
from whyformer.app.result_area import keep_files
from whyformer.app.tab_view import TabView
from whyformer.app.visitors import Visitors
from whyformer.methods.registry import trace_methods


def picture_input(visitors: Visitors) -> gr.Image:
    """A picture, as the path of the uploaded file."""
    picture = gr.Image(
        label="Picture",
        type="filepath",
        sources=["upload", "clipboard"],
        image_mode=None,
        height=260,
        buttons=[],
        placeholder="Drop a picture, paste one, or click",
        elem_classes="picture",
    )
    # Gradio would open the file before the tab runs, and show errors of broken files in its own way.
    picture.preprocess = _path  # type: ignore[method-assign]
    keep_files(picture, visitors)
    return picture


def file_input(label: str, visitors: Visitors, *kinds: str, several: bool = False) -> gr.File:
    """A file of these kinds, or several, as the paths of the uploads."""
    count: Literal["single", "multiple"] = "multiple" if several else "single"
    files = gr.File(label=label, file_count=count, file_types=list(kinds), height=140)
    # Gradio would leave an empty file behind for each upload.
    files.preprocess = _paths if several else _path  # type: ignore[method-assign]
    keep_files(files, visitors)
    return files


def _path(payload: Any) -> str | None:
    return None if payload is None else str(payload.path)


def _paths(payload: Any) -> list[str]:
    return [] if payload is None else [str(file.path) for file in payload.root]


def model_input(models: ModelChoice, offered: Sequence[str]) -> gr.Dropdown:
    """One of the offered models, or any other if the page takes any."""
    return _with_any_name(gr.Dropdown(offered, value=offered[0], label="Model", allow_custom_value=models.takes_any))


def method_input(names: Iterable[str]) -> gr.Dropdown:
    """The default, or a method by name."""
    return _with_any_name(gr.Dropdown([DEFAULT_LABEL, *names], value=DEFAULT_LABEL, label="Method", min_width=180))


def labelled_inputs(models: ModelChoice, tab: Tab) -> list[Any]:
    """Model, label, other label and methods."""
    model = model_input(models, models.names[tab])
    with gr.Row(elem_classes="choices"):
        label, other = choice_input("Why this label"), choice_input("Rather than")
    methods = methods_input([DEFAULT_LABEL], METHODS_BESIDE, label="Method, or two side by side")
    return [model, label, other, methods]


def choice_input(label: str, most: int | None = None) -> gr.Dropdown:
    """One or several of a view's choices; other values are accepted too, since examples come before views."""
    several = most is not None
    return gr.Dropdown(
        [],
        value=[] if several else None,
        label=label,
        min_width=180,
        multiselect=several,
        max_choices=most,
        allow_custom_value=True,
    )


def methods_input(
    chosen: Sequence[str], most: int, *, label: str = "Methods", with_default: bool = True
) -> gr.Dropdown:
    """Methods by name, at most `most`."""
    names = [DEFAULT_LABEL, *trace_methods()] if with_default else list(trace_methods())
    return _with_any_name(gr.Dropdown(names, value=list(chosen), multiselect=True, max_choices=most, label=label))


def _with_any_name(choice: gr.Dropdown) -> gr.Dropdown:
    """Pass any name on to the tab.

    Gradio would reject names outside the list with a traceback in the log; the tab does so in one line.
    """
    choice.preprocess = _names if choice.multiselect else _name  # type: ignore[method-assign,assignment]
    return choice


def _name(payload: Any) -> str | None:
    return None if payload is None else str(payload)


def _names(payload: Any) -> list[str]:
    return [str(one) for one in payload] if isinstance(payload, list) else []


def count_input(label: str, most: int, *, info: str) -> gr.Slider:
    """A number of at least two."""
    count = gr.Slider(2, most, min(8, most), step=1, label=label, info=info)
    # The tab rejects numbers that are too large, and Gradio fails on values that are not numbers.
    count.preprocess = _count  # type: ignore[method-assign]
    return count


def _count(payload: Any) -> int:
    return int(payload) if isinstance(payload, (int, float)) and math.isfinite(payload) else 0


def example_buttons(*titles: str) -> list[gr.Button]:
    with gr.Row(elem_classes="examples"):
        return [gr.Button(title, size="sm", min_width=100) for title in titles]


def filled(event: Any, values: Sequence[Any], inputs: Sequence[Any]) -> Any:
    """Register an action that runs after an event has filled the inputs."""
    content = list(values) if len(values) > 1 else values[0]  # Gradio takes a single output's value directly
    return event(lambda: content, None, list(inputs), show_progress="hidden", api_visibility="private").then


def clicked_answer(html: gr.HTML, label: gr.Dropdown) -> Any:
    """Register an action that runs after a click on a likely answer has chosen it as the label."""

    def answer_of(event: gr.EventData) -> str:
        return str(event.answer)

    return html.select(answer_of, None, label, show_progress="hidden", api_visibility="private").then


def choice_updates(view: TabView) -> list[Any]:
    """The view's choices for a list; unchanged if it has none."""
    return [gr.update(choices=list(view.choices), value=view.choice)] if view.choices else []

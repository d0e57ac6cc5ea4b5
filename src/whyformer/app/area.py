"""Where a tab shows its result, and how an action fills it: progress, the view, its downloads and its code."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from whyformer.app.limits import Limits
from whyformer.app.view import SCRIPT, View, note, problem, progress_html
from whyformer.app.work import Progress, Stopped, Work, follow
from whyformer.errors import WhyformerError

SUFFIXES = (".html", ".png", ".json")
LOG = logging.getLogger("whyformer.app")

Action = Callable[..., View]
Updates = Callable[[View], Sequence[Any]]


@dataclass(frozen=True)
class Area:
    """The components of a result."""

    html: gr.HTML
    downloads: Sequence[gr.DownloadButton]
    python: gr.Code
    command: gr.Code
    stop: gr.Button

    @property
    def outputs(self) -> list[Any]:
        return [self.html, self.stop, *self.downloads, self.python, self.command]


def result_area(title: str, text: str) -> Area:
    """An area that says what will be in it."""
    html = gr.HTML(note(title, text), js_on_load=SCRIPT, apply_default_css=False, elem_classes="shown")
    stop = gr.Button("Stop", size="sm", variant="stop", visible=False, elem_classes="small")
    with gr.Row(elem_classes="bar"):
        names = [f"↓ {suffix[1:].upper()}" for suffix in SUFFIXES]
        downloads = [
            gr.DownloadButton(name, size="sm", interactive=False, min_width=0, elem_classes="small") for name in names
        ]
    with gr.Accordion("Code", open=False, elem_classes="code"):
        python = gr.Code(label="Python", language="python", interactive=False, wrap_lines=True)
        command = gr.Code(label="Command line", language="shell", interactive=False, wrap_lines=True)
    return Area(html, downloads, python, command, stop)


def serve(
    action: Callable[..., View], seconds: float, updates: Updates = lambda view: (), width: int = 0
) -> Callable[..., Iterator[list[Any]]]:
    """The action as Gradio calls it: an iterator over what the area shows.

    `updates` gives what else changes with the view, as many as `width`.
    """

    def run(*inputs: Any) -> Iterator[list[Any]]:
        for one in _views(lambda work: action(work, *inputs), seconds):
            if isinstance(one, Progress):
                yield [progress_html(one), gr.update(visible=True), *[gr.skip()] * (len(SUFFIXES) + 2 + width)]
                continue
            idle = [gr.update(interactive=False)] * len(SUFFIXES)
            code = [one.code.python, one.code.command] if one.code else ["", ""]
            others = list(updates(one)) or [gr.skip()] * width
            yield [one.html, gr.update(visible=False), *idle, *code, *others]
            if one.writers:
                # Gradio copies the files where it deletes them from; ours go when the iterator is closed.
                with tempfile.TemporaryDirectory(prefix="whyformer-app-") as folder:
                    paths = one.save(Path(folder))
                    buttons = [_download(paths.get(suffix)) for suffix in SUFFIXES]
                    yield [gr.skip(), gr.skip(), *buttons, *[gr.skip()] * (2 + width)]

    return run


def _views(action: Callable[[Work], View], seconds: float) -> Iterator[Progress | View]:
    """Progress and the view of an action; what goes wrong is a line of the page."""
    try:
        yield from follow(action, seconds)
    except Stopped:
        return
    except (WhyformerError, OSError) as error:
        yield problem(error)
    except Exception as error:
        LOG.exception("The page could not answer")
        yield problem(WhyformerError(f"This could not be answered ({type(error).__name__}): try another input."))


def _download(path: Path | None) -> Any:
    return gr.update(interactive=False) if path is None else gr.update(value=str(path), interactive=True)


def connect(
    triggers: Sequence[Any],
    action: Action,
    inputs: Sequence[Any],
    area: Area,
    limits: Limits,
    *,
    seconds: float | None = None,
    updates: Updates = lambda view: (),
    others: Sequence[Any] = (),
) -> None:
    """Run the action on each of the triggers, and stop it at the area's button."""
    events = [
        trigger(
            serve(action, seconds or limits.seconds, updates, len(others)),
            list(inputs),
            [*area.outputs, *others],
            concurrency_id="work",
            concurrency_limit=limits.at_once,
            show_progress="minimal",
            show_progress_on=area.html,
            trigger_mode="always_last",
            api_visibility="private",
        )
        for trigger in triggers
    ]
    area.stop.click(
        lambda: [note("Stopped", "Change something and try again."), gr.update(visible=False)],
        None,
        [area.html, area.stop],
        cancels=events,
        queue=False,
        show_progress="hidden",
        api_visibility="private",
    )

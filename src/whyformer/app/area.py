"""Where a tab shows its result, and how an action fills it: progress, the view, its downloads and its code."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from whyformer.app.code import Code
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
    """The components of a result; `view` is what the visitor sees in it, for what is made only when asked for."""

    html: Any
    stop: Any
    downloads: Sequence[Any]
    audit: Any
    audit_file: Any
    view: Any
    python: Any
    command: Any

    @property
    def outputs(self) -> list[Any]:
        audit = [self.audit, self.audit_file, self.view]
        return [self.html, self.stop, *self.downloads, *audit, self.python, self.command]


def result_area(title: str, text: str, limits: Limits) -> Area:
    """An area that says what will be in it."""
    small: dict[str, Any] = {"size": "sm", "min_width": 0, "elem_classes": "small"}
    html = gr.HTML(note(title, text), js_on_load=SCRIPT, apply_default_css=False, elem_classes="shown")
    stop = gr.Button("Stop", variant="stop", visible=False, **small)
    with gr.Row(elem_classes="bar"):
        names = [f"↓ {suffix[1:].upper()}" for suffix in SUFFIXES]
        downloads = [gr.DownloadButton(name, interactive=False, **small) for name in names]
        audit = gr.Button("Audit file", visible=False, **small)
        audit_file = gr.DownloadButton("↓ AUDIT", visible=False, **small)
    view = gr.State(None, time_to_live=limits.kept_seconds)
    with gr.Accordion("Code", open=False, elem_classes="code"):
        python = gr.Code(label="Python", language="python", interactive=False, wrap_lines=True)
        command = gr.Code(label="Command line", language="shell", interactive=False, wrap_lines=True)
    area = Area(html, stop, downloads, audit, audit_file, view, python, command)
    # It reads all weights again and asks the doctor: only for who wants it.
    audit.click(serve_audit(area), view, [audit, audit_file, html], show_progress_on=audit, api_visibility="private")
    return area


def serve(
    action: Callable[..., View],
    seconds: float,
    area: Area,
    updates: Updates = lambda view: (),
    others: Sequence[Any] = (),
) -> Callable[..., Iterator[dict[Any, Any]]]:
    """The action as Gradio calls it: an iterator over what changes of the area, and of the others by `updates`."""

    def run(*inputs: Any) -> Iterator[dict[Any, Any]]:
        for one in _views(lambda work: action(work, *inputs), seconds):
            if isinstance(one, Progress):
                yield {area.html: progress_html(one), area.stop: gr.update(visible=True)}
                continue
            code = one.code or Code("", "")
            yield {
                area.html: one.html,
                area.stop: gr.update(visible=False),
                **dict.fromkeys(area.downloads, gr.update(interactive=False)),
                area.audit: gr.update(visible=one.audit is not None),
                area.audit_file: gr.update(visible=False),
                area.view: one,
                area.python: code.python,
                area.command: code.command,
                **dict(zip(others, updates(one), strict=False)),
            }
            if not one.writers:
                continue
            # Gradio copies the files to where it deletes them from; ours go when the iterator is closed.
            with tempfile.TemporaryDirectory(prefix="whyformer-app-") as folder:
                paths = one.save(Path(folder))
                buttons = zip(area.downloads, SUFFIXES, strict=True)
                yield {
                    button: gr.update(value=str(paths[suffix]), interactive=True)
                    for button, suffix in buttons
                    if suffix in paths
                }

    return run


def serve_audit(area: Area) -> Callable[[View | None], Iterator[dict[Any, Any]]]:
    """The audit file of what the area shows."""

    def run(view: View | None) -> Iterator[dict[Any, Any]]:
        with tempfile.TemporaryDirectory(prefix="whyformer-app-") as folder:
            path = Path(folder) / "whyformer.audit.json"
            try:
                if view is None or view.audit is None:
                    raise WhyformerError("The result is no longer kept here: explain it again.")
                view.audit(path)
            except (WhyformerError, OSError) as error:
                yield {area.html: problem(error).html, area.audit: gr.update(visible=False)}
                return
            yield {area.audit: gr.update(visible=False), area.audit_file: gr.update(value=str(path), visible=True)}

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
            serve(action, seconds or limits.seconds, area, updates, others),
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

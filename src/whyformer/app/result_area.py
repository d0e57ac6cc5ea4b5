"""The result area of a tab, and how an action updates it: progress, the view, its downloads and code."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import gradio as gr
from gradio.utils import get_upload_folder

from whyformer.api.audit_reading import read_audit
from whyformer.app.code import Code
from whyformer.app.setup import Setup
from whyformer.app.tab_view import SCRIPT, TabView, note, problem, progress_html
from whyformer.app.visitors import Visitors, delete
from whyformer.app.work import Progress, Stopped, Work, follow
from whyformer.errors import WhyformerError
from whyformer.files import write_whole
from whyformer.render.audit_record import audit_record_page

SUFFIXES = (".html", ".png", ".json")
MOST_REMOVED = 64  # units in a choice of what to remove
LOG = logging.getLogger("whyformer.app")

TabAction = Callable[..., TabView]
Updates = Callable[[TabView], Sequence[Any]]


@dataclass(frozen=True)
class ResultArea:
    """The components of a result; `view` keeps the shown view for downloads made on demand."""

    html: Any
    stop: Any
    downloads: Sequence[Any]
    audit: Any
    audit_file: Any
    audit_page: Any
    view: Any
    python: Any
    command: Any
    what_if: Any

    @property
    def outputs(self) -> list[Any]:
        audit = [self.audit, self.audit_file, self.audit_page, self.what_if, self.view]
        return [self.html, *self.downloads, *audit, self.python, self.command]


def result_area(title: str, text: str, setup: Setup) -> ResultArea:
    """An empty area with a placeholder."""
    small: dict[str, Any] = {"size": "sm", "min_width": 0, "elem_classes": "small"}
    html = gr.HTML(note(title, text), js_on_load=SCRIPT, apply_default_css=False, elem_classes="shown")
    # Shown by the style sheet beside progress: Gradio loses the later of two changes of visibility that come close.
    stop = gr.Button("Stop", variant="stop", size="sm", min_width=0, elem_classes=["small", "stop-work"])
    with gr.Row(elem_classes="bar"):
        names = [f"↓ {suffix[1:].upper()}" for suffix in SUFFIXES]
        downloads = [gr.DownloadButton(name, interactive=False, **small) for name in names]
        what_if = gr.Button("What if …", visible=False, **small)
        audit = gr.Button("Audit file", visible=False, **small)
        audit_file = gr.DownloadButton("↓ AUDIT", visible=False, **small)
        audit_page = gr.DownloadButton("↓ RECORD", visible=False, **small)
    view = gr.State(None, time_to_live=setup.limits.kept_seconds)
    with gr.Accordion("Code", open=False, elem_classes="code"):
        plain: dict[str, Any] = {"interactive": False, "wrap_lines": True, "show_line_numbers": False}
        python = gr.Code(label="Python", language="python", **plain)
        command = gr.Code(label="Command line", language="shell", **plain)
    area = ResultArea(html, stop, downloads, audit, audit_file, audit_page, view, python, command, what_if)
    # It reads all weights again and runs the doctor: only on request.
    make = serve_audit(area, setup.visitors, setup.limits.seconds)
    audit.click(
        make,
        view,
        [audit, audit_file, audit_page, html],
        concurrency_id="work",
        concurrency_limit=setup.limits.at_once,
        show_progress_on=audit,
        api_visibility="private",
    )
    # It asks the model again: on request, and for each further choice of what to remove.
    ask = serve_what_if(area, setup.visitors, setup.limits.seconds)
    for event, inputs in ((what_if.click, [view]), (area.html.input, [view])):
        event(
            ask,
            inputs,
            [html, what_if],
            concurrency_id="work",
            concurrency_limit=setup.limits.at_once,
            show_progress="hidden",
            api_visibility="private",
        )
    return area


def tab_columns(title: str, text: str, setup: Setup) -> tuple[gr.Column, ResultArea]:
    """The input column of a tab, and its result area."""
    with gr.Row():
        inputs = gr.Column(scale=4, min_width=300)
        with gr.Column(scale=7, min_width=300):
            area = result_area(title, text, setup)
    return inputs, area


def serve(
    action: TabAction,
    area: ResultArea,
    visitors: Visitors,
    seconds: float,
    updates: Updates = lambda view: (),
    others: Sequence[Any] = (),
) -> Callable[..., Iterator[dict[Any, Any]]]:
    """Wrap an action for Gradio: an iterator over updates of the area, and of others by `updates`.

    A question that is superseded by a newer one of the same visitor stops updating.
    """

    def run(request: gr.Request, *inputs: Any) -> Iterator[dict[Any, Any]]:
        visitor = name_of(request)
        with visitors.work(visitor, area.html, seconds) as work:
            for one in _views(lambda work: action(work, *inputs), work):
                if work.is_stopped:
                    break
                if isinstance(one, Progress):
                    yield {**_emptied(area), area.html: progress_html(one)}
                    continue
                yield {**_shown(one, area), **dict(zip(others, updates(one), strict=False))}
                try:
                    paths = _save(one, work)
                except WhyformerError as error:
                    yield {**_emptied(area), area.html: problem(error).html}
                    break
                except Stopped:
                    break
                if work.is_stopped:
                    delete(paths.values())
                    break
                visitors.keep(visitor, area.html, paths.values())
                visitors.keep(visitor, area.audit_file, ())
                if paths:
                    buttons = zip(area.downloads, SUFFIXES, strict=True)
                    downloads = [(button, paths[suffix]) for button, suffix in buttons if suffix in paths]
                    yield {button: gr.update(value=str(path), interactive=True) for button, path in downloads}
            if work.is_stopped:
                yield gr.skip()  # otherwise Gradio would resend its last update over the newer one

    return run


def _save(view: TabView, work: Work) -> dict[str, Path]:
    """Write the downloads of a view, or none if its time does not suffice."""
    if not view.writers:
        return {}
    folder = download_folder()
    try:
        *_, paths = follow(lambda work: view.save(folder), work)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    assert isinstance(paths, dict)
    return paths


def _shown(view: TabView, area: ResultArea) -> dict[Any, Any]:
    """Updates that show a view before its downloads are written."""
    code = view.code or Code("", "")
    return {
        **_emptied(area),
        area.html: view.html,
        area.audit: gr.update(visible=view.audit is not None),
        area.what_if: gr.update(visible=view.what_if is not None),
        area.view: view,
        area.python: code.python,
        area.command: code.command,
    }


def _emptied(area: ResultArea) -> dict[Any, Any]:
    """Updates that clear an area: no downloads, audit file or code."""
    return {
        **dict.fromkeys(area.downloads, gr.update(interactive=False)),
        area.audit: gr.update(visible=False),
        area.audit_file: gr.update(visible=False),
        area.audit_page: gr.update(visible=False),
        area.what_if: gr.update(visible=False),
        area.view: None,
        area.python: "",
        area.command: "",
    }


def serve_audit(area: ResultArea, visitors: Visitors, seconds: float) -> Callable[..., dict[Any, Any]]:
    """The audit file of the shown result, and its readable record."""

    def run(request: gr.Request, view: TabView | None) -> dict[Any, Any]:
        visitor = name_of(request)
        try:
            if view is None or view.audit is None:
                raise WhyformerError("The result is no longer kept here: explain it again.")
            with visitors.work(visitor, area.audit_file, seconds) as work:
                paths = _save(TabView("", writers={".audit.json": view.audit}), work)
                paths[".audit.html"] = record = paths[".audit.json"].with_suffix(".html")
                write_whole(record, audit_record_page(read_audit(paths[".audit.json"])).encode())
        except (WhyformerError, OSError) as error:
            return {area.html: problem(error).html, area.audit: gr.update(visible=False)}
        except Stopped:
            return {area.audit: gr.update(visible=False)}
        visitors.keep(visitor, area.audit_file, paths.values())
        shown = {area.audit_file: ".audit.json", area.audit_page: ".audit.html"}
        buttons = {button: gr.update(value=str(paths[suffix]), visible=True) for button, suffix in shown.items()}
        return {area.audit: gr.update(visible=False), **buttons}

    return run


def serve_what_if(area: ResultArea, visitors: Visitors, seconds: float) -> Callable[..., dict[Any, Any]]:
    """The shown result with parts to remove by clicks; further choices are put to the model itself."""

    def run(request: gr.Request, view: TabView | None, event: gr.EventData) -> dict[Any, Any]:
        try:
            if view is None or view.what_if is None:
                raise WhyformerError("The result is no longer kept here: explain it again.")
            subset, ask = checked_units(_removed_units(event)), view.what_if
            with visitors.work(name_of(request), area.what_if, seconds) as work:
                *_, page = follow(lambda work: ask(subset), work)
        except (WhyformerError, OSError) as error:
            return {area.html: problem(error).html, area.what_if: gr.update(visible=False)}
        except Stopped:
            return {area.what_if: gr.update(visible=False)}
        return {area.html: page, area.what_if: gr.update(visible=False)}

    return run


def _removed_units(event: gr.EventData) -> Any:
    """The units that a click on the page asks to remove; nothing where the button opens it, whose event has no data."""
    try:
        return event.removed or []
    except (AttributeError, TypeError):
        return []


def checked_units(numbers: Any) -> frozenset[int]:
    """The numbers of removed units, as sent by a page."""
    if not isinstance(numbers, list) or len(numbers) > MOST_REMOVED or not all(type(one) is int for one in numbers):
        raise WhyformerError("The choice of what to remove was not understood: click again.")
    return frozenset(numbers)


def download_folder() -> Path:
    """A new folder with an unguessable name from which Gradio serves files."""
    folder = Path(get_upload_folder()) / uuid4().hex
    folder.mkdir(parents=True)
    return folder


def _views(action: Callable[[Work], TabView], work: Work) -> Iterator[Progress | TabView]:
    """Yield progress and the view of an action; errors become a line of the page."""
    try:
        yield from follow(action, work)
    except Stopped:
        return
    except (WhyformerError, OSError) as error:
        yield problem(error)
    except Exception as error:
        LOG.exception("The page could not answer")
        yield problem(WhyformerError(f"This could not be answered ({type(error).__name__}): try another input."))


def connect(
    triggers: Sequence[Any],
    action: TabAction,
    inputs: Sequence[Any],
    area: ResultArea,
    setup: Setup,
    *,
    seconds: float | None = None,
    updates: Updates = lambda view: (),
    others: Sequence[Any] = (),
) -> None:
    """Run the action on each of the triggers, and stop it at the area's button."""
    run = serve(action, area, setup.visitors, seconds or setup.limits.seconds, updates, others)
    events = [
        trigger(
            run,
            list(inputs),
            [*area.outputs, *others],
            concurrency_id="work",
            concurrency_limit=setup.limits.at_once,
            show_progress="minimal",
            show_progress_on=area.html,
            trigger_mode="multiple",
            api_visibility="private",
        )
        for trigger in triggers
    ]

    def stop(request: gr.Request) -> str:
        setup.visitors.stop(name_of(request), area.html)
        return note("Stopped", "Change something and try again.")

    area.stop.click(
        stop,
        None,
        area.html,
        cancels=events,
        queue=False,
        show_progress="hidden",
        api_visibility="private",
    )


def keep_files(component: Any, visitors: Visitors) -> None:
    """Delete a component's uploads when the visitor replaces or clears them."""

    def keep(request: gr.Request, sent: Any) -> None:
        paths = [Path(path).resolve() for path in ([sent] if isinstance(sent, str) else sent or ())]
        folder = Path(get_upload_folder()).resolve()  # examples are elsewhere, and are kept
        uploads = [path for path in paths if path.is_file() and path.is_relative_to(folder)]
        visitors.keep(name_of(request), component, uploads)

    component.change(keep, component, None, queue=False, show_progress="hidden", api_visibility="private")


def name_of(request: gr.Request) -> str:
    """Gradio's name for the page of a request."""
    return str(request.session_hash)

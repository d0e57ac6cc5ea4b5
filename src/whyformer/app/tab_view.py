"""Views of the tabs: HTML, downloads, and the code that reproduces them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from whyformer.app.code import Code
from whyformer.app.work import Progress
from whyformer.errors import reason_of
from whyformer.files import whole_file
from whyformer.inputs.layouts import Boxes, Patches
from whyformer.render import figure, html
from whyformer.render.coverage import percent
from whyformer.render.response_view import response_view
from whyformer.render.shades import declarations
from whyformer.render.source_view import RANKED, WRITTEN, SourcesView
from whyformer.render.text_spans import captioned_parts, number, readable, visible
from whyformer.render.view import ExplanationView, explanation_view, used_shades
from whyformer.render.what_if_view import what_if_view
from whyformer.results.explanation import Explanation
from whyformer.results.part import Part
from whyformer.results.response import Response
from whyformer.results.unit_effects import RemovalEffects

TAB_TEMPLATES = Environment(
    loader=ChoiceLoader([PackageLoader("whyformer.app"), PackageLoader("whyformer.render")]),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
TAB_TEMPLATES.filters["percent"] = percent
TAB_TEMPLATES.globals["today"] = html.today
PAGE_STYLE = TAB_TEMPLATES.get_template("app.css").render()
PASTE = TAB_TEMPLATES.get_template("paste.js").render()
SCRIPT = TAB_TEMPLATES.get_template("app.js").render(
    sources=TAB_TEMPLATES.get_template("sources.js").render(),
    removals=TAB_TEMPLATES.get_template("what_if.js").render(),
)

FileWriter = Callable[[Path], None]
Cells = list[tuple[float, float, float, float, str, str]]  # left, top, width, height in percent; name; score


@dataclass(frozen=True)
class TabView:
    """HTML of a result with its downloads and code.

    Attributes:
        html: A piece of the page; every string in it is escaped.
        code: Code with the same result; None if there is nothing to run yet.
        writers: Functions that write the downloads, by suffix.
        choices: The next choices as (shown text, name): labels with their probabilities.
        choice: The current choice.
        audit: A function that writes the audit file; None without one.
        what_if: A function that returns the HTML with parts to remove by clicks, and the model's answer without some
            of them; None if parts cannot be removed.
    """

    html: str
    code: Code | None = None
    writers: Mapping[str, FileWriter] = field(default_factory=dict)
    choices: Sequence[tuple[str, Any]] = ()
    choice: Any = None
    audit: FileWriter | None = None
    what_if: Callable[[frozenset[int]], str] | None = None

    def save(self, folder: Path) -> dict[str, Path]:
        """Write every download into the folder, and return the files by suffix."""
        paths = {suffix: folder / f"whyformer{suffix}" for suffix in self.writers}
        for suffix, path in paths.items():
            self.writers[suffix](path)
        return paths


def explanations_view(
    explanations: Sequence[Explanation],
    code: Code,
    *,
    is_chosen_by_word: bool = False,
    opening: int = 0,
    is_choice: bool = False,
    remark: str = "",
) -> TabView:
    """One explanation, or several of one example: side by side, or word by word of a continuation.

    `opening` is the word that is shown first. With `is_choice`, a click on a likely answer explains it.
    """
    shown = [shown_explanation(one) for one in explanations]
    context = {"is_chosen_by_word": is_chosen_by_word, "opening": opening, "is_choice": is_choice, "remark": remark}
    page = _page("explanations.html.j2", shown, **context)
    if len(explanations) > 1:
        return TabView(page, code, explanation_writers(explanations))
    (one,) = explanations
    what_if = ShownRemovals(one) if one.remover is not None and one.answers else None
    return TabView(page, code, explanation_writers(explanations), audit=one.save, what_if=what_if)


@dataclass(eq=False)
class ShownRemovals:
    """An explanation with parts to remove by clicks; the model's answers without some of them are kept."""

    explanation: Explanation
    effects: RemovalEffects | None = None

    def __call__(self, removed: frozenset[int]) -> str:
        """HTML with the model's answer without these units."""
        assert self.explanation.remover is not None
        self.effects = self.explanation.remover(self.explanation, [removed], self.effects)
        context = {"what_if": what_if_view(self.explanation, self.effects), "removed": sorted(removed)}
        shown = [shown_explanation(self.explanation)]
        return _page("explanations.html.j2", shown, **context)


@dataclass(frozen=True)
class ShownExplanation:
    """An explanation for the templates of the page; pictures have cells with readable scores."""

    view: ExplanationView
    target: str
    manner: str
    cells: Sequence[Cells | None]


def shown_explanation(explanation: Explanation) -> ShownExplanation:
    cells = [_cells(part) for _, part in captioned_parts(explanation)]
    word = visible(explanation.target.strip() or explanation.target)
    return ShownExplanation(explanation_view(explanation), word, explanation.manner, cells)


def detection_html(picture: str, finds: Sequence[Any], query: int, explanation: Explanation) -> str:
    """A picture with clickable boxes of detected objects, and the explained one."""
    one = shown_explanation(explanation)
    return _page("detection.html.j2", [one], picture=picture, finds=finds, query=query)


def _page(template: str, shown: Sequence[ShownExplanation], **context: Any) -> str:
    shades = {name: declarations(name) for name in used_shades(one.view for one in shown)}
    plain = {"what_if": None, "is_chosen_by_word": False, "opening": 0, "is_choice": False, "remark": ""}
    return TAB_TEMPLATES.get_template(template).render(**{**plain, "shades": shades, "shown": shown, **context})


def explanation_writers(explanations: Sequence[Explanation]) -> dict[str, FileWriter]:
    """The files of one explanation, or of several as a comparison."""
    if len(explanations) == 1:
        (explanation,) = explanations
        return {
            ".html": partial(explanation.save, what_if=False),  # it would ask the model again at every click
            **dict.fromkeys((".png", ".json"), explanation.save),
        }
    headings = [explanation.manner for explanation in explanations]
    return comparison_writers([list(explanations)], [explanations[0].target], headings, "Whyformer")


def comparison_writers(
    rows: Sequence[Sequence[Explanation | None]], titles: Sequence[str], headings: Sequence[str], title: str
) -> dict[str, FileWriter]:
    """The files of a table of explanations."""

    def write_page(path: Path) -> None:
        _write(path, html.comparison_page(rows, titles, headings, title))

    def write_picture(path: Path) -> None:
        figure.grid(rows, titles, headings).save(path, "PNG")

    def write_numbers(path: Path) -> None:
        named = [
            {"column": heading, **cell.to_dict()}
            for row in rows
            for heading, cell in zip(headings, row, strict=True)
            if cell is not None
        ]
        _write(path, json.dumps({"explanations": named}))

    return {".html": write_page, ".png": write_picture, ".json": write_numbers}


def response_piece(response: Response) -> TabView:
    """A response with clickable sentences."""
    view = response_view(response)
    return TabView(sources_html(view), writers=dict.fromkeys((".html", ".png", ".json"), response.save))


def sources_html(view: SourcesView) -> str:
    """A response and its prompt; the page's own script makes it clickable."""
    shades = {name: declarations(name) for name in view.shades}
    template = TAB_TEMPLATES.get_template("response.html.j2")
    return template.render(shades=shades, view=view, most=RANKED, written=WRITTEN)


def framed(page: str, title: str) -> str:
    """Embed a separate page in a frame that runs no scripts."""
    return TAB_TEMPLATES.get_template("framed.html.j2").render(page=page, title=title)


def framed_with_script(page: str, title: str) -> str:
    """Embed a page whose own script runs in a separate origin: it reaches nothing outside its frame."""
    return TAB_TEMPLATES.get_template("framed_with_script.html.j2").render(page=page, title=title)


def problem(error: BaseException) -> TabView:
    """An error as one line of the page."""
    return TabView(TAB_TEMPLATES.get_template("problem.html.j2").render(message=readable(reason_of(error))))


def progress_html(progress: Progress) -> str:
    """The progress of work, as a bar with the time left."""
    return TAB_TEMPLATES.get_template("progress.html.j2").render(progress=progress)


def note(title: str, text: str) -> str:
    """Placeholder where a result will appear."""
    return TAB_TEMPLATES.get_template("empty.html.j2").render(title=title, text=text)


def _cells(part: Part) -> Cells | None:
    """The box of each patch or region in percent of the picture, with its name and score; None for other parts."""
    layout = part.layout
    if not isinstance(layout, (Patches, Boxes)):
        return None
    order = sorted(range(len(part.scores)), key=lambda token: -abs(float(part.scores[token])))
    ranks = {token: rank for rank, token in enumerate(order, start=1)}
    cells: Cells = []
    for token, (box, name) in enumerate(zip(_boxes(layout), part.tokens, strict=True)):
        place = percents(layout.image.size, box)
        about = f"{number(float(part.scores[token]))} · {_ordinal(ranks[token])} of {len(order)}"
        cells.append((*place, readable(name), about))
    return cells


def percents(size: tuple[int, int], box: tuple[float, float, float, float]) -> tuple[float, float, float, float]:
    """Left, top, width and height of a box in percent of a picture of this size."""
    (width, height), (left, top, right, bottom) = size, box
    across, down = 100 / width, 100 / height
    place = (left * across, top * down, (right - left) * across, (bottom - top) * down)
    return round(place[0], 2), round(place[1], 2), round(place[2], 2), round(place[3], 2)


def _boxes(layout: Patches | Boxes) -> list[tuple[float, float, float, float]]:
    if isinstance(layout, Boxes):
        return list(layout.boxes)
    left, top, right, bottom = layout.box
    across, down = (right - left) / layout.columns, (bottom - top) / layout.rows
    return [
        (left + column * across, top + row * down, left + (column + 1) * across, top + (row + 1) * down)
        for row in range(layout.rows)
        for column in range(layout.columns)
    ]


def _ordinal(rank: int) -> str:
    ending = "th" if rank % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(rank % 10, "th")
    return f"{rank}{ending}"


def _write(path: Path, text: str) -> None:
    with whole_file(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")

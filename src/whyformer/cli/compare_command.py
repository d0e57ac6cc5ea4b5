"""`whyformer compare`: methods side by side, for one or more targets and models."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress, product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whyformer.cli import command_options
from whyformer.cli.call_arguments import (
    ABOUT_METHODS,
    DEFAULT_NAME,
    MethodCall,
    load_model,
    method_call,
    parse_options,
    split_option,
    target_of,
)
from whyformer.cli.command_options import METHOD, OUTPUT, QUESTION_PANEL
from whyformer.cli.console import announce, safe
from whyformer.cli.input_sources import is_table, open_inputs
from whyformer.cli.inputs import Input, example_of, read_inputs
from whyformer.errors import UnsupportedModel, WhyformerError
from whyformer.plugins import load_plugins
from whyformer.progress import track

if TYPE_CHECKING:
    from whyformer.models.loading import LoadedModel
    from whyformer.results.explanation import Explanation

COMPARISON = Path("comparison.html")
MOST_COMPARED = 64  # rows of a table, each explained by every method

ModelsOption = Annotated[
    list[str] | None,
    typer.Option(help="A bundled model, a folder, or a Hugging Face id; repeat for several rows. By default mini-vit."),
]
Targets = Annotated[
    list[str] | None, typer.Option(help=f"One row each. {command_options.TARGET}.", rich_help_panel=QUESTION_PANEL)
]
Methods = Annotated[
    list[str] | None,
    typer.Option(
        help=f"Methods to compare, including default; if none is given, the default ({command_options.DEFAULT_HELP}), "
        "then all that apply.",
        rich_help_panel=METHOD,
    ),
]
SharedOptions = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE", help="For every method that has this option; can be repeated.", rich_help_panel=METHOD
    ),
]
SharedBackward = Annotated[
    str | None,
    typer.Option(help="gradient, libra or attn_lrp, for every method that reads gradients.", rich_help_panel=METHOD),
]
OutPicture = Annotated[
    Path | None,
    typer.Option(
        help=f"A .html or .png file; by default {COMPARISON}, unless --json is given.", rich_help_panel=OUTPUT
    ),
]


@dataclass(frozen=True)
class ComparisonGrid:
    """Explanations: a row per model, target and input, and a column per method; None if it does not apply."""

    rows: list[list[Explanation | None]]
    calls: list[MethodCall]
    left_out: list[str]
    sources: Sequence[Input] = ()  # of the rows, if given on the command line

    @property
    def without_gaps(self) -> ComparisonGrid:
        """The grid without the rows and columns in which nothing applies."""
        columns = [number for number in range(len(self.calls)) if any(row[number] for row in self.rows)]
        rows = [[row[number] for number in columns] for row in self.rows if any(row)]
        sources = list(compress(self.sources, map(any, self.rows)))
        return ComparisonGrid(rows, [self.calls[number] for number in columns], self.left_out, sources)


def compare_command(
    input: Annotated[
        str, typer.Argument(metavar="INPUT", help=f"{command_options.INPUT[0].upper()}{command_options.INPUT[1:]}.")
    ],
    model: ModelsOption = None,
    target: Targets = None,
    pair: command_options.PairText = None,
    text: command_options.Texts = None,
    column: command_options.ColumnOption = None,
    lines: command_options.Lines = False,
    method: Methods = None,
    option: SharedOptions = None,
    backward: SharedBackward = None,
    plugin: command_options.Plugins = None,
    out: OutPicture = None,
    units: command_options.UnitName = "word",
    as_json: command_options.AsJson = False,
    quiet: command_options.Quiet = False,
    device: command_options.DeviceName = None,
    dtype: command_options.DtypeOption = None,
) -> None:
    """Compare methods side by side, for one or more labels, models and rows of a table; the default comes first."""
    from whyformer.cli.output import check_out_file
    from whyformer.inputs.read import strings_are_texts

    load_plugins(plugin or ())
    place = out or (None if as_json else COMPARISON)
    if place is not None:
        check_out_file(place, (".html", ".png"))
    calls = method_calls(method or [], option or [], backward)
    (source,) = read_inputs([input])
    models = [load_model(name, device=device, dtype=dtype, quiet=quiet) for name in model or ["mini-vit"]]
    sources = compared_inputs(source, models, column, lines=lines, quiet=quiet)
    rows = [
        (loaded_model, one, example_of(one, pair, text or [], loaded_model), target_of(label, loaded_model))
        for one, loaded_model, label in product(sources, models, target or ["predicted"])
    ]
    with strings_are_texts():  # files are paths by now; a row's text may look like one
        grid = explanation_grid(rows, calls, are_named=bool(method), is_tracked=not quiet and sys.stderr.isatty())
    if not grid.calls:
        raise UnsupportedModel(grid.left_out[0])
    if place is not None:
        write_grid(grid, place, source.title, len(models), units=units)
    if as_json:
        print_documents(grid)
    for note in dict.fromkeys(grid.left_out):
        announce(f"Left out: {safe(note)}", quiet=quiet, err=as_json)
    if place is not None:
        announce(f"Written to {safe(place)}", quiet=quiet, err=as_json)


def compared_inputs(
    source: Input, models: Sequence[LoadedModel], column: str | None, *, lines: bool, quiet: bool
) -> list[Input]:
    """The input, or the rows of a table or lines of a file; not a folder."""
    if not lines and not is_table(source) and column is None:
        return [source]
    settings: dict[str, Any] = {"column": column, "lines": lines, "most": MOST_COMPARED}
    for model in models[1:]:
        open_inputs([source], model, **settings, quiet=True)  # raises if it does not read texts
    return open_inputs([source], models[0], **settings, quiet=quiet)


def method_calls(names: Sequence[str], texts: Sequence[str], backward: str | None) -> list[MethodCall]:
    """The columns: methods by name, or the default and then all, each with the options that it has.

    The default is always that of `explain`, without the options of the others.
    """
    from whyformer.api.attribute import choose_method
    from whyformer.methods.registry import trace_methods

    methods = [choose_method(name)[0] for name in names or trace_methods() if name != DEFAULT_NAME]
    for name in dict.fromkeys(split_option(text)[0] for text in texts):
        if not any(name in method.all_options for method in methods):
            compared = ", ".join(method.name for method in methods) or DEFAULT_NAME
            raise WhyformerError(f"--option {name!r}: none of the compared methods has it ({compared}).")
    calls = {DEFAULT_NAME: method_call(None, [], None)}
    for method in methods:
        own = [text for text in texts if split_option(text)[0] in method.all_options]
        calls[method.name] = MethodCall(
            method.name, method.name, parse_options(method, own), _backward_of(method.name, backward)
        )
    if backward is not None and all(call.backward is None for call in calls.values()):
        choose_method(methods[0].name if methods else None, backward)  # raises with the reason
        raise WhyformerError(f"--backward {backward!r} has no effect: the {DEFAULT_NAME} keeps its own rules.")
    return [calls[name] for name in dict.fromkeys(names or [DEFAULT_NAME, *trace_methods()])]


def _backward_of(name: str, backward: str | None) -> str | None:
    """The backward rules of the method, if it reads gradients."""
    from whyformer.api.attribute import choose_method

    try:
        choose_method(name, backward)
    except WhyformerError:
        return None
    return backward


def explanation_grid(
    rows: Sequence[tuple[LoadedModel, Input, Any, Any]], calls: list[MethodCall], *, are_named: bool, is_tracked: bool
) -> ComparisonGrid:
    """Explain each row's example and target by each method, with reasons for cells left out."""
    from whyformer.api.explain import explain

    cells: list[Explanation | None] = []
    left_out: list[str] = []
    for (loaded_model, _, example, target), call in track(
        list(product(rows, calls)), "Explaining", progress=is_tracked
    ):
        try:
            cells.append(explain(example, loaded_model, target, **call.arguments))
        except UnsupportedModel as reason:
            if are_named:
                raise
            left_out.append(f"{call.title} on {loaded_model.name}: {reason}")
            cells.append(None)
    width = len(calls)
    table = [cells[start : start + width] for start in range(0, len(cells), width)]
    return ComparisonGrid(table, calls, left_out, [source for _, source, _, _ in rows]).without_gaps


def write_grid(grid: ComparisonGrid, out: Path, title: str, models: int, *, units: command_options.UnitsName) -> None:
    """Write the comparison as a page or a picture."""
    from whyformer.cli.output import writing
    from whyformer.files import whole_file
    from whyformer.render import figure, html

    titles = [_row_title(row, source, models) for row, source in zip(grid.rows, grid.sources, strict=True)]
    rows, headings = merge_default(grid.rows, [call.title for call in grid.calls])
    about = ABOUT_METHODS if "random" in headings else ""
    with writing(out), whole_file(out) as unfinished:
        if out.suffix.lower() == ".html":
            unfinished.write_text(
                html.comparison_page(rows, titles, headings, title, about=about, units=units), encoding="utf-8"
            )
        else:
            figure.grid(rows, titles, headings, units=units).save(unfinished, "PNG")


def merge_default(
    rows: Sequence[Sequence[Explanation | None]], headings: Sequence[str]
) -> tuple[list[list[Explanation | None]], list[str]]:
    """Drop the default's column if another shows the same; that one then comes first, and says so."""
    columns = list(range(len(headings)))
    default = headings.index(DEFAULT_NAME) if DEFAULT_NAME in headings else None
    twin = next((one for one in columns if default not in (None, one) and _are_same(rows, default, one)), None)
    if default is None:
        return [list(row) for row in rows], list(headings)
    if twin is None:
        methods = {cell.method for row in rows if (cell := row[default]) is not None}
        is_named = len(methods) == 1 and not methods & set(headings)
        named = [f"{min(methods)} (default)" if one == default and is_named else headings[one] for one in columns]
        return [list(row) for row in rows], named
    order = [twin, *(one for one in columns if one not in (twin, default))]
    named = [f"{headings[one]} (default)" if one == twin else headings[one] for one in order]
    return [[row[one] for one in order] for row in rows], named


def _are_same(rows: Sequence[Sequence[Explanation | None]], one: int | None, other: int) -> bool:
    """Whether two columns are by the same methods with the same options."""
    assert one is not None
    return all(_manner_of(row[one]) == _manner_of(row[other]) for row in rows)


def _manner_of(cell: Explanation | None) -> tuple[str, Any] | None:
    return None if cell is None else (cell.method, cell.options)


def print_documents(grid: ComparisonGrid) -> None:
    """Print every explanation as one line of JSON, with the heading of its column."""
    from whyformer.results.result_documents import explanation_document

    for row, source in zip(grid.rows, grid.sources, strict=True):
        for call, cell in zip(grid.calls, row, strict=True):
            if cell is not None:
                about = {"column": call.title} | ({} if source.label is None else {"label": source.label})
                typer.echo(json.dumps(about | explanation_document(cell, source.argument)))


def _row_title(row: Sequence[Explanation | None], source: Input, models: int) -> str:
    first = next(cell for cell in row if cell is not None)
    title = f"{first.target} · {first.model}" if models > 1 else first.target
    return title if source.text is None else f"{title} · {source.title}"

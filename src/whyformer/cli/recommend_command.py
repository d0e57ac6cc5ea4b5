"""`whyformer recommend`: recommend a method for a model and data."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from whyformer.cli import command_options
from whyformer.cli.command_options import METHOD, OUTPUT
from whyformer.cli.console import announce, safe
from whyformer.errors import WhyformerError
from whyformer.files import parse_json

DATA = (
    "A folder with a folder of pictures for each class, or a table of texts (.csv, .tsv, .jsonl, .json, .parquet; "
    "with a column text or similar, and a column label); with --reader, the data of that reader."
)


def recommend_command(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A bundled model, a folder, or a Hugging Face id.")],
    data: Annotated[Path | None, typer.Option(help=DATA)] = None,
    minutes: Annotated[float, typer.Option(help="The time limit.")] = 5.0,
    reader: Annotated[str | None, typer.Option(help="The reader of --data, such as eraser or scenes.")] = None,
    reader_option: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="An option of the reader; can be repeated.")
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DATA=MODEL",
            help="The model's name for a label of the data, or the text to compare its pictures with; can be repeated.",
        ),
    ] = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            metavar="'NAME OPTION=VALUE …'",
            help="A competing method, with its options; can be repeated. By default, eleven methods of every kind.",
            rich_help_panel=METHOD,
        ),
    ] = None,
    plugin: command_options.Plugins = None,
    out: Annotated[Path | None, typer.Option(help="A .html or .json file.", rich_help_panel=OUTPUT)] = None,
    as_json: command_options.AsJson = False,
    quiet: command_options.Quiet = False,
) -> None:
    """Recommend the method that explains this model best on this data, with its significance and failures."""
    from whyformer.benchmark.advice.recommend import recommend as give_advice
    from whyformer.cli.output import check_out_file, writing

    if out is not None:
        check_out_file(out, (".html", ".json"))
    advice = give_advice(
        model,
        data_source(data, reader, reader_option or ()),
        methods=[_method(text) for text in method] if method else None,
        minutes=minutes,
        labels=dict(_pair(text, "--label") for text in label or ()),
        plugins=plugin or (),
        progress=not quiet and not as_json,
    )
    if out is not None:
        with writing(out):
            advice.save(out)
    if as_json:
        typer.echo(json.dumps(advice.to_json(), ensure_ascii=False))
    else:
        announce(str(advice), quiet=quiet)
        if out is not None:
            announce(f"Written to {safe(out)}.", quiet=quiet)


def data_source(data: Path | None, reader: str | None, texts: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """The named reader of the data with its options, or the one that fits a folder or file."""
    from whyformer.benchmark.keyword_checks import path_arguments
    from whyformer.data.readers import reader_named

    settings = dict(_pair(text, "--reader-option") for text in texts)
    if reader is None:
        if data is None:
            raise WhyformerError(
                "No data: give --data, a folder of pictures or a table of texts, or a --reader that generates data."
            )
        reader = "image_folder" if data.is_dir() else "table"
    if data is not None:
        paths = path_arguments(reader_named(reader))
        place = next((name for name in ("folder", "path", *sorted(paths)) if name in paths), None)
        if place is None:
            raise WhyformerError(f"{reader} does not read files: leave --data out.")
        settings.setdefault(place, str(data))
    return reader, {name: _value(text) for name, text in settings.items()}


def _pair(text: str, option: str) -> tuple[str, str]:
    name, is_pair, value = text.partition("=")
    if not is_pair or not name:
        raise WhyformerError(f"{option} {text!r}: write NAME=VALUE.")
    return name, value


def _method(text: str) -> tuple[str, dict[str, Any]]:
    name, *pairs = text.split()
    settings = dict(_pair(pair, "--method") for pair in pairs)
    return name, {key: _value(value) for key, value in settings.items()}


def _value(text: str) -> Any:
    """Parse a number, true or false; anything else is a text."""
    with suppress(ValueError):
        value = parse_json(text)
        if isinstance(value, (bool, int, float)):
            return value
    return text

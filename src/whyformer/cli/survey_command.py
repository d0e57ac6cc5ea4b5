"""`whyformer survey`: the cues that drive a model over a data set, proven, in one report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from whyformer.cli import command_options
from whyformer.cli.call_arguments import load_model, method_call
from whyformer.cli.command_options import OUTPUT
from whyformer.cli.console import announce, safe
from whyformer.errors import WhyformerError


def survey_command(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A bundled model, a folder, or a Hugging Face id.")],
    data: Annotated[
        Path,
        typer.Argument(
            metavar="DATA",
            help="A table of texts (.csv, .tsv, .jsonl, .json, .parquet), with labels in the column label if any; a "
            "folder with a folder of pictures for each class; or one with the folders images and masks.",
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            help="The report, a .html file. Beside it: .json (`Survey.load`), .parquet (a row per cue), and .jsonl, "
            "with which a stopped survey goes on.",
            rich_help_panel=OUTPUT,
        ),
    ] = Path("report.html"),
    masks: Annotated[Path | None, typer.Option(help="The folder of masks, named as the pictures are.")] = None,
    should_ignore: Annotated[
        str | None,
        typer.Option(
            "--should-ignore",
            metavar="FILE|masks|REGION",
            help="Cues that should not matter: a text file with a word or phrase in each line; for pictures masks, or "
            "the name of a region, such as border.",
        ),
    ] = None,
    label: Annotated[
        list[str] | None,
        typer.Option(metavar="DATA=MODEL", help="The model's name for a label of the data; can be repeated."),
    ] = None,
    column: command_options.ColumnOption = None,
    method: command_options.MethodName = None,
    option: command_options.MethodOptions = None,
    backward: command_options.BackwardName = None,
    plugin: command_options.Plugins = None,
    seed: Annotated[int, typer.Option(help="The seed of everything random.")] = 0,
    quiet: command_options.OnlyErrors = False,
    device: command_options.DeviceName = None,
    dtype: command_options.DtypeOption = None,
) -> None:
    """Find out what drives a model over a data set: words or parts of pictures, proven by their removal."""
    from whyformer.cli.output import check_out_file, writing
    from whyformer.extras import extra
    from whyformer.plugins import load_plugins
    from whyformer.surveys.survey_call import survey

    check_out_file(out, (".html",))
    extra("scipy.stats")  # before any work
    load_plugins(plugin or ())
    call = method_call(method, option or (), backward)
    if not data.exists():
        raise WhyformerError(f"No file or folder {str(data)!r}.")
    loaded_model = load_model(model, device=device, dtype=dtype, quiet=quiet)
    with writing(out):
        result = survey(
            loaded_model,
            data,
            masks=masks,
            should_ignore=() if should_ignore is None else should_ignore,
            column=column,
            label_map=dict(_label(text) for text in label or ()),
            journal=out.with_suffix(".jsonl"),
            seed=seed,
            progress=not quiet,
            **call.arguments,
        )
        for suffix in (".html", ".json", ".parquet"):
            result.save(out.with_suffix(suffix))
    if not quiet:
        typer.echo(str(result))
    announce(f"Written to {safe(out)}", quiet=quiet)


def _label(text: str) -> tuple[str, str]:
    data, separator, model = text.partition("=")
    if not separator or not data or not model:
        raise WhyformerError(f"--label {text!r}: write DATA=MODEL, such as pos=positive.")
    return data, model

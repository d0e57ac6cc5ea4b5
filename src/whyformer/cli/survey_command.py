"""`whyformer survey`: the cues that drive a model over a data set, proven, in one report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from whyformer.cli import command_options, survey_options
from whyformer.cli.call_arguments import load_model, method_call
from whyformer.cli.console import announce, safe
from whyformer.errors import WhyformerError

SURVEY_FILES = (".html", ".json", ".parquet")


def survey_command(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A bundled model, a folder, or a Hugging Face id.")],
    data: survey_options.SurveyedData,
    out: survey_options.SurveyFile = Path("report.html"),
    pages: survey_options.PageCount = 24,
    masks: survey_options.MaskFolder = None,
    should_ignore: survey_options.ShouldIgnore = None,
    held_out: survey_options.HeldOut = None,
    lemmas: survey_options.LemmaFile = None,
    label: survey_options.LabelPairs = None,
    column: command_options.ColumnOption = None,
    method: command_options.MethodName = None,
    option: command_options.MethodOptions = None,
    backward: command_options.BackwardName = None,
    plugin: command_options.Plugins = None,
    seed: survey_options.RandomSeed = 0,
    engine: command_options.Engine = "local",
    quiet: command_options.OnlyErrors = False,
    device: command_options.DeviceName = None,
    dtype: command_options.DtypeOption = None,
) -> None:
    """Find out what drives a model over a data set: words or parts of pictures and sounds, proven by their removal."""
    from whyformer.cli.output import check_out_file, writing
    from whyformer.extras import extra
    from whyformer.plugins import load_plugins
    from whyformer.surveys.survey_call import survey

    check_out_file(out, (".html",))
    extra("scipy.stats")  # before any work
    load_plugins(plugin or ())
    call = method_call(method, option or (), backward)
    survey_options.check_data_files(data, (masks, should_ignore, held_out, lemmas), out, (*SURVEY_FILES, ".jsonl"))
    if engine == "ray" and (device is not None or dtype is not None):
        raise WhyformerError("--device and --dtype: a worker on Ray loads the model on its own device. Leave them out.")
    own = model if engine == "ray" else load_model(model, device=device, dtype=dtype, quiet=quiet)
    with writing(out):
        result = survey(
            own,
            data,
            masks=masks,
            should_ignore=() if should_ignore is None else should_ignore,
            held_out=held_out,
            lemmas=lemmas,
            column=column,
            label_map=survey_options.label_map(label),
            journal=out.with_suffix(".jsonl"),
            pages=out.with_name(f"{out.stem}-samples") if pages > 0 else None,
            most_pages=pages,
            seed=seed,
            engine=engine,
            progress=not quiet,
            **call.arguments,
        )
        for suffix in SURVEY_FILES:
            result.save(out.with_suffix(suffix))
    if not quiet:
        typer.echo(str(result))
    announce(f"Written to {safe(out)}", quiet=quiet)

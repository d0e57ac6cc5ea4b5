"""`whyformer evaluate`, `schema`, `report` and `demo`: measure methods on data, and show bundled examples."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from whyformer.cli import command_options
from whyformer.cli.command_options import MACHINE
from whyformer.cli.console import announce, complain, safe
from whyformer.plugins import load_plugins


def evaluate_command(
    suite: Annotated[
        Path, typer.Argument(metavar="SUITE.toml", help="The suite to measure: docs/guides/evaluation.md.")
    ],
    out: Annotated[
        Path, typer.Option(help="The folder of the tables; an interrupted run resumes, new methods are added.")
    ],
    data: Annotated[Path, typer.Option(help="The folder that the suite's paths are relative to.")] = Path(),
    plugin: command_options.Plugins = None,
    quiet: command_options.OnlyErrors = False,
    engine: Annotated[str, typer.Option(help="local, or ray: a Ray cluster.", rich_help_panel=MACHINE)] = "local",
) -> None:
    """Measure methods on a model and data as specified by a suite; an interrupted run can be resumed."""
    from whyformer.benchmark import NoUsableSample, run_suite
    from whyformer.benchmark.tables import unusable_reasons
    from whyformer.cli.output import check_out_folder, writing

    check_out_folder(out)
    settings: dict[str, Any] = {"data": data, "engine": engine, "plugins": plugin or (), "quiet": quiet}
    with writing(out):
        try:
            folder = run_suite(suite, out, **settings)
        except NoUsableSample as error:  # not a usage error, but nothing to report
            complain(str(error))
            raise typer.Exit(1) from error
    unusable = unusable_reasons(folder)
    if unusable:
        announce(f"{len(unusable)} of the samples could not be used: the report says why.", quiet=quiet, err=True)
    place = safe(folder)
    announce(f"Written to {place}: `whyformer report {place}` shows the results.", quiet=quiet)


def schema(plugin: command_options.Plugins = None) -> None:
    """Print the JSON schema of suite files, for completion and checks in editors."""
    from whyformer.benchmark import suite_schema

    load_plugins(plugin or ())
    typer.echo(json.dumps(suite_schema(), indent=1))


def report_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of `whyformer evaluate`.")],
    half: Annotated[str | None, typer.Option(help="first or second: report only this half of the samples.")] = None,
    against: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Another run of the suite: only list differences.")
    ] = None,
    quiet: command_options.OnlyErrors = False,
) -> None:
    """Write the tables, curves and examples of a run: report.html, report.md, results.json and curves."""
    from whyformer.benchmark import differences
    from whyformer.benchmark import report as write_report
    from whyformer.cli.output import writing

    if against is not None:
        typer.echo("\n".join(differences(folder, against, half=cast(Any, half))))
        return
    with writing(folder):
        page = write_report(folder, half=cast(Any, half))
    announce(f"Written to {safe(page)}: open it in a browser.", quiet=quiet)


def demo(
    out: Annotated[Path, typer.Option(help="The folder the page is written to.")] = Path("demo"),
    quiet: command_options.OnlyErrors = False,
) -> None:
    """Explain the bundled examples with the bundled models by every method, and write pages that show them."""
    from whyformer.cli.demo import write_demo
    from whyformer.cli.output import check_out_folder, writing

    check_out_folder(out)
    with writing(out):
        index, *_ = write_demo(out, quiet=quiet)
    announce(f"Written to {safe(index)}: open it in a browser.", quiet=quiet)

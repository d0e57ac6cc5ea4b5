"""`whyformer diff`: what changed between two models over a data set, with an exit code for pipelines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whyformer.cli import command_options, survey_options
from whyformer.cli.call_arguments import load_model, method_call
from whyformer.cli.command_options import OUTPUT
from whyformer.cli.console import announce, complain, safe
from whyformer.errors import WhyformerError

if TYPE_CHECKING:
    from whyformer.surveys.model_diff import ModelDiff

DIFF_FILES = (".html", ".json")
CHANGED_EXIT = 1
ChangedShare = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        help="Exit with code 1 if a larger share of the answers changed: 0 to 1.",
        rich_help_panel=OUTPUT,
    ),
]
ReasonsShare = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        help="Exit with code 1 if a larger share of the unchanged answers has other reasons: 0 to 1.",
        rich_help_panel=OUTPUT,
    ),
]
CueCount = Annotated[
    int | None,
    typer.Option(metavar="N", help="Exit with code 1 if the effects of more cues changed.", rich_help_panel=OUTPUT),
]
DiffFile = Annotated[
    Path,
    typer.Option(
        help="The report, a .html file. Next to it: .json (`ModelDiff.load`), and .first.jsonl and .second.jsonl, from "
        "which an interrupted comparison resumes.",
        rich_help_panel=OUTPUT,
    ),
]
CorrelationLimit = Annotated[
    float, typer.Option(help="The rank correlation below which the reasons of an answer count as changed.")
]


def diff_command(
    first: Annotated[str, typer.Argument(metavar="MODEL", help="The first model, such as the one in use.")],
    second: Annotated[str, typer.Argument(metavar="OTHER", help="The model to compare it with, with the same labels.")],
    data: survey_options.SurveyedData,
    out: DiffFile = Path("diff.html"),
    fail_if_changed: ChangedShare = None,
    fail_if_reasons_changed: ReasonsShare = None,
    fail_if_cues_changed: CueCount = None,
    limit: CorrelationLimit = 0.5,
    masks: survey_options.MaskFolder = None,
    label: survey_options.LabelPairs = None,
    column: command_options.ColumnOption = None,
    method: command_options.MethodName = None,
    option: command_options.MethodOptions = None,
    backward: command_options.BackwardName = None,
    plugin: command_options.Plugins = None,
    seed: survey_options.RandomSeed = 0,
    quiet: command_options.OnlyErrors = False,
    device: command_options.DeviceName = None,
    dtype: command_options.DtypeOption = None,
) -> None:
    """Compare two models over a data set: answers that changed, and answers that stayed for other reasons."""
    from whyformer.cli.output import check_out_file, writing
    from whyformer.extras import extra
    from whyformer.plugins import load_plugins
    from whyformer.surveys.diff_call import JOURNAL_NAMES, diff

    for name, share in (("changed", fail_if_changed), ("reasons-changed", fail_if_reasons_changed)):
        if share is not None and not 0 <= share <= 1:
            raise WhyformerError(f"--fail-if-{name} {share:g}: a share from 0 to 1.")
    check_out_file(out, (".html",))
    extra("scipy.stats")  # before any work
    load_plugins(plugin or ())
    call = method_call(method, option or (), backward)
    suffixes = [f".{name}.jsonl" for name in JOURNAL_NAMES]
    survey_options.check_data_files(data, (masks,), out, (*DIFF_FILES, *suffixes))
    models = [load_model(name, device=device, dtype=dtype, quiet=quiet) for name in (first, second)]
    with writing(out):
        result = diff(
            models[0],
            models[1],
            data,
            masks=masks,
            column=column,
            label_map=survey_options.label_map(label),
            limit=limit,
            journals=(out.with_suffix(suffixes[0]), out.with_suffix(suffixes[1])),
            seed=seed,
            progress=not quiet,
            **call.arguments,
        )
        for suffix in DIFF_FILES:
            result.save(out.with_suffix(suffix))
    if not quiet:
        typer.echo(str(result))
    announce(f"Written to {safe(out)}", quiet=quiet)
    failures = _failures(result, fail_if_changed, fail_if_reasons_changed, fail_if_cues_changed)
    for failure in failures:
        complain(failure)
    if failures:
        raise typer.Exit(CHANGED_EXIT)


def _failures(result: ModelDiff, changed: float | None, reasons: float | None, cues: int | None) -> list[str]:
    """A line for each limit that is exceeded."""
    lines = []
    if changed is not None and result.changed_share > changed:
        lines.append(f"{result.changed_share:.1%} of the answers changed, more than {changed:.1%}.")
    if reasons is not None and result.reasons_share > reasons:
        lines.append(
            f"{result.reasons_share:.1%} of the answers that stayed have other reasons, more than {reasons:.1%}."
        )
    if cues is not None and len(result.changed_cues) > cues:
        lines.append(f"The effects of {len(result.changed_cues)} cues changed, more than {cues}.")
    return lines

"""`whyformer support`: verdicts on a log of answers. `whyformer calibrate`: their thresholds and error rates."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from whyformer.cli import command_options
from whyformer.cli.command_options import FLAG, OUTPUT
from whyformer.cli.console import announce, complain, safe
from whyformer.errors import WhyformerError
from whyformer.files import parse_json, whole_file

if TYPE_CHECKING:
    from whyformer.cli.support_workers import SupportJob
    from whyformer.inputs.support_logs import LoggedAnswer
    from whyformer.render.support_report import ReportRow, ReportTotal

UNSUPPORTED_EXIT = 1
SERVER = "A served model"

ReportFile = Annotated[
    Path,
    typer.Option(
        help="The report, a .html file; the verdicts are kept next to it as .jsonl, to resume an interrupted run.",
        rich_help_panel=OUTPUT,
    ),
]
FailUnder = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        help="Exit with code 1 if a smaller share of the answers is free of unsupported and contradicted "
        "sentences: 0 to 1.",
        rich_help_panel=OUTPUT,
    ),
]
Budget = Annotated[
    int | None,
    typer.Option(metavar="N", help="The maximum number of forward passes per answer; by default no limit."),
]
CalibrationName = Annotated[
    str | None,
    typer.Option(
        metavar="FILE|NAME",
        help="A calibration, as written by `whyformer calibrate`, or the name of a model with a bundled one; by "
        "default the one for the model's weights.",
    ),
]
Url = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="The server of a served model, such as http://127.0.0.1:8000; --model is then its name "
        "there. A key is read from the environment variable WHYFORMER_API_KEY.",
        rich_help_panel=SERVER,
    ),
]
ApiOption = Annotated[
    Literal["completions", "vllm", "sglang"], typer.Option(help="The API of the server.", rich_help_panel=SERVER)
]
TokenizerName = Annotated[
    str | None,
    typer.Option(
        metavar="FOLDER",
        help="The tokenizer of a served model, whose chat template formats questions.",
        rich_help_panel=SERVER,
    ),
]
AnswerFolder = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Keep the answers of a served model, so that an interrupted run sends nothing twice.",
        rich_help_panel=SERVER,
    ),
]
MostRequests = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="The maximum number of requests of this run.", rich_help_panel=SERVER),
]
Concurrency = Annotated[
    int, typer.Option(metavar="N", min=1, help="The number of requests at once.", rich_help_panel=SERVER)
]
DryRun = Annotated[
    bool,
    typer.Option("--dry-run", metavar=FLAG, help="Only count the requests to a served model.", rich_help_panel=SERVER),
]
DataFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.jsonl",
        help='Your own labelled answers instead of generated ones: rows of a log with "labels", true or false for each '
        "sentence.",
    ),
]


def support_command(
    log: Annotated[
        Path,
        typer.Argument(
            metavar="LOG",
            help='Rows {"question", "documents", "answer"} or {"messages"}, as JSON Lines, or exported spans of '
            "OpenInference or OpenTelemetry GenAI.",
        ),
    ],
    model: command_options.ModelName = "mini-llm",
    out: ReportFile = Path("report.html"),
    fail_under: FailUnder = None,
    budget: Budget = None,
    calibration: CalibrationName = None,
    url: Url = None,
    api: ApiOption = "completions",
    tokenizer: TokenizerName = None,
    cache: AnswerFolder = None,
    requests: MostRequests = None,
    concurrency: Concurrency = 4,
    dry_run: DryRun = False,
    engine: command_options.Engine = "local",
    quiet: command_options.OnlyErrors = False,
    device: command_options.DeviceName = None,
    dtype: command_options.DtypeOption = None,
    batch_size: command_options.BatchSize = None,
) -> None:
    """Judge every sentence of a log of answers: from the documents, from memory, or not supported."""
    from whyformer.cli.output import check_out_file, writing
    from whyformer.inputs.support_logs import read_support_log
    from whyformer.render.support_report import support_report

    if fail_under is not None and not 0 <= fail_under <= 1:
        raise WhyformerError(f"--fail-under {fail_under:g}: a share from 0 to 1.")
    check_out_file(out, (".html",))
    options: dict[str, Any] = {"model": model, "device": device, "dtype": dtype, "batch_size": batch_size}
    options |= {"budget": budget, "calibration": calibration, "api": api, "tokenizer": tokenizer}
    job = _job(options, url, cache, requests=requests, concurrency=concurrency)
    if url is None and (cache is not None or requests is not None or dry_run):
        raise WhyformerError("--cache, --requests and --dry-run are for a served model: name its server by --url.")
    answers, errors = read_support_log(log)
    if dry_run:
        typer.echo(str(job.estimate(answers)))
        return
    with writing(out), _workers(job, len(answers), engine, quiet=quiet) as (settings, judge):
        done, problems = _judged(answers, settings, judge, out.with_suffix(".jsonl"), quiet=quiet)
    errors += problems
    rows = _report_rows(answers, done, settings)
    if not rows:
        raise WhyformerError(f"No answer of {str(log)!r} could be judged: {errors[0]}")
    totals = _totals(rows)
    calibration = rows[0].support.calibration
    with writing(out), whole_file(out) as unfinished:
        page = support_report(rows, totals, model=model, calibration=calibration, errors=errors, file=log.name)
        unfinished.write_text(page, encoding="utf-8")
    _say(totals, [f"{safe(log)}, {error}" for error in errors], out, quiet=quiet)
    share = sum(row.faults == 0 for row in rows) / len(rows)
    if errors or (fail_under is not None and share < fail_under):
        raise typer.Exit(UNSUPPORTED_EXIT)


def _job(options: Mapping[str, Any], url: str | None, cache: Path | None, **limits: Any) -> SupportJob:
    """How answers are judged: options of the model, and those of a server that runs it."""
    from whyformer.cli.support_workers import SupportJob

    server: dict[str, Any] = {
        "url": None if url is None else url.rstrip("/"),
        "cache": None if cache is None else str(cache),
    }
    return SupportJob(**options, **server, **limits)


def _say(totals: Sequence[ReportTotal], errors: Sequence[str], out: Path, *, quiet: bool) -> None:
    """Print errors, totals and the place of the report."""
    for error in errors:
        complain(error)
    for total in totals if not quiet else ():
        typer.echo(f"{total.name}: {total.text}")
    announce(f"Written to {safe(out)}", quiet=quiet)


def calibrate_command(
    model: Annotated[str, typer.Argument(help="A bundled model, a folder, or a Hugging Face id.")],
    data: DataFile = None,
    seeds: Annotated[int, typer.Option(help="How many generated answers of each kind.")] = 32,
    out: Annotated[
        Path | None, typer.Option(help="A .json file; by default where verdicts find it.", rich_help_panel=OUTPUT)
    ] = None,
    url: Url = None,
    api: ApiOption = "completions",
    tokenizer: TokenizerName = None,
    quiet: command_options.OnlyErrors = False,
    device: command_options.DeviceName = None,
    dtype: command_options.DtypeOption = None,
) -> None:
    """Find the thresholds and error rates of the verdicts of a model."""
    from whyformer.api.calibrate import calibrate, calibrate_on_log
    from whyformer.api.calibrations import save_calibration
    from whyformer.cli.support_workers import SupportJob
    from whyformer.inputs.support_logs import read_support_log

    if url is not None and out is None:
        raise WhyformerError(
            "--url: the weights of a served model are not known. Name a file with --out and pass it as --calibration."
        )
    loaded_model = SupportJob(model, device, dtype, url=url, api=api, tokenizer=tokenizer).load(quiet=quiet)
    if data is None:
        calibration = calibrate(loaded_model, seeds=seeds, progress=not quiet)
    else:
        answers, errors = read_support_log(data)
        if errors:
            raise WhyformerError(f"{safe(data)}, {errors[0]}")
        calibration = calibrate_on_log(loaded_model, answers, data.name, progress=not quiet)
    place = save_calibration(calibration, out)
    for verdict, error in calibration.errors.items():
        percent = f"{100 * error.rate:.0f} % [{100 * error.low:.0f}, {100 * error.high:.0f}]"
        typer.echo(f"{verdict}: wrong in {percent} of {error.count}")
    announce(f"Written to {safe(place)}", quiet=quiet)


Judge = Callable[[Sequence["LoggedAnswer"]], Iterator[Mapping[str, Any]]]


@contextmanager
def _workers(job: SupportJob, answers: int, engine: str, *, quiet: bool) -> Iterator[tuple[dict[str, Any], Judge]]:
    """Everything that verdicts depend on besides the answers, and the function that judges these."""
    from whyformer.cli.support_workers import SupportWorker, judge_here, judge_on_ray, ray_workers
    from whyformer.ray_actors import ray_session

    if engine == "local":
        worker = SupportWorker(job, quiet)
        yield worker.identity(), partial(judge_here, worker)
        return
    if job.url is not None:
        raise WhyformerError(
            "--engine ray loads the model on a cluster, and --url has a server that runs it: leave one out."
        )
    with ray_session() as ray:
        workers = ray_workers(job, answers)
        yield ray.get(workers[0].identity.remote()), partial(judge_on_ray, workers)


def _judged(
    answers: Sequence[LoggedAnswer], settings: dict[str, Any], judge: Judge, kept: Path, *, quiet: bool
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """The verdicts on all answers by digest, those of an earlier run included, and the errors of the others."""
    from whyformer.cli.response_batch import batch_progress
    from whyformer.cli.support_workers import digest_of

    done, errors = finished_lines(kept), []
    pending = [answer for answer in answers if digest_of(answer.text, settings) not in done]
    by_number = {answer.number: answer for answer in pending}
    with batch_progress(len(pending), len(answers), quiet=quiet) as advance:
        for line in judge(pending):
            answer = by_number[line["number"]]
            if "error" in line:
                errors.append(f"row {answer.number}: {line['error']}")
            else:
                digest = digest_of(answer.text, settings)
                done[digest] = {"digest": digest, "id": answer.name, "support": line["support"]}
                keep_line(kept, done[digest])
            advance()
    return done, errors


def keep_line(path: Path, line: dict[str, Any]) -> None:
    """Append a line; one that was cut off by a kill is ended first."""
    from whyformer.cli.response_batch import is_cut_off

    with path.open("a", encoding="utf-8") as file:
        file.write("\n" * is_cut_off(path) + json.dumps(line, allow_nan=False) + "\n")


def finished_lines(path: Path) -> dict[str, dict[str, Any]]:
    """The finished lines by digest, without one that was cut off."""
    lines: dict[str, dict[str, Any]] = {}
    for text in path.read_text(encoding="utf-8").splitlines() if path.is_file() else ():
        try:
            line = parse_json(text)
            lines[line["digest"]] = line
        except (ValueError, TypeError, KeyError):
            continue
    return lines


def _report_rows(
    answers: Sequence[LoggedAnswer], done: dict[str, dict[str, Any]], settings: dict[str, Any]
) -> list[ReportRow]:
    from whyformer.cli.support_workers import digest_of
    from whyformer.render.support_report import ReportRow
    from whyformer.results.response_schema import read_source
    from whyformer.results.support_schema import read_support

    rows = []
    for answer in answers:
        line = done.get(digest_of(answer.text, settings))
        if line is not None:
            question = answer.prompt if isinstance(answer.prompt, str) else answer.prompt[-1]["content"]
            rows.append(ReportRow(answer.name, question, read_support(line["support"], read_source)))
    return rows


def _totals(rows: Sequence[ReportRow]) -> list[ReportTotal]:
    """The share of answers without a fault, and of the sentences with each verdict."""
    from whyformer.api.calibrate import wilson
    from whyformer.inputs.verdicts import VERDICTS
    from whyformer.render.support_report import ReportTotal

    units = [unit for row in rows for unit in row.support.units]
    good = sum(row.faults == 0 for row in rows)
    totals = [ReportTotal("answers without an unsupported sentence", good, len(rows), *wilson(good, len(rows)))]
    for verdict in VERDICTS:
        count = sum(unit.verdict == verdict for unit in units)
        totals.append(ReportTotal(f"sentences: {verdict}", count, len(units), *wilson(count, len(units))))
    return totals

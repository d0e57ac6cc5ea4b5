"""`whyformer action`: whose doing a call of a tool is; a report on many transcripts."""

from __future__ import annotations

import copy
import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whyformer.cli import command_options
from whyformer.cli.call_arguments import load_model
from whyformer.cli.command_options import FLAG, OUTPUT, QUESTION_PANEL
from whyformer.cli.console import announce, complain, safe
from whyformer.cli.support_command import ApiOption, TokenizerName, Url
from whyformer.errors import WhyformerError
from whyformer.files import parse_json, whole_file

if TYPE_CHECKING:
    from whyformer.inputs.transcripts import Transcript
    from whyformer.models.loading import LoadedModel
    from whyformer.results.action import Action

UNEXPLAINED = 1

CallOption = Annotated[
    str | None,
    typer.Option(
        metavar="N|JSON",
        help='Which call of the last message to explain, from 0; or another call {"name", "arguments"}. '
        "By default the first, or, if the transcript ends without a call, what the model would call.",
        rich_help_panel=QUESTION_PANEL,
    ),
]
RivalOption = Annotated[
    str | None,
    typer.Option(
        "--contrast",
        metavar="JSON",
        help='Another call {"name", "arguments"}, to ask why the model did not make that one.',
        rich_help_panel=QUESTION_PANEL,
    ),
]
TrustOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=LABEL",
        help='A label other than the default (request, trusted, untrusted or model) for a kind ("user", "tool result") '
        "or a tool; can be repeated. By default results of tools are untrusted.",
        rich_help_panel=QUESTION_PANEL,
    ),
]
ToolsFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.json",
        help="JSON schemas of the tools, if the transcript lacks them.",
        rich_help_panel=QUESTION_PANEL,
    ),
]
TemplateFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.jinja",
        help="A chat template that writes tools, if the model's own does not.",
        rich_help_panel=QUESTION_PANEL,
    ),
]
ActionMethodName = Annotated[
    str | None,
    typer.Option(
        help="The method that chooses which parts of results are removed, by default generic_attention.",
        rich_help_panel=command_options.METHOD,
    ),
]
ActionBudget = Annotated[
    int | None,
    typer.Option(metavar="N", help="The maximum number of forward passes per call; by default no limit."),
]
BatchFlag = Annotated[
    bool,
    typer.Option(
        "--batch",
        metavar=FLAG,
        help="Explain many transcripts: TRANSCRIPT is a folder of .json files, or a .jsonl file. "
        "--out is an .html report, the most suspicious calls first; its .jsonl next to it serves to resume.",
        rich_help_panel=OUTPUT,
    ),
]
ActionOut = Annotated[
    Path | None,
    typer.Option(help="A .html, .json or .audit.json file; with --batch a .html report.", rich_help_panel=OUTPUT),
]


def action_command(
    transcript: Annotated[
        Path,
        typer.Argument(
            metavar="TRANSCRIPT",
            help='A .json file: {"messages", "tools"} as OpenAI and Hugging Face write them, or a list of messages.',
        ),
    ],
    model: command_options.ModelName = "mini-llm",
    call: CallOption = None,
    contrast: RivalOption = None,
    trust: TrustOption = None,
    tools: ToolsFile = None,
    chat_template: TemplateFile = None,
    url: Url = None,
    api: ApiOption = "completions",
    tokenizer: TokenizerName = None,
    method: ActionMethodName = None,
    budget: ActionBudget = None,
    batch: BatchFlag = False,
    out: ActionOut = None,
    as_json: command_options.AsJson = False,
    quiet: command_options.Quiet = False,
    device: command_options.DeviceName = None,
    dtype: command_options.DtypeOption = None,
    batch_size: command_options.BatchSize = None,
) -> None:
    """Show which message, tool result and words made an agent call a tool."""
    from whyformer.cli.output import check_out_file

    settings: dict[str, Any] = {"method": method, "budget": budget}
    settings |= {} if call is None else {"call": _json(call, "--call")}
    settings |= {} if contrast is None else {"contrast": _json(contrast, "--contrast")}
    settings |= {} if tools is None else {"tools": _json_file(tools, "--tools")}
    settings |= {} if not trust else {"trust": dict(_label(one) for one in trust)}
    template = None if chat_template is None else _text(chat_template, "--chat-template")
    if out is not None:
        check_out_file(out, (".html",) if batch else (".html", ".json", ".audit.json"))

    if url is not None and tokenizer is None:
        raise WhyformerError("--url needs --tokenizer FOLDER: messages become a text by its chat template.")

    def loaded() -> dict[str, Any]:
        if url is not None:
            return _served(url, model, api, str(tokenizer), template)
        return {"model": _with_template(load_model(model, device=device, dtype=dtype, quiet=quiet), template)}

    settings["batch_size"] = batch_size
    if batch:
        if out is None:
            raise WhyformerError("--batch needs an .html report for its results: name it with --out.")
        identity = {**settings, "batch_size": None, "model": model, "dtype": dtype, "template": template}
        identity |= {} if url is None else {"url": url, "api": api, "tokenizer": tokenizer}
        _explain_transcripts(transcript, out, loaded, settings, identity, quiet=quiet)
    else:
        _explain_transcript(
            transcript, out, loaded, settings | {"batch_size": batch_size}, as_json=as_json, quiet=quiet
        )


def _explain_transcript(
    path: Path, out: Path | None, loaded: Any, settings: Mapping[str, Any], *, as_json: bool, quiet: bool
) -> None:
    from whyformer.api.explain_action import explain_action
    from whyformer.cli.output import writing
    from whyformer.inputs.transcripts import read_transcript

    one = read_transcript(path)
    models = loaded()  # kept until the audit file is saved
    action = replace(explain_action(**{**one.arguments, **settings}, **models), file=path.name)
    if out is not None:
        with writing(out):
            action.save(out)
    if as_json:
        typer.echo(json.dumps(action.to_dict(), allow_nan=False))
    elif not quiet:
        typer.echo(action)
    if out is not None:
        announce(f"Written to {safe(out)}", quiet=quiet, err=as_json)


def _explain_transcripts(
    path: Path, out: Path, loaded: Any, settings: Mapping[str, Any], identity: Mapping[str, Any], *, quiet: bool
) -> None:
    from whyformer.cli.output import writing
    from whyformer.cli.support_command import finished_lines, keep_line
    from whyformer.inputs.transcripts import read_transcripts
    from whyformer.render.action_page import ActionRow, action_report, most_suspicious_first
    from whyformer.results.action_schema import read_action

    transcripts, errors = read_transcripts(path)
    kept = out.with_suffix(".jsonl")
    done = finished_lines(kept)
    digests = [_digest(one, identity) for one in transcripts]
    pending = [one for one, digest in zip(transcripts, digests, strict=True) if digest not in done]
    if pending:
        with writing(out):
            for line in _explained(loaded(), pending, len(transcripts), settings, identity, quiet=quiet):
                if "error" in line:
                    errors.append(line["error"])
                else:
                    keep_line(kept, line)
                    done[line["digest"]] = line
    rows = [
        ActionRow(one.name, read_action(done[digest]["action"]))
        for one, digest in zip(transcripts, digests, strict=True)
        if digest in done
    ]
    if not rows:
        raise WhyformerError(f"No transcript of {str(path)!r} could be explained: {errors[0]}")
    with writing(out), whole_file(out) as unfinished:
        page = action_report(rows, model=str(identity["model"]), errors=errors, file=path.name)
        unfinished.write_text(page, encoding="utf-8")
    for error in errors:
        complain(f"{safe(path)}, {error}")
    for row in most_suspicious_first(rows) if not quiet else ():
        figures = f"{row.action.dominance:+7.1f} {row.action.largest_dominance:+7.1f} nats"
        typer.echo(f"{figures}  {safe(row.name)}  {safe(row.action.headline)}")
    announce(f"Written to {safe(out)}", quiet=quiet)
    if errors:
        raise typer.Exit(UNEXPLAINED)


def _explained(
    models: Mapping[str, Any],
    transcripts: Sequence[Transcript],
    total: int,
    settings: Mapping[str, Any],
    identity: Mapping[str, Any],
    *,
    quiet: bool,
) -> Iterator[dict[str, Any]]:
    """A line for each transcript: its action, or its error."""
    from whyformer.api.explain_action import explain_action
    from whyformer.cli.response_batch import batch_progress
    from whyformer.results.action_schema import action_document

    with batch_progress(len(transcripts), total, quiet=quiet) as advance:
        for one in transcripts:
            try:
                action: Action = explain_action(**{**one.arguments, **settings}, **models)
            except (WhyformerError, RuntimeError) as error:  # torch's own, such as out of memory for one
                yield {"error": f"{one.name}: {' '.join(str(error).split())}"}
            else:
                yield {"digest": _digest(one, identity), "id": one.name, "action": action_document(action)}
            advance()


def _digest(transcript: Transcript, identity: Mapping[str, Any]) -> str:
    """The identity of a kept line: its transcript, the options, and the rule of verdicts."""
    from whyformer.results.action import VERDICT_RULE

    content = json.dumps([transcript.arguments, identity, VERDICT_RULE], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()[:24]


def _with_template(loaded_model: LoadedModel, template: str | None) -> LoadedModel:
    """The model with another chat template; the tokenizer may be shared, and is copied."""
    if template is None:
        return loaded_model
    copied = replace(loaded_model, processor=copy.deepcopy(loaded_model.processor))
    copied.tokenizer.chat_template = template
    return copied


def _served(url: str, model: str, api: Any, tokenizer: str, template: str | None) -> dict[str, Any]:
    """A model that is only served, with the tokenizer whose chat template writes messages."""
    from whyformer.cli.support_workers import KEY_VARIABLE
    from whyformer.models.processors import load_tokenizer
    from whyformer.served.endpoint import Endpoint

    own = load_tokenizer(tokenizer)
    if template is not None:
        own.chat_template = template
    return {"score": Endpoint(url.rstrip("/"), model, os.environ.get(KEY_VARIABLE), api), "processor": own}


def _label(text: str) -> tuple[str, str]:
    name, equals, label = text.rpartition("=")
    if not equals:
        raise WhyformerError(f"--trust {text!r}: write it as name=label.")
    return name, label


def _json(text: str, option: str) -> Any:
    try:
        return parse_json(text)
    except ValueError as error:
        raise WhyformerError(f"{option} {text!r:.60} is not JSON ({error}).") from error


def _json_file(path: Path, option: str) -> Any:
    try:
        return parse_json(_text(path, option))
    except json.JSONDecodeError as error:
        raise WhyformerError(f"{option} {str(path)!r} is not JSON (line {error.lineno}: {error.msg}).") from error


def _text(path: Path, option: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise WhyformerError(f"{option} {str(path)!r} cannot be read: {error.strerror}.") from error

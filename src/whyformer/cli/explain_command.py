"""`whyformer explain` and `whyformer continue`: explain a model's answer, or its continuation."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from whyformer.cli import command_options
from whyformer.cli.call_arguments import load_model, method_call, parse_question
from whyformer.cli.command_options import QUESTION_PANEL
from whyformer.cli.console import announce, safe
from whyformer.cli.input_sources import has_several, open_inputs
from whyformer.cli.inputs import Input, example_of, numbered_stems, read_inputs
from whyformer.errors import WhyformerError
from whyformer.plugins import load_plugins

if TYPE_CHECKING:
    from whyformer.cli.call_arguments import MethodCall
    from whyformer.models.loading import LoadedModel
    from whyformer.results.explanation import Explanation


def explain_command(
    inputs: Annotated[list[str], typer.Argument(metavar="INPUT", help=f"Each {command_options.INPUT}.")],
    model: command_options.ModelName = "mini-vit",
    target: command_options.TargetName = "predicted",
    rather_than: command_options.OtherTarget = None,
    pair: command_options.PairText = None,
    text: command_options.Texts = None,
    query: command_options.Query = None,
    place: command_options.AtOption = None,
    each: command_options.Each = False,
    template: command_options.Template = None,
    column: command_options.ColumnOption = None,
    lines: command_options.Lines = False,
    truncate: command_options.Truncate = False,
    method: command_options.MethodName = None,
    option: command_options.MethodOptions = None,
    backward: command_options.BackwardName = None,
    plugin: command_options.Plugins = None,
    out: command_options.OutOption = None,
    format: command_options.FormatOption = None,
    sign: command_options.Sign = None,
    units: command_options.UnitName = "word",
    as_json: command_options.AsJson = False,
    quiet: command_options.Quiet = False,
    device: command_options.DeviceName = None,
    dtype: command_options.DtypeOption = None,
    batch_size: command_options.BatchSize = None,
) -> None:
    """Show which parts of an image or a text the answer depends on."""
    from whyformer.api.explain import explain_batch
    from whyformer.cli.output import destination_of
    from whyformer.inputs.read import strings_are_texts

    load_plugins(plugin or ())
    call = method_call(method, option or [], backward)
    if each and (target, rather_than, query, place) != ("predicted", None, None, None):
        raise WhyformerError("--each explains every answer of the model: leave the target out.")
    sources = read_inputs(inputs)
    is_several = each or lines or len(sources) > 1 or has_several(sources)
    destination_of(out, format, 1 + is_several, sign)  # checked before any work
    loaded_model = load_model(model, device=device, dtype=dtype, quiet=quiet)
    sources = open_inputs(sources, loaded_model, column=column, lines=lines, quiet=quiet)
    destination = destination_of(out, format, max(len(sources), 1 + is_several), sign)
    examples = [example_of(source, pair, text or [], loaded_model, template) for source in sources]
    with strings_are_texts():  # files are paths by now; the text of a row may be the name of one
        if each:
            sources, explanations = explain_every_answer(sources, examples, loaded_model, truncate, call, quiet=quiet)
        else:
            question = parse_question(target, rather_than, query, place, loaded_model)
            progress = len(sources) > 1 and not quiet and sys.stderr.isatty()
            settings = {"truncate": truncate, "batch_size": batch_size, "progress": progress, **call.arguments}
            explanations = explain_batch(examples, loaded_model, question, **settings)
    if destination is not None and explanations:
        destination.write(explanations, list(numbered_stems(sources)), units=units)
    print_explanations(sources, explanations, has_titles=len(examples) > 1, units=units, as_json=as_json, quiet=quiet)
    if destination is not None and explanations:
        announce(f"Written to {safe(destination.path)}", quiet=quiet, err=as_json)


def explain_every_answer(
    sources: Sequence[Input],
    examples: Sequence[Any],
    loaded_model: LoadedModel,
    truncate: bool,
    call: MethodCall,
    *,
    quiet: bool,
) -> tuple[list[Input], list[Explanation]]:
    """Explain every answer to each input, and return the explanations with their inputs."""
    from whyformer.api.multiple_targets import explain_targets

    owners, explanations = [], []
    for source, example in zip(sources, examples, strict=True):
        of_source = explain_targets(example, loaded_model, truncate=truncate, **call.arguments)
        if not of_source:
            announce(f"{source.title}: {loaded_model.name} finds nothing to explain.", quiet=quiet, err=True)
        owners += [source] * len(of_source)
        explanations += of_source
    return owners, explanations


def print_explanations(
    sources: Sequence[Input],
    explanations: Sequence[Explanation],
    *,
    has_titles: bool,
    units: command_options.UnitsName,
    as_json: bool,
    quiet: bool,
) -> None:
    """Print each explanation, with the name of its input if there are several, or as one line of JSON."""
    from whyformer.render.terminal import explanation_text
    from whyformer.results.result_documents import explanation_document

    for source, explanation in zip(sources, explanations, strict=True):
        if as_json:
            label = {} if source.label is None else {"label": source.label}
            typer.echo(json.dumps(label | explanation_document(explanation, source.argument)))
        elif not quiet:
            if has_titles:
                typer.echo(source.title)
            typer.echo(explanation_text(explanation, units=units))


def continue_(
    input: Annotated[
        str,
        typer.Argument(
            metavar="INPUT",
            help="The text or text file to continue, or - for stdin; for a model that writes about pictures the "
            "picture, with the prompt as --text.",
        ),
    ],
    model: command_options.ModelName = "mini-gpt",
    tokens: Annotated[
        int, typer.Option(help="The maximum number of tokens to write.", rich_help_panel=QUESTION_PANEL)
    ] = 8,
    pair: command_options.PairText = None,
    text: command_options.Texts = None,
    truncate: command_options.Truncate = False,
    prior: command_options.Prior = False,
    method: command_options.MethodName = None,
    option: command_options.MethodOptions = None,
    backward: command_options.BackwardName = None,
    plugin: command_options.Plugins = None,
    out: command_options.OutFile = None,
    units: command_options.UnitName = "word",
    as_json: command_options.AsJson = False,
    quiet: command_options.Quiet = False,
    device: command_options.DeviceName = None,
    dtype: command_options.DtypeOption = None,
    batch_size: command_options.BatchSize = None,
) -> None:
    """Let a model write, and show which earlier words each token depends on."""
    from whyformer.api.explain_continuation import continuation
    from whyformer.cli.output import FILE_SUFFIXES, check_out_file, writing
    from whyformer.results.result_documents import continuation_document

    load_plugins(plugin or ())
    call = method_call(method, option or [], backward)
    if out is not None:
        check_out_file(out, FILE_SUFFIXES)
    (source,) = read_inputs([input])
    loaded_model = load_model(model, device=device, dtype=dtype, quiet=quiet)
    if not loaded_model.task.writes:
        raise WhyformerError(
            f"{loaded_model.name} does not write text: use `whyformer explain`, or choose another with --model."
        )
    settings: dict[str, Any] = {**call.arguments, "tokens": tokens, "truncate": truncate, "prior": prior}
    if batch_size is not None:
        settings["batch_size"] = batch_size
    result = continuation(example_of(source, pair, text or [], loaded_model), loaded_model, **settings)
    if out is not None:
        with writing(out):
            result.save(out, units=units)
    if as_json:
        typer.echo(json.dumps(continuation_document(result, input)))
    elif not quiet:
        typer.echo(result)
    if out is not None:
        announce(f"Written to {safe(out)}", quiet=quiet, err=as_json)

"""`whyformer response`: explain a response by parts of its prompt."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from whyformer.cli import command_options
from whyformer.cli.call_arguments import load_model, response_method_call
from whyformer.cli.command_options import OUTPUT, QUESTION_PANEL
from whyformer.cli.console import announce, complain, safe
from whyformer.cli.inputs import typed_text
from whyformer.errors import WhyformerError
from whyformer.files import parse_json
from whyformer.plugins import load_plugins

if TYPE_CHECKING:
    from whyformer.results.response import Response

UNFINISHED = 1  # the exit code if lines of a batch could not be explained

ResponseText = Annotated[
    str | None,
    typer.Option(
        metavar="FILE|TEXT",
        help="The response, exactly as it follows the prompt; by default the model writes it.",
        rich_help_panel=QUESTION_PANEL,
    ),
]
Documents = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILE|TEXT",
        help="A document that the prompt asks about, or its file; can be repeated.",
        rich_help_panel=QUESTION_PANEL,
    ),
]
Messages = Annotated[
    Path | None,
    typer.Option(
        metavar="CHAT.json",
        help='Instead of a prompt: a list of messages {"role": …, "content": …}, for a model with a chat template.',
        rich_help_panel=QUESTION_PANEL,
    ),
]
Images = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILE",
        help="A picture that the prompt is about, for a model that writes about pictures; can be repeated.",
        rich_help_panel=QUESTION_PANEL,
    ),
]
SoundFile = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Instead of a prompt: a sound, for a model that transcribes.",
        rich_help_panel=QUESTION_PANEL,
    ),
]
ContrastOption = Annotated[
    str | None,
    typer.Option(metavar="FILE|TEXT", help="Another response to contrast with.", rich_help_panel=QUESTION_PANEL),
]
FocusOption = Annotated[
    str | None,
    typer.Option(
        metavar="none|sources|W,W,…",
        help="Weights of the response's tokens in the explained score: 1 each, only for those that the sources make "
        "likelier, or a number for each token. By default those that the sources make likelier if no --method is "
        "named and the prompt is a text; otherwise 1 each.",
        rich_help_panel=QUESTION_PANEL,
    ),
]
UnitsOption = Annotated[
    str | None,
    typer.Option(
        help="The spans of the response: response, sentence, word, token, or a quotation. By default sentences if "
        "there are several.",
        rich_help_panel=QUESTION_PANEL,
    ),
]
SourceKindName = Annotated[
    Literal["token", "word", "sentence", "paragraph", "message", "document"] | None,
    typer.Option(
        help="The sources in the prompt; by default sentences if there are several, otherwise words.",
        rich_help_panel=QUESTION_PANEL,
    ),
]
AggregateName = Annotated[
    Literal["positive", "sum", "mean", "max"],
    typer.Option(
        help="How the scores of a source's tokens are combined: the sum of those above 0, the sum, the mean, or the "
        "one with the largest magnitude.",
        rich_help_panel=QUESTION_PANEL,
    ),
]
SinkName = Annotated[
    Literal["leave_out", "keep"],
    typer.Option(
        help="Whether the first token, an attention sink, counts as part of its source; its share is reported.",
        rich_help_panel=QUESTION_PANEL,
    ),
]
TokenCount = Annotated[
    int, typer.Option(help="The maximum number of tokens that the model writes.", rich_help_panel=QUESTION_PANEL)
]
Seed = Annotated[
    int | None,
    typer.Option(
        help="Sample the response with this seed; by default the most likely tokens.", rich_help_panel=QUESTION_PANEL
    ),
]
SupportOption = Annotated[
    bool,
    typer.Option(
        "--support",
        metavar=command_options.FLAG,
        help="Judge each sentence: from the sources, from memory, or not supported.",
        rich_help_panel=QUESTION_PANEL,
    ),
]
BatchFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.jsonl",
        help='Explain many prompts, one per line: {"prompt", "messages" or "sound", "images", "response", "context", '
        '"contrast", "id"}, or a table with such columns (.csv, .tsv, .parquet). '
        "--out is the folder of the results; an interrupted batch can be resumed.",
        rich_help_panel=OUTPUT,
    ),
]
ResponseMethodName = Annotated[
    str | None,
    typer.Option(
        help="One of `whyformer methods`; by default generic_attention, the best measured on responses.",
        rich_help_panel=command_options.METHOD,
    ),
]
ResponseOutOption = Annotated[
    Path | None,
    typer.Option(help="A .html, .png, .json or .npz file; with --batch a folder.", rich_help_panel=OUTPUT),
]
BatchFormatOption = Annotated[
    command_options.Format | None,
    typer.Option(help="The format of files of a --batch; by default html.", rich_help_panel=OUTPUT),
]


def response_(
    prompt: Annotated[
        str | None,
        typer.Argument(
            metavar="PROMPT",
            help="The prompt, or with --context the question: a text, a text file, or - for standard input. The final "
            "line break of a file is dropped.",
        ),
    ] = None,
    model: command_options.ModelName = "mini-llm",
    response: ResponseText = None,
    context: Documents = None,
    messages: Messages = None,
    image: Images = None,
    sound: SoundFile = None,
    contrast: ContrastOption = None,
    focus: FocusOption = None,
    units: UnitsOption = None,
    sources: SourceKindName = None,
    aggregate: AggregateName = "positive",
    sinks: SinkName = "leave_out",
    tokens: TokenCount = 64,
    seed: Seed = None,
    support: SupportOption = False,
    method: ResponseMethodName = None,
    option: command_options.MethodOptions = None,
    backward: command_options.BackwardName = None,
    plugin: command_options.Plugins = None,
    out: ResponseOutOption = None,
    batch: BatchFile = None,
    format: BatchFormatOption = None,
    as_json: command_options.AsJson = False,
    quiet: command_options.Quiet = False,
    device: command_options.DeviceName = None,
    dtype: command_options.DtypeOption = None,
    batch_size: command_options.BatchSize = None,
) -> None:
    """Show which parts of a prompt each part of the response to it comes from."""
    load_plugins(plugin or ())
    settings: dict[str, Any] = {"units": units, "sources": sources, "aggregate": aggregate, "sinks": sinks}
    settings |= {"tokens": tokens, "seed": seed, **response_method_call(method, option or [], backward).arguments}
    settings |= {} if focus is None else {"focus": _focus(focus)}
    settings |= {"support": True} if support else {}
    typed = {"PROMPT": prompt, "--messages": messages, "--response": response, "--context": context}
    typed |= {"--image": image, "--sound": sound, "--contrast": contrast}
    engine = MethodAndModel(model, settings, device, dtype, batch_size, quiet)
    if batch is not None:
        _explain_lines(batch, _folder(typed, out), f".{format or 'html'}", engine, as_json=as_json)
    elif format is not None:
        raise WhyformerError(
            f"--format {format} applies to the files of a --batch: for one file, --out has the suffix."
        )
    else:
        _explain_one(typed, out, engine, as_json=as_json)


@dataclass(frozen=True)
class MethodAndModel:
    """The settings of an explanation: the model's name, the options for each prompt, and the device."""

    model: str
    settings: Mapping[str, Any]
    device: str | None
    dtype: command_options.DtypeName | None
    batch_size: int | None
    quiet: bool

    @property
    def identity(self) -> dict[str, Any]:
        """Everything besides the prompt that determines a result."""
        return {**self.settings, "model": self.model, "dtype": self.dtype}

    def explainer(self) -> Callable[[Mapping[str, Any]], Response]:
        """Load the model, and return a function that explains a prompt with its other fields."""
        from whyformer.api.explain_response import explain_response

        loaded_model = load_model(self.model, device=self.device, dtype=self.dtype, quiet=self.quiet)

        def explain(case: Mapping[str, Any]) -> Response:
            extra: dict[str, Any] = {name: case.get(name) for name in ("context", "contrast")}
            extra |= {**self.settings, "batch_size": self.batch_size}
            return explain_response(_prompt(case), case.get("response"), loaded_model, **extra)

        return explain


def _explain_one(typed: Mapping[str, Any], out: Path | None, engine: MethodAndModel, *, as_json: bool) -> None:
    from whyformer.cli.output import FILE_SUFFIXES, check_out_file, writing

    prompt, messages, response, context, images, sound, contrast = typed.values()
    if sum(part is not None for part in (prompt, messages, sound)) != 1:
        raise WhyformerError(
            "Give exactly one of PROMPT (a text or a file), --messages CHAT.json and --sound FILE, or use --batch."
        )
    if images is not None and prompt is None:
        raise WhyformerError("--image needs a PROMPT: messages contain their pictures, and a sound has none.")
    if out is not None:
        check_out_file(out, FILE_SUFFIXES)
    case = {
        "prompt": None if prompt is None else typed_text(prompt, "PROMPT"),
        "messages": None if messages is None else _read_messages(messages),
        "response": None if response is None else typed_text(response, "--response"),
        "context": None if context is None else [_document(text) for text in context],
        "contrast": None if contrast is None else typed_text(contrast, "--contrast"),
        "images": images,
        "sound": sound,
    }
    result = engine.explainer()(case)
    if out is not None:
        with writing(out):
            result.save(out)
    if as_json:
        typer.echo(json.dumps(result.to_dict()))
    elif not engine.quiet:
        typer.echo(result)
    if out is not None:
        announce(f"Written to {safe(out)}", quiet=engine.quiet, err=as_json)


def _folder(typed: Mapping[str, Any], out: Path | None) -> Path:
    """The folder of a batch; raise if options are given that each line sets itself."""
    from whyformer.cli.output import check_out_folder

    name = next((name for name, value in typed.items() if value is not None), None)
    if name is not None:
        raise WhyformerError(f"{name} applies to one prompt, but each line of --batch has its own: leave it out.")
    if out is None:
        raise WhyformerError("--batch needs a folder for its results: name it with --out.")
    check_out_folder(out)
    return out


def _explain_lines(batch: Path, out: Path, suffix: str, engine: MethodAndModel, *, as_json: bool) -> None:
    from whyformer.cli.output import writing
    from whyformer.cli.response_batch import Results, explain_lines, read_lines

    lines, results = read_lines(batch), Results(out, suffix, engine.identity)
    pending = results.missing(lines)
    refusals = 0
    if pending:
        with writing(out):
            for record in explain_lines(pending, results, engine.explainer(), len(lines), quiet=engine.quiet):
                if "error" in record:
                    refusals += 1
                    complain(f"{safe(batch)}, line {record['line']}: {record['error']}")
                if as_json:
                    typer.echo(json.dumps(record))
    count = len(lines) - refusals
    announce(f"Written to {safe(out)}: {count} of {len(lines)} lines.", quiet=engine.quiet, err=as_json)
    if refusals:
        raise typer.Exit(UNFINISHED)


def _prompt(case: Mapping[str, Any]) -> Any:
    """The prompt of a case for `explain_response`."""
    if case.get("messages") is not None:
        return case["messages"]
    if case.get("sound") is not None:
        return Path(case["sound"])
    return case["prompt"] if not case.get("images") else ([Path(image) for image in case["images"]], case["prompt"])


def _read_messages(path: Path) -> list[Any]:
    """Read the messages of a file: a list of them, or an object with them."""
    from whyformer.inputs.read import text_of

    try:
        content = parse_json(str(text_of(path)))
    except json.JSONDecodeError as error:
        raise WhyformerError(f"--messages {str(path)!r} is not JSON (line {error.lineno}: {error.msg}).") from error
    except WhyformerError:
        raise
    except ValueError as error:
        raise WhyformerError(f"--messages {str(path)!r} cannot be read: {error}.") from error
    messages = content.get("messages") if isinstance(content, dict) else content
    if not isinstance(messages, list) or not messages:
        raise WhyformerError(f'--messages {str(path)!r}: a list of {{"role": …, "content": …}}, not {content!r:.40}.')
    return messages


def _focus(argument: str) -> str | list[float]:
    """The name of a focus, or the weights of the tokens."""
    try:
        return [float(weight) for weight in argument.split(",")]
    except ValueError:
        return argument


def _document(argument: str) -> str | tuple[str, str]:
    """A document: a file with its name, or a plain text."""
    text = typed_text(argument, "--context").strip()
    return (Path(argument).stem, text) if os.path.isfile(argument) else text

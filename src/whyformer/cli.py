"""The command line: a thin layer over the calls of the package, which are imported where they are needed."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_type_hints

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table
from typer.core import TyperGroup

from whyformer.errors import UnsupportedModel, WhyformerError

if TYPE_CHECKING:
    from whyformer.methods.registry import Method
    from whyformer.models.loading import LoadedModel
    from whyformer.results.explanation import Explanation
    from whyformer.targets.scores import Target

PICTURES = frozenset({".avif", ".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"})
UNUSABLE, INTERRUPTED = 2, 130
PAIR = "The second text, for a model that reads pairs; for one that writes after reading, what it wrote so far."
TEXT = "The text a picture is compared with, or the question about it; of several, --target names one."
INPUT = (
    "a picture, a text or a text file; for a model of regions (mini-lxmert) the .npz file of a picture's regions; for "
    "one that writes (mini-gpt, mini-t5) the text it goes on from"
)
TARGET = (
    "What is asked about, predicted if not given: a label, by name or index; of a detector the label it found; of "
    "several --text one of them, itself or counted from 0; of a model that writes the next word, or a token's id"
)
Example = Path | str | tuple[Path | str, Path | str | list[str]]


class OneLineErrors(TyperGroup):
    """Commands whose errors are one line on stderr and an exit code."""

    def main(self, *args: Any, **extra: Any) -> Any:
        try:
            code = super().main(*args, **extra | {"standalone_mode": False})
            sys.stdout.flush()
        except BrokenPipeError:
            # The reader has gone; Python's own flush at exit must not complain about it either.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)
        except (WhyformerError, OSError) as error:
            _complain(str(error))
            sys.exit(UNUSABLE)
        except typer.TyperException as error:
            _complain(error.format_message())
            sys.exit(UNUSABLE)
        if code == INTERRUPTED:
            _complain("stopped.")
        sys.exit(code or 0)


app = typer.Typer(cls=OneLineErrors, add_completion=False, pretty_exceptions_enable=False)

ModelName = Annotated[str, typer.Option(help="A bundled model, a folder, or a Hugging Face id.")]
MethodName = Annotated[
    str | None,
    typer.Option(help="See `whyformer methods`. If none: bi_token with --backward libra, the best we measured."),
]
Options = Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="An option of the method.")]
Truncate = Annotated[bool, typer.Option("--truncate", help="Cut a text that is too long for the model.")]
Backwards = Annotated[
    str | None, typer.Option(help="How gradients are taken: gradient, or libra (LibraGrad). A --method has gradient.")
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print JSON for scripts, one object a line for each input, and nothing else.")
]


def main() -> None:
    """The entry point `whyformer`."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that has no block characters shows question marks
    app(prog_name="whyformer")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"whyformer {version('whyformer')}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def whyformer(
    context: typer.Context,
    _: Annotated[bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)] = False,
) -> None:
    """Tells why a Transformer answered as it did."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def explain(
    inputs: Annotated[list[str], typer.Argument(metavar="INPUT", help=f"Each {INPUT}.")],
    model: ModelName = "mini-vit",
    method: MethodName = None,
    target: Annotated[str, typer.Option(help=f"{TARGET}.")] = "predicted",
    option: Options = None,
    rather_than: Annotated[
        str | None, typer.Option(metavar="OTHER", help="Explain the target against this label, word or text.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="A .html, .png, .json or .npz file; for several inputs a folder or .html report."),
    ] = None,
    pair: Annotated[str | None, typer.Option(help=PAIR)] = None,
    text: Annotated[list[str] | None, typer.Option(help=TEXT)] = None,
    query: Annotated[int | None, typer.Option(help="For a detector: the object query whose find is explained.")] = None,
    truncate: Truncate = False,
    backward: Backwards = None,
    as_json: AsJson = False,
) -> None:
    """Show which parts of an image or a text the answer rests on."""
    from whyformer.api.attribution import explain_batch
    from whyformer.render.output import Destination
    from whyformer.results.documents import explanation_document

    options = _options(_method(method), option or [])
    destination = Destination.of(out, len(inputs))
    loaded_model = _resolve_model(model)
    examples = [_example(given, pair, text or [], loaded_model) for given in inputs]
    shows_progress = len(inputs) > 1 and not as_json and sys.stdout.isatty()
    explanations = explain_batch(
        examples,
        loaded_model,
        _question(target, rather_than, query, loaded_model),
        method,
        truncate=truncate,
        progress=shows_progress,
        backward=cast(Any, backward),  # checked where it is used
        **options,
    )
    if destination is not None:
        destination.write(explanations, [_stem(given, number) for number, given in enumerate(inputs, start=1)])
    for given, explanation in zip(inputs, explanations, strict=True):
        if len(inputs) > 1 and not as_json:
            typer.echo(_shown(given))
        typer.echo(json.dumps(explanation_document(explanation, given)) if as_json else explanation)
    if destination is not None:
        typer.echo(f"Written to {destination.path}", err=as_json)


@app.command("continue")
def continue_(
    input: Annotated[str, typer.Argument(metavar="INPUT", help="The text, or text file, that the model goes on from.")],
    model: ModelName = "mini-gpt",
    tokens: Annotated[int, typer.Option(help="How many tokens it is to write at most.")] = 8,
    method: MethodName = None,
    option: Options = None,
    out: Annotated[Path | None, typer.Option(help="A .html, .png, .json or .npz file.")] = None,
    pair: Annotated[str | None, typer.Option(help=PAIR)] = None,
    truncate: Truncate = False,
    backward: Backwards = None,
    as_json: AsJson = False,
) -> None:
    """Let a model write, and show which words before it each token rests on."""
    from whyformer.api.writing import continuation
    from whyformer.render.output import ONE_FILE, check_file, writing
    from whyformer.results.documents import continuation_document

    options = _options(_method(method), option or [])
    if out is not None:
        check_file(out, ONE_FILE)
    loaded_model = _resolve_model(model)
    if not loaded_model.writes:
        raise WhyformerError(
            f"{loaded_model.name} writes nothing: use `whyformer explain`, or choose another with --model."
        )
    example = _example(input, pair, [], loaded_model)
    settings: dict[str, Any] = {"tokens": tokens, "truncate": truncate, "backward": backward, **options}
    found = continuation(example, loaded_model, method, **settings)
    if out is not None:
        with writing(out):
            found.save(out)
    typer.echo(json.dumps(continuation_document(found, input)) if as_json else found)
    if out is not None:
        typer.echo(f"Written to {out}", err=as_json)


@app.command()
def compare(
    input: Annotated[str, typer.Argument(metavar="INPUT", help=f"{INPUT.capitalize()}.")],
    method: Annotated[list[str] | None, typer.Option(help="Methods side by side; all that apply if none.")] = None,
    target: Annotated[list[str] | None, typer.Option(help=f"A row each. {TARGET}.")] = None,
    model: Annotated[list[str] | None, typer.Option(help="Models, rows of their own; mini-vit if none.")] = None,
    out: Annotated[Path, typer.Option(help="A .html or .png file.")] = Path("comparison.html"),
    pair: Annotated[str | None, typer.Option(help=PAIR)] = None,
    text: Annotated[list[str] | None, typer.Option(help=TEXT)] = None,
) -> None:
    """Put methods side by side, for one or more labels and models."""
    from whyformer.files import whole_file
    from whyformer.methods.registry import METHODS
    from whyformer.render import html, image
    from whyformer.render.output import check_file, writing

    check_file(out, (".html", ".png"))
    names = [_method(name).name for name in method or METHODS]
    subjects = [_resolve_model(name) for name in model or ["mini-vit"]]
    examples = [_example(input, pair, text or [], loaded_model) for loaded_model in subjects]
    subjects_and_examples = list(zip(subjects, examples, strict=True))
    rows, left_out = _grid(subjects_and_examples, target or ["predicted"], names, are_asked_for=bool(method))
    columns = [number for number in range(len(names)) if any(row[number] for row in rows)]
    if not columns:
        raise UnsupportedModel(left_out[0])
    rows = [[row[number] for number in columns] for row in rows if any(row)]
    titles = [_row_title(row, len(subjects)) for row in rows]
    headings = [names[number] for number in columns]
    with writing(out), whole_file(out) as unfinished:
        if out.suffix.lower() == ".html":
            unfinished.write_text(html.comparison(rows, titles, headings, _shown(input)), encoding="utf-8")
        else:
            image.grid(rows, titles, headings).save(unfinished, "PNG")
    for note in dict.fromkeys(left_out):
        typer.echo(f"Left out: {note}")
    typer.echo(f"Written to {out}")


@app.command()
def methods(as_json: AsJson = False) -> None:
    """List the methods, what they read of a model, and their options."""
    from whyformer.methods.registry import METHODS
    from whyformer.results.documents import method_document

    if as_json:
        typer.echo(json.dumps([method_document(method) for method in METHODS.values()], indent=1))
        return
    terminal = Console()
    for method in METHODS.values():
        options = " ".join(f"{name}={parameter.default}" for name, parameter in method.options.items())
        table = Table.grid(Column(no_wrap=True), Column(), padding=(0, 2))
        for name, value in {"": method.summary, "reads": method.reads, "options": options or "none"}.items():
            table.add_row(f"  {name}", escape(value))
        terminal.print(f"[bold]{escape(method.name)}[/bold]", table, "", sep="\n")


@app.command()
def models(as_json: AsJson = False) -> None:
    """List the models that come with the package."""
    from whyformer.models.loading import ZOO, bundled
    from whyformer.results.documents import model_card

    found = [model_card(ZOO / name) for name in bundled()]
    if as_json:
        typer.echo(json.dumps(found, indent=1))
        return
    if not found:
        typer.echo("No model is bundled: give --model a folder or a Hugging Face id.")
        return
    terminal = Console()
    for card in found:
        measured = " · ".join(f"{name} {value}" for name, value in card["measured"].items())
        facts = {"trained on": card["data"], "measured": measured, "licence": card["licence"]}
        table = Table.grid(Column(no_wrap=True), Column(), padding=(0, 2))
        for name, value in ({"": card["about"]} | facts).items():
            table.add_row(f"  {name}", escape(value))
        heading = f"[bold]{escape(card['name'])}[/bold] {card['task']} · {card['class']}, {card['megabytes']:.1f} MB"
        terminal.print(heading, table, "", sep="\n")


@app.command()
def doctor(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A bundled model, a folder, or a Hugging Face id.")],
    as_json: AsJson = False,
) -> None:
    """Check a model before its explanations are trusted; exit code 1 if something is wrong."""
    from whyformer.api.doctor import checkup

    found = checkup(_resolve_model(model))
    typer.echo(json.dumps({"is_healthy": found.is_healthy, **asdict(found)}, indent=1) if as_json else found)
    raise typer.Exit(0 if found.is_healthy else 1)


@app.command()
def evaluate(
    suite: Annotated[Path, typer.Argument(metavar="SUITE.toml", help="What is measured: see docs/evaluation.md.")],
    out: Annotated[Path, typer.Option(help="The folder of the tables; one that was begun is gone on with.")],
    data: Annotated[Path, typer.Option(help="The folder that the suite's paths are relative to.")] = Path(),
    engine: Annotated[str, typer.Option(help="local, or ray: a Ray cluster.")] = "local",
) -> None:
    """Measure methods on a model and data, as a suite says; stopped at any moment, it goes on where it was."""
    from whyformer.benchmark import NoUsableSample, run_suite
    from whyformer.benchmark.tables import unusable_reasons
    from whyformer.render.output import check_folder, writing

    check_folder(out)
    with writing(out):
        try:
            folder = run_suite(suite, out, data=data, engine=cast(Any, engine))  # checked where it is used
        except NoUsableSample as error:  # the command was right, and there is nothing to report
            _complain(str(error))
            raise typer.Exit(1) from error
    lost = unusable_reasons(folder)
    if lost:
        typer.echo(f"{len(lost)} of the samples could not be used: the report says why.", err=True)
    typer.echo(f"Written to {folder}: `whyformer report {folder}` shows what was found.")


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="What `whyformer evaluate` wrote.")],
    half: Annotated[str | None, typer.Option(help="first or second: of this half of the samples alone.")] = None,
    against: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Another run of the suite: list what differs, write nothing.")
    ] = None,
) -> None:
    """Write the tables, curves and examples of a run: report.html, report.md, results.json and curves."""
    from whyformer.benchmark import differences
    from whyformer.benchmark import report as written
    from whyformer.render.output import writing

    if against is not None:
        typer.echo("\n".join(differences(folder, against, half=cast(Any, half))))
        return
    with writing(folder):
        typer.echo(f"Written to {written(folder, half=cast(Any, half))}: open it in a browser.")


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="The folder the page is written to.")] = Path("demo"),
) -> None:
    """Explain the bundled examples with the bundled models by every method, and write one page that shows them."""
    from whyformer.api.demo import write_report
    from whyformer.render.output import check_folder, writing

    check_folder(out)
    with writing(out):
        typer.echo(f"Written to {write_report(out)}: open it in a browser.")


def _complain(message: str) -> None:
    typer.echo(f"whyformer: {' '.join(message.split())}", err=True)


def _method(name: str | None) -> Method:
    from whyformer.api.attribution import chosen_method

    return chosen_method(name)[0]


def _options(method: Method, given: Sequence[str]) -> dict[str, Any]:
    """NAME=VALUE strings as the method takes them."""
    from whyformer.methods.registry import check_options

    hints = get_type_hints(method.scores)
    options: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise WhyformerError(f"--option {text!r}: write it as name=value.")
        options[name] = value
        if hints.get(name) in (int, float, bool):
            with suppress(ValueError):  # check_options says what is wrong with the rest
                options[name] = json.loads(value.lower())
    check_options(method, options)
    return options


def _resolve_model(name: str) -> LoadedModel:
    from whyformer.models.loading import resolve_model

    terminal = Console(stderr=True)
    if not terminal.is_terminal:
        return resolve_model(name)
    with terminal.status(f"Loading {escape(name)}"):
        return resolve_model(name)


def _example(given: str, pair: str | None, texts: Sequence[str], loaded_model: LoadedModel) -> Example:
    """The input with the text that goes with it, where the model takes one."""
    has_two_senses = loaded_model.sees_regions or (loaded_model.sees_pictures and loaded_model.tokenizer is not None)
    if has_two_senses and not texts:
        wanted = "its question" if loaded_model.sees_regions else "the text it is compared with"
        raise WhyformerError(f"{loaded_model.name} sees and reads: add {wanted} by --text.")
    if texts and not has_two_senses:
        raise WhyformerError(f"--text goes with a picture, and {loaded_model.name} takes no such pair: leave it out.")
    if pair is not None and (loaded_model.sees_pictures or loaded_model.sees_regions):
        raise WhyformerError(
            f"--pair is a second text, and {loaded_model.name} reads pictures: choose a text model with --model."
        )
    if loaded_model.sees_regions:
        if not given.lower().endswith(".npz"):
            raise WhyformerError(
                f"{given!r} is no .npz file: {loaded_model.name} sees regions of a picture, with a box and features "
                "each, not the picture. docs/models.md shows how to save them."
            )
        if len(texts) > 1:
            raise WhyformerError(f"{loaded_model.name} answers one question at a time: give --text once.")
        return Path(given), texts[0]
    if has_two_senses:
        return _input(given, loaded_model), list(texts)
    return _input(given, loaded_model) if pair is None else (_input(given, loaded_model), _input(pair, loaded_model))


def _input(given: str, loaded_model: LoadedModel) -> Path | str:
    """A file where there is one; anything else is the text itself, unless it can only be meant as a file."""
    suffix = os.path.splitext(given)[1].lower()
    looks_like_a_path = suffix in PICTURES | {".txt"} or (re.search(r"[/\\]", given) and not re.search(r"\s", given))
    if os.path.isfile(given):
        if suffix in PICTURES and not loaded_model.sees_pictures:
            raise WhyformerError(
                f"{given!r} is a picture, and {loaded_model.name} reads texts: choose another with --model."
            )
        return Path(given)
    if looks_like_a_path or (loaded_model.sees_pictures and os.path.isdir(given)):
        return Path(given)  # refused with the reason when it is read
    if loaded_model.sees_pictures:
        raise WhyformerError(
            f"No file {given!r}, and {loaded_model.name} reads pictures: for a text choose a text model with --model."
        )
    return given


def _target(given: str, loaded_model: LoadedModel) -> str | int:
    """A label's name if there is one of that name, else its index if it is a number."""
    from whyformer.models.structure import labels_of

    labels = {} if loaded_model.writes else labels_of(loaded_model.model)
    is_name = given.casefold() in {name.casefold() for name in labels.values()}
    if is_name or not re.fullmatch(r"-?[0-9]{1,18}", given):
        return given
    if loaded_model.writes and 0 <= int(given) < len(loaded_model.tokenizer):
        meant = loaded_model.tokenizer.decode([int(given)])
        typer.echo(f"{given} is taken as the id of a token: {meant!r}.", err=True)
    return int(given)


def _question(target: str, rather_than: str | None, query: int | None, loaded_model: LoadedModel) -> Target:
    from whyformer.targets.scores import contrast, detection

    if query is not None:
        if rather_than is not None:
            raise WhyformerError("--query and --rather-than cannot be asked together: leave one out.")
        return detection(query, _target(target, loaded_model))
    if rather_than is None:
        return _target(target, loaded_model)
    return contrast(_target(target, loaded_model), _target(rather_than, loaded_model))


def _grid(
    subjects: Sequence[tuple[LoadedModel, Example]],
    targets: Sequence[str],
    methods: Sequence[str],
    *,
    are_asked_for: bool,
) -> tuple[list[list[Explanation | None]], list[str]]:
    """A row for each model and target, a cell for each method, and why cells were left out."""
    from rich.progress import track

    from whyformer.api.attribution import explain

    cells: list[Explanation | None] = []
    left_out: list[str] = []
    rows = [
        (loaded_model, example, _target(target, loaded_model))
        for (loaded_model, example), target in product(subjects, targets)
    ]
    questions = list(product(rows, methods))
    terminal = Console(stderr=True)
    shown = track(questions, "Explaining", console=terminal, transient=True, disable=not terminal.is_terminal)
    for (loaded_model, example, target), method in shown:
        try:
            cells.append(explain(example, loaded_model, target, method))
        except UnsupportedModel as reason:
            if are_asked_for:
                raise
            left_out.append(f"{method} on {loaded_model.name}: {reason}")
            cells.append(None)
    return [cells[start : start + len(methods)] for start in range(0, len(cells), len(methods))], left_out


def _stem(given: str, number: int) -> str:
    return Path(given).stem if os.path.isfile(given) else f"text-{number}"


def _shown(given: str) -> str:
    """An input in a line: a file's path, or how the text begins."""
    text = " ".join(given.split())
    return given if os.path.isfile(given) else text if len(text) <= 70 else f"{text[:69].rstrip()}…"


def _row_title(row: Sequence[Explanation | None], models: int) -> str:
    first = next(cell for cell in row if cell is not None)
    return f"{first.target} · {first.model}" if models > 1 else first.target

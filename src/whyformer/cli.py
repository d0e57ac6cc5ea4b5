"""The command line: a thin layer over the calls of the package, which are imported where they are needed."""

from __future__ import annotations

import io
import json
import os
import re
import sys
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table
from typer.core import TyperGroup

from whyformer.errors import UnsupportedModel, WhyformerError

if TYPE_CHECKING:
    from whyformer.explanation import Explanation
    from whyformer.loading import Loaded
    from whyformer.methods import Method

PICTURES = frozenset({".avif", ".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"})
ONE_FILE = (".html", ".png", ".json", ".npz")
UNUSABLE, INTERRUPTED = 2, 130
Example = Path | str | tuple[Path | str, Path | str]


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
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts, and nothing else.")]


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
    inputs: Annotated[list[str], typer.Argument(metavar="INPUT", help="Image files, text files, or texts.")],
    model: ModelName = "mini-vit",
    method: Annotated[str, typer.Option(help="See `whyformer methods`.")] = "bi_token",
    target: Annotated[
        str, typer.Option(help="The label asked about: its name, its index, or predicted.")
    ] = "predicted",
    option: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="An option of the method.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="A .html, .png, .json or .npz file; for several inputs a folder or .html report."),
    ] = None,
    pair: Annotated[str | None, typer.Option(help="The second text, for a model that reads pairs.")] = None,
    truncate: Annotated[bool, typer.Option("--truncate", help="Cut a text that is too long for the model.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show which parts of an image or a text the answer rests on."""
    from whyformer.attribution import explain_batch

    options = _options(_method(method), option or [])
    destination = _Destination.of(out, len(inputs))
    subject = _loaded(model)
    examples = [_example(given, pair, subject) for given in inputs]
    shows_progress = len(inputs) > 1 and not as_json and sys.stdout.isatty()
    explanations = explain_batch(
        examples,
        subject,
        _target(target, subject),
        method,
        truncate=truncate,
        progress=shows_progress,
        **options,
    )
    if destination is not None:
        destination.write(explanations, [_stem(given, number) for number, given in enumerate(inputs, start=1)])
    for given, explanation in zip(inputs, explanations, strict=True):
        if len(inputs) > 1 and not as_json:
            typer.echo(_shown(given))
        typer.echo(json.dumps(_document(explanation, given)) if as_json else explanation)
    if destination is not None:
        typer.echo(f"Written to {destination.path}", err=as_json)


@app.command()
def compare(
    input: Annotated[str, typer.Argument(metavar="INPUT", help="An image file, a text file, or a text.")],
    method: Annotated[list[str] | None, typer.Option(help="Methods side by side; all that apply if none.")] = None,
    target: Annotated[list[str] | None, typer.Option(help="Labels, a row each; the predicted one if none.")] = None,
    model: Annotated[list[str] | None, typer.Option(help="Models, rows of their own; mini-vit if none.")] = None,
    out: Annotated[Path, typer.Option(help="A .html or .png file.")] = Path("comparison.html"),
    pair: Annotated[str | None, typer.Option(help="The second text, for models that read pairs.")] = None,
) -> None:
    """Put methods side by side, for one or more labels and models."""
    from whyformer.methods import METHODS
    from whyformer.render import html, image

    _check_file(out, (".html", ".png"))
    names = [_method(name).name for name in method or METHODS]
    subjects = [_loaded(name) for name in model or ["mini-vit"]]
    rows, left_out = _grid(input, pair, subjects, target or ["predicted"], names, are_asked_for=bool(method))
    columns = [number for number in range(len(names)) if any(row[number] for row in rows)]
    if not columns:
        raise UnsupportedModel(left_out[0])
    rows = [[row[number] for number in columns] for row in rows if any(row)]
    titles = [_row_title(row, len(subjects)) for row in rows]
    headings = [names[number] for number in columns]
    with _writing(out), _whole(out) as unfinished:
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
    from whyformer.methods import METHODS

    if as_json:
        typer.echo(json.dumps([_method_document(method) for method in METHODS.values()], indent=1))
        return
    table = Table("method", "what it gives", "reads", Column("options", no_wrap=True))
    for method in METHODS.values():
        shown = "\n".join(f"{name}={parameter.default}" for name, parameter in method.options.items())
        table.add_row(method.name, escape(method.summary), method.reads, shown)
    Console().print(table)


@app.command()
def models(as_json: AsJson = False) -> None:
    """List the models that come with the package."""
    from whyformer.loading import ZOO, bundled

    found = [_card(ZOO / name) for name in bundled()]
    if as_json:
        typer.echo(json.dumps(found, indent=1))
        return
    if not found:
        typer.echo("No model is bundled: give --model a folder or a Hugging Face id.")
        return
    table = Table("model", "task", "labels", "size", "about")
    for card in found:
        labels = ", ".join(card["labels"][:4]) + (" …" if len(card["labels"]) > 4 else "")
        size = f"{card['layers']} blocks of width {card['width']}, {card['megabytes']:.1f} MB"
        cells = [card["name"], card["task"], f"{len(card['labels'])}: {labels}", size, card["about"]]
        table.add_row(*map(escape, cells))
    Console().print(table)


@app.command()
def doctor(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A bundled model, a folder, or a Hugging Face id.")],
    as_json: AsJson = False,
) -> None:
    """Check a model before its explanations are trusted; exit code 1 if something is wrong."""
    from whyformer.doctor import checkup

    found = checkup(_loaded(model))
    typer.echo(json.dumps({"is_healthy": found.is_healthy, **asdict(found)}, indent=1) if as_json else found)
    raise typer.Exit(0 if found.is_healthy else 1)


def _complain(message: str) -> None:
    typer.echo(f"whyformer: {' '.join(message.split())}", err=True)


def _method(name: str) -> Method:
    from whyformer.methods import method_named

    return method_named(name)


def _options(method: Method, given: Sequence[str]) -> dict[str, Any]:
    """NAME=VALUE strings as the method takes them."""
    from whyformer.methods import check_options

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


def _loaded(name: str) -> Loaded:
    from whyformer.loading import loaded

    terminal = Console(stderr=True)
    if not terminal.is_terminal:
        return loaded(name)
    with terminal.status(f"Loading {escape(name)}"):
        return loaded(name)


def _example(given: str, pair: str | None, subject: Loaded) -> Example:
    if pair is None:
        return _input(given, subject)
    if subject.sees_pictures:
        raise WhyformerError(
            f"--pair is a second text, and {subject.name} reads pictures: choose a text model with --model."
        )
    return _input(given, subject), _input(pair, subject)


def _input(given: str, subject: Loaded) -> Path | str:
    """A file where there is one; anything else is the text itself, unless it can only be meant as a file."""
    suffix = os.path.splitext(given)[1].lower()
    looks_like_a_path = suffix in PICTURES | {".txt"} or (re.search(r"[/\\]", given) and not re.search(r"\s", given))
    if os.path.isfile(given):
        if suffix in PICTURES and not subject.sees_pictures:
            raise WhyformerError(
                f"{given!r} is a picture, and {subject.name} reads texts: choose another with --model."
            )
        return Path(given)
    if looks_like_a_path or (subject.sees_pictures and os.path.isdir(given)):
        return Path(given)  # refused with the reason when it is read
    if subject.sees_pictures:
        raise WhyformerError(
            f"No file {given!r}, and {subject.name} reads pictures: for a text choose a text model with --model."
        )
    return given


def _target(given: str, subject: Loaded) -> str | int:
    """A label's name if there is one of that name, else its index if it is a number."""
    from whyformer.trace import labels_of

    is_name = given.casefold() in {name.casefold() for name in labels_of(subject.model).values()}
    return int(given) if not is_name and re.fullmatch(r"-?[0-9]{1,18}", given) else given


def _grid(
    given: str,
    pair: str | None,
    subjects: Sequence[Loaded],
    targets: Sequence[str],
    methods: Sequence[str],
    *,
    are_asked_for: bool,
) -> tuple[list[list[Explanation | None]], list[str]]:
    """A row for each model and target, a cell for each method, and why cells were left out."""
    from rich.progress import track

    from whyformer.attribution import explain

    cells: list[Explanation | None] = []
    left_out: list[str] = []
    questions = list(product(subjects, targets, methods))
    terminal = Console(stderr=True)
    shown = track(questions, "Explaining", console=terminal, transient=True, disable=not terminal.is_terminal)
    for subject, target, method in shown:
        try:
            cells.append(explain(_example(given, pair, subject), subject, _target(target, subject), method))
        except UnsupportedModel as reason:
            if are_asked_for:
                raise
            left_out.append(f"{method} on {subject.name}: {reason}")
            cells.append(None)
    return [cells[start : start + len(methods)] for start in range(0, len(cells), len(methods))], left_out


@dataclass(frozen=True)
class _Destination:
    """Where explanations go: one file, or a folder with a page for each."""

    path: Path
    is_folder: bool

    @classmethod
    def of(cls, out: Path | None, count: int) -> _Destination | None:
        """The place checked before any work is done for it."""
        if out is None:
            return None
        if count > 1 and (out.is_dir() or not out.suffix):
            if out.exists() and not out.is_dir():
                raise WhyformerError(f"--out {str(out)!r} is a file: several inputs go to a folder or an .html report.")
            return cls(out, is_folder=True)
        if count > 1 and out.suffix.lower() != ".html":
            raise WhyformerError(f"--out {str(out)!r}: several inputs go to a folder or an .html report.")
        _check_file(out, ONE_FILE)
        return cls(out, is_folder=False)

    def write(self, explanations: Sequence[Explanation], names: Sequence[str]) -> None:
        from whyformer.render import html

        with _writing(self.path):
            if self.is_folder:
                self.path.mkdir(parents=True, exist_ok=True)
                for name, explanation in zip(_distinct(names), explanations, strict=True):
                    explanation.save(self.path / f"{name}.html")
            elif len(explanations) == 1:
                explanations[0].save(self.path)
            else:
                with _whole(self.path) as unfinished:
                    unfinished.write_text(html.page(explanations), encoding="utf-8")


def _check_file(out: Path, suffixes: Sequence[str]) -> None:
    if out.suffix.lower() not in suffixes:
        raise WhyformerError(f"--out {str(out)!r}: no format for {out.suffix!r}. Known: {', '.join(suffixes)}.")
    if out.is_dir():
        raise WhyformerError(f"--out {str(out)!r} is a folder: name a file in it.")
    if not out.parent.is_dir():
        raise WhyformerError(f"--out {str(out)!r}: the folder {str(out.parent)!r} does not exist. Make it first.")
    if not os.access(out.parent, os.W_OK):
        raise WhyformerError(
            f"--out {str(out)!r}: the folder {str(out.parent)!r} cannot be written to. Choose another."
        )


@contextmanager
def _writing(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise WhyformerError(f"--out {str(out)!r} cannot be written: {error.strerror}. Choose another.") from error


@contextmanager
def _whole(path: Path) -> Iterator[Path]:
    """A file to write beside `path`, put in its place when it is whole."""
    unfinished = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        yield unfinished
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def _stem(given: str, number: int) -> str:
    return Path(given).stem if os.path.isfile(given) else f"text-{number}"


def _distinct(names: Iterable[str]) -> Iterator[str]:
    """The names, those that came before with a number."""
    seen: set[str] = set()
    for name in names:
        number, free = 1, name
        while free in seen:
            number += 1
            free = f"{name}-{number}"
        seen.add(free)
        yield free


def _shown(given: str) -> str:
    """An input in a line: a file's path, or how the text begins."""
    return given if os.path.isfile(given) else " ".join(given.split())[:70]


def _row_title(row: Sequence[Explanation | None], models: int) -> str:
    first = next(cell for cell in row if cell is not None)
    return f"{first.target} · {first.model}" if models > 1 else first.target


def _document(explanation: Explanation, given: str) -> dict[str, Any]:
    """The explanation for scripts: as `save` writes it, with the input's name instead of its pixels."""
    from whyformer.explanation import Patches

    parts = {}
    for stream, part in explanation.parts.items():
        layout = part.layout
        shape = (
            {"rows": layout.rows, "columns": layout.columns, "box": layout.box}
            if isinstance(layout, Patches)
            else {"segments": layout.segments, "offsets": layout.offsets}
        )
        parts[stream] = {"tokens": part.tokens, "scores": part.scores.tolist(), **shape}
    return {
        "input": given,
        "target": explanation.target,
        "probability": explanation.probability,
        "method": explanation.method,
        "model": explanation.model,
        "options": {name: value if _is_plain(value) else repr(value) for name, value in explanation.options.items()},
        "notes": explanation.notes,
        "parts": parts,
    }


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (str, int, float))


def _method_document(method: Method) -> dict[str, Any]:
    options = {name: parameter.default for name, parameter in method.options.items()}
    return {"name": method.name, "summary": method.summary, "reads": method.reads, "options": options}


def _card(folder: Path) -> dict[str, Any]:
    """What a bundled model's files say of it, without loading it."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    architecture = (config.get("architectures") or [""])[0]
    card = folder / "README.md"
    return {
        "name": folder.name,
        "task": "images" if "Image" in architecture else "texts",
        "labels": list(config.get("id2label", {}).values()),
        "layers": config.get("num_hidden_layers"),
        "width": config.get("hidden_size"),
        "megabytes": sum(file.stat().st_size for file in folder.glob("*.safetensors")) / 1e6,
        "about": _first_sentence(card.read_text(encoding="utf-8")) if card.is_file() else "",
    }


def _first_sentence(markdown: str) -> str:
    """The first sentence of a model card, past its front matter and headings."""
    body = re.sub(r"\A---\n.*?\n---\n", "", markdown, flags=re.DOTALL)
    paragraphs = (
        " ".join(block.split()) for block in re.split(r"\n\s*\n", re.sub(r"^#.*$", "\n", body, flags=re.MULTILINE))
    )
    text = next((paragraph for paragraph in paragraphs if paragraph), "")
    return re.split(r"(?<=[.!?])\s", text, maxsplit=1)[0]

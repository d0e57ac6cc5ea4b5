"""Inputs that hold several examples: folders, tables, and the lines of text files."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from whyformer.cli.console import announce, safe
from whyformer.cli.inputs import Input, decoded_input
from whyformer.errors import WhyformerError
from whyformer.inputs.table_files import TABLE_SUFFIXES, decoded_text, label_in_row, read_table

if TYPE_CHECKING:
    from whyformer.models.loading import LoadedModel

MOST_FOLDER_FILES = 256  # of a folder: all pictures and their explanations are in memory
MOST_TABLE_ROWS = 10_000  # of a table, or lines of a text, likewise; a text takes less memory than a picture
FEWEST_LINES = 3  # of a file that may have a text in each line


def open_inputs(
    inputs: Sequence[Input],
    model: LoadedModel,
    *,
    column: str | None = None,
    lines: bool = False,
    most: int = MOST_TABLE_ROWS,
    quiet: bool,
) -> list[Input]:
    """Expand each folder to the files in it that the model can take, and each table to its rows.

    A text file is one text, unless its lines are requested.
    """
    files = [file for source in inputs for file in (_files(source, model, quiet=quiet) or [source])]
    if column is not None and not any(map(is_table, files)):
        raise WhyformerError(f"--column {column!r} applies to a table, and no input is one: leave it out.")
    parts: list[Input] = []
    for file in files:
        own, summary = _parts(file, model, column, lines=lines)
        if len(own) > most:
            raise WhyformerError(
                f"{file.title!r} has {len(own):,} texts, more than the limit of {most:,}: split it first."
            )
        announce(safe(summary), quiet=quiet or not summary, err=True)
        parts += own
    if len(parts) == 1 and not lines and _may_be_a_list(parts[0], model):
        hint = f"{parts[0].title} is read as one text; use --lines for one text per line."
        announce(hint, quiet=quiet, err=True)
    return parts


def _may_be_a_list(source: Input, model: LoadedModel) -> bool:
    """Whether a text file may have a text in each line: several lines, none of them blank."""
    if source.content is not None or source.text is not None or not os.path.isfile(source.argument):
        return False
    if not model.task.is_text_only:
        return False
    try:
        lines = decoded_text(Path(source.argument)).strip().splitlines()
    except WhyformerError:  # not a text, which its reader reports
        return False
    return len(lines) >= FEWEST_LINES and all(line.strip() for line in lines)


def has_several(inputs: Sequence[Input]) -> bool:
    """Whether one of the inputs is a folder or a table, with any number of examples."""
    return any(os.path.isdir(source.argument) or is_table(source) for source in inputs)


def is_table(source: Input) -> bool:
    suffix = os.path.splitext(source.argument)[1].lower()
    return source.text is None and suffix in TABLE_SUFFIXES and os.path.isfile(source.argument)


def _parts(file: Input, model: LoadedModel, column: str | None, *, lines: bool) -> tuple[list[Input], str]:
    """The rows of a table or the lines of a text with a summary, or the input itself without one."""
    if not lines and not is_table(file):
        return [file], ""
    if not model.task.is_text_only:
        what = "lines of text" if lines else "a table of texts"
        raise WhyformerError(
            f"{file.title!r} has {what}, but {model.name} does not read texts only: choose a text model."
        )
    if lines and is_table(file):
        raise WhyformerError(f"{file.title!r} is a table, and its rows are explained separately: leave --lines out.")
    parts, summary = _lines(file) if lines else _rows(file, column)
    if not parts:
        raise WhyformerError(f"{file.title!r} has no texts: there is nothing to explain.")
    return parts, f"{file.title}: {summary}."


def _rows(file: Input, column: str | None) -> tuple[list[Input], str]:
    """The rows of a table that have a text, with their labels if any, and a summary."""
    table = read_table(Path(file.argument))
    text, label = table.text_column(column), table.label_column
    parts = [
        Input(f"{file.argument} row {number}", text=row[text], label=label_in_row(row, label))
        for number, row in enumerate(table.rows, start=1)
        if isinstance(row.get(text), str) and row[text].strip()
    ]
    facts = [f"{len(table.rows):,} row{'s' * (len(table.rows) != 1)}", f"texts in {text!r}"]
    facts += [] if label is None else [f"labels in {label!r}"]
    facts += [f"{table.rows_over_lines:,} over several lines"] if table.rows_over_lines else []
    facts += [f"{len(table.rows) - len(parts):,} without a text left out"] if len(parts) < len(table.rows) else []
    return parts, ", ".join(facts)


def _lines(source: Input) -> tuple[list[Input], str]:
    """The lines of a text that are not blank, and a summary."""
    if source.content is not None:
        text = decoded_input(source, source.content)
    elif os.path.isfile(source.argument):
        text = decoded_text(Path(source.argument))
    else:
        raise WhyformerError(f"--lines needs a text file, and {source.title!r} is not a file: leave it out.")
    name = "standard input" if source.content is not None else source.argument
    numbered = enumerate(re.split("\r\n|\r|\n", text), start=1)
    parts = [Input(f"{name} line {number}", text=line.strip()) for number, line in numbered if line.strip()]
    return parts, f"{len(parts):,} line{'s' * (len(parts) > 1)} with a text"


def _files(source: Input, model: LoadedModel, *, quiet: bool) -> list[Input]:
    """The files of a folder that this model can take; empty if it is not a folder, or clearly a text."""
    from whyformer.inputs.modality import known_modalities

    folder = source.argument
    if source.content is not None or not os.path.isdir(folder):
        return []
    kind = known_modalities()[model.task.modality].files
    names = sorted(entry.name for entry in os.scandir(folder) if entry.is_file() and entry.name[0] != ".")
    files = [name for name in names if os.path.splitext(name)[1].lower() in kind.suffixes]
    if not files and model.task.is_text_only and not re.search(r"[/\\]", folder):
        return []  # a word that is also the name of a folder
    if not files:
        raise WhyformerError(
            f"The folder {folder!r} has no {kind.plural} ({', '.join(sorted(kind.suffixes))}), and {model.name} takes "
            f"{kind.plural}."
        )
    if len(files) > MOST_FOLDER_FILES:
        raise WhyformerError(
            f"The folder {folder!r} has {len(files)} {kind.plural}, more than the limit of {MOST_FOLDER_FILES}: name "
            f"some of them, such as {os.path.join(folder, files[0][:1] + '*')}."
        )
    others = len(names) - len(files)
    note = f", {others} other file{'s' * (others > 1)} left out" if others else ""
    what = kind.plural if len(files) > 1 else kind.singular
    announce(f"{safe(folder)}: {len(files)} {what}{note}.", quiet=quiet, err=True)
    return [Input(os.path.join(folder, name)) for name in files]

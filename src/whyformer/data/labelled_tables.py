"""Texts and labels in one table: a CSV, TSV, JSONL, JSON or Parquet file, or rows in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from whyformer.data.dataset_files import existing
from whyformer.data.examples import Document, Examples, Photo
from whyformer.data.readers import reader
from whyformer.errors import WhyformerError, nearest
from whyformer.inputs.read import image_of
from whyformer.inputs.table_files import LABEL, TableRow, label_in_row, read_table, text_in_row


@reader("table")
def table(
    path: str | Path, *, text: str | None = None, label: str | None = LABEL, rationale: str | None = None
) -> Examples[Document]:
    """Texts and labels from a .csv, .tsv, .jsonl, .json or .parquet file, one row each.

    Args:
        path: The file.
        text: The text column. If None, the only column, or the one with a usual name: text, sentence, review, content,
            question, comment and similar.
            label: The label column; if None, the column "label", if there is one.
            rationale: The column of human rationales: word indices as a list, or separated by spaces.

    Returns:
        The texts in row order, each a `Document`.

    Raises:
        WhyformerError: If the file is not a valid table, or there is no such column. Also if a row has more or fewer
            fields than the header, or a quotation mark is not closed; the message names the line.

    Example:
        >>> import pathlib, tempfile
        >>> from whyformer.data import table
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "films.csv"
        >>> _ = path.write_text("text,label\\na fine film,good")
        >>> table(path)[0].label
        'good'
    """
    file = read_table(existing(path, "file"))
    text_column = file.text_column(text)
    label_column = file.label_column if label == LABEL else label
    for column in (label_column, rationale):
        if column is not None:
            file.column(column)
    names = tuple(f"{file.path.name} row {number}" for number in range(1, len(file.rows) + 1))
    return Examples(names, partial(_document, file.rows, names, text_column, label_column, rationale))


def hugging_face(
    dataset: Any, *, text: str | None = None, image: str | None = None, label: str | None = LABEL
) -> Examples[Any]:
    """Pictures or texts of a Hugging Face `datasets.Dataset`, or of anything with `column_names`, a length and rows.

    The library itself is not required.

    Args:
        dataset: The data set, one split of it.
        text: The text column.
        image: The image column; if neither is given, "text" or "image".
        label: The label column. A ClassLabel's integers become names.

    Returns:
        The rows in order, each a `Document` or a `Photo`.

    Raises:
        WhyformerError: If it has several splits, or no such column.

    Example:
        >>> from whyformer.data import hugging_face
        >>> class Films(list):  # as datasets.Dataset.from_dict({"text": ["a fine film"], "label": [1]})
        ...     column_names = ["text", "label"]
        >>> hugging_face(Films([{"text": "a fine film", "label": 1}]))[0].text
        'a fine film'
    """
    columns = dataset.column_names
    if isinstance(columns, Mapping):
        splits = ", ".join(columns)
        raise WhyformerError(f"This data set has the splits {splits}: give one of them, such as dataset['test'].")
    if text is None and image is None:
        text, image = ("text", None) if "text" in columns else (None, "image")
    label = None if label == LABEL and LABEL not in columns else label
    for column in (text, image, label):
        if column is not None and column not in columns:
            raise WhyformerError(f"The data set has no column {column!r}. {nearest(column, list(columns))}")
    features = getattr(dataset, "features", None) or {}
    names_of = getattr(features.get(label), "names", None) if hasattr(features, "get") else None
    names = tuple(f"row {number}" for number in range(len(dataset)))
    return Examples(names, partial(_dataset_row, dataset, names, text, image, label, names_of))


def is_hugging_face(data: Any) -> bool:
    """Whether it is a `datasets.Dataset`, or has its interface."""
    return hasattr(data, "column_names") and hasattr(data, "__getitem__") and hasattr(data, "__len__")


def _dataset_row(
    dataset: Any,
    names: Sequence[str],
    text: str | None,
    image: str | None,
    label: str | None,
    names_of: Sequence[str] | None,
    number: int,
) -> Document | Photo:
    row = dataset[number]
    value = None if label is None else row[label]
    if isinstance(value, int) and not isinstance(value, bool) and names_of is not None and 0 <= value < len(names_of):
        value = names_of[value]
    known = None if value is None or value == -1 else str(value)
    if image is not None:
        return Photo(names[number], image_of(row[image]), known)
    assert text is not None
    return Document(names[number], text_in_row(row, text, names[number]), known)


def _document(
    rows: Sequence[TableRow], names: Sequence[str], text: str, label: str | None, rationale: str | None, number: int
) -> Document:
    row, name = rows[number], names[number]
    words = text_in_row(row, text, name)
    marks = None if rationale is None else _marked_words(row.get(rationale), len(words.split()), name)
    return Document(name, words, label_in_row(row, label), marks)


def _marked_words(value: Any, count: int, name: str) -> np.ndarray:
    """Convert the indices of marked words to a mask."""
    try:
        numbers = [int(part) for part in (value.split() if isinstance(value, str) else value or [])]
    except (TypeError, ValueError) as error:
        raise WhyformerError(f"{name}: its rationale {value!r:.40} is not a list of the words' numbers.") from error
    wrong = next((number for number in numbers if not 0 <= number < count), None)
    if wrong is not None:
        raise WhyformerError(f"{name}: its rationale marks word {wrong}, and it has {count}, from 0 on.")
    marks = np.zeros(count, dtype=bool)
    marks[numbers] = True
    return marks

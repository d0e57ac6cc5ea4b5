"""Texts: documents with human rationales in ERASER's format, and 20 Newsgroups."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from whyformer.data.dataset_files import existing, fields, inside, text_in
from whyformer.data.examples import Document, Examples
from whyformer.data.readers import reader
from whyformer.errors import WhyformerError, check_choice
from whyformer.files import parse_json

Post = Literal["bare", "whole"]
NewsgroupsSplit = Literal["train", "test"]
QUOTES = re.compile(r"writes in|writes:|wrote:|says:|said:|^In article|^Quoted from|^\||^>")


@reader("eraser")
def eraser(folder: str | Path, split: str = "test") -> Examples[Document]:
    """ERASER (DeYoung et al. 2020): `split`.jsonl, and the documents it names in docs/, words separated by spaces.

    Join splits by +, as in "train+val+test". Of an annotation of several documents, the first is used.
    """
    folder = existing(folder, "folder")
    tables = [existing(folder / f"{part}.jsonl", "file") for part in split.split("+")]
    lines = [(table, n, line) for table in tables for n, line in enumerate(text_in(table).splitlines(), start=1)]
    return Examples(tuple(f"{table.name} line {n}" for table, n, _ in lines), partial(_read_review, lines))


@reader("newsgroups")
def newsgroups(folder: str | Path, split: NewsgroupsSplit = "test", *, post: Post = "bare") -> Examples[Document]:
    """20 Newsgroups "bydate" (Lang 1995): one folder per group, one file per post.

    A bare post has no header, signature or quotes, which reveal the group or its authors.
    """
    check_choice("split", split, NewsgroupsSplit)
    check_choice("post", post, Post)
    root = existing(Path(folder) / f"20news-bydate-{split}", "folder")
    paths = sorted(path for path in root.glob("*/*") if path.is_file())
    return Examples(tuple(f"{path.parent.name}/{path.name}" for path in paths), partial(_read_post, paths, post))


def bare(post: str) -> str:
    """Remove the header, signature and quotes of a post."""
    body = post.partition("\n\n")[2]
    lines = body.strip().split("\n")
    breaks = [number for number, line in enumerate(lines) if not line.strip().strip("-")]
    kept = lines[: breaks[-1]] if breaks and breaks[-1] > 0 else body.split("\n")
    return "\n".join(line for line in kept if not QUOTES.search(line))


def _read_review(lines: list[tuple[Path, int, str]], number: int) -> Document:
    table, place, line = lines[number]
    where = f"Line {place} of {str(table)!r}"
    try:
        row = parse_json(line)
    except ValueError as error:
        raise WhyformerError(f"{where} is not valid JSON: {error}") from error
    name, label, evidences = fields(row, ("annotation_id", "classification", "evidences"), where)
    spans = [span for group in evidences for span in group]
    ends = [fields(span, ("docid", "start_token", "end_token"), where) for span in spans]
    document = ends[0][0] if ends else name
    words = text_in(inside(table.parent / "docs", document)).split()
    rationale = np.zeros(len(words), dtype=bool)
    for source, start, end in ends:
        if source == document:
            if not 0 <= start <= end <= len(words):
                raise WhyformerError(f"{where} marks words {start} to {end} of {document!r}, which has {len(words)}.")
            rationale[start:end] = True
    return Document(name, " ".join(words), label, rationale)


def _read_post(paths: list[Path], post: str, number: int) -> Document:
    path = paths[number]
    text = text_in(path, "latin-1")
    return Document(f"{path.parent.name}/{path.name}", bare(text) if post == "bare" else text, path.parent.name)

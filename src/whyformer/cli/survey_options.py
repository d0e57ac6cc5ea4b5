"""Options of the commands that read a data set by a model: `survey` and `diff`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from whyformer.cli.command_options import OUTPUT
from whyformer.errors import WhyformerError

SurveyedData = Annotated[
    Path,
    typer.Argument(
        metavar="DATA",
        help="A table of texts (.csv, .tsv, .jsonl, .json, .parquet), with labels in the column label if any. Or a "
        "folder with a folder of pictures or sounds for each class; or one with the folders images and masks.",
    ),
]
SurveyFile = Annotated[
    Path,
    typer.Option(
        help="The report, a .html file. Next to it: .json (`Survey.load`), .parquet (a row per cue), and .jsonl, "
        "from which an interrupted survey resumes.",
        rich_help_panel=OUTPUT,
    ),
]
PageCount = Annotated[
    int,
    typer.Option(
        metavar="N",
        help="How many of the listed samples get a page of their explanation, in the folder NAME-samples; 0 for none.",
        rich_help_panel=OUTPUT,
    ),
]
MaskFolder = Annotated[Path | None, typer.Option(help="The folder of masks, with the same names as the pictures.")]
ShouldIgnore = Annotated[
    str | None,
    typer.Option(
        "--should-ignore",
        metavar="FILE|masks|NAME",
        help="Cues that should not matter: a text file with one word or phrase per line; for pictures, masks or "
        "the name of a region, such as border; for sounds, that of a stretch or band, such as beginning.",
    ),
]
HeldOut = Annotated[
    Path | None,
    typer.Option(
        metavar="DATA",
        help="Labelled texts from another source: drivers that go with their label in DATA, but not there, are "
        "shortcuts, too.",
    ),
]
LemmaFile = Annotated[
    Path | None,
    typer.Option(
        "--lemmas",
        metavar="FILE",
        help="Count the forms of a word as one cue: a text file with a word and its lemma in each line, separated by a "
        "tab.",
    ),
]
LabelPairs = Annotated[
    list[str] | None,
    typer.Option(metavar="DATA=MODEL", help="The model's name for a label of the data; can be repeated."),
]
RandomSeed = Annotated[int, typer.Option(help="The random seed.")]


def label_map(pairs: Sequence[str] | None) -> dict[str, str]:
    """The model's names for labels of the data, from DATA=MODEL."""
    names = {}
    for text in pairs or ():
        data, separator, model = text.partition("=")
        if not separator or not data or not model:
            raise WhyformerError(f"--label {text!r}: write DATA=MODEL, such as pos=positive.")
        names[data] = model
    return names


def check_data_files(data: Path, inputs: Sequence[str | Path | None], out: Path, suffixes: Sequence[str]) -> None:
    """Raise if there are no data, or a file of the report would replace one that is read."""
    if not data.exists():
        raise WhyformerError(f"No file or folder {str(data)!r}.")
    for written in map(out.with_suffix, suffixes):
        for name in (data, *inputs):
            if name is not None and written.exists() and Path(name).exists() and written.samefile(name):
                raise WhyformerError(
                    f"--out {str(out)!r} would write to {str(name)!r}, which is read: name another report."
                )

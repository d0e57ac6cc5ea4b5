"""Options shared by several commands, with their help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

QUESTION_PANEL, METHOD, OUTPUT, MACHINE = "The question", "The method", "Output", "Machine"
FLAG = ""  # for an option without a value: help would show <bool>

INPUT = (
    "a picture, a text, or a text file; a folder of pictures or texts; a table with a text in each row (.csv, .tsv, "
    ".jsonl, .parquet); - for standard input. For a model of regions (mini-lxmert), the .npz file of a picture's "
    "regions. For a generative model (mini-gpt, mini-t5), the text to continue"
)
TARGET = (
    "The answer to explain, by default the predicted one: a label, by name or index. For a detector, a detected "
    "label; with several --text, one of them, by text or index. For a model that writes or fills masks, a word or a "
    "token id; for one that tags words, a tag; for one that finds answers, words of the passage"
)
PAIR = (
    "The second text, for a model that reads pairs: the passage of a question, or the text to compare with. For an "
    "encoder-decoder, the output so far."
)
TEXT_HELP = (
    "The text to compare a picture with, or the question about it; a choice for a prompt; a candidate label of a "
    "text, for an inference model. With several, --target selects one."
)
DEFAULT_HELP = (
    "evidence, chosen by a rule fixed before measuring; for words about pictures, generic_attention with "
    "--backward libra"
)

DtypeName = Literal["auto", "float32", "bfloat16", "float16"]
Format = Literal["html", "png", "json", "npz"]
ExplanationFormat = Literal["html", "png", "json", "npz", "audit.json"]
UnitsName = Literal["word", "token"]

ModelName = Annotated[str, typer.Option(help="A bundled model (`whyformer models`), a folder, or a Hugging Face id.")]
MethodName = Annotated[
    str | None,
    typer.Option(help=f"One of `whyformer methods`. By default {DEFAULT_HELP}.", rich_help_panel=METHOD),
]
MethodOptions = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE",
        help="An option of the method, as listed by `whyformer methods`; can be repeated.",
        rich_help_panel=METHOD,
    ),
]
BackwardName = Annotated[
    str | None,
    typer.Option(
        help="The rules for gradients: gradient, libra (LibraGrad) or attn_lrp (AttnLRP); by default gradient for a "
        "named --method.",
        rich_help_panel=METHOD,
    ),
]
Plugins = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FILE.py",
        help="A Python file to run that registers your own methods or readers; can be repeated.",
        rich_help_panel=METHOD,
    ),
]
TargetName = Annotated[str, typer.Option(help=f"{TARGET}.", rich_help_panel=QUESTION_PANEL)]
OtherTarget = Annotated[
    str | None,
    typer.Option(
        metavar="OTHER", help="Explain the target rather than this label, word or text.", rich_help_panel=QUESTION_PANEL
    ),
]
Query = Annotated[
    int | None,
    typer.Option(help="For a detector: the object query to explain.", rich_help_panel=QUESTION_PANEL),
]
AtOption = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="PLACE",
        help="For a model that tags words: the word, or its index from 0. For one that fills masks: the mask's index. "
        "For one that finds answers: the character at which the answer begins.",
        rich_help_panel=QUESTION_PANEL,
    ),
]
Each = Annotated[
    bool,
    typer.Option(
        "--each",
        metavar=FLAG,
        help="Explain every answer: each entity, likely label or object, mask, choice or candidate.",
        rich_help_panel=QUESTION_PANEL,
    ),
]
Template = Annotated[
    str | None,
    typer.Option(
        help="The sentence for candidate labels, with {} for the label; by default 'This example is {}.'.",
        rich_help_panel=QUESTION_PANEL,
    ),
]
PairText = Annotated[str | None, typer.Option(help=PAIR, rich_help_panel=QUESTION_PANEL)]
Texts = Annotated[list[str] | None, typer.Option(help=TEXT_HELP, rich_help_panel=QUESTION_PANEL)]
ColumnOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The column with the texts of a table; by default the only one, or the one called text, sentence, review, "
        "content, question or similar.",
        rich_help_panel=QUESTION_PANEL,
    ),
]
Lines = Annotated[
    bool,
    typer.Option(
        "--lines",
        metavar=FLAG,
        help="Treat each line of a text file, or of standard input, as a separate text.",
        rich_help_panel=QUESTION_PANEL,
    ),
]
Prior = Annotated[
    bool,
    typer.Option(
        "--prior",
        metavar=FLAG,
        help="For a prompt with pictures, also say how likely each token would be after blank ones.",
        rich_help_panel=QUESTION_PANEL,
    ),
]
Truncate = Annotated[
    bool,
    typer.Option(
        "--truncate",
        metavar=FLAG,
        help="Truncate a text that is too long for the model, instead of explaining it in overlapping chunks.",
        rich_help_panel=QUESTION_PANEL,
    ),
]
UnitName = Annotated[
    UnitsName,
    typer.Option(help="What to colour in texts: words, or the tokens that the model reads.", rich_help_panel=OUTPUT),
]
AsJson = Annotated[
    bool,
    typer.Option(
        "--json",
        metavar=FLAG,
        help="Print only JSON for scripts, one object per line.",
        rich_help_panel=OUTPUT,
    ),
]
OutFile = Annotated[Path | None, typer.Option(help="A .html, .png, .json or .npz file.", rich_help_panel=OUTPUT)]
OutOption = Annotated[
    Path | None,
    typer.Option(
        help="A .html, .png, .json, .npz or .audit.json file (for `whyformer verify`); for several inputs, an .html "
        "report, or a folder with one file each.",
        rich_help_panel=OUTPUT,
    ),
]
FormatOption = Annotated[
    ExplanationFormat | None,
    typer.Option(help="The format of files in a folder; by default html.", rich_help_panel=OUTPUT),
]
Sign = Annotated[
    Path | None,
    typer.Option(
        metavar="KEY", help="Sign audit files with this private key (`whyformer keygen`).", rich_help_panel=OUTPUT
    ),
]
Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", metavar=FLAG, help="Print only errors and --json.", rich_help_panel=OUTPUT),
]
OnlyErrors = Annotated[
    bool, typer.Option("--quiet", "-q", metavar=FLAG, help="Print only errors.", rich_help_panel=OUTPUT)
]
DeviceName = Annotated[
    str | None,
    typer.Option(help="cpu, cuda, cuda:1, mps …; by default the GPU if there is one.", rich_help_panel=MACHINE),
]
DtypeOption = Annotated[
    DtypeName | None,
    typer.Option(
        help="The precision to compute in; auto is the precision of the saved model. By default auto on a GPU, float32 "
        "on a CPU.",
        rich_help_panel=MACHINE,
    ),
]
BatchSize = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="The number of inputs that run at once; by default 64 on a GPU, fewer on a CPU.",
        rich_help_panel=MACHINE,
    ),
]
Engine = Annotated[
    Literal["local", "ray"],
    typer.Option(help="local, or ray: a worker on each GPU or CPU of a Ray cluster.", rich_help_panel=MACHINE),
]


def help_examples(*lines: str) -> str:
    """The examples below a command's help, one per line."""
    return "\n\n".join(["Examples:", *lines])

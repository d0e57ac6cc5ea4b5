"""The options that several commands share, with their help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

QUESTION_PANEL, METHOD, OUTPUT, MACHINE = "The question", "The method", "Output", "Machine"
FLAG = ""  # of an option that takes no value: help would write <bool> behind it

INPUT = (
    "a picture, a text, or a text file; a folder of pictures or texts; a table with a text in each row (.csv, .tsv, "
    ".jsonl, .parquet); - for standard input; for a model of regions (mini-lxmert) the .npz file of a picture's "
    "regions; for one that writes (mini-gpt, mini-t5) the text it goes on from"
)
TARGET = (
    "The target, predicted if not given: a label, by name or index; of a detector the label it found; of "
    "several --text one of them, itself or counted from 0; of a model that writes or fills masks a word, or a token's "
    "id; of one that tags words a tag; of one that finds answers words of the passage"
)
PAIR = (
    "The second text, for a model that reads pairs: the passage of a question, what a text is compared with; for one "
    "that writes after reading, what it wrote so far."
)
TEXT_HELP = (
    "The text a picture is compared with, or the question about it; a choice after a prompt; a candidate label of a "
    "text, for a model of inference. Of several, --target names one."
)
DEFAULT_HELP = (
    "default (evidence, chosen by a rule fixed before measuring; of words about pictures generic_attention with "
    "--backward libra)"
)

DtypeName = Literal["auto", "float32", "bfloat16", "float16"]
Format = Literal["html", "png", "json", "npz"]
ExplanationFormat = Literal["html", "png", "json", "npz", "audit.json"]
UnitsName = Literal["word", "token"]

ModelName = Annotated[str, typer.Option(help="A bundled model (`whyformer models`), a folder, or a Hugging Face id.")]
MethodName = Annotated[
    str | None,
    typer.Option(help=f"One of `whyformer methods`. If not given: {DEFAULT_HELP}.", rich_help_panel=METHOD),
]
MethodOptions = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE",
        help="An option of the method, as `whyformer methods` lists them; can be repeated.",
        rich_help_panel=METHOD,
    ),
]
BackwardName = Annotated[
    str | None,
    typer.Option(
        help="How gradients are taken: gradient, libra (LibraGrad's rules) or attn_lrp (AttnLRP's). A --method that is "
        "named has gradient.",
        rich_help_panel=METHOD,
    ),
]
Plugins = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FILE.py",
        help="A Python file that registers methods or readers of your own; it is run. Can be repeated.",
        rich_help_panel=METHOD,
    ),
]
TargetName = Annotated[str, typer.Option(help=f"{TARGET}.", rich_help_panel=QUESTION_PANEL)]
OtherTarget = Annotated[
    str | None,
    typer.Option(
        metavar="OTHER", help="Explain the target against this label, word or text.", rich_help_panel=QUESTION_PANEL
    ),
]
Query = Annotated[
    int | None,
    typer.Option(help="For a detector: the object query whose find is explained.", rich_help_panel=QUESTION_PANEL),
]
AtOption = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="PLACE",
        help="For a model that tags words: the word, or its number from 0 on. For one that fills masks: the mask's "
        "number. For one that finds answers: the character the answer begins at.",
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
        help="The sentence that candidate labels are put into, with {} for the label; 'This example is {}.' if not "
        "given.",
        rich_help_panel=QUESTION_PANEL,
    ),
]
PairText = Annotated[str | None, typer.Option(help=PAIR, rich_help_panel=QUESTION_PANEL)]
Texts = Annotated[list[str] | None, typer.Option(help=TEXT_HELP, rich_help_panel=QUESTION_PANEL)]
ColumnOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The column of a table that has the texts. If not given, the only one, or the one called text, sentence, "
        "review, content, question or the like.",
        rich_help_panel=QUESTION_PANEL,
    ),
]
Lines = Annotated[
    bool,
    typer.Option(
        "--lines",
        metavar=FLAG,
        help="Take each line of a text file, or of standard input, as a text of its own.",
        rich_help_panel=QUESTION_PANEL,
    ),
]
Truncate = Annotated[
    bool,
    typer.Option(
        "--truncate",
        metavar=FLAG,
        help="Cut a text that is too long for the model, instead of explaining it in overlapping chunks.",
        rich_help_panel=QUESTION_PANEL,
    ),
]
UnitName = Annotated[
    UnitsName,
    typer.Option(help="What is coloured in texts: words, or the tokens that the model reads.", rich_help_panel=OUTPUT),
]
AsJson = Annotated[
    bool,
    typer.Option(
        "--json",
        metavar=FLAG,
        help="Print JSON for scripts and nothing else: one object a line.",
        rich_help_panel=OUTPUT,
    ),
]
OutFile = Annotated[Path | None, typer.Option(help="A .html, .png, .json or .npz file.", rich_help_panel=OUTPUT)]
OutOption = Annotated[
    Path | None,
    typer.Option(
        help="A .html, .png, .json, .npz or .audit.json file (which `whyformer verify` reads); for several inputs an "
        ".html report, or a folder with a file each.",
        rich_help_panel=OUTPUT,
    ),
]
FormatOption = Annotated[
    ExplanationFormat | None, typer.Option(help="Of the files in a folder; html if not given.", rich_help_panel=OUTPUT)
]
Sign = Annotated[
    Path | None,
    typer.Option(
        metavar="KEY", help="Sign audit files with this private key (`whyformer keygen`).", rich_help_panel=OUTPUT
    ),
]
Quiet = Annotated[
    bool,
    typer.Option("--quiet", "-q", metavar=FLAG, help="Print nothing but errors and --json.", rich_help_panel=OUTPUT),
]
OnlyErrors = Annotated[
    bool, typer.Option("--quiet", "-q", metavar=FLAG, help="Print nothing but errors.", rich_help_panel=OUTPUT)
]
DeviceName = Annotated[
    str | None,
    typer.Option(help="cpu, cuda, cuda:1, mps …; the GPU if there is one and none is named.", rich_help_panel=MACHINE),
]
DtypeOption = Annotated[
    DtypeName | None,
    typer.Option(
        help="The precision to compute in; auto: the one that the model was saved in. If not given, auto on a GPU, "
        "float32 on a CPU.",
        rich_help_panel=MACHINE,
    ),
]
BatchSize = Annotated[
    int | None,
    typer.Option(
        min=1, help="How many inputs are computed at once; 64 on a GPU, on a CPU what pays.", rich_help_panel=MACHINE
    ),
]


def help_examples(*lines: str) -> str:
    """The examples below a command's help, one a line."""
    return "\n\n".join(["Examples:", *lines])

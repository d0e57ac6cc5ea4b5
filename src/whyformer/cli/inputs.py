"""Turn command-line inputs into examples: files, folders, tables, texts, standard input."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import typer

from whyformer.cli.console import safe
from whyformer.errors import WhyformerError
from whyformer.files import IMAGE_SUFFIXES
from whyformer.inputs.table_files import TABLE_SUFFIXES

if TYPE_CHECKING:
    from whyformer.models.loading import LoadedModel

MOST_PIPED_BYTES = 1 << 28
STANDARD_INPUT = ("-", "/dev/stdin")
# The second text of models that read two.
_PAIRS = {
    "span": "the passage that has the answer",
    "next sentence": "the text that may follow",
}


@dataclass(frozen=True)
class Input:
    """An input to explain: the argument, and the bytes of a pipe, which can be read only once.

    A row of a table or a line of a file has its text, its label if any, and its place as the argument.
    """

    argument: str
    content: bytes | None = None
    text: str | None = None
    label: str | None = None

    @property
    def title(self) -> str:
        """The input in one line: a file's path, a row and its label, or the start of a text."""
        if self.text is not None:
            return safe(self.argument if self.label is None else f"{self.argument}, labelled {self.label}")
        if self.content is not None:
            return "standard input" if self.argument in STANDARD_INPUT else safe(self.argument)
        text = " ".join(self.argument.split())
        if os.path.isfile(self.argument):
            return safe(self.argument)
        return safe(text if len(text) <= 70 else f"{text[:69].rstrip()}…")

    def stem(self, number: int) -> str:
        """File name for results, without a suffix."""
        if self.text is not None:
            return re.sub(r"\W+", "-", Path(self.argument).name).strip("-")
        if self.content is not None:
            return "stdin" if self.argument in STANDARD_INPUT else f"input-{number}"
        return Path(self.argument).stem if os.path.isfile(self.argument) else f"text-{number}"


def read_inputs(arguments: Sequence[str]) -> list[Input]:
    """The inputs of the arguments, with the content of pipes."""
    piped = [argument for argument in arguments if argument in STANDARD_INPUT]
    if len(piped) > 1:
        raise WhyformerError("Standard input can be read once: give - once.")
    return [Input(argument, _piped(argument)) for argument in arguments]


def example_of(
    source: Input, pair: str | None, texts: Sequence[str], model: LoadedModel, template: str | None = None
) -> Any:
    """The example of an input, with its text if the model takes one."""
    from whyformer.inputs.modality import known_modalities

    if template is not None and not (texts and _takes_candidates(model)):
        raise WhyformerError("--template is for candidate labels: give them by --text to an inference model.")
    if model.task.sees is None and (model.task.answer == "choice" or (texts and _takes_candidates(model))):
        return _with_candidates(source, texts, model, template)
    has_two_senses = model.task.sees_regions or (model.task.sees_pictures and model.tokenizer is not None)
    if has_two_senses and not texts:
        missing, example = _text_beside(model)
        raise WhyformerError(
            f"{model.name} reads pictures with text: add {missing} by --text, such as --text {example!r}."
        )
    if texts and not has_two_senses:
        raise WhyformerError(
            f"--text needs a model that reads pictures with text, and {model.name} does not: leave it out."
        )
    if pair is not None and not model.task.is_text_only:
        what = "pictures" if model.task.sees is not None else known_modalities()[model.task.modality].files.plural
        raise WhyformerError(
            f"--pair is a second text, and {model.name} reads {what}: choose a text model, such as --model mini-bert."
        )
    if model.task.sees_regions:
        if len(texts) > 1:
            raise WhyformerError(f"{model.name} answers one question at a time: give --text once.")
        return _regions(source, model), texts[0]
    if model.task.reads_other_files:
        return _file(source, model)
    first = _picture_or_text(source, model)
    if has_two_senses and not (model.task.compares or model.task.detects):
        if len(texts) > 1:
            raise WhyformerError(f"{model.name} answers one text at a time: give --text once.")
        return first, texts[0]
    if has_two_senses:
        return first, list(texts)
    if pair is None and model.task.answer in _PAIRS:
        raise WhyformerError(f"{model.name} reads two texts: add {_PAIRS[model.task.answer]} by --pair.")
    return first if pair is None else (first, _picture_or_text(read_inputs([pair])[0], model))


def _text_beside(model: LoadedModel) -> tuple[str, str]:
    """The kind of text a model reads with a picture, and an example of it."""
    is_asked = model.task.sees_regions or model.task.writes
    if is_asked or type(model.model).__name__.endswith("ForQuestionAnswering"):
        return "its question", "what colour is it?"
    return "the object to find" if model.task.detects else "the text to compare it with", "a photo of a cat"


def _takes_candidates(model: LoadedModel) -> bool:
    from whyformer.models.structure import entailment_of

    return model.task.answer == "label" and model.task.sees is None and entailment_of(model.model) is not None


def _with_candidates(source: Input, texts: Sequence[str], model: LoadedModel, template: str | None) -> Any:
    """A prompt with its choices, or a text with its candidate labels."""
    from whyformer.inputs.candidates import TEMPLATE, Candidates

    if not texts:
        raise WhyformerError(f"{model.name} chooses among texts: add each choice by --text, such as --text blue.")
    first = _picture_or_text(source, model)
    if model.task.answer == "choice":
        return first, list(texts)
    return first, Candidates(tuple(texts), TEMPLATE if template is None else template)


def typed_text(argument: str, name: str) -> str:
    """A text argument, or the content of a file or pipe without its final line break."""
    (source,) = read_inputs([argument])
    if source.content is not None:
        return decoded_input(source, source.content).removesuffix("\n")
    if os.path.isfile(argument) or _looks_like_a_path(argument):
        from whyformer.inputs.read import text_of

        return str(text_of(Path(argument))).removesuffix("\n")
    if not argument.strip():
        raise WhyformerError(f"{name} is empty: give a text, or a file with one.")
    return argument


def _piped(argument: str) -> bytes | None:
    """Content of a pipe: standard input, or the file of a process substitution; None otherwise."""
    if argument in STANDARD_INPUT:
        if sys.stdin.isatty():
            typer.echo("Reading standard input: end it with Ctrl-D.", err=True)
        return _bounded(sys.stdin.buffer, "Standard input")
    if not _is_pipe(argument):
        return None
    with open(argument, "rb") as pipe:
        return _bounded(pipe, f"The pipe {argument!r}")


def _is_pipe(argument: str) -> bool:
    try:
        return stat.S_ISFIFO(os.stat(argument).st_mode)
    except (OSError, ValueError):  # no such file, or a text that cannot be a file name
        return False


def _bounded(pipe: BinaryIO, name: str) -> bytes:
    content = pipe.read(MOST_PIPED_BYTES + 1)
    if len(content) > MOST_PIPED_BYTES:
        raise WhyformerError(f"{name} has more than {MOST_PIPED_BYTES >> 20} MiB: save it to a file and give that.")
    if not content:
        raise WhyformerError(f"{name} is empty: there is nothing to explain.")
    return content


def _regions(source: Input, model: LoadedModel) -> Any:
    from whyformer.inputs.read import Regions

    if source.content is not None:
        return Regions.read(BytesIO(source.content), source.title)
    if not source.argument.lower().endswith(".npz"):
        raise WhyformerError(
            f"{source.argument!r} is not an .npz file: {model.name} reads regions of a picture, each with a box and "
            "features, not the picture. docs/guides/models.md shows how to save them."
        )
    return Path(source.argument)


def _file(source: Input, model: LoadedModel) -> Path:
    from whyformer.inputs.modality import known_modalities

    if source.content is not None or not (os.path.isfile(source.argument) or _looks_like_a_path(source.argument)):
        kind = known_modalities()[model.task.modality].files
        raise WhyformerError(f"{model.name} reads {kind.plural}: give a {kind.singular} file, not {source.title!r}.")
    return Path(source.argument)


def _picture_or_text(source: Input, model: LoadedModel) -> Any:
    """A file if it exists; otherwise the argument is the text, unless it looks like a path."""
    if source.text is not None:
        return source.text
    if source.content is not None:
        return _piped_example(source, source.content, model)
    argument = source.argument
    suffix = os.path.splitext(argument)[1].lower()
    if os.path.isfile(argument):
        if suffix in IMAGE_SUFFIXES and not model.task.sees_pictures:
            raise WhyformerError(
                f"{argument!r} is a picture, but {model.name} reads texts: choose another with --model."
            )
        return Path(argument)
    if _looks_like_a_path(argument) or (model.task.sees_pictures and os.path.isdir(argument)):
        return Path(argument)  # raises with the reason when it is read
    if model.task.sees_pictures:
        raise WhyformerError(
            f"No file {argument!r}, and {model.name} reads pictures: for a text choose a text model, such as "
            "--model mini-bert."
        )
    return argument


def _piped_example(source: Input, content: bytes, model: LoadedModel) -> Any:
    """A picture or a text, recognised by its first bytes."""
    from whyformer.inputs.read import is_image, read_image

    if model.task.sees_pictures:
        return read_image(BytesIO(content), source.title)
    if is_image(content):
        raise WhyformerError(
            f"{source.title.capitalize()} is a picture, but {model.name} reads texts: choose another with --model."
        )
    return decoded_input(source, content)


def _looks_like_a_path(argument: str) -> bool:
    """Whether a text is clearly a path, existing or not."""
    from whyformer.inputs.modality import known_modalities

    suffix = os.path.splitext(argument)[1].lower()
    known = [TABLE_SUFFIXES, *(modality.files.suffixes for modality in known_modalities().values())]
    has_suffix = any(suffix in suffixes for suffixes in known)
    return has_suffix or bool(re.search(r"[/\\]", argument) and not re.search(r"\s", argument))


def decoded_input(source: Input, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise WhyformerError(
            f"{source.title.capitalize()} is not UTF-8 text (byte {error.start}): convert it first."
        ) from error


def numbered_stems(inputs: Sequence[Input]) -> Iterator[str]:
    """A file name for each input."""
    return (source.stem(number) for number, source in enumerate(inputs, start=1))

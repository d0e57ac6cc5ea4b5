"""The tools of `whyformer mcp`: sizes are bounded, files come from named folders only, models from an offered list."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from PIL import Image

from whyformer.errors import WhyformerError
from whyformer.files import IMAGE_SUFFIXES
from whyformer.inputs.read import open_image, read_image, strings_are_texts

if TYPE_CHECKING:
    from whyformer.models.loading import LoadedModel

MOST_FILE_BYTES, MOST_FILE_PIXELS = 10 << 20, 40_000_000  # of a file
MOST_TEXT_CHARACTERS, MOST_DOCUMENTS = 20_000, 20  # of all texts of a call together
MOST_WRITTEN, MOST_LISTED = 64, 50  # tokens that a model writes, items of an answer
_ONE_AT_A_TIME = Lock()


@dataclass(frozen=True)
class AgentTools:
    """The files and models that an agent may use.

    Attributes:
        folders: The folders, with links resolved, whose files may be read.
        names: The models that may be named.
    """

    folders: tuple[Path, ...]
    names: tuple[str, ...]

    def explain(
        self,
        model: str,
        text: str | None = None,
        file: str | None = None,
        texts: list[str] | None = None,
        target: str = "predicted",
        rather_than: str | None = None,
        method: str | None = None,
        top: int = 10,
    ) -> dict[str, Any]:
        """Explain a model's answer to a text or a picture: the words or patches that it depends on most.

        Positive scores support the answer, negative ones contradict it. Scores of different calls are not comparable.

        Args:
            model: One of the tool `models`.
            text: A text, or with a picture the question about it or the text to compare it with.
            file: A picture or a text file in one of the server's folders, instead of a text or with one.
            texts: Several texts to compare with the picture, choices after a prompt, or candidate labels of a text.
            target: The label, word or text to explain; by default the predicted one.
            rather_than: Explain the target against this other label, word or text.
            method: A method by name; by default Whyformer's choice for the model.
            top: How many words or patches to return, at most 50.
        """
        from whyformer.api.explain import explain
        from whyformer.targets.scores import contrast

        check_length([text or "", *(texts or ())])
        parts = [part for part in (self.read(file) if file else None, text, texts) if part]
        if not 1 <= len(parts) <= 2:
            raise WhyformerError("Give a text, a file, or two of text, file and texts.")
        chosen = target if rather_than is None else contrast(target, rather_than)
        with _ONE_AT_A_TIME, strings_are_texts():
            example = parts[0] if len(parts) == 1 else (parts[0], parts[1])
            result = explain(example, self.open(model), chosen, method)
        shown = {name: f"{part['rows']} rows, {part['columns']} columns" for name, part in _grids(result.to_dict())}
        return {
            "model": model,
            "answer": result.answer,
            "probability": result.probability,
            "target": str(result.target),
            "method": result.method,
            "top": [{"text": item.text, "part": item.part, "score": item.score} for item in result.top(_listed(top))],
            "patches": shown,
            "notes": list(result.notes),
        }

    def explain_response(
        self,
        question: str,
        documents: list[str] | None = None,
        files: list[str] | None = None,
        response: str | None = None,
        model: str = "mini-llm",
        method: str | None = None,
        tokens: int = 64,
    ) -> dict[str, Any]:
        """Show which sentences of the documents each sentence of a response comes from, by a language model's scores.

        Shares are of the positive scores of a row. They say where a sentence comes from, not whether it is true.

        Args:
            question: The question or prompt.
            documents: The documents that the model answers from.
            files: Further documents: text files in one of the server's folders.
            response: The response to explain; by default the model writes it.
            model: A generative model of the tool `models`.
            method: A method by name; by default Whyformer's choice.
            tokens: How many tokens the model may write, at most 64.
        """
        from whyformer.api.explain_response import explain_response

        context = self._documents([question, response or ""], documents, files)
        if not 1 <= tokens <= MOST_WRITTEN:
            raise WhyformerError(f"tokens is from 1 to {MOST_WRITTEN}, not {tokens}.")
        with _ONE_AT_A_TIME, strings_are_texts():
            result = explain_response(
                question, response, self.open(model), method, context=context, units="sentence", tokens=tokens
            )
        rows = [
            {
                "text": row.text,
                "sources": [{"text": one.source.text, "share": one.share} for one in result.top(3, row=number)],
            }
            for number, row in enumerate(result.rows[:MOST_LISTED])
        ]
        return {"model": model, "method": result.method, "rows": rows, "notes": list(result.notes)}

    def support(
        self,
        question: str,
        answer: str,
        documents: list[str] | None = None,
        files: list[str] | None = None,
        model: str = "mini-llm",
    ) -> dict[str, Any]:
        """Judge each sentence of an answer: from sources, from memory, not supported, contradicted, or cannot tell.

        The model must be the one that wrote the answer, or a stand-in for it. Figures are log-probabilities in nats.

        Args:
            question: The question.
            answer: The answer to judge.
            documents: The documents that it should depend on.
            files: Further documents: text files in one of the server's folders.
            model: A generative model of the tool `models`.
        """
        from whyformer.api.answer_support import answer_support

        context = self._documents([question, answer], documents, files)
        with _ONE_AT_A_TIME, strings_are_texts():
            result = answer_support(self.open(model), question, answer, context)
        units = [
            {
                "text": unit.text,
                "verdict": unit.verdict,
                "reason": unit.reason,
                "log_probability": unit.log_probability,
                "without_sources": unit.without_sources,
            }
            for unit in result.units[:MOST_LISTED]
        ]
        return {"sentences": units, "calibration": result.calibration, "notes": list(result.notes)}

    def doctor(self, model: str) -> dict[str, Any]:
        """Check a model before trusting its explanations: problems, and which methods apply.

        Args:
            model: One of the tool `models`.
        """
        from whyformer.api.doctor import checkup

        with _ONE_AT_A_TIME:
            result = checkup(self.open(model))
        kept = ("model", "architecture", "answers", "targets", "problems", "notes", "methods")
        fields = {name: value for name, value in asdict(result).items() if name in kept}
        return {"is_healthy": result.is_healthy, **fields, "labels": list(result.labels[:MOST_LISTED])}

    def models(self) -> dict[str, Any]:
        """List the models that may be named, and what each of the bundled ones does."""
        from whyformer.models.zoo import bundled, bundled_folder, model_card

        cards = {name: model_card(bundled_folder(name)) for name in bundled()}
        about = {name: f"{card['task']}: {card['about']}" for name, card in cards.items()}
        return {"models": {name: about.get(name, "named when the server was started") for name in self.names}}

    def open(self, name: str) -> LoadedModel:
        """An offered model, loaded once."""
        if name not in self.names:
            raise WhyformerError(f"No model {name!r:.100} is offered. Choose one of {', '.join(self.names)}.")
        return _loaded(name)

    def read(self, name: str) -> Image.Image | str:
        """A picture or a text from a file of the folders, read whole, with its size checked before it is decoded."""
        path = contained(self.folders, name)
        content = _content(path, name)
        if path.suffix.lower() in IMAGE_SUFFIXES:
            with open_image(BytesIO(content), name=name) as image:
                width, height = image.size
            if width * height > MOST_FILE_PIXELS:
                raise WhyformerError(
                    f"{name!r} has {width:,} × {height:,} pixels, more than {MOST_FILE_PIXELS:,}: shrink it."
                )
            return read_image(BytesIO(content), name)
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise WhyformerError(f"{name!r} is neither a picture nor a text in UTF-8.") from error
        check_length([text])
        return text

    def _documents(self, texts: Sequence[str], documents: list[str] | None, files: list[str] | None) -> list[Any]:
        """The documents of a call, with those in files."""
        if len(documents or ()) + len(files or ()) > MOST_DOCUMENTS:
            raise WhyformerError(f"At most {MOST_DOCUMENTS} documents are read at once: leave some out.")
        read = [(name, self.read(name)) for name in files or ()]
        if pictures := [name for name, content in read if not isinstance(content, str)]:
            raise WhyformerError(f"{pictures[0]!r} is a picture: documents are texts.")
        contents = [*(documents or ()), *(str(content) for _, content in read)]
        check_length([*texts, *contents])
        return contents


def contained(folders: Sequence[Path], name: str) -> Path:
    """The file of this name in a folder, with links resolved. Any other file gives the error of a missing one."""
    for folder in folders:
        try:
            path = (folder / name).resolve(strict=True)
        except (OSError, ValueError, RuntimeError):
            continue
        if path.is_relative_to(folder) and path.is_file():
            return path
    places = ", ".join(map(str, folders)) or "none was named: start the server with --folder"
    raise WhyformerError(f"No file {name!r:.100} in the server's folders ({places}).")


def _content(path: Path, name: str) -> bytes:
    """The bytes of a regular file, if they are not too many; a link put in its place meanwhile is not followed."""
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        with os.fdopen(os.open(path, flags), "rb") as file:
            is_regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            content = file.read(MOST_FILE_BYTES + 1) if is_regular else b""
    except OSError as error:
        raise WhyformerError(f"{name!r} cannot be read: {error.strerror}.") from error
    if not is_regular or len(content) > MOST_FILE_BYTES:
        raise WhyformerError(
            f"{name!r} has more than {MOST_FILE_BYTES >> 20} MB, or is not a file: choose a smaller one."
        )
    return content


def check_length(texts: Sequence[str]) -> None:
    """Raise if there are too many texts, or too long ones together."""
    count = sum(map(len, texts))
    if count > MOST_TEXT_CHARACTERS:
        raise WhyformerError(f"The texts have {count:,} characters, more than {MOST_TEXT_CHARACTERS:,}: shorten them.")
    if len(texts) > MOST_DOCUMENTS + 2:
        raise WhyformerError(f"At most {MOST_DOCUMENTS} texts are read at once: leave some out.")


def _listed(top: int) -> int:
    if not 1 <= top <= MOST_LISTED:
        raise WhyformerError(f"top is from 1 to {MOST_LISTED}, not {top}.")
    return top


def _grids(document: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    return [(name, part) for name, part in document["parts"].items() if "rows" in part and "columns" in part]


@lru_cache(maxsize=4)
def _loaded(name: str) -> LoadedModel:
    from whyformer.models.loading import load

    return load(name)

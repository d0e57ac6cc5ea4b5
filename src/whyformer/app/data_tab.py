"""The tab Data: survey a visitor's own texts or pictures."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from whyformer.app.code import Code, Expression, call, command
from whyformer.app.models import Tab
from whyformer.app.picture_archives import unpack_pictures
from whyformer.app.setup import Setup
from whyformer.app.tab_view import TabView, framed_with_script
from whyformer.app.uploads import sent_file, upload_errors
from whyformer.app.work import Work
from whyformer.errors import UnsupportedModel, WhyformerError
from whyformer.files import whole_file
from whyformer.inputs.table_files import read_table
from whyformer.surveys.survey_call import survey
from whyformer.surveys.survey_result import Survey

SURVEYED_TABS: tuple[Tab, ...] = ("Text", "Picture")
TABLE_UPLOADS, PICTURE_ARCHIVE = (".csv", ".tsv", ".jsonl"), ".zip"
MISSING = "Upload a table of texts or a zip file of pictures, type texts, or click an example."
MOST_IGNORED = 50  # cues that should not matter


@dataclass(frozen=True)
class SurveyInputs:
    """Inputs of a survey.

    Attributes:
        file: An uploaded table of texts, or a zip file of pictures; if None, the texts.
        texts: Texts, one per line.
        ignored: Words, phrases or regions that should not matter, separated by commas.
        model: The model's name.
    """

    file: str | None = None
    texts: str = ""
    ignored: str = ""
    model: str | None = None


def survey_upload(work: Work, setup: Setup, inputs: SurveyInputs) -> TabView:
    """The report of a survey: what drives the model over these data."""
    limits = setup.limits
    name = setup.models.name(inputs.model, *SURVEYED_TABS)
    ignored = [one.strip() for one in inputs.ignored.split(",") if one.strip()]
    limits.check_count("words to be ignored", len(ignored), MOST_IGNORED)
    limits.check_texts(inputs.ignored)
    with tempfile.TemporaryDirectory(prefix="whyformer-app-") as folder:
        data, written = _data(inputs, Path(folder), setup)
        loaded_model = setup.models.open(inputs.model, *SURVEYED_TABS)

        def watch(stage: str, done: int, total: int) -> None:
            work.step(done, total, f"{stage} on {loaded_model.name}")

        work.step(0, 1, f"{loaded_model.name} is surveyed")
        try:
            result = survey(loaded_model, data, should_ignore=ignored, watch=watch)
        except UnsupportedModel:
            raise
        except WhyformerError as error:  # in the names that the visitor knows
            path = str(data) if isinstance(data, Path) else folder
            raise WhyformerError(str(error).replace(f"{path}/", "").replace(path, str(written))) from error
        page, numbers = (_content(result, Path(folder), suffix) for suffix in (".html", ".json"))
    writers = {".html": _writer(page), ".json": _writer(numbers)}
    return TabView(framed_with_script(page, "The survey"), _code(name, written, ignored), writers)


def _data(inputs: SurveyInputs, folder: Path, setup: Setup) -> tuple[Any, Any]:
    """The data of a survey, and what stands for them in the code: a file's name, or the texts."""
    limits = setup.limits
    if not inputs.file:
        texts = [line.strip() for line in inputs.texts.splitlines() if line.strip()]
        if not texts:
            raise WhyformerError(MISSING)
        limits.check_texts(inputs.texts)
        limits.check_count("texts", len(texts), limits.survey_texts)
        return texts, texts
    file = sent_file(inputs.file, MISSING, limits)
    suffix = file.suffix.lower()
    if suffix == PICTURE_ARCHIVE:
        pictures = folder / "pictures"
        pictures.mkdir()
        return unpack_pictures(file, pictures, limits), file.name
    if suffix not in TABLE_UPLOADS:
        raise WhyformerError(
            f"{file.name} is not one of {', '.join((*TABLE_UPLOADS, PICTURE_ARCHIVE))}: choose another file."
        )
    with upload_errors(file):
        table = read_table(file)
    limits.check_count("rows", len(table.rows), limits.survey_texts)
    try:
        table.text_column()
    except WhyformerError as error:
        columns = ", ".join(table.columns)
        raise WhyformerError(f"{file.name} has the columns {columns}: name the one with the texts 'text'.") from error
    return file, file.name


def _content(result: Survey, folder: Path, suffix: str) -> str:
    path = folder / f"report{suffix}"
    result.save(path)
    return path.read_text(encoding="utf-8")


def _writer(content: str) -> Any:
    def write(path: Path) -> None:
        with whole_file(path) as unfinished:
            unfinished.write_text(content, encoding="utf-8")

    return write


def _code(model: str, written: Any, ignored: list[str]) -> Code:
    """The survey in Python and on the command line; texts and words to be ignored as files."""
    files: Mapping[str, str] = {"ignore.txt": "".join(f"{word}\n" for word in ignored)} if ignored else {}
    first, data, typed = [], written, []
    if not isinstance(written, str):
        files = {**files, "texts.csv": "".join(f"{row}\n" for row in ("text", *map(_field, written)))}
        data, place = Expression(repr(written)), "texts.csv"
    elif written.lower().endswith(PICTURE_ARCHIVE):
        place = written[: -len(PICTURE_ARCHIVE)]
        first = ["import shutil", "", f"shutil.unpack_archive({written!r}, {place!r})"]
        typed = [shlex.join(["unzip", written, "-d", place])]
        data = place
    else:
        place = written
    surveyed = call("whyformer.survey", model, data, should_ignore=ignored or None)
    python = ["import whyformer", *first, "", f"result = {surveyed}", "print(result)", 'result.save("report.html")']
    writing = [f"printf %s {shlex.quote(content)} > {name}" for name, content in files.items()]
    words = "ignore.txt" if ignored else None
    typed += [*writing, command("survey", model, place, should_ignore=words, out="report.html")]
    return Code("\n".join(python), "\n".join(typed))


def _field(text: str) -> str:
    """A text as a field of a CSV file."""
    quoted = text.replace('"', '""')
    return f'"{quoted}"'

"""Visual questions with ten human answers each (VQA v2)."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from whyformer.data.dataset_files import existing, fields, inside, json_in, rows_of
from whyformer.data.examples import Examples, VisualQuestion
from whyformer.data.readers import reader
from whyformer.errors import WhyformerError
from whyformer.inputs.read import Regions, image_of


@reader("vqa")
def vqa(
    questions: str | Path,
    annotations: str | Path,
    images: str | Path | None = None,
    *,
    regions: str | Path | None = None,
    file_name: str = "COCO_val2014_{:012d}.jpg",
) -> Examples[VisualQuestion]:
    """Read VQA's two files, and the folder of its pictures if given; `file_name` formats a picture's id.

    `regions` is a folder of detected regions for models that take these: .npz files written by `Regions.save`, named
    like the pictures.
    """
    questions_file, answers_file = existing(questions, "file"), existing(annotations, "file")
    rows = rows_of(json_in(questions_file), "questions", f"the file {str(questions_file)!r}")
    annotation_rows = rows_of(json_in(answers_file), "annotations", f"the file {str(answers_file)!r}")
    by_question = {fields(row, ("question_id",), f"{str(answers_file)!r}")[0]: row for row in annotation_rows}
    names = tuple(str(fields(row, ("question_id",), f"{str(questions_file)!r}")[0]) for row in rows)
    folders = tuple(None if folder is None else existing(folder, "folder") for folder in (images, regions))
    return Examples(names, partial(_question, rows, by_question, answers_file, folders, file_name))


def _question(
    rows: list[dict[str, Any]],
    by_question: dict[int, dict[str, Any]],
    answers_file: Path,
    folders: tuple[Path | None, ...],
    file_name: str,
    number: int,
) -> VisualQuestion:
    row = rows[number]
    question_id, image_id, text = fields(row, ("question_id", "image_id", "question"), f"Question {number}")
    if question_id not in by_question:
        raise WhyformerError(f"{str(answers_file)!r} has no answers to question {question_id}.")
    where = f"Question {question_id} of {str(answers_file)!r}"
    (of_people,) = fields(by_question[question_id], ("answers",), where)
    answers = tuple(fields(answer, ("answer",), where)[0] for answer in of_people)
    image_folder, region_folder = folders
    name = file_name.format(image_id)
    image = None if image_folder is None else image_of(inside(image_folder, name))
    regions = None if region_folder is None else Regions.load(inside(region_folder, f"{Path(name).stem}.npz"))
    return VisualQuestion(str(question_id), image_id, text, answers, image, regions)

"""Questions about pictures (VQA v2), with the answers that ten people gave."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from whyformer.data.examples import Examples, VisualQuestion
from whyformer.data.files import existing, fields, inside, json_in, rows_of
from whyformer.errors import WhyformerError
from whyformer.inputs.read import Regions, image_of


def vqa(
    questions: str | Path,
    annotations: str | Path,
    images: str | Path | None = None,
    *,
    regions: str | Path | None = None,
    file_name: str = "COCO_val2014_{:012d}.jpg",
) -> Examples[VisualQuestion]:
    """VQA's two files, and the folder of its pictures where a model sees them; `file_name` is of a picture's id.

    `regions` is the folder of what a detector found, a file of the same name as the picture but .npz, as
    `Regions.save` writes it, for models that see regions.
    """
    asked_in, answered_in = existing(questions, "file"), existing(annotations, "file")
    asked = rows_of(json_in(asked_in), "questions", f"the file {str(asked_in)!r}")
    answered = rows_of(json_in(answered_in), "annotations", f"the file {str(answered_in)!r}")
    by_question = {fields(row, ("question_id",), f"{str(answered_in)!r}")[0]: row for row in answered}
    names = tuple(str(fields(row, ("question_id",), f"{str(asked_in)!r}")[0]) for row in asked)
    seen = tuple(None if folder is None else existing(folder, "folder") for folder in (images, regions))
    return Examples(names, partial(_question, asked, by_question, answered_in, seen, file_name))


def _question(
    asked: list[dict[str, Any]],
    answered: dict[int, dict[str, Any]],
    answered_in: Path,
    seen: tuple[Path | None, ...],
    file_name: str,
    number: int,
) -> VisualQuestion:
    row = asked[number]
    question_id, image_id, text = fields(row, ("question_id", "image_id", "question"), f"Question {number}")
    if question_id not in answered:
        raise WhyformerError(f"{str(answered_in)!r} has no answers to question {question_id}.")
    where = f"Question {question_id} of {str(answered_in)!r}"
    (given,) = fields(answered[question_id], ("answers",), where)
    answers = tuple(fields(answer, ("answer",), where)[0] for answer in given)
    pictures, found = seen
    name = file_name.format(image_id)
    image = None if pictures is None else image_of(inside(pictures, name))
    regions = None if found is None else Regions.load(inside(found, f"{Path(name).stem}.npz"))
    return VisualQuestion(str(question_id), image_id, text, answers, image, regions)

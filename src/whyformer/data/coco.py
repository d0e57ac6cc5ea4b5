"""COCO instances: pictures with boxes, masks and categories of objects."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from whyformer.data.dataset_files import existing, fields, inside, json_in, rows_of
from whyformer.data.examples import Examples, Instances
from whyformer.data.readers import reader
from whyformer.inputs.read import image_of


def coco_truth(path: str | Path) -> dict[str, Any]:
    """Read a whole instances file, as COCO's evaluation takes it."""
    path = existing(path, "file")
    truth = json_in(path)
    where = f"the file {str(path)!r}"
    images, annotations, _ = (rows_of(truth, name, where) for name in ("images", "annotations", "categories"))
    for part, names in ((images, ("id", "file_name")), (annotations, ("id", "image_id", "category_id", "bbox"))):
        for number, row in enumerate(part):
            fields(row, names, f"Entry {number} of {str(path)!r}")
    return dict(truth)


@reader("coco_instances")
def coco_instances(path: str | Path, images: str | Path) -> Examples[Instances]:
    """The pictures of an instances file that exist in the folder `images`, by id."""
    truth, folder = coco_truth(path), existing(images, "folder")
    rows = sorted(truth["images"], key=lambda row: row["id"])
    by_image: dict[int, list[dict[str, Any]]] = {row["id"]: [] for row in rows}
    for annotation in truth["annotations"]:
        by_image.setdefault(annotation["image_id"], []).append(annotation)
    return Examples(tuple(row["file_name"] for row in rows), partial(_read_instances, folder, rows, by_image))


def _read_instances(
    folder: Path, rows: list[dict[str, Any]], by_image: dict[int, list[dict[str, Any]]], number: int
) -> Instances:
    row = rows[number]
    image = image_of(inside(folder, row["file_name"]))
    return Instances(row["file_name"], row["id"], image, tuple(by_image[row["id"]]))

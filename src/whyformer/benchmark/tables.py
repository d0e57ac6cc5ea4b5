"""Store a shard's results as Parquet: atomically, with identical bytes for identical results."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from whyformer.benchmark.batch import SampleBatch
from whyformer.benchmark.manifest import read_manifest, write_manifest
from whyformer.benchmark.protocols import Column, Columns, Line
from whyformer.benchmark.shard import Shard, label_names
from whyformer.errors import WhyformerError
from whyformer.extras import extra
from whyformer.files import write_whole

SAMPLE_TABLE, EXPLANATION_TABLE, ROW_TABLE = "samples", "explanations", "rows"
TABLES = (SAMPLE_TABLE, EXPLANATION_TABLE, ROW_TABLE)
METHOD_TABLES = (EXPLANATION_TABLE, ROW_TABLE)  # which grow by methods that are added to a run
PICTURE_SIDE = 256  # pixels, of the pictures kept for the report
MAP_SIDE = 32  # cells, of the maps kept; protocols use the full maps
NOTE = ""  # instead of a protocol: the row is about a method, not a sample
Record = dict[str, Any]


def table_schema(table: str) -> Any:
    """The columns of a table."""
    pa = extra("pyarrow")
    numbers, whole = pa.list_(pa.float64()), pa.list_(pa.int32())
    columns = {
        SAMPLE_TABLE: {
            "sample": pa.int32(),
            "name": pa.string(),
            "label": pa.string(),
            "predicted": pa.string(),
            "probability": pa.float64(),
            "error": pa.string(),
            "text": pa.string(),
            "pieces": whole,  # start and end of each word piece in the text, in turn
            "rationale": whole,  # 1 for each word that was marked
            "picture": pa.binary(),  # JPEG
            "box": numbers,  # of the picture, what the model saw
            "regions": numbers,  # left, top, right and bottom of each, in turn
            "true_regions": whole,  # 1 for each region that the answer depends on
            "mask": pa.binary(),  # PNG as large as the picture: BACKGROUND, OBJECT or UNKNOWN at each pixel
        },
        EXPLANATION_TABLE: {
            "sample": pa.int32(),
            "method": pa.string(),
            "target": pa.string(),
            "part": pa.string(),
            "rows": pa.int32(),
            "columns": pa.int32(),
            "scores": pa.list_(pa.float32()),
        },
        ROW_TABLE: {
            "sample": pa.int32(),
            "protocol": pa.string(),
            "method": pa.string(),
            "measure": pa.string(),
            "values": numbers,
            "at": numbers,  # of a curve, where its points are
            "text": pa.string(),
        },
    }
    return pa.schema(columns[table])


def parquet(table: str, records: list[Record]) -> bytes:
    """Encode records as the bytes of a file."""
    pa, pq = extra("pyarrow"), extra("pyarrow.parquet")
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(records, table_schema(table)), buffer, compression="zstd", store_schema=False)
    return buffer.getvalue()


def whole_table(
    folder: Path,
    table: str,
    columns: Sequence[str] | None = None,
    samples: Sequence[int] | None = None,
    before: int | None = None,
) -> Any:
    """The table of all finished shards in order, or some of its columns and samples, as a pyarrow.Table.

    `before` leaves out what was written by this growth of the run, and by later ones.
    """
    pa, pq = extra("pyarrow"), extra("pyarrow.parquet")
    filters = None if samples is None else [("sample", "in", list(samples))]
    path = folder / table
    try:
        shards = []
        for path in table_files(folder, table):
            if before is not None and growth_of(path) >= before:
                continue
            shards.append(pq.read_table(path, columns=columns, filters=filters))
        # A run started by an older version has shards without newer columns.
        return pa.concat_tables(shards, promote_options="default") if shards else table_schema(table).empty_table()
    except (pa.ArrowException, OSError) as error:
        raise WhyformerError(f"The table {str(path)!r} is damaged: {str(error).splitlines()[0]}") from error


def table_files(folder: Path, table: str) -> list[Path]:
    """The files of a table: those in the manifest, or all for an older version without one."""
    manifest = read_manifest(folder)
    files = [folder / name for name in manifest or () if Path(name).parent.name == table]
    return sorted(files if manifest is not None else (folder / table).glob("*.parquet"))


def read_records(folder: Path, table: str, samples: Sequence[int] | None = None) -> list[Record]:
    """The records of all shards in order, or of some samples."""
    records: list[Record] = whole_table(folder, table, samples=samples).to_pylist()
    return records


def unusable_reasons(folder: Path) -> list[str]:
    """The reasons why samples could not be used."""
    errors = whole_table(folder, SAMPLE_TABLE, ["error"])["error"].to_pylist()
    return [error for error in errors if error]


def shard_path(folder: Path, table: str, number: int, growth: int = 0) -> Path:
    """The file of a shard, or of the methods that a growth of the run added to it."""
    return folder / table / f"{number:05d}{f'_{growth}' if growth else ''}.parquet"


def growth_of(path: Path) -> int:
    """The growth that wrote a file; 0 for the run itself."""
    return int(path.stem.partition("_")[2] or 0)


def write_shard(folder: Path, number: int, tables: dict[str, bytes], growth: int = 0) -> None:
    """Write the files of a shard; it counts as done once the manifest, written last, lists them."""
    manifest = read_manifest(folder) or {}
    for table in filter(tables.__contains__, TABLES):
        path = shard_path(folder, table, number, growth)
        write_whole(path, tables[table])
        manifest[path.relative_to(folder).as_posix()] = hashlib.sha256(tables[table]).hexdigest()
    write_manifest(folder, manifest)


def remove_tables(folder: Path) -> None:
    """Remove the files of all shards, first from the manifest."""
    manifest = read_manifest(folder) or {}
    write_manifest(folder, {name: digest for name, digest in manifest.items() if not name.endswith(".parquet")})
    for table in TABLES:
        for path in (folder / table).glob("*.parquet"):
            path.unlink()


def sample_record(number: int, name: str, error: str) -> Record:
    """The record of a sample that could not be used."""
    return {"sample": number, "name": name, "error": error}


def sample_records(shard: Shard, numbers: Sequence[int]) -> Iterator[Record]:
    """The records of samples with the model's answers and the parts that a report shows."""
    predicted = label_names(shard, shard.logits.argmax(dim=1))
    probabilities = shard.logits.float().softmax(dim=1).amax(dim=1).tolist()
    labels, batch = label_names(shard, shard.labels.clamp(min=0)), shard.batch
    for row, (number, sample, encoding) in enumerate(zip(numbers, batch.samples, batch.encodings, strict=True)):
        record = {"sample": number, "name": sample.name, "label": None if sample.label is None else labels[row]}
        record |= {"predicted": predicted[row], "probability": probabilities[row]}
        if encoding.chunk is not None:
            layout = encoding.chunk.layout
            record |= {"text": layout.texts[0], "pieces": [end for ends in layout.offsets for end in ends]}
        if sample.words is not None:
            record["rationale"] = [int(is_marked) for is_marked in sample.words]
        if sample.picture is not None:
            record |= _picture_record(batch, row)
        yield record


def _picture_record(batch: SampleBatch, row: int) -> Record:
    """The picture as a thumbnail, the boxes the model saw, and the truth if known."""
    sample, encoding = batch.samples[row], batch.encodings[row]
    image = sample.picture
    assert image is not None
    small = image.copy()
    small.thumbnail((PICTURE_SIDE, PICTURE_SIDE))
    scale = (small.width / image.width, small.height / image.height) * 2
    record: Record = {"picture": _image_bytes(small, "JPEG", quality=90)}
    if sample.mask is not None:
        record["mask"] = _image_bytes(Image.fromarray(sample.mask).resize(small.size, Image.Resampling.NEAREST), "PNG")
    if sample.regions is not None:
        record["true_regions"] = [int(is_marked) for is_marked in sample.regions]
    if "image" in encoding.parts:
        height, width = batch.content_size(row)
        left, top, right, bottom = encoding.parts["image"].box
        beyond = (batch.image_size[1] / width, batch.image_size[0] / height)
        box = (left, top, left + (right - left) * beyond[0], top + (bottom - top) * beyond[1])
        record["box"] = [edge * by for edge, by in zip(box, scale, strict=True)]
    if "regions" in encoding.parts:
        boxes = encoding.parts["regions"].boxes * np.array(scale)
        record["regions"] = boxes.flatten().astype(float).tolist()
    return record


def _image_bytes(image: Image.Image, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def explanation_records(shard: Shard, numbers: Sequence[int]) -> Iterator[Record]:
    """The records of every map of every sample."""
    for (method, labels), maps in shard.cache.maps.items():
        names = label_names(shard, Tensor(list(labels)).long())
        for part, full in maps.items():
            scores = _coarse(full)
            for row, number in enumerate(numbers):
                own = _own_scores(shard.batch, row, part, scores)
                yield {
                    "sample": number,
                    "method": method,
                    "target": names[row],
                    "part": part,
                    "rows": scores.shape[1] if scores.dim() == 3 else 1,
                    "columns": scores.shape[-1] if scores.dim() == 3 else len(own),
                    "scores": own.flatten().cpu().tolist(),
                }


def _coarse(scores: Tensor) -> Tensor:
    """Average maps of pixels over at most MAP_SIDE × MAP_SIDE cells; coarser ones are unchanged."""
    if scores.dim() < 3 or max(scores.shape[1:]) <= MAP_SIDE:
        return scores
    height, width = (min(MAP_SIDE, side) for side in scores.shape[1:])
    return F.adaptive_avg_pool2d(scores, (height, width))


def _own_scores(batch: SampleBatch, row: int, part: str, scores: Tensor) -> Tensor:
    """A sample's scores without those of special tokens and padding."""
    encoding = batch.encodings[row]
    if part == "text" and encoding.chunk is not None:
        return scores[row, list(encoding.chunk.positions)]
    if part == "regions" and "regions" in encoding.parts:
        return scores[row, : len(encoding.parts["regions"].boxes)]
    return scores[row]


def row_records(protocol: str, columns: Columns, numbers: Sequence[int]) -> Iterator[Record]:
    """The records of every value that a protocol measured."""
    for (method, measure), column in columns.items():
        for number, value in zip(numbers, _values(column), strict=True):
            yield {"sample": number, "protocol": protocol, "method": method, "measure": measure} | value


def _values(column: Column) -> list[Record]:
    match column:
        case Line(at=at, values=values):
            return [{"values": row, "at": list(at)} for row in values.double().cpu().tolist()]
        case Tensor():
            rows = column.double().cpu().reshape(len(column), -1).tolist()
            return [{"values": row} for row in rows]
        case _:
            return [{"text": text} for text in column]

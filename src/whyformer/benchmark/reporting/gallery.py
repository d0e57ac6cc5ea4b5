"""Galleries of samples: explained best and worst, with human marks, and for two classes."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from whyformer.benchmark.figures import Run
from whyformer.benchmark.protocols import protocol_named
from whyformer.benchmark.reporting.charts import CONTROLS
from whyformer.benchmark.tables import EXPLANATION_TABLE, SAMPLE_TABLE, Record, read_records, whole_table
from whyformer.inputs.layouts import Boxes, Layout, Patches, WordPieces
from whyformer.results.explanation import Explanation
from whyformer.results.part import Part

EXTREMES = 3  # best, and worst
GALLERY_COLUMNS = 6  # methods side by side
STRENGTHS = np.array([0, 1, 0.5])  # how strongly BACKGROUND, OBJECT and UNKNOWN are shown
ExplanationRecords = dict[tuple[int, str, str], list[Record]]  # of a sample, by a method, for a target


@dataclass(frozen=True)
class Gallery:
    """A grid of explanations: a title for each row and column. The first column may be the truth."""

    title: str
    note: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[tuple[Explanation | None, ...], ...]
    has_truth: bool = False


def galleries(run: Run, folder: Path, document: Mapping[str, Any]) -> list[Gallery]:
    """The best and worst samples of each protocol's main figure, and two classes of one sample."""
    keys = [
        tuple(r.values()) for r in whole_table(folder, EXPLANATION_TABLE, ["sample", "method", "target"]).to_pylist()
    ]
    explained_keys = list(dict.fromkeys(keys))
    all_extremes = [
        _extremes(run, protocol, {method for _, method, _ in explained_keys}) for protocol in document["protocols"]
    ]
    pair = _two_targets(explained_keys)
    # Maps are large: read only those that are shown.
    extremes = [one for one in all_extremes if one is not None]
    numbers = sorted({n for one in extremes for n in one.values} | ({pair[0]} if pair else set()))
    samples = {sample["sample"]: sample for sample in read_records(folder, SAMPLE_TABLE, numbers)}
    explained: ExplanationRecords = {}
    for record in read_records(folder, EXPLANATION_TABLE, numbers):
        explained.setdefault((record["sample"], record["method"], record["target"]), []).append(record)
    grids = [_best_and_worst(run, one, samples, explained) for one in extremes]
    return [*grids, *([_two_classes(run, *pair, samples, explained)] if pair else [])]


def value_text(value: float | None, table: Mapping[str, Any]) -> str:
    """Format a value of a table's figure; a share in percent."""
    if value is None:
        return "–"
    return f"{100 * value:.1f}" if table["is_share"] else f"{value:.3f}"


def explanation(run: Run, sample: Record, records: Iterable[Record]) -> Explanation | None:
    """Rebuild a sample's explanation on the picture or text in the tables."""
    parts = {record["part"]: _part(sample, record) for record in records}
    first = next(iter(records))
    is_answer = first["target"] == sample["predicted"]
    whole_parts = {name: part for name, part in parts.items() if part is not None}
    if not whole_parts:
        return None
    return Explanation(
        whole_parts, first["target"], sample["probability"] if is_answer else None, first["method"], run.suite["model"]
    )


def truth(run: Run, sample: Record) -> Explanation | None:
    """Human marks or known causes, shaped like an explanation; None if the tables have none."""
    marks: dict[str, tuple[Layout, Any]] = {}
    if sample.get("mask"):  # runs of older versions keep neither masks nor true regions
        mask = np.array(Image.open(io.BytesIO(sample["mask"])))
        rows, columns = mask.shape
        marks["image"] = Patches(_picture(sample), rows, columns, (0, 0, columns, rows)), STRENGTHS[mask].flatten()
    if sample.get("true_regions"):
        marks["regions"] = _boxes(sample), sample["true_regions"]
    if sample["text"] and sample["rationale"]:
        spans = [match.span() for match in re.finditer(r"\S+", sample["text"])][: len(sample["rationale"])]
        marks["text"] = _pieces(sample["text"], spans), sample["rationale"][: len(spans)]
    parts = {name: Part(layout, np.array(values, dtype=np.float32)) for name, (layout, values) in marks.items()}
    return Explanation(parts, sample["label"] or "", None, _whose(run), run.suite["model"]) if parts else None


def _whose(run: Run) -> str:
    """The title of the truth: a rationale is what an annotator found convincing, not what the answer depends on."""
    return "people" if run.suite["data"]["reader"] in ("eraser", "table") else "truth"


@dataclass(frozen=True)
class Extremes:
    """The samples on which a protocol's best method did best and worst, with their values, and the methods."""

    title: str
    note: str
    values: dict[int, str]
    methods: list[str]


def _extremes(run: Run, protocol: Mapping[str, Any], explained_by: set[str]) -> Extremes | None:
    if not protocol["tables"]:
        return None
    table = protocol["tables"][0]
    figure = protocol_named(protocol["name"]).figures[table["figure"]]
    methods = [row["method"] for row in table["rows"] if row["method"] in explained_by]
    best = next((method for method in methods if method not in CONTROLS), None)
    if best is None or figure.of_texts is not None:
        return None
    by_sample = run.of(protocol["protocol"])[figure.measure][best].by_sample
    values = {sample: float(figure.of(np.array([value]))) for sample, value in by_sample.items()}
    order = sorted(values, key=lambda sample: (values[sample] * (1 if figure.better == "lower" else -1), sample))
    ends = dict.fromkeys([*order[:EXTREMES], *order[-EXTREMES:]])
    title = f"Best and worst of {best} by {table['figure']} ({protocol['protocol']})"
    note = f"Of {len(values)} samples; in brackets: {table['figure']}."
    return Extremes(
        title, note, {sample: value_text(values[sample], table) for sample in ends}, methods[:GALLERY_COLUMNS]
    )


def _best_and_worst(
    run: Run, extremes: Extremes, samples: Mapping[int, Record], explained: ExplanationRecords
) -> Gallery:
    cells, titles = [], []
    for place, (number, value) in enumerate(extremes.values.items()):
        sample = samples[number]
        maps = (_first(run, sample, method, explained) for method in extremes.methods)
        cells.append((truth(run, sample), *maps))
        side = "best" if place < EXTREMES else "worst"
        wrong = "" if sample["label"] in (None, sample["predicted"]) else f", answered {sample['predicted']}"
        titles.append(f"{side}: {sample['name']}{wrong} ({value})")
    if all(known is None for known, *_ in cells):
        maps_only = tuple(row[1:] for row in cells)
        return Gallery(extremes.title, extremes.note, tuple(titles), tuple(extremes.methods), maps_only)
    is_masked = any(samples[number].get("mask") for number in extremes.values)
    note = extremes.note + (" In the truth, pixels that nobody judged are half as strong." if is_masked else "")
    return Gallery(extremes.title, note, tuple(titles), (_whose(run), *extremes.methods), tuple(cells), has_truth=True)


def _first(run: Run, sample: Record, method: str, explained: ExplanationRecords) -> Explanation | None:
    """The explanation of the answer, or else the first one."""
    targets = [key for key in explained if key[0] == sample["sample"] and key[1] == method]
    targets.sort(key=lambda key: key[2] != sample["predicted"])
    return explanation(run, sample, explained[targets[0]]) if targets else None


def _two_targets(explained_keys: Sequence[tuple[int, str, str]]) -> tuple[int, list[str], list[str]] | None:
    """The first sample explained for two classes, with the classes and methods."""
    targets: dict[tuple[int, str], list[str]] = {}
    for number, method, target in explained_keys:
        targets.setdefault((number, method), []).append(target)
    pairs = {key: names[:2] for key, names in targets.items() if len(names) > 1 and key[1] not in CONTROLS}
    if not pairs:
        return None
    sample, first = next(iter(pairs))
    both = pairs[sample, first]
    return sample, both, [method for number, method in pairs if number == sample and pairs[number, method] == both]


def _two_classes(
    run: Run,
    number: int,
    both: list[str],
    methods: list[str],
    samples: Mapping[int, Record],
    explained: ExplanationRecords,
) -> Gallery:
    """One sample explained for two classes in rows, method by method."""
    columns, sample = methods[:GALLERY_COLUMNS], samples[number]
    cells = [tuple(explanation(run, sample, explained[number, m, target]) for m in columns) for target in both]
    note = "A method blind to the class shows the same twice."
    return Gallery(f"Two classes of {sample['name']}", note, tuple(both), tuple(columns), tuple(cells))


def _part(sample: Record, record: Record) -> Part | None:
    layout = _layout(sample, record)
    scores = np.array(record["scores"], dtype=np.float32)
    return None if layout is None or layout.size != len(scores) else Part(layout, scores)


def _layout(sample: Record, record: Record) -> Layout | None:
    if record["part"] == "text":
        ends = sample["pieces"]
        return _pieces(sample["text"], list(zip(ends[::2], ends[1::2], strict=True)))
    if record["part"] == "regions":
        return _boxes(sample)
    left, top, right, bottom = sample["box"]
    return Patches(_picture(sample), record["rows"], record["columns"], (left, top, right, bottom))


def _picture(sample: Record) -> Image.Image:
    return Image.open(io.BytesIO(sample["picture"])).convert("RGB")


def _boxes(sample: Record) -> Boxes:
    edges = sample["regions"]
    boxes = [(a, b, c, d) for a, b, c, d in zip(*(edges[side::4] for side in range(4)), strict=True)]
    return Boxes(_picture(sample), tuple(boxes))


def _pieces(text: str, spans: Sequence[tuple[int, int]]) -> WordPieces:
    tokens = tuple(text[start:end] or "·" for start, end in spans)
    return WordPieces((text,), tokens, (0,) * len(spans), tuple(spans))

"""Samples worth looking at: explained best and worst, beside what people marked, and for two classes."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from whyformer.explanation import Boxes, Explanation, Layout, Part, Patches, WordPieces
from whyformer.run.charts import CONTROLS
from whyformer.run.figures import Run
from whyformer.run.protocols import protocol_named
from whyformer.run.tables import EXPLANATIONS, Record, read

EXTREMES = 3  # best, and worst
COLUMNS = 6  # methods side by side
Explained = dict[tuple[int, str, str], list[Record]]  # of a sample, by a method, for a target


@dataclass(frozen=True)
class Gallery:
    """A grid of explanations: a title for each row and column."""

    title: str
    note: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: tuple[tuple[Explanation | None, ...], ...]


def galleries(run: Run, folder: Path, document: Mapping[str, Any]) -> list[Gallery]:
    """The best and worst samples of each protocol's main figure, and two classes of one sample."""
    explained: Explained = {}
    for record in read(folder, EXPLANATIONS):
        explained.setdefault((record["sample"], record["method"], record["target"]), []).append(record)
    samples = {sample["sample"]: sample for sample in run.used}
    found = [_extremes(run, protocol, samples, explained) for protocol in document["protocols"]]
    found.append(_two_classes(run, samples, explained))
    return [gallery for gallery in found if gallery is not None]


def explanation(run: Run, sample: Record, records: Iterable[Record]) -> Explanation | None:
    """A sample's explanation as it was, on the picture or text that the tables keep."""
    parts = {record["part"]: _part(sample, record) for record in records}
    first = next(iter(records))
    is_answer = first["target"] == sample["predicted"]
    shown = {"image" if name == "regions" else name: part for name, part in parts.items() if part is not None}
    if not shown:
        return None
    return Explanation(
        shown, first["target"], sample["probability"] if is_answer else None, first["method"], run.suite["model"]
    )


def people(run: Run, sample: Record) -> Explanation:
    """The words that people marked, or that are known to matter, as if they were an explanation."""
    spans = [match.span() for match in re.finditer(r"\S+", sample["text"])][: len(sample["rationale"])]
    marks = np.array(sample["rationale"][: len(spans)], dtype=np.float32)
    part = Part(_pieces(sample["text"], spans), marks)
    return Explanation({"text": part}, sample["label"] or "", None, _whose(run), run.suite["model"])


def _whose(run: Run) -> str:
    return "truth" if run.suite["data"]["reader"] == "scenes" else "people"


def _extremes(
    run: Run, protocol: Mapping[str, Any], samples: Mapping[int, Record], explained: Explained
) -> Gallery | None:
    """The samples on which the best method did best and worst."""
    if not protocol["tables"]:
        return None
    table = protocol["tables"][0]
    figure = protocol_named(protocol["name"]).figures[table["figure"]]
    methods = [row["method"] for row in table["rows"] if any(key[1] == row["method"] for key in explained)]
    best = next((method for method in methods if method not in CONTROLS), None)
    rows = run.of(protocol["protocol"]).get(figure.measure, {}).get(best or "", [])
    values = {r["sample"]: _goodness(r, figure.of) for r in rows if r["values"] and np.isfinite(r["values"]).all()}
    if best is None or not values:
        return None
    order = sorted(values, key=lambda sample: (values[sample] * (1 if figure.better == "lower" else -1), sample))
    chosen = list(dict.fromkeys([*order[:EXTREMES], *order[-EXTREMES:]]))
    columns = methods[:COLUMNS]
    cells, titles = [], []
    for place, number in enumerate(chosen):
        sample = samples[number]
        marked = [people(run, sample)] if sample["text"] and sample["rationale"] else []
        cells.append((*marked, *(_first(run, sample, method, explained) for method in columns)))
        side = "best" if place < EXTREMES else "worst"
        right = "" if sample["label"] in (None, sample["predicted"]) else f", answered {sample['predicted']}"
        titles.append(f"{side}: {sample['name']}{right} ({values[number]:.2f})")
    names = ([_whose(run)] if len(cells[0]) > len(columns) else []) + columns
    title = f"Best and worst of {best} by {table['figure']} ({protocol['protocol']})"
    note = f"Of {len(values)} samples, by the value of {figure.measure} in brackets."
    return Gallery(title, note, tuple(titles), tuple(names), tuple(cells))


def _goodness(row: Record, of: Any) -> float:
    return float(of(np.array([row["values"]])))


def _first(run: Run, sample: Record, method: str, explained: Explained) -> Explanation | None:
    """The explanation of the answer, or of whatever was explained first."""
    targets = [key for key in explained if key[0] == sample["sample"] and key[1] == method]
    targets.sort(key=lambda key: key[2] != sample["predicted"])
    return explanation(run, sample, explained[targets[0]]) if targets else None


def _two_classes(run: Run, samples: Mapping[int, Record], explained: Explained) -> Gallery | None:
    """One sample explained for two classes, side by side, method by method."""
    targets: dict[tuple[int, str], list[str]] = {}
    for number, method, target in explained:
        targets.setdefault((number, method), []).append(target)
    pairs = {key: found[:2] for key, found in targets.items() if len(found) > 1 and key[1] not in CONTROLS}
    if not pairs:
        return None
    sample = next(iter(pairs))[0]
    methods = [method for number, method in pairs if number == sample][:COLUMNS]
    both = pairs[sample, methods[0]]
    cells = [
        tuple(
            explanation(run, samples[sample], explained[sample, method, target])
            if (sample, method, target) in explained
            else None
            for method in methods
        )
        for target in both
    ]
    title = f"Two classes of {samples[sample]['name']}"
    return Gallery(
        title, "A method blind to the class shows the same twice.", tuple(both), tuple(methods), tuple(cells)
    )


def _part(sample: Record, record: Record) -> Part | None:
    layout = _layout(sample, record)
    scores = np.array(record["scores"], dtype=np.float32)
    return None if layout is None or layout.size != len(scores) else Part(layout, scores)


def _layout(sample: Record, record: Record) -> Layout | None:
    if record["part"] == "text":
        ends = sample["pieces"]
        return _pieces(sample["text"], list(zip(ends[::2], ends[1::2], strict=True)))
    image = Image.open(io.BytesIO(sample["picture"])).convert("RGB")
    if record["part"] == "regions":
        edges = sample["regions"]
        boxes = [(a, b, c, d) for a, b, c, d in zip(*(edges[side::4] for side in range(4)), strict=True)]
        return Boxes(image, tuple(boxes))
    left, top, right, bottom = sample["box"]
    return Patches(image, record["rows"], record["columns"], (left, top, right, bottom))


def _pieces(text: str, spans: Sequence[tuple[int, int]]) -> WordPieces:
    tokens = tuple(text[start:end] or "·" for start, end in spans)
    return WordPieces((text,), tokens, (0,) * len(spans), tuple(spans))

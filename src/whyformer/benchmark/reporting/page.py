"""Write the report of a run: Markdown, JSON, curves, and a self-contained HTML page."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from whyformer.benchmark.figures import Half, make_figures, read_run
from whyformer.benchmark.protocols import protocol_named
from whyformer.benchmark.reporting.charts import banded_methods, chart, chart_bytes
from whyformer.benchmark.reporting.gallery import Gallery, galleries, value_text
from whyformer.benchmark.reporting.headline import headlines
from whyformer.files import write_whole
from whyformer.render.html import report_page
from whyformer.render.text_spans import visible

ALIKE = 0.05  # above this p of a paired test, two methods are not distinguished
ARROWS = {"higher": " ↑", "lower": " ↓", "neither": ""}
NAMED = 5  # the number of samples named per reason
HOW_TO_READ_REPORT = (
    "Value with its 95 % bootstrap interval, – for a single sample; the best, and what equals it as shown, is bold. "
    "A ~ marks what a paired permutation test does not tell from the best "
    f"(p ≥ {ALIKE}, not corrected for the number of tests)."
)


def report(folder: str | Path, *, out: str | Path | None = None, half: Half | None = None) -> Path:
    """Write the report of a run: report.html, report.md, results.json and curves/.

    Args:
        folder: The folder of the run, as written by `whyformer evaluate` or `evaluate(out=…)`.
        out: The folder of the report; by default that of the run.
        half: "first" or "second": only one half of the samples, in a folder of this name. What was chosen on the first
            half is fairly judged on the second.

    Returns:
        The path of report.html.

    Raises:
        WhyformerError: If the folder holds no run, no finished shard, no usable sample, or files that have changed
            since they were written.

    Example:
        >>> from whyformer.benchmark import evaluate, report
        >>> result = evaluate("mini-bert", ["a wonderful film", "a dull film"], "rollout", "text_perturbation")
        >>> report(result.folder).name
        'report.html'
    """
    source = Path(folder)
    run, place = read_run(source), source if out is None else Path(out)
    if half is not None:
        run, place = run.half(half), place / half
    document = make_figures(run)
    pictures = _charts(document)
    for name, content in pictures.items():
        write_whole(place / "curves" / name, content)
    text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)
    write_whole(place / "results.json", (text + "\n").encode())
    write_whole(place / "report.md", markdown(document).encode())
    page = html(document, pictures, galleries(run, source, document))
    write_whole(place / "report.html", page.encode())
    return place / "report.html"


def markdown(document: Mapping[str, Any], *, with_curves: bool = True) -> str:
    """The tables of a run, and its curves as pictures next to the file."""
    leads = [plain_text(sentence) for sentence in headlines(document)]
    lines = [f"# {plain_text(title(document))}", "", *leads, *[""] * bool(leads)]
    lines += [summary(document), "", HOW_TO_READ_REPORT]
    for protocol in document["protocols"]:
        lines += ["", f"## {plain_text(protocol['protocol'])}", "", _about(protocol), ""]
        header, rows = figure_table(protocol)
        plain_rows = [[plain_text(method), *cells] for method, *cells in rows]
        for cells in (header, ["---"] * len(header), *plain_rows):
            lines.append("| " + " | ".join(cells) + " |")
        if with_curves:
            lines += ["", *(f"![{plain_text(m)}](curves/{file_name(protocol, m)}.png)" for m in curves_of(protocol))]
            lines += ["", plain_text(bands(protocol))]
    lines += ["", *(f"- {plain_text(note)}" for note in notes(document))]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def plain_text(text: str) -> str:
    """Escape a text for one line of Markdown; an underscore within a word needs no escape."""
    return re.sub(r"[\\`*\[\]<>&|~$#]|(?<![^\W_])_|_(?![^\W_])", r"\\\g<0>", visible(text))


def html(document: Mapping[str, Any], pictures: Mapping[str, bytes], samples: list[Gallery]) -> str:
    """The page: tables, curves and samples."""
    sections = []
    for protocol in document["protocols"]:
        header, rows = figure_table(protocol)
        uris = {
            measure: "data:image/png;base64,"
            + base64.b64encode(pictures[f"{file_name(protocol, measure)}.png"]).decode()
            for measure in curves_of(protocol)
        }
        parts = {"header": header, "rows": rows, "curves": uris, "bands": bands(protocol)}
        sections.append({"title": protocol["protocol"], "about": _about(protocol), **parts})
    about = [summary(document), HOW_TO_READ_REPORT]
    return report_page(title(document), about, sections, samples, notes(document), leads=headlines(document))


def _about(protocol: Mapping[str, Any]) -> str:
    """Describe a protocol and how to read its figures."""
    return " ".join(text for text in (protocol_named(protocol["name"]).summary, scale_note(protocol)) if text)


def notes(document: Mapping[str, Any]) -> list[str]:
    """Explain what the tables lack: methods, and samples by reason."""
    left_out = [f"{name} is left out: {reason}" for name, reason in document["left_out"].items()]
    return [*document.get("remarks", ()), *left_out, *unusable_notes(document["errors"])]


def unusable_notes(errors: Sequence[Mapping[str, str]]) -> list[str]:
    """Why samples could not be used, grouped by reason apart from their name."""
    alike: dict[str, list[Mapping[str, str]]] = {}
    for sample in errors:
        reason = re.sub(rf"(?<!\w){re.escape(sample['name'])}(?!\w)", "…", sample["error"])
        alike.setdefault(reason, []).append(sample)
    lines = []
    for reason, (first, *others) in alike.items():
        if others:
            names = [sample["name"] for sample in (first, *others)]
            more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
            lines.append(f"{len(names)} samples ({', '.join(names[:NAMED])}{more}) could not be used: {reason}")
        else:
            lines.append(f"{first['name']} could not be used: {first['error']}")
    return lines


def title(document: Mapping[str, Any]) -> str:
    return f"{document['suite']['model']} on {document['suite']['data']['reader']}"


def summary(document: Mapping[str, Any]) -> str:
    """Summarise the run in one line."""
    parts = [f"{document['samples']} samples, seed {document['suite']['seed']}"]
    if "half" in document["suite"]:
        parts.append(f"the {document['suite']['half']} half of the run")
    if document["accuracy"] is not None:
        parts.append(f"the model is right on {100 * document['accuracy']:.1f} %")
    unfinished = document["suite"]["count"] - document["samples"] - len(document["errors"])
    if unfinished:
        parts.append(f"{unfinished} are still to be done: the run is not finished")
    if document["errors"]:
        parts.append(f"{len(document['errors'])} could not be used")
    return "; ".join(parts) + "."


def figure_table(protocol: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """A row per method, in the order of the first figure, and a column per figure."""
    tables, methods = protocol["tables"], method_order(protocol)
    header = ["method", *(one["figure"] + _scale(one) + ARROWS[one["better"]] for one in tables)]
    by_method = [{row["method"]: (row, one) for row in one["rows"]} for one in tables]
    return header, [[method, *(_cell(rows.get(method)) for rows in by_method)] for method in methods]


def _scale(one: Mapping[str, Any]) -> str:
    """The maximum of a share in percent, if it is not 100."""
    return f" (of {100 * one['most']:.0f})" if one.get("most") and one["is_share"] else ""


def scale_note(protocol: Mapping[str, Any]) -> str:
    """Explain "(of 90)" in a table's header, if present."""
    most = next((one["most"] for one in protocol["tables"] if one.get("most")), None)
    if most is None:
        return ""
    return (
        f"Areas under curves are not divided by the width of their range, as in the papers: a curve that stays at "
        f"100 % all the way has an area of {100 * most:.0f}."
    )


def method_order(protocol: Mapping[str, Any]) -> list[str]:
    """The methods in the order of the first figure, the best first."""
    return list(dict.fromkeys(row["method"] for one in protocol["tables"] for row in one["rows"]))


def curves_of(protocol: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The curves of each measure, in the order of the table."""
    place = {method: number for number, method in enumerate(method_order(protocol))}
    return {
        measure: dict(sorted(curves.items(), key=lambda item: place.get(item[0], len(place))))
        for measure, curves in protocol["curves"].items()
        if curves
    }


def bands(protocol: Mapping[str, Any]) -> str:
    """A note on which curves have intervals, if not all."""
    for curves in curves_of(protocol).values():
        methods = banded_methods(curves)
        if len(methods) < len(curves):
            return f"Bands are 95 % intervals, drawn for {', '.join(methods)} only."
    return ""


def _cell(row_and_table: tuple[Mapping[str, Any], Mapping[str, Any]] | None) -> str:
    if row_and_table is None:
        return "–"
    row, one = row_and_table
    value, low, high = (value_text(row[key], one) for key in ("value", "low", "high"))
    is_best = value == value_text(one["rows"][0]["value"], one) and one["better"] != "neither"
    test = row.get("to_best")
    mark = " ~" if test and test["p"] is not None and test["p"] >= ALIKE else ""
    return f"{'**' if is_best else ''}{value}{'**' if is_best else ''} [{low}, {high}]{mark}"


def file_name(protocol: Mapping[str, Any], measure: str) -> str:
    return re.sub(r"[^\w.-]+", "-", f"{protocol['protocol']} {measure}").strip("-").lower()


def _charts(document: Mapping[str, Any]) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    for protocol in document["protocols"]:
        for measure, curves in curves_of(protocol).items():
            picture = chart(measure, curves)
            files |= {f"{file_name(protocol, measure)}.{kind}": chart_bytes(picture, kind) for kind in ("png", "svg")}
    return files

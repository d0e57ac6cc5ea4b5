"""Serialise explanations and continuations as plain data, and validate them on loading."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

import numpy as np
from PIL import Image

from whyformer.errors import WhyformerError
from whyformer.inputs.layouts import Box, Boxes, Frames, Layout, Patches, Spectrogram, WordPieces
from whyformer.inputs.sound import Sound
from whyformer.render.layout_kinds import LAYOUT_KINDS, LayoutKind, kind_of
from whyformer.results.continuation import Continuation
from whyformer.results.explanation import Explanation
from whyformer.results.part import Part

JsonMapping = Mapping[str, Any]
FILE_FIELDS = ("format", "version")
EXPLANATION_FIELDS = (
    *FILE_FIELDS,
    *("target", "probability", "method", "model", "options", "notes", "completeness", "answers", "parts"),
)
LAYOUT_FIELDS = {
    "patches": ("image", "rows", "columns", "box", "outline"),
    "boxes": ("image", "boxes"),
    "word pieces": ("texts", "segments", "offsets", "pieces"),
    "frames": ("samples", "rate", "count", "first", "step"),
    "spectrogram": ("samples", "rate", "columns", "first", "step", "edges"),
}
_Field = TypeVar("_Field")


def explanation_dict(explanation: Explanation) -> dict[str, Any]:
    """Convert an explanation to JSON data, without pixels and samples."""
    return {
        "target": explanation.target,
        "probability": None if explanation.probability is None else float(explanation.probability),
        "method": explanation.method,
        "model": explanation.model,
        "options": {name: as_json(value) for name, value in explanation.options.items()},
        "notes": list(explanation.notes),
        "completeness": None if explanation.completeness is None else float(explanation.completeness),
        "answers": {name: float(share) for name, share in explanation.answers.items()},
        "parts": {name: _part_dict(part) for name, part in explanation.parts.items()},
    }


def continuation_dict(continuation: Continuation) -> dict[str, Any]:
    """Convert a continuation to JSON data: its text, each token's explanation, and the priors if there are any."""
    explanations = [explanation_dict(one) for one in continuation.explanations]
    priors = {"priors": list(continuation.priors)} if continuation.priors else {}
    return {"text": continuation.text, "explanations": explanations, **priors}


def _answers(document: Any) -> dict[str, float]:
    return {read_text(name): read_number(share) for name, share in read_mapping(document).items()}


def _part_dict(part: Part) -> dict[str, Any]:
    return {**layout_dict(part.layout), "tokens": list(part.tokens), "scores": part.scores.tolist()}


def layout_dict(layout: Layout) -> dict[str, Any]:
    match layout:
        case Patches(rows=rows, columns=columns, box=box, outline=outline):
            grid = {"layout": "patches", "rows": int(rows), "columns": int(columns), "box": list(map(float, box))}
            return grid | ({} if outline is None else {"outline": list(map(float, outline))})
        case Boxes(boxes=boxes):
            return {"layout": "boxes", "boxes": [list(map(float, box)) for box in boxes]}
        case WordPieces(texts=texts, segments=segments, offsets=offsets):
            pairs = [[int(start), int(end)] for start, end in offsets]
            return {
                "layout": "word pieces",
                "texts": list(texts),
                "segments": list(map(int, segments)),
                "offsets": pairs,
            }
        case Frames(sound=sound, count=count, first=first, step=step):
            times = {"rate": sound.rate, "first": float(first), "step": float(step)}
            return {"layout": "frames", "count": int(count), **times}
        case Spectrogram(sound=sound, columns=columns, first=first, step=step, edges=edges):
            times = {"rate": sound.rate, "first": float(first), "step": float(step)}
            return {"layout": "spectrogram", "columns": int(columns), **times, "edges": list(map(float, edges))}
        case other:
            kind = kind_of(other)
            return {"layout": kind.name, **kind.to_fields(other)}


def as_json(value: Any) -> Any:
    """The value if it is JSON-serialisable, otherwise its repr."""
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError):
        return repr(value)


def read_explanation(document: Any) -> Explanation:
    """Restore an explanation from a document: `scores` and `samples` are arrays, `image` is a picture."""
    parts = read_field(document, "parts", read_mapping)
    refuse_others(document, EXPLANATION_FIELDS)
    return Explanation(
        parts={
            read_text(name): Part(read_layout(part), read_field(part, "scores", _array)) for name, part in parts.items()
        },
        target=read_field(document, "target", read_text),
        probability=read_field(document, "probability", or_none(read_number)),
        method=read_field(document, "method", read_text),
        model=read_field(document, "model", read_text),
        options=read_field(document, "options", read_mapping),
        notes=tuple(read_field(document, "notes", read_list_of(read_text))),
        completeness=or_none(read_number)(document.get("completeness")),
        answers=_answers(document.get("answers", {})),  # files of earlier versions have none
    )


def read_continuation(document: Any) -> Continuation:
    """Restore a continuation from a document."""
    refuse_others(document, (*FILE_FIELDS, "text", "explanations", "priors"))
    explanations = read_field(document, "explanations", read_list_of(read_explanation))
    priors = read_list_of(read_number)(document.get("priors", []))
    return Continuation(read_field(document, "text", read_text), tuple(explanations), tuple(priors))


def read_layout(part: Any) -> Layout:
    """Restore the layout of a part, and check that its token names match."""
    layout = _layout(part)
    refuse_others(part, ("layout", "tokens", "scores", "dtype", *_layout_fields(part["layout"])))
    if "tokens" in part:
        tokens = tuple(read_field(part, "tokens", read_list_of(read_text)))
        # Sizes first: a file may claim a grid of more patches than memory can hold names for.
        if len(tokens) != layout.size or tokens != layout.tokens:
            raise WhyformerError(f"its tokens do not match {layout.summary}")
    return layout


def _layout_fields(name: str) -> tuple[str, ...]:
    return LAYOUT_FIELDS[name] if name in LAYOUT_FIELDS else _kind_named(name).fields


def refuse_others(document: JsonMapping, known: Collection[str]) -> None:
    """Raise on unknown fields, which a person might read in the file but the package would ignore."""
    others = [name for name in document if name not in known]
    if others:
        raise WhyformerError(f"it has a field {others[0]!r:.60}, which is not known")


def _layout(part: Any) -> Layout:
    match read_field(part, "layout", read_text):
        case "patches":
            outline = read_field(part, "outline", _box) if "outline" in part else None
            rows, columns = read_field(part, "rows", read_integer), read_field(part, "columns", read_integer)
            return Patches(read_field(part, "image", _picture), rows, columns, read_field(part, "box", _box), outline)
        case "boxes":
            return Boxes(read_field(part, "image", _picture), tuple(read_field(part, "boxes", read_list_of(_box))))
        case "word pieces":
            return WordPieces(
                texts=tuple(read_field(part, "texts", read_list_of(read_text))),
                tokens=tuple(read_field(part, "tokens", read_list_of(read_text))),
                segments=tuple(read_field(part, "segments", read_list_of(read_integer))),
                offsets=tuple(read_field(part, "offsets", read_list_of(read_offsets))),
            )
        case "frames" | "spectrogram" as kind:
            sound = Sound(read_field(part, "samples", _array), read_field(part, "rate", read_integer))
            first, step = read_field(part, "first", read_number), read_field(part, "step", read_number)
            if kind == "frames":
                return Frames(sound, read_field(part, "count", read_integer), first, step)
            edges = tuple(read_field(part, "edges", read_list_of(read_number)))
            return Spectrogram(sound, read_field(part, "columns", read_integer), first, step, edges)
        case name:
            layout: Layout = _kind_named(name).from_fields(
                lambda field, kind: read_field(part, field, FIELD_READERS[kind])
            )
            return layout


def _kind_named(name: str) -> LayoutKind:
    """The layout kind of this name, whose module may not be imported yet."""
    from whyformer.inputs.modality import modalities

    modalities()
    kind = next((kind for kind in LAYOUT_KINDS.values() if kind.name == name), None)
    if kind is None:
        raise WhyformerError(f"no layout is named {name!r}")
    return kind


def read_field(document: Any, name: str, read: Callable[[Any], _Field]) -> _Field:
    """Read a field by `read`, or raise with its name."""
    if name not in read_mapping(document):
        raise WhyformerError(f"{name!r} is missing")
    try:
        return read(document[name])
    except TypeError as error:
        raise WhyformerError(f"its {name} is {error}") from error


def _check(value: Any, kinds: type | tuple[type, ...], expectation: str) -> Any:
    if not isinstance(value, kinds) or (isinstance(value, bool) and kinds is not bool):
        raise TypeError(f"{value!r:.60}, not {expectation}")
    return value


def read_text(value: Any) -> str:
    return str(_check(value, str, "a text"))


def read_integer(value: Any) -> int:
    return int(_check(value, int, "an integer"))


def read_boolean(value: Any) -> bool:
    return bool(_check(value, bool, "true or false"))


def read_number(value: Any) -> float:
    return float(_check(value, (int, float), "a number"))


def read_mapping(value: Any) -> dict[str, Any]:
    return dict(_check(value, dict, "an object"))


def _array(value: Any) -> np.ndarray:
    return np.asarray(_check(value, np.ndarray, "an array"))


def _picture(value: Any) -> Image.Image:
    picture: Image.Image = _check(value, Image.Image, "a picture")
    return picture


def read_list_of(read: Callable[[Any], _Field]) -> Callable[[Any], list[_Field]]:
    return lambda value: [read(item) for item in _check(value, list, "a list")]


def or_none(read: Callable[[Any], _Field]) -> Callable[[Any], _Field | None]:
    """A reader that also takes None."""
    return lambda value: None if value is None else read(value)


def _box(value: Any) -> Box:
    edges = read_list_of(read_number)(value)
    if len(edges) != 4:
        raise TypeError(f"{value!r:.60}, not four numbers")
    return edges[0], edges[1], edges[2], edges[3]


def read_offsets(value: Any) -> tuple[int, int]:
    ends = read_list_of(read_integer)(value)
    if len(ends) != 2:
        raise TypeError(f"{value!r:.60}, not two integers")
    return ends[0], ends[1]


# Types that `LayoutKind.from_fields` may request.
FIELD_READERS: dict[Any, Callable[[Any], Any]] = {
    int: read_integer,
    float: read_number,
    float | None: or_none(read_number),
    str: read_text,
    list[int]: read_list_of(read_integer),
    list[float]: read_list_of(read_number),
    list[str]: read_list_of(read_text),
    Box: _box,
    Image.Image: _picture,
}

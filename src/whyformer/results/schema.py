"""Serialise explanations and continuations as plain data, and validate them on loading."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, TypeVar

import numpy as np
from PIL import Image

from whyformer.errors import WhyformerError
from whyformer.inputs.layouts import Box, Layout
from whyformer.render.layout_kinds import kind_named, kind_of
from whyformer.results.continuation import Continuation
from whyformer.results.explanation import Explanation
from whyformer.results.part import Part

JsonMapping = Mapping[str, Any]
FILE_FIELDS = ("format", "version")
EXPLANATION_FIELDS = (
    *FILE_FIELDS,
    *("target", "probability", "method", "model", "options", "notes", "completeness", "answers", "parts"),
)
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
    """Convert a layout to JSON data."""
    kind = kind_of(layout)
    return {"layout": kind.name, **kind.to_fields(layout)}


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
    kind = kind_named(read_field(part, "layout", read_text))
    layout: Layout = kind.from_fields(partial(_layout_field, part))
    refuse_others(part, ("layout", "tokens", "scores", "dtype", *kind.fields))
    if "tokens" in part:
        tokens = tuple(read_field(part, "tokens", read_list_of(read_text)))
        # Sizes first: a file may claim a grid of more patches than memory can hold names for.
        if len(tokens) != layout.size or tokens != layout.tokens:
            raise WhyformerError(f"its tokens do not match {layout.summary}")
    return layout


def _layout_field(part: Any, name: str, kind: Any, *default: Any) -> Any:
    """A validated field of a layout, or its default."""
    return default[0] if default and name not in part else read_field(part, name, FIELD_READERS[kind])


def refuse_others(document: JsonMapping, known: Collection[str]) -> None:
    """Raise on unknown fields, which a person might read in the file but the package would ignore."""
    others = [name for name in document if name not in known]
    if others:
        raise WhyformerError(f"it has a field {others[0]!r:.60}, which is not known")


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
    list[Box]: read_list_of(_box),
    list[tuple[int, int]]: read_list_of(read_offsets),
    Box: _box,
    Image.Image: _picture,
    np.ndarray: _array,
}

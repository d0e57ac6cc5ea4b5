"""Explanations as files: written whole or not at all, read back bit for bit."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, assert_never

import numpy as np
from PIL import Image

from whyformer.errors import WhyformerError
from whyformer.files import whole_file
from whyformer.inputs.layouts import Box, Boxes, Layout, Patches, WordPieces
from whyformer.render import html, image
from whyformer.results.continuation import Continuation
from whyformer.results.explanation import Explanation
from whyformer.results.part import Part

VERSION = 1
FORMATS = {Explanation: "whyformer-explanation", Continuation: "whyformer-continuation"}
Result = Explanation | Continuation
Kept = TypeVar("Kept")
ToStored = Callable[[Kept], Any]
FromStored = Callable[[Any], Kept]


def write(result: Result, path: Path) -> None:
    """Save in the format that the suffix names."""
    suffix = path.suffix.lower()
    if suffix not in WRITERS:
        raise WhyformerError(
            f"Cannot save to {path}: no format for {path.suffix!r}. Known: {', '.join(sorted(WRITERS))}."
        )
    if not path.parent.is_dir():
        raise FileNotFoundError(f"Cannot save to {path}: the folder {path.parent} does not exist. Make it first.")
    content = WRITERS[suffix](result)
    with whole_file(path) as unfinished:
        unfinished.write_bytes(content)


def read(path: Path, kind: type[Kept]) -> Kept:
    """Load a .json or .npz file that `write` made of this kind of result."""
    suffix = path.suffix.lower()
    if suffix not in READERS:
        raise WhyformerError(f"Cannot load {path}: no format for {path.suffix!r}. Known: {', '.join(sorted(READERS))}.")
    content = path.read_bytes()
    try:
        found = READERS[suffix](content)
    except Exception as problem:  # A damaged file can fail anywhere in the ZIP, PNG and JSON decoders.
        reason = " ".join(f"{type(problem).__name__}: {problem}".split())
        raise WhyformerError(f"{path} is not a readable Whyformer explanation ({reason}).") from problem
    if not isinstance(found, kind):
        name = type(found).__name__
        raise WhyformerError(f"{path} holds {'an' if name[0] in 'AEIOU' else 'a'} {name}: read it by {name}.load.")
    return found


def _json(result: Result) -> bytes:
    return json.dumps(_document(result, _inline_array, _inline_picture), allow_nan=False, indent=1).encode()


def _npz(result: Result) -> bytes:
    arrays: dict[str, np.ndarray] = {}

    def stored(array: np.ndarray) -> str:
        name = f"array_{len(arrays)}"
        arrays[name] = array
        return name

    document = _document(result, stored, lambda picture: stored(np.array(picture)))
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, metadata=np.array(json.dumps(document, allow_nan=False)), **arrays)
    return buffer.getvalue()


def _from_json(content: bytes) -> Result:
    return _result(json.loads(content), _array, _picture)


def _from_npz(content: bytes) -> Result:
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        document = json.loads(arrays["metadata"].item())
        return _result(document, arrays.__getitem__, lambda name: Image.fromarray(arrays[name]))


def _document(result: Result, array: ToStored[np.ndarray], picture: ToStored[Image.Image]) -> dict[str, Any]:
    about = {"format": FORMATS[type(result)], "version": VERSION}
    if isinstance(result, Explanation):
        return about | _explanation_document(result, array, picture)
    each = [_document(explanation, array, picture) for explanation in result.explanations]
    return about | {"text": result.text, "explanations": each}


def _explanation_document(
    explanation: Explanation, array: ToStored[np.ndarray], picture: ToStored[Image.Image]
) -> dict[str, Any]:
    parts = {
        name: {**_layout_document(part.layout, picture), "scores": array(part.scores)}
        for name, part in explanation.parts.items()
    }
    return {
        "target": explanation.target,
        "probability": None if explanation.probability is None else float(explanation.probability),
        "method": explanation.method,
        "model": explanation.model,
        "options": {name: _storable(value) for name, value in explanation.options.items()},
        "notes": list(explanation.notes),
        "completeness": explanation.completeness,
        "parts": parts,
    }


def _result(document: Any, array: FromStored[np.ndarray], picture: FromStored[Image.Image]) -> Result:
    if not isinstance(document, dict) or document.get("format") not in FORMATS.values():
        raise WhyformerError(f"it does not say that its format is {' or '.join(FORMATS.values())}")
    if document["version"] != VERSION:
        raise WhyformerError(f"its version is {document['version']}, and this Whyformer reads version {VERSION}")
    if document["format"] == FORMATS[Explanation]:
        return _explanation(document, array, picture)
    each = (_explanation(part, array, picture) for part in document["explanations"])
    return Continuation(document["text"], tuple(each))


def _explanation(
    document: Mapping[str, Any], array: FromStored[np.ndarray], picture: FromStored[Image.Image]
) -> Explanation:
    return Explanation(
        parts={name: Part(_layout(part, picture), array(part["scores"])) for name, part in document["parts"].items()},
        target=document["target"],
        probability=document["probability"],
        method=document["method"],
        model=document["model"],
        options=document["options"],
        notes=tuple(document["notes"]),
        completeness=document.get("completeness"),
    )


def _layout_document(layout: Layout, picture: ToStored[Image.Image]) -> dict[str, Any]:
    match layout:
        case Patches(image=shown, rows=rows, columns=columns, box=box, outline=outline):
            grid = {"layout": "patches", "rows": rows, "columns": columns, "box": _box_document(box)}
            about = {} if outline is None else {"outline": _box_document(outline)}
            return {**grid, **about, "image": picture(_eight_bit(shown))}
        case Boxes(image=shown, boxes=boxes):
            return {"layout": "boxes", "boxes": list(map(_box_document, boxes)), "image": picture(_eight_bit(shown))}
        case WordPieces(texts=texts, tokens=tokens, segments=segments, offsets=offsets):
            pieces = zip(tokens, segments, offsets, strict=True)
            stored = [[token, int(segment), int(start), int(end)] for token, segment, (start, end) in pieces]
            return {"layout": "word pieces", "texts": list(texts), "pieces": stored}
        case unknown:
            assert_never(unknown)


def _layout(part: Mapping[str, Any], picture: FromStored[Image.Image]) -> Layout:
    match part["layout"]:
        case "patches":
            outline = _box(part["outline"]) if "outline" in part else None
            return Patches(picture(part["image"]), part["rows"], part["columns"], _box(part["box"]), outline)
        case "boxes":
            return Boxes(picture(part["image"]), tuple(map(_box, part["boxes"])))
        case "word pieces":
            pieces = part["pieces"]
            return WordPieces(
                texts=tuple(part["texts"]),
                tokens=tuple(token for token, _, _, _ in pieces),
                segments=tuple(segment for _, segment, _, _ in pieces),
                offsets=tuple((start, end) for _, _, start, end in pieces),
            )
        case unknown:
            raise WhyformerError(f"no layout is named {unknown!r}")


def _box_document(box: Box) -> list[float]:
    return [float(edge) for edge in box]


def _box(stored: Sequence[float]) -> Box:
    left, top, right, bottom = stored
    return left, top, right, bottom


def _inline_array(array: np.ndarray) -> dict[str, Any]:
    return {"dtype": array.dtype.name, "values": array.tolist()}


def _array(stored: Mapping[str, Any]) -> np.ndarray:
    return np.array(stored["values"], dtype=stored["dtype"])


def _inline_picture(picture: Image.Image) -> str:
    return base64.b64encode(_png(picture)).decode()


def _png(picture: Image.Image) -> bytes:
    buffer = io.BytesIO()
    # Metadata such as a colour profile would come back as part of the image, and differ from the .npz.
    Image.fromarray(np.array(picture)).save(buffer, "PNG")
    return buffer.getvalue()


def _picture(stored: str) -> Image.Image:
    with Image.open(io.BytesIO(base64.b64decode(stored, validate=True)), formats=["PNG"]) as picture:
        return Image.fromarray(np.array(picture))


def _eight_bit(picture: Image.Image) -> Image.Image:
    """The image in a mode that both formats keep exactly; palettes and other depths become RGB."""
    if "transparency" in picture.info:
        return picture.convert("RGBA")
    if picture.mode in ("L", "LA", "RGB", "RGBA"):
        return picture
    return picture.convert("L" if picture.mode == "1" else "RGB")


def _storable(value: Any) -> Any:
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError):
        return repr(value)


WRITERS: dict[str, Callable[[Result], bytes]] = {
    ".html": lambda result: html.page([result], result.headline).encode(),
    ".json": _json,
    ".npz": _npz,
    ".png": lambda result: _png(image.figure(result)),
}
READERS: dict[str, Callable[[bytes], Result]] = {".json": _from_json, ".npz": _from_npz}

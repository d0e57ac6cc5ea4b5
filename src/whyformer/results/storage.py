"""Save and load results as files: atomic, and bit-identical on loading."""

from __future__ import annotations

import base64
import binascii
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from PIL import Image

from whyformer.arrays import open_npz
from whyformer.errors import WhyformerError, with_article
from whyformer.files import parse_json, whole_file
from whyformer.inputs.read import open_image
from whyformer.render import html
from whyformer.render.layout_kinds import kind_of
from whyformer.render.response_page import continuation_page, response_page
from whyformer.render.text_spans import TextUnits, one_line, visible
from whyformer.results.continuation import Continuation
from whyformer.results.explanation import Explanation
from whyformer.results.part import Part
from whyformer.results.response import Response
from whyformer.results.response_parts import PartScores
from whyformer.results.response_schema import ARRAYS, read_response
from whyformer.results.schema import read_continuation, read_explanation
from whyformer.results.unit_effects import RemovalEffects

FILE_VERSION = 2
EXPLANATION, CONTINUATION, RESPONSE = "whyformer-explanation", "whyformer-continuation", "whyformer-response"
FILE_FORMATS = (EXPLANATION, CONTINUATION, RESPONSE)
AUDIT, AUDIT_FORMAT = ".audit.json", "whyformer-audit"
SAVE_SUFFIXES, LOAD_SUFFIXES = (".html", ".json", ".npz", ".png"), (".json", ".npz")
STORED_DTYPES = ("float16", "float32", "float64")
AnyResult = Explanation | Continuation | Response
ResultT = TypeVar("ResultT")
Pack = Callable[[Part | PartScores], dict[str, Any]]
Unpack = Callable[[Mapping[str, Any]], Mapping[str, Any]]


def write(result: AnyResult, path: Path, *, units: TextUnits = "word", what_if: bool = True) -> None:
    """Save in the format of the suffix; `units` are coloured in pages and pictures, `what_if` is for pages."""
    suffix = path.suffix.lower()
    if suffix not in SAVE_SUFFIXES:
        raise WhyformerError(f"Cannot save to {_name(path)}: {_unknown(path, SAVE_SUFFIXES)}")
    if not path.parent.is_dir():
        folder = _name(path.parent)
        raise FileNotFoundError(f"Cannot save to {_name(path)}: the folder {folder} does not exist. Make it first.")
    content = _audit(result) if path.name.lower().endswith(AUDIT) else _content(result, suffix, units, what_if)
    with whole_file(path) as unfinished:
        unfinished.write_bytes(content)


def read(path: Path, kind: type[ResultT]) -> ResultT:
    """Load a .json or .npz file written by `write` for this kind of result."""
    suffix = path.suffix.lower()
    if suffix not in LOAD_SUFFIXES:
        raise WhyformerError(f"Cannot load {_name(path)}: {_unknown(path, LOAD_SUFFIXES)}")
    content = path.read_bytes()
    try:
        result = _from_json(content) if suffix == ".json" else _from_npz(content)
    except Exception as problem:  # A damaged file can fail anywhere in the ZIP, PNG and JSON decoders.
        kind_of_problem = "" if isinstance(problem, WhyformerError) else f"{type(problem).__name__}: "
        reason = one_line(f"{kind_of_problem}{problem!s:.300}")
        raise WhyformerError(f"{_name(path)} is not a readable Whyformer explanation ({reason}).") from problem
    if not isinstance(result, kind):
        name = type(result).__name__
        raise WhyformerError(f"{_name(path)} contains {with_article(name)}: load it by {name}.load.")
    return result


def png(picture: Image.Image) -> bytes:
    """Encode the picture as PNG, without metadata."""
    buffer = io.BytesIO()
    # Metadata such as a colour profile would be loaded as part of the image, and differ from the .npz.
    Image.fromarray(np.array(picture)).save(buffer, "PNG")
    return buffer.getvalue()


def _name(path: Path) -> str:
    return visible(str(path))


def _unknown(path: Path, suffixes: tuple[str, ...]) -> str:
    return f"no format for {path.suffix!r}. Known: {', '.join(suffixes)}."


def _content(result: AnyResult, suffix: str, units: TextUnits, what_if: bool) -> bytes:
    match suffix:
        case ".png":
            return png(result.image() if isinstance(result, Response) else result.image(units=units))
        case ".json":
            return json.dumps(_document(result, _inline_part), allow_nan=False, indent=1).encode()
        case ".npz":
            return _npz(result)
    if isinstance(result, Response):
        return response_page(result).encode()
    if isinstance(result, Explanation):
        effects, others = (_effects(result), _others(result)) if what_if else (None, ())
        return html.html_page([result], units=units, effects=effects, others=others).encode()
    return continuation_page(result).encode()


def _effects(explanation: Explanation) -> RemovalEffects | None:
    """The answers without parts of the input; None where they cannot be computed."""
    if explanation.remover is None:
        return None
    try:
        return explanation.remover(explanation)
    except WhyformerError:
        return None


def _others(explanation: Explanation) -> Sequence[Explanation]:
    """Explanations of the other likely answers, two at most."""
    return () if explanation.remover is None else explanation.remover.others(explanation)


def _audit(result: AnyResult) -> bytes:
    if isinstance(result, Continuation):
        kind = type(result).__name__
        raise WhyformerError(f"{with_article(kind).capitalize()} has no audit file: save it as .json or .npz.")
    if result.audit is None:
        raise WhyformerError(
            "Only what explain or explain_response returns for a loaded model has an audit file, not a result that was "
            "loaded from a file: explain again."
        )
    audit: Callable[[Any], dict[str, Any]] = result.audit
    return json.dumps(audit(result), allow_nan=False, indent=1).encode()


def _npz(result: AnyResult) -> bytes:
    arrays: dict[str, np.ndarray] = {}

    def store(array: np.ndarray) -> str:
        name = f"array_{len(arrays)}"
        arrays[name] = array
        return name

    def store_part(part: Part | PartScores) -> dict[str, Any]:
        images = {name: store(np.array(picture)) for name, picture in _pictures(part)}
        samples = {name: store(values) for name, values in _samples(part)}
        return {**images, **samples, "scores": store(part.scores)}

    document = _document(result, store_part)
    if isinstance(result, Response):
        stored = {name: getattr(result, name) for name in ARRAYS}
        document |= {name: store(values) for name, values in stored.items() if values is not None}
    metadata = np.array(json.dumps(document, allow_nan=False))
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, metadata=metadata, **arrays)
    return buffer.getvalue()


def _document(result: AnyResult, pack: Pack) -> dict[str, Any]:
    """The result as in `to_dict`, with its format and each part's pixels and scores from `pack`."""
    if isinstance(result, Response):
        return {"format": RESPONSE, "version": FILE_VERSION, **_pack_parts(result, pack)}
    if isinstance(result, Explanation):
        return {"format": EXPLANATION, "version": FILE_VERSION, **_pack_parts(result, pack)}
    each = [_pack_parts(explanation, pack) for explanation in result.explanations]
    return {"format": CONTINUATION, "version": FILE_VERSION, **result.to_dict(), "explanations": each}


def _pack_parts(result: Explanation | Response, pack: Pack) -> dict[str, Any]:
    document = result.to_dict()
    parts = {name: fields | pack(result.parts[name]) for name, fields in document["parts"].items()}
    return {**document, "parts": parts}


def _inline_part(part: Part | PartScores) -> dict[str, Any]:
    images = {name: base64.b64encode(png(picture)).decode() for name, picture in _pictures(part)}
    samples = {name: base64.b64encode(values.astype("<f4").tobytes()).decode() for name, values in _samples(part)}
    return {**images, **samples, "dtype": part.scores.dtype.name}


def _samples(part: Part | PartScores) -> Iterator[tuple[str, np.ndarray]]:
    samples_of = kind_of(part.layout).samples
    if samples_of is not None:
        yield "samples", samples_of(part.layout)


def _pictures(part: Part | PartScores) -> Iterator[tuple[str, Image.Image]]:
    picture = getattr(part.layout, "image", None)
    if picture is not None:
        yield "image", _eight_bit(picture)


def _from_json(content: bytes) -> AnyResult:
    return _result(parse_json(content), _unpack_inline)


def _from_npz(content: bytes) -> AnyResult:
    with open_npz(io.BytesIO(content)) as arrays:

        def unpack(part: Mapping[str, Any]) -> dict[str, Any]:
            images = {"image": Image.fromarray(arrays[part["image"]])} if "image" in part else {}
            samples = {"samples": arrays[part["samples"]]} if "samples" in part else {}
            return {**part, **images, **samples, "scores": arrays[part["scores"]]}

        document = parse_json(arrays["metadata"].item())
        if isinstance(document, dict) and document.get("format") == RESPONSE:
            document |= {name: arrays[document[name]] for name in ARRAYS if isinstance(document.get(name), str)}
        return _result(document, unpack)


def _result(document: Any, unpack: Unpack) -> AnyResult:
    if isinstance(document, dict) and document.get("format") == AUDIT_FORMAT:
        raise WhyformerError("it is an audit file: whyformer.verify reads it")
    if not isinstance(document, dict) or document.get("format") not in FILE_FORMATS:
        raise WhyformerError(f"it does not say that its format is {' or '.join(FILE_FORMATS)}")
    if document.get("version") not in (1, FILE_VERSION):
        version = document.get("version")
        raise WhyformerError(f"its version is {version!r}, and this Whyformer reads versions 1 and {FILE_VERSION}")
    if document["format"] == EXPLANATION:
        return read_explanation(_unpack_parts(document, unpack))
    if document["format"] == RESPONSE:
        return read_response(_unpack_parts(document, unpack) if document.get("parts") else document)
    explanations = document.get("explanations")
    if not isinstance(explanations, list):
        raise WhyformerError(f"its explanations are {explanations!r:.60}, not a list")
    return read_continuation({**document, "explanations": [_unpack_parts(one, unpack) for one in explanations]})


def _unpack_parts(document: Any, unpack: Unpack) -> dict[str, Any]:
    parts = document.get("parts") if isinstance(document, dict) else None
    if not isinstance(parts, dict) or not all(isinstance(part, dict) and "scores" in part for part in parts.values()):
        raise WhyformerError(f"its parts are {parts!r:.60}, not objects with scores")
    return {**document, "parts": {name: unpack(_upgrade_part(part)) for name, part in parts.items()}}


def _upgrade_part(part: Mapping[str, Any]) -> dict[str, Any]:
    """Upgrade a part from version 1 to 2: scores with their dtype, a list per field of the tokens."""
    current = dict(part)
    if isinstance(part["scores"], dict):
        current |= {"scores": part["scores"]["values"], "dtype": part["scores"]["dtype"]}
    if "pieces" in part:
        tokens, segments = ([piece[field] for piece in part["pieces"]] for field in (0, 1))
        current |= {"tokens": tokens, "segments": segments, "offsets": [piece[2:] for piece in part["pieces"]]}
    return current


def _unpack_inline(part: Mapping[str, Any]) -> dict[str, Any]:
    if part.get("dtype") not in STORED_DTYPES:
        raise WhyformerError(f"its scores are of {part.get('dtype')!r:.60}, not of {', '.join(STORED_DTYPES)}")
    scores = part["scores"]
    rows = scores if isinstance(scores, list) and scores and isinstance(scores[0], list) else [scores]
    if not all(isinstance(row, list) and {*map(type, row)} <= {int, float} for row in rows):
        raise WhyformerError(f"its scores are {scores!r:.60}, not a list of numbers")
    images = {"image": _inline_picture(part["image"])} if "image" in part else {}
    samples = {"samples": _inline_samples(part["samples"])} if "samples" in part else {}
    return {**part, **images, **samples, "scores": np.array(scores, dtype=part["dtype"])}


def _inline_samples(stored: str) -> np.ndarray:
    content = _inline_bytes(stored, "sound")
    if len(content) % 4:
        raise WhyformerError(f"its sound has {len(content)} bytes, not four for each sample")
    return np.frombuffer(content, "<f4").astype(np.float32)


def _inline_bytes(stored: str, name: str) -> bytes:
    try:
        return base64.b64decode(stored, validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise WhyformerError(f"its {name} is not base64 ({error})") from error


def _inline_picture(stored: str) -> Image.Image:
    with open_image(io.BytesIO(_inline_bytes(stored, "image")), formats=("PNG",)) as picture:
        return Image.fromarray(np.array(picture))


def _eight_bit(picture: Image.Image) -> Image.Image:
    """Convert the image to a mode that both formats preserve; palettes and other depths become RGB."""
    if "transparency" in picture.info:
        return picture.convert("RGBA")
    if picture.mode in ("L", "LA", "RGB", "RGBA"):
        return picture
    return picture.convert("L" if picture.mode == "1" else "RGB")

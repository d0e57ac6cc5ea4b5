"""Explanations as plain data, for scripts."""

from __future__ import annotations

from typing import Any, assert_never

from whyformer.inputs.layouts import Boxes, Layout, Patches, WordPieces
from whyformer.results.continuation import Continuation
from whyformer.results.explanation import Explanation


def explanation_document(explanation: Explanation, given: str) -> dict[str, Any]:
    """The explanation for scripts: as `save` writes it, with the input's name instead of its pixels."""
    parts = {
        stream: {"tokens": part.tokens, "scores": part.scores.tolist(), **_places(part.layout)}
        for stream, part in explanation.parts.items()
    }
    return {
        "input": given,
        "target": explanation.target,
        "probability": explanation.probability,
        "method": explanation.method,
        "model": explanation.model,
        "options": {name: value if _is_plain(value) else repr(value) for name, value in explanation.options.items()},
        "notes": explanation.notes,
        "completeness": explanation.completeness,
        "parts": parts,
    }


def continuation_document(continuation: Continuation, given: str) -> dict[str, Any]:
    """The continuation for scripts: what was written, and each token's explanation."""
    each = [explanation_document(explanation, given) for explanation in continuation.explanations]
    return {"input": given, "text": continuation.text, "explanations": each}


def _places(layout: Layout) -> dict[str, Any]:
    match layout:
        case Patches(rows=rows, columns=columns, box=box, outline=outline):
            return {"rows": rows, "columns": columns, "box": box, **({"outline": outline} if outline else {})}
        case Boxes(boxes=boxes):
            return {"boxes": boxes}
        case WordPieces(segments=segments, offsets=offsets):
            return {"segments": segments, "offsets": offsets}
        case unknown:
            assert_never(unknown)


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (str, int, float))

"""Results as plain data, as printed by the commands."""

from __future__ import annotations

from typing import Any

from whyformer.results.continuation import Continuation
from whyformer.results.explanation import Explanation


def explanation_document(explanation: Explanation, name: str) -> dict[str, Any]:
    """The explanation as in `to_dict`, preceded by the name of its input."""
    return {"input": name, **explanation.to_dict()}


def continuation_document(continuation: Continuation, name: str) -> dict[str, Any]:
    """The continuation as in `to_dict`, preceded by the name of its input."""
    return {"input": name, **continuation.to_dict()}

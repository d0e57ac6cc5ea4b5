"""Explanations as plain data, as the commands print them for scripts."""

from __future__ import annotations

from typing import Any

from whyformer.results.continuation import Continuation
from whyformer.results.explanation import Explanation


def explanation_document(explanation: Explanation, name: str) -> dict[str, Any]:
    """The explanation as `to_dict` has it, after the name of its input."""
    return {"input": name, **explanation.to_dict()}


def continuation_document(continuation: Continuation, name: str) -> dict[str, Any]:
    """The continuation as `to_dict` has it, after the name of its input."""
    return {"input": name, **continuation.to_dict()}

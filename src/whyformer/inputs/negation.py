"""The opposite of a short English statement."""

from __future__ import annotations

import re

VERBS = {"has": "have", "makes": "make", "takes": "take", "works": "work", "lies": "lie", "weighs": "weigh"}
_BE = re.compile(r"\b(is|are|was|were|can|will|did|does|do)\b")
_NOT = re.compile(r"\s+not\b|n['’]t\b")


def negated(statement: str) -> str | None:
    """The statement with its first verb denied, or without its "not"; None if it has no verb that is known here."""
    if _NOT.search(statement):
        return _NOT.sub("", statement, count=1)
    if _BE.search(statement):
        return _BE.sub(r"\1 not", statement, count=1)
    verb = next((word for word in re.findall(r"\w+", statement) if word in VERBS), None)
    return None if verb is None else re.sub(rf"\b{verb}\b", f"does not {VERBS[verb]}", statement, count=1)

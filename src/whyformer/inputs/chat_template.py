"""Chat templates, which come with a model: rendered within bounds, in jinja's sandbox."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from whyformer.errors import WhyformerError

SECONDS = 10.0
LINES = 1_000_000  # of a template that are run: loops in loops
CHARACTERS = 10_000_000  # of what it renders


def render_chat(renderer: Any, messages: list[dict[str, Any]]) -> str:
    """The text that the chat template of a tokenizer or processor makes of messages, up to where the response begins.

    One that would run without end is stopped; a single operation within it cannot be.
    """
    try:
        with _bounded():
            text = str(renderer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
    except (OverflowError, MemoryError, RecursionError) as error:
        raise WhyformerError(f"The chat template asks for too much ({error}): choose another model.") from error
    if len(text) > CHARACTERS:
        raise WhyformerError(f"The chat template makes {len(text)} characters of the messages: choose another model.")
    return text


@contextmanager
def _bounded() -> Iterator[None]:
    """Stop what templates run in this thread after so many lines or seconds: compiled, they are Python's own."""
    before, end, lines = sys.gettrace(), time.monotonic() + SECONDS, 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines
        if frame.f_code.co_filename not in ("<template>", "<unknown>"):
            return None
        lines += 1
        if lines > LINES or time.monotonic() > end:
            raise OverflowError(f"more than {LINES} lines or {SECONDS:g} seconds")
        return trace

    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)

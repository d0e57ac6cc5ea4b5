"""Render a model's chat template in jinja's sandbox, within bounds."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from whyformer.errors import WhyformerError

SECONDS = 10.0
LINES = 1_000_000  # that a template may execute: nested loops
CHARACTERS = 10_000_000  # that it may render


def render_chat(
    renderer: Any,
    messages: list[dict[str, Any]],
    *,
    tools: list[Any] | None = None,
    add_generation_prompt: bool = True,
) -> str:
    """Render messages by the chat template of a tokenizer or processor, up to where the response begins.

    A template that does not terminate is stopped, though not within a single operation.
    """
    about = {} if tools is None else {"tools": tools}
    try:
        with _bounded():
            text = str(
                renderer.apply_chat_template(
                    messages, tokenize=False, add_generation_prompt=add_generation_prompt, **about
                )
            )
    except (OverflowError, MemoryError, RecursionError) as error:
        raise WhyformerError(f"The chat template exceeds its limits ({error}): choose another model.") from error
    if len(text) > CHARACTERS:
        raise WhyformerError(f"The chat template renders {len(text)} characters: choose another model.")
    return text


@contextmanager
def _bounded() -> Iterator[None]:
    """Limit the lines and seconds that templates, which compile to Python, may run in this thread."""
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

"""How docstrings are read for the pages of the API: sections have their usual names, paths of pages are links."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import griffe

DOCS = Path(__file__).parent


class ExampleSections(griffe.Extension):
    """Renames the heading of examples, so that their code is shown as code, and links pages."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            text = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
            obj.docstring.value = linked_pages(text)


def linked_pages(text: str) -> str:
    """Paths such as docs/guides/models.md as links with the title of the page, for a page in docs/api."""
    return re.sub(r"\bdocs/([\w/-]+\.md)\b", lambda match: f"[{title(match[1])}](../{match[1]})", text)


def title(page: str) -> str:
    return re.findall(r"^# (.+)", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE)[0]

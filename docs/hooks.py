"""What MkDocs does beside its plugins.

Formulas become MathML when the site is built, so that no script is needed to read them, and folders whose pages are
made by docs/tables.py are named in the navigation by a pattern.
"""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert

# What pymdownx.arithmatex leaves of $…$ and $$…$$.
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def on_config(config: Any) -> None:
    """Put the pages of a folder where the navigation has a pattern like methods/*.md."""
    config.nav = listed(config.nav, Path(config.docs_dir))


def listed(entry: Any, docs: Path) -> Any:
    """An entry of the navigation with its patterns replaced by pages, each under its file's name."""
    if isinstance(entry, dict):
        return {title: listed(value, docs) for title, value in entry.items()}
    if isinstance(entry, list):
        return [listed(value, docs) for value in entry]
    if "*" not in entry:
        return entry
    pages = sorted(path for path in docs.glob(entry) if path.name != "index.md")
    return [{path.stem: str(path.relative_to(docs))} for path in pages]


def pages_of(entry: Any) -> list[tuple[str | None, str]]:
    """The pages of an entry of the navigation in their order, with the titles that it gives them."""
    if isinstance(entry, str):
        return [(None, entry)]
    if isinstance(entry, list):
        return [page for value in entry for page in pages_of(value)]
    ((title, value),) = entry.items()
    return [(title, value)] if isinstance(value, str) else pages_of(value)


def on_page_content(content: str, **_: Any) -> str:
    """Write the page's formulas as MathML."""
    return FORMULA.sub(lambda match: mathml(html.unescape(match[3]), "inline" if match[2] == "(" else "block"), content)


def mathml(formula: str, display: str) -> str:
    """A formula in LaTeX as MathML, which browsers draw themselves."""
    text: str = convert(formula.strip(), display=display)
    return text

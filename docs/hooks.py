"""What MkDocs does beside its plugins: formulas become MathML when the site is built, so that no script is needed."""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert

# What pymdownx.arithmatex leaves of $…$ and $$…$$.
FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_content(content: str, **_: Any) -> str:
    """Write the page's formulas as MathML."""
    return FORMULA.sub(lambda match: mathml(html.unescape(match[3]), "inline" if match[2] == "(" else "block"), content)


def mathml(formula: str, display: str) -> str:
    """A formula in LaTeX as MathML, which browsers draw themselves."""
    text: str = convert(formula.strip(), display=display)
    return text

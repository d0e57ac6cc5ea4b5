"""A response and its sources drawn: as a page, as a picture, and on a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

from PIL import Image, ImageDraw

from whyformer.render.text import one_line, visible

if TYPE_CHECKING:
    from whyformer.results.response import Response

RANKED = 3  # sources of a row on a terminal


def response_text(response: Response) -> str:
    """The sources of each row, the strongest first."""
    return "\n".join(_lines(response))


def response_fragment(response: Response) -> str:
    """The response as a part of a page."""
    return f"<pre>{escape(response_text(response))}</pre>"


def response_page(response: Response) -> str:
    """The response as a page of its own."""
    head = f'<head><meta charset="utf-8"><title>{escape(response.headline)}</title></head>'
    return f"<!doctype html><html>{head}<body>{response_fragment(response)}</body></html>"


def response_figure(response: Response) -> Image.Image:
    """The response as a picture."""
    lines = response_text(response).splitlines()
    picture = Image.new("RGB", (1200, 24 * len(lines) + 16), "white")
    ImageDraw.Draw(picture).text((8, 8), "\n".join(lines), fill="black")
    return picture


def _lines(response: Response) -> Iterator[str]:
    yield response.headline
    for number, row in enumerate(response.rows):
        yield visible(row.text)
        for item in response.top(RANKED, row=number):
            name = f"{one_line(item.source.name)}: " if item.source.name else ""
            yield f"  {item.share:4.0%}  {name}{one_line(item.source.text)}"

"""How layouts of other modules are drawn, ranked and stored: one row each, by the layout's class."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from markupsafe import Markup
from PIL import Image
from rich.text import Text

from whyformer.errors import WhyformerError
from whyformer.inputs.layouts import Layout

if TYPE_CHECKING:
    from whyformer.results.part import By, Part


@dataclass(frozen=True)
class LayoutKind:
    """A kind of layout, as results need to know it.

    Attributes:
        name: What files call it.
        fields: Its fields in files, beside tokens and scores; `image` is stored as a picture.
        units: What its scores can be ranked by, the usual first.
        to_fields: Its fields as JSON holds them, less the picture.
        from_fields: The layout again: `from_fields(field)`, where `field(name, type)` is a checked field of the file.
        places: Where each token is, as columns of a table.
        figure: The part drawn so many pixels wide, for .png files and matplotlib.
        lines: The part in characters, for terminals without colours.
        coloured: The part in colours, so many characters wide.
        page: The part as HTML without scripts, its pictures so large at most.
    """

    name: str
    fields: tuple[str, ...]
    units: tuple[By, ...]
    to_fields: Callable[[Any], dict[str, Any]]
    from_fields: Callable[[Callable[[str, Any], Any]], Any]
    places: Callable[[Any], Iterator[dict[str, Any]]]
    figure: Callable[[Part, int], Image.Image]
    lines: Callable[[Part, int], list[str]]
    coloured: Callable[[Part, int], list[Text]]
    page: Callable[[Part, int], Markup]


LAYOUT_KINDS: dict[type, LayoutKind] = {}


def kind_of(layout: Layout) -> LayoutKind:
    """The row of a layout."""
    if type(layout) not in LAYOUT_KINDS:
        raise WhyformerError(
            f"No LayoutKind for {type(layout).__name__}: add it to whyformer.render.layout_kinds.LAYOUT_KINDS."
        )
    return LAYOUT_KINDS[type(layout)]

"""How further layouts are drawn, ranked and stored: one row per layout class."""

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
    """The functions of a layout class.

    Attributes:
        name: Its name in files.
        fields: Its fields in files, beside tokens and scores; `image` is stored as a picture.
        units: The units that can be ranked, the default first.
        to_fields: Converts a layout to JSON data, without the picture.
        from_fields: Restores a layout: `from_fields(field)`, where `field(name, type)` is a validated field of the
            file. The types are int, float, float | None, str, lists of int, float or str, a `Box`, and `Image.Image`.
        places: Returns the position of each token, as columns of a table.
        figure: Draws a part at a width in pixels, for .png files and matplotlib.
        lines: Renders a part in characters, for terminals without colours.
        coloured: Renders a part in colours, at a width in characters.
        page: Renders a part as HTML without scripts, with a maximum size of pictures.
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
    """The layout kind of a layout."""
    if type(layout) not in LAYOUT_KINDS:
        raise WhyformerError(
            f"No LayoutKind for {type(layout).__name__}: add it to whyformer.render.layout_kinds.LAYOUT_KINDS."
        )
    return LAYOUT_KINDS[type(layout)]

"""How parts of an explanation are drawn, ranked and stored, by layout class; modalities have the rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image
from rich.text import Text

from whyformer.errors import WhyformerError
from whyformer.inputs.layouts import Layout
from whyformer.render.shades import BarGround
from whyformer.render.text_spans import TextUnits

if TYPE_CHECKING:
    from whyformer.render.view import PartView
    from whyformer.results.part import By, Part


@dataclass(frozen=True)
class Space:
    """The space of a drawing.

    Attributes:
        width: In pixels.
        side: Longest side of a picture; None for its own size.
        has_original: Whether a picture is also shown without scores.
        units: The units of a text that are coloured.
        font_size: Of a text.
        most_lines: Of a text.
    """

    width: int
    side: int | None = None
    has_original: bool = False
    units: TextUnits = "word"
    font_size: int = 24
    most_lines: int = 400


def token_by_token(part: Part) -> Iterator[tuple[str, Sequence[int]]]:
    """Each token by itself."""
    return ((name, [token]) for token, name in enumerate(part.tokens))


@dataclass(frozen=True)
class LayoutKind:
    """The functions of a layout class.

    Attributes:
        name: Its name in files.
        fields: Its fields in files, beside tokens and scores; `image` is stored as a picture, `samples` as an array.
        units: The units that can be ranked, the default first.
        to_fields: Converts a layout to JSON data, without picture and samples.
        from_fields: Restores a layout: `from_fields(field)`, where `field(name, type)` is a validated field of the
            file, and `field(name, type, default)` one that may be missing. The types are int, float, float | None, str,
            lists of int, float, str, pairs of integers or a `Box`, a `Box`, `Image.Image` and `np.ndarray`.
        places: Returns the position of each token, as columns of a table.
        figure: Draws a part in a `Space`, for .png files and matplotlib.
        lines: Renders a part in characters at a width, for terminals without colours.
        coloured: Renders a part in colours, at a width in characters: `coloured(part, width, units)`.
        view: Renders a part for HTML pages: `view(part, side, units)`, with a maximum size of pictures.
        groups: Yields the tokens that a page removes together, with their name: `groups(part)`.
        noun: What a part of this layout is called among the sources of a response.
        unit: The name of a token in sentences; None for texts, whose units can be chosen.
        whole: What the tokens divide ("the picture"): coverage is its share; None where tokens are counted.
        ground: Where its colours lie: on the page, or as a heatmap on a photo.
        is_narrow: Whether it may share the width of the sheet with other parts.
        samples: Returns float32 samples to be stored; None without any.

    Example:
        >>> from whyformer.inputs.layouts import Patches
        >>> whyformer.extend.known_modalities()["image"].layouts[Patches].units
        ('patch', 'token')
    """

    name: str
    fields: tuple[str, ...]
    units: tuple[By, ...]
    to_fields: Callable[[Any], dict[str, Any]]
    from_fields: Callable[[Callable[..., Any]], Any]
    places: Callable[[Any], Iterator[dict[str, Any]]]
    figure: Callable[[Part, Space], Image.Image]
    lines: Callable[[Part, int], list[str]]
    coloured: Callable[[Part, int, TextUnits], list[Text]]
    view: Callable[[Part, int, TextUnits], PartView]
    groups: Callable[[Part], Iterator[tuple[str, Sequence[int]]]] = token_by_token
    noun: str = "picture"
    unit: str | None = "patch"
    whole: str | None = "the patches"
    ground: BarGround = "photo"
    is_narrow: bool = False
    samples: Callable[[Any], np.ndarray] | None = None


def kind_of(layout: Layout) -> LayoutKind:
    """The layout kind of a layout."""
    kind = layout_kinds().get(type(layout))
    if kind is None:
        raise WhyformerError(
            f"No LayoutKind for {type(layout).__name__}: add it to the layouts of its modality "
            "(whyformer.inputs.modality)."
        )
    return kind


def kind_named(name: str) -> LayoutKind:
    """The layout kind of this name in files."""
    kind = next((kind for kind in layout_kinds().values() if kind.name == name), None)
    if kind is None:
        raise WhyformerError(f"no layout is named {name!r}")
    return kind


def layout_kinds() -> dict[type, LayoutKind]:
    """The layout kinds of all modalities, by layout class."""
    from whyformer.inputs.modality import known_modalities  # imports torch

    return {layout: kind for modality in known_modalities().values() for layout, kind in modality.layouts.items()}

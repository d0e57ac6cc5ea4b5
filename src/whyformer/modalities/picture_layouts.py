"""Patches and regions of a picture: how they are drawn, ranked and stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from math import ceil
from typing import TYPE_CHECKING, Any

from PIL import Image
from rich.text import Text

from whyformer.inputs.layouts import Box, Boxes, Patches
from whyformer.render import canvas
from whyformer.render.cells import COLOURED_WIDTH, half_blocks, range_line, region_list, shade_key, shades
from whyformer.render.heatmaps import display_side, original, overlay, picture_layout
from whyformer.render.layout_kinds import LayoutKind, Space
from whyformer.render.text_spans import TextUnits, region_ranking
from whyformer.render.view import PartView, PictureView, data_uri, legend_view, strongest_description

if TYPE_CHECKING:
    from whyformer.results.part import Part

BLOCKS_ON_A_SIDE = 8  # that a page can remove


def _figure(part: Part, space: Space) -> Image.Image:
    """Draw the heatmap over the picture, next to the original if `has_original`."""
    if not space.has_original or space.side is None:
        return overlay(part, longest_side=space.side)
    layout = picture_layout(part)
    side = display_side(layout, space.side)
    return canvas.side_by_side([original(layout, side), overlay(part, longest_side=side)])


def _view(part: Part, side: int, units: TextUnits) -> PartView:
    """The picture next to its heatmap."""
    layout = picture_layout(part)
    shown = display_side(layout, side)
    picture = PictureView(
        original=data_uri(original(layout, shown)),
        overlay=data_uri(overlay(part, longest_side=shown)),
        description=f"Heatmap on the image{strongest_description(part)}",
        ranking=region_ranking(part),
    )
    return PartView(legend_view(part, "photo"), picture=picture)


def _patch_lines(part: Part, width: int) -> list[str]:
    return [*shades(part), shade_key(part)]


def _coloured_patches(part: Part, width: int, units: TextUnits) -> list[Text]:
    return [*half_blocks(part, min(width, COLOURED_WIDTH)), range_line(part)]


def _patches_to_fields(layout: Patches) -> dict[str, Any]:
    grid = {"rows": int(layout.rows), "columns": int(layout.columns), "box": list(map(float, layout.box))}
    return grid | ({} if layout.outline is None else {"outline": list(map(float, layout.outline))})


def _patches_from_fields(field: Callable[..., Any]) -> Patches:
    return Patches(
        outline=field("outline", Box, None),
        rows=field("rows", int),
        columns=field("columns", int),
        image=field("image", Image.Image),
        box=field("box", Box),
    )


def _patch_places(layout: Patches) -> Iterator[dict[str, Any]]:
    for index in range(layout.size):
        yield {"row": index // layout.columns + 1, "column": index % layout.columns + 1}


def _blocks(part: Part) -> Iterator[tuple[str, Sequence[int]]]:
    """Blocks of patches: single patches of a fine grid hardly matter."""
    assert isinstance(part.layout, Patches)
    rows, columns = part.layout.rows, part.layout.columns
    side = ceil(max(rows, columns) / BLOCKS_ON_A_SIDE)
    for top, left in product(range(0, rows, side), range(0, columns, side)):
        own = product(range(top, min(top + side, rows)), range(left, min(left + side, columns)))
        yield f"block at row {top + 1}, column {left + 1}", [row * columns + column for row, column in own]


def _region_lines(part: Part, width: int) -> list[str]:
    return [*shades(part), shade_key(part), *region_list(part)]


def _coloured_regions(part: Part, width: int, units: TextUnits) -> list[Text]:
    return [*half_blocks(part, min(width, COLOURED_WIDTH)), *map(Text, region_list(part)), range_line(part)]


def _boxes_from_fields(field: Callable[..., Any]) -> Boxes:
    return Boxes(field("image", Image.Image), tuple(field("boxes", list[Box])))


def _region_places(layout: Boxes) -> Iterator[dict[str, Any]]:
    for left, top, right, bottom in layout.boxes:
        yield {"left": left, "top": top, "right": right, "bottom": bottom}


PATCH_KIND = LayoutKind(
    name="patches",
    fields=("image", "rows", "columns", "box", "outline"),
    units=("patch", "token"),
    to_fields=_patches_to_fields,
    from_fields=_patches_from_fields,
    places=_patch_places,
    figure=_figure,
    lines=_patch_lines,
    coloured=_coloured_patches,
    view=_view,
    groups=_blocks,
    whole="the picture",
    is_narrow=True,
)
BOX_KIND = LayoutKind(
    name="boxes",
    fields=("image", "boxes"),
    units=("region", "token"),
    to_fields=lambda layout: {"boxes": [list(map(float, box)) for box in layout.boxes]},
    from_fields=_boxes_from_fields,
    places=_region_places,
    figure=_figure,
    lines=_region_lines,
    coloured=_coloured_regions,
    view=_view,
    unit="region",
    whole=None,
    is_narrow=True,
)

"""Frames and spectrograms of a sound: how they are drawn, ranked and stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image
from rich.text import Text

from whyformer.inputs.layouts import Frames, SoundLayout, Spectrogram
from whyformer.inputs.sound import Sound
from whyformer.modalities.sound_picture import coloured_sound, sound_lines, sound_picture
from whyformer.render.cells import COLOURED_WIDTH, moment_list, range_line, shade_key
from whyformer.render.layout_kinds import LayoutKind, Space
from whyformer.render.text_spans import TextUnits
from whyformer.render.view import PartView, PictureView, data_uri, legend_view, strongest_description

if TYPE_CHECKING:
    from whyformer.results.part import Part


def _figure(part: Part, space: Space) -> Image.Image:
    """Draw the sound on an axis of seconds."""
    return sound_picture(part, space.width)


def _lines(part: Part, width: int) -> list[str]:
    """The sound in characters, and its strongest moments."""
    return [*sound_lines(part, width), shade_key(part), *moment_list(part)]


def _coloured(part: Part, width: int, units: TextUnits) -> list[Text]:
    """The sound in coloured characters, and its strongest moments."""
    return [*coloured_sound(part, min(width, COLOURED_WIDTH)), *map(Text, moment_list(part)), range_line(part)]


def _view(part: Part, side: int, units: TextUnits) -> PartView:
    """A single, wide picture."""
    drawing = data_uri(sound_picture(part, 2 * side))
    picture = PictureView("", drawing, f"Scores on the sound{strongest_description(part)}")
    return PartView(legend_view(part, "page" if isinstance(part.layout, Frames) else "photo"), picture=picture)


def _times(layout: SoundLayout) -> dict[str, Any]:
    return {"rate": layout.sound.rate, "first": float(layout.first), "step": float(layout.step)}


def _sound(field: Callable[..., Any]) -> dict[str, Any]:
    """The fields of both layouts."""
    sound = Sound(field("samples", np.ndarray), field("rate", int))
    return {"sound": sound, "first": field("first", float), "step": field("step", float)}


def _frames_from_fields(field: Callable[..., Any]) -> Frames:
    return Frames(**_sound(field), count=field("count", int))


def _frame_places(layout: Frames) -> Iterator[dict[str, Any]]:
    for since, until in layout.spans:
        yield {"from_second": since, "to_second": until}


def _spectrogram_to_fields(layout: Spectrogram) -> dict[str, Any]:
    return {"columns": int(layout.columns), **_times(layout), "edges": list(map(float, layout.edges))}


def _spectrogram_from_fields(field: Callable[..., Any]) -> Spectrogram:
    return Spectrogram(**_sound(field), edges=tuple(field("edges", list[float])), columns=field("columns", int))


def _cell_places(layout: Spectrogram) -> Iterator[dict[str, Any]]:
    for low, high in layout.bands:
        for since, until in layout.spans:
            yield {"from_second": since, "to_second": until, "from_hertz": low, "to_hertz": high}


FRAME_KIND = LayoutKind(
    name="frames",
    fields=("samples", "rate", "count", "first", "step"),
    units=("frame", "token"),
    to_fields=lambda layout: {"count": int(layout.count), **_times(layout)},
    from_fields=_frames_from_fields,
    places=_frame_places,
    figure=_figure,
    lines=_lines,
    coloured=_coloured,
    view=_view,
    noun="sound",
    unit="moment",
    whole="the sound",
    ground="page",
    samples=lambda layout: np.asarray(layout.sound.samples),
)
SPECTROGRAM_KIND = replace(
    FRAME_KIND,
    name="spectrogram",
    fields=("samples", "rate", "columns", "first", "step", "edges"),
    units=("patch", "token"),
    to_fields=_spectrogram_to_fields,
    from_fields=_spectrogram_from_fields,
    places=_cell_places,
    unit="patch",
    ground="photo",
)

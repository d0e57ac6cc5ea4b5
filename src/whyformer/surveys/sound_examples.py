"""Examples of cues of sounds: the sound with its scores, and without the cue."""

from __future__ import annotations

from PIL import Image, ImageDraw

from whyformer.inputs.sound import Sound
from whyformer.modalities.sound_picture import AXIS_HEIGHT, FREQUENCY_GUTTER, sound_picture
from whyformer.render.view import data_uri
from whyformer.results.part import Part
from whyformer.surveys.cues import Cue
from whyformer.surveys.scored_samples import ScoredSample
from whyformer.surveys.sound_cues import sound_spans

SOUND_WIDTH = 440  # pixels
COVER_COLOUR = (128, 128, 128)


def sound_pictures(sample: ScoredSample, cue: Cue | None, sound: Sound) -> tuple[str, ...]:
    """Draw the sound with its scores; and without the cue, which is grey."""
    assert sample.grid is not None
    assert sample.sound is not None
    layout = sample.sound.layout(sound, sample.grid[1])
    drawn = sound_picture(Part(layout, sample.scores), SOUND_WIDTH)
    span = None if cue is None else sound_spans(sample.sound.loudest, has_bands=bool(sample.sound.edges)).get(cue)
    if cue is None or span is None:
        return (data_uri(drawn),)
    rest = sound_picture(Part(layout, 0 * sample.scores), SOUND_WIDTH)
    read = min(1.0, sample.sound.seconds / sound.seconds)  # of a sound that was cut, only the beginning
    _cover(rest, cue, span, FREQUENCY_GUTTER if sample.sound.edges else 0, read)
    return data_uri(drawn), data_uri(rest)


def _cover(sheet: Image.Image, cue: Cue, span: tuple[float, float], left: int, read: float) -> None:
    """Paint the places of a cue grey."""
    width, height = sheet.width - left, sheet.height - AXIS_HEIGHT
    start, end = span
    if cue.kind == "band":
        box = (left, round((1 - end) * height), left + round(read * width) - 1, round((1 - start) * height) - 1)
    else:
        box = (left + round(start * read * width), 0, left + round(end * read * width) - 1, height - 1)
    ImageDraw.Draw(sheet).rectangle(box, fill=COVER_COLOUR)

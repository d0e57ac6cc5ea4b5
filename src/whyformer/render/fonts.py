"""Fonts for text in pictures: DejaVu Sans or Pillow's default, with system fonts as fallback for missing glyphs."""

from __future__ import annotations

import subprocess
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import groupby

from PIL import Image, ImageDraw, ImageFont

from whyformer.render.colour import RGB

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont
# Tried on machines without fontconfig.
COMMON_FILES = (
    *("NotoSansCJK-Regular.ttc", "msyh.ttc", "PingFang.ttc", "Hiragino Sans GB.ttc", "YuGothM.ttc", "malgun.ttf"),
    *("Arial Unicode.ttf", "wqy-zenhei.ttc", "DroidSansFallbackFull.ttf", "Leelawui.ttf", "Thonburi.ttc"),
    *("seguiemj.ttf", "Apple Color Emoji.ttc", "NotoColorEmoji.ttf", "Symbola.ttf"),
)
# Bitmap fonts (emoji) have one size, and are scaled.
PICTURE_SIZES = (109, 136, 160)
NO_CHARACTER = "\U0010ffff"
FONTCONFIG_SECONDS = 10


@dataclass(frozen=True)
class FontFile:
    """A system font, and the characters it claims to have; none if unknown."""

    path: str
    index: int = 0
    characters: tuple[range, ...] | None = None

    def may_have(self, character: str) -> bool:
        return self.characters is None or any(ord(character) in block for block in self.characters)


@dataclass(frozen=True)
class TextRun:
    """Characters drawn by one font; `ratio` is the scale of its glyphs."""

    text: str
    font: Font
    ratio: float = 1.0

    @property
    def width(self) -> float:
        return self.font.getlength(self.text) * self.ratio


@lru_cache(maxsize=32)
def font(size: int, bold: bool = False) -> Font:
    """DejaVu Sans, which covers many scripts, if installed; otherwise Pillow's default."""
    try:
        return ImageFont.truetype("DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf", size)
    except OSError:
        return ImageFont.load_default(size)


def text_runs(text: str, size: int, bold: bool = False) -> list[TextRun]:
    """Split the text into runs by font."""
    runs = []
    for file, group in groupby(_with_files(text), key=lambda pair: pair[1]):
        characters = "".join(character for character, _ in group)
        runs.append(TextRun(characters, font(size, bold)) if file is None else _run(characters, file, size))
    return runs


def text_width(text: str, size: int, bold: bool = False) -> float:
    """The width of the text in pixels."""
    return sum(run.width for run in text_runs(text, size, bold))


def missing_characters(text: str) -> str:
    """The characters that no system font has, drawn as boxes."""
    return "".join(
        character
        for character in dict.fromkeys(text)
        if not _is_attached(character) and not _has_main(character) and _other_file(character) is None
    )


def draw_text(picture: Image.Image, place: tuple[float, float], text: str, size: int, colour: RGB, bold: bool) -> None:
    """Draw text from the left, vertically centred on the line."""
    pen, (left, middle) = ImageDraw.Draw(picture), place
    for run in text_runs(text, size, bold):
        if run.ratio != 1:
            _paste_letters(picture, run, left, middle, size)
        else:
            pen.text((left, middle), run.text, font=run.font, fill=colour, anchor="lm")
        left += run.width


def _paste_letters(picture: Image.Image, run: TextRun, left: float, middle: float, size: int) -> None:
    """Paste bitmap glyphs, scaled to the line."""
    across, upper, right, lower = run.font.getbbox(run.text)
    letters = Image.new("RGBA", (max(1, round(right - across)), max(1, round(lower - upper))))
    ImageDraw.Draw(letters).text((-across, -upper), run.text, font=run.font, embedded_color=True)
    width, height = (max(1, round(side * run.ratio)) for side in letters.size)
    letters = letters.resize((width, height), Image.Resampling.LANCZOS)
    picture.paste(letters, (round(left), round(middle - height / 2)), letters)


def _with_files(text: str) -> Iterator[tuple[str, FontFile | None]]:
    """Each character with its fallback font, None for the main one; combining marks stay with their letter."""
    file: FontFile | None = None
    for index, character in enumerate(text):
        if index == 0 or not _is_attached(character):
            file = None if _has_main(character) else _other_file(character)
        yield character, file


def _is_attached(character: str) -> bool:
    """Whether it modifies the preceding character: accents, joiners, variation selectors."""
    return unicodedata.category(character) in ("Mn", "Me", "Cf", "Sk") and not character.isascii()


@cache
def _has_main(character: str) -> bool:
    return character.isspace() or _has_glyph(font(20), character)


@cache
def _other_file(character: str) -> FontFile | None:
    """The first system font with the character."""
    for file in _font_files():
        if file.may_have(character) and (loaded := _load(file, 20)) is not None and _has_glyph(loaded, character):
            return file
    return None


def _has_glyph(face: Font, character: str) -> bool:
    """Whether the font has the glyph, rather than drawing a box."""
    try:
        glyph, box = face.getmask(character), face.getmask(NO_CHARACTER)
    except (OSError, UnicodeError):
        return False
    return glyph.getbbox() is not None and (glyph.size, bytes(glyph)) != (box.size, bytes(box))


def _run(text: str, file: FontFile, size: int) -> TextRun:
    face = _load(file, size)
    assert face is not None  # it drew a character before
    return TextRun(text, face, size / face.size if face.size in PICTURE_SIZES else 1.0)


@lru_cache(maxsize=64)
def _load(file: FontFile, size: int) -> ImageFont.FreeTypeFont | None:
    """The font at this size, or at its only size."""
    for pixels in (size, *PICTURE_SIZES):
        try:
            return ImageFont.truetype(file.path, pixels, index=file.index)
        except OSError:
            continue
    return None


@cache
def _font_files() -> tuple[FontFile, ...]:
    """The system fonts, plain ones first."""
    style = "%{file}\t%{index}\t%{style}\t%{charset}\n"
    try:
        listing = subprocess.run(
            ["fc-list", "--format", style], capture_output=True, text=True, timeout=FONTCONFIG_SECONDS, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError, UnicodeError):
        return tuple(FontFile(name) for name in COMMON_FILES)
    rows = sorted((line.split("\t") for line in listing.splitlines() if line.count("\t") == 3), key=_plainness)
    return tuple(FontFile(path, int(index) & 0xFFFF, _ranges(characters)) for path, index, _, characters in rows)


def _plainness(row: list[str]) -> tuple[bool, bool, str]:
    path, _, style, _ = row
    return "Regular" not in style and "Book" not in style, "Serif" in path or "Mono" in path, path


def _ranges(characters: str) -> tuple[range, ...]:
    """Fontconfig's `20-7e a0 ...` as ranges of code points."""
    ends = (block.partition("-") for block in characters.split())
    return tuple(range(int(first, 16), int(last or first, 16) + 1) for first, _, last in ends)

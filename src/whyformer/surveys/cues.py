"""Cues: things that recur in the samples of a data set, and where each sample has them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Literal

import numpy as np
import regex

from whyformer.errors import WhyformerError, nearest

CueKind = Literal["word", "phrase", "position", "region", "mask", "cluster", "time", "band", "set"]
LONGEST_PHRASE = 3  # words
EDGE = 0.1  # share of a text's words in its beginning and in its end
RING, CORNER, MIDDLE = 1 / 8, 1 / 4, 1 / 2  # sides of the regions of a picture, as shares of the picture's
POSITIONS = ("beginning", "end")
EDGES = ("top edge", "bottom edge", "left edge", "right edge")
REGIONS = (
    "border",
    *EDGES,
    "top left corner",
    "top right corner",
    "bottom left corner",
    "bottom right corner",
    "centre",
)
MASKS = ("object", "background", "likely object", "likely background")
_AROUND = regex.compile(r"^[^\p{L}\p{N}]+|[^\p{L}\p{N}]+$")
_CLAUSE_END = regex.compile(r"[.,;:!?…。，！？)\]]$")


@dataclass(frozen=True, order=True)
class Cue:
    """Something that recurs in the samples of a data set.

    Attributes:
        kind: "word", "phrase" (2 or 3 words) or "position" of a text. "region" of a picture, "mask" (the object, the
            background), or "cluster" of patches. "time" of a sound, or "band" of its spectrogram. A "set" is several
            words, phrases or clusters that are removed together.
        name: The word or phrase in lower case, or the name of the position, region, mask, cluster, time or band; for a
            set those of its members, joined by " + ".
        members: The members of a set, in the order of their names; none for others.

    Example:
        >>> from whyformer.surveys.cues import Cue
        >>> str(Cue("word", "wonderful")), Cue("region", "centre").is_fixed
        ('wonderful', True)
    """

    kind: CueKind
    name: str
    members: tuple[Cue, ...] = ()

    @property
    def is_fixed(self) -> bool:
        """Whether it is known before any data are seen, so that no data have to be set aside to choose it."""
        return self.kind in ("position", "region", "mask", "time", "band")

    def __str__(self) -> str:
        return self.name


AND = " + "  # between the members of a set
CLUSTER = "patch cluster"
BACKGROUNDS = (Cue("mask", "background"), Cue("mask", "likely background"))


def cue_set(members: Sequence[Cue]) -> Cue:
    """Several words, phrases or clusters as one cue; a single one is itself."""
    if len(members) == 1:
        return members[0]
    ordered = tuple(sorted(members, key=lambda cue: cue.name))
    return Cue("set", AND.join(cue.name for cue in ordered), ordered)


def members_of(cue: Cue) -> tuple[Cue, ...]:
    """The members of a set; any other cue is its own only member."""
    return cue.members or (cue,)


def cue_row(cue: Cue) -> list[Any]:
    """A cue as a list of its kind and name, and for a set also the rows of its members."""
    return [cue.kind, cue.name, *([[cue_row(member) for member in cue.members]] if cue.members else [])]


def read_cue(row: Sequence[Any]) -> Cue:
    """The cue of such a row."""
    kind, name, *members = row
    return Cue(kind, name, tuple(read_cue(member) for own in members for member in own))


def with_sets(parts: dict[Cue, np.ndarray], wanted: frozenset[Cue] | None) -> dict[Cue, np.ndarray]:
    """The parts of the wanted cues; that of a set is the union of its members'. All parts if none are named."""
    if wanted is None:
        return parts
    own = {cue: part for cue, part in parts.items() if cue in wanted}
    for cue in (cue for cue in wanted if cue.kind == "set"):
        members = [parts[member] for member in members_of(cue) if member in parts]
        if members:
            own[cue] = np.maximum.reduce(members)
    return own


def text_cue(text: str) -> Cue:
    """The cue that a word or phrase of a user names."""
    words = [word_name(word) for word in text.split()]
    if not 1 <= len(words) <= LONGEST_PHRASE:
        raise WhyformerError(f"The cue {text!r:.60} has {len(words)} words: 1 to {LONGEST_PHRASE} make a cue.")
    return Cue("word" if len(words) == 1 else "phrase", " ".join(words))


def picture_cue(name: str) -> Cue:
    """The cue that a user names by a region of a picture, or by its mask."""
    known = (*REGIONS, *MASKS)
    if name not in known:
        raise WhyformerError(f"No region of a picture is named {name!r}. {nearest(name, known)}")
    return Cue("region" if name in REGIONS else "mask", name)


def word_name(word: str) -> str:
    """A word in lower case without the punctuation around it; punctuation alone stays."""
    return (bare_word(word) or word).casefold()


def bare_word(word: str) -> str:
    """A word without the punctuation around it."""
    bare: str = _AROUND.sub("", word)
    return bare


def phrases_of(words: Sequence[str], length: int) -> Iterator[tuple[int, str]]:
    """The phrases of this many words, each with the number of its first word; none runs over the end of a clause."""
    names = [word_name(word) for word in words]
    ends = [bool(_CLAUSE_END.search(word)) for word in words]
    for start in range(len(words) - length + 1):
        if not any(ends[start : start + length - 1]):
            yield start, " ".join(names[start : start + length])


def text_parts(words: Sequence[str], wanted: frozenset[Cue] | None = None) -> dict[Cue, np.ndarray]:
    """The words [word] of each cue that a text has: all cues, or only the wanted ones."""
    parts: dict[Cue, np.ndarray] = {}
    named = None if wanted is None else {*wanted, *(member for cue in wanted for member in members_of(cue))}
    for length in range(1, LONGEST_PHRASE + 1):
        for start, name in phrases_of(words, length):
            cue = Cue("word" if length == 1 else "phrase", name)
            if named is None or cue in named:
                parts.setdefault(cue, np.zeros(len(words), dtype=bool))[start : start + length] = True
    edge = max(1, round(EDGE * len(words)))
    if len(words) > 2 * edge:
        for name, place in zip(POSITIONS, (slice(edge), slice(-edge, None)), strict=True):
            if wanted is None or Cue("position", name) in wanted:
                parts[Cue("position", name)] = np.zeros(len(words), dtype=bool)
                parts[Cue("position", name)][place] = True
    return with_sets(parts, wanted)


def region_parts(shape: tuple[int, int]) -> dict[Cue, np.ndarray]:
    """The pixels [height width] of each region of a picture; corners, edges between them and centre do not overlap."""
    down, right = ((np.arange(side) + 0.5) / side for side in shape)
    y, x = np.meshgrid(down, right, indexing="ij")
    masks = {"border": np.minimum.reduce([x, 1 - x, y, 1 - y]) < RING}
    rows = {"top ": y < CORNER, "bottom ": y > 1 - CORNER, "": abs(y - 0.5) < MIDDLE / 2}
    columns = {"left ": x < CORNER, "right ": x > 1 - CORNER, "": abs(x - 0.5) < MIDDLE / 2}
    for (vertical, is_there), (horizontal, is_beside) in product(rows.items(), columns.items()):
        kind = "corner" if vertical and horizontal else "edge" if vertical or horizontal else "centre"
        masks[f"{vertical}{horizontal}{kind}"] = is_there & is_beside
    return {Cue("region", name): masks[name] for name in REGIONS}

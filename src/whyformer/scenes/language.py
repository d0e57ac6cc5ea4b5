"""Scenes in words: captions, descriptions, questions and answers, and which words the answer depends on.

Words are tensors of indices into WORDS, so that batches are made at once; `texts` turns them into strings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Generator, Tensor

from whyformer.scenes.world import COLOURS, COLUMNS, ROWS, SHAPES, SIZES, THINGS, PerScene, Scenes

NOTHING = ""  # fills up shorter sentences
WORDS = (
    NOTHING,
    *("? . a the is what colour shape size row column in thing of at above below yes no".split()),
    *COLOURS,
    *SHAPES,
    *SIZES,
    *ROWS,
    *COLUMNS,
)
ANSWERS = (*COLOURS, *SHAPES, *SIZES, "yes", "no", *ROWS, *COLUMNS)

# A kind of question, how it is asked, and how it is answered in a sentence.
# Slots are filled from the scene. The answer depends on those in braces, which name the objects, and on the words in
# brackets, which say what is asked of them.
KINDS: dict[str, tuple[str, str]] = {
    "colour": ("what [colour] is the {shape} ?", "the {shape} is <answer>"),
    "shape": ("what [shape] is the {colour} thing ?", "the {colour} thing is a <answer>"),
    "size": ("what [size] is the {colour} {shape} ?", "the {colour} {shape} is <answer>"),
    "left": ("is the {colour} {shape} [left] of the {colour2} {shape2} ?", "<answer>"),
    "above": ("is the {colour} {shape} [above] the {colour2} {shape2} ?", "<answer>"),
    "row": ("what [row] is the {colour} {shape} in ?", "the {colour} {shape} is in the <answer> row"),
    "column": ("what [column] is the {colour} {shape} in ?", "the {colour} {shape} is in the <answer> column"),
}
CAPTIONS = (
    "a {colour} {shape} left of a {colour2} {shape2}",
    "a {colour} {shape} right of a {colour2} {shape2}",
    "a {colour} {shape} above a {colour2} {shape2}",
    "a {colour} {shape} below a {colour2} {shape2}",
)
CLAUSE = "a <size> <colour> <shape> at the <row> <column> ."
SLOTS = ("colour", "shape", "size", "row", "column", "colour2", "shape2", "answer")

WordIds = Int[Tensor, "scene word"]


@dataclass(frozen=True)
class Sentences:
    """One sentence per scene, and the exact truth of what it is about."""

    words: WordIds  # indices into WORDS, filled up with NOTHING
    truth: Bool[Tensor, "scene word"]  # the words that it depends on: what names the objects, and what is asked of them
    things: Bool[Tensor, "scene thing"]  # the objects named


@dataclass(frozen=True)
class Questions(Sentences):
    kind: PerScene  # index into KINDS
    answer: PerScene  # index into ANSWERS
    replies: WordIds  # the answer in a sentence
    about: Int[Tensor, "scene 2"]  # the thing asked about, and the one it is compared with (or itself again)


class _Template(NamedTuple):
    words: Tensor  # template, word: indices into WORDS, or -1 - slot
    truth: Tensor  # template, word: whether the answer depends on it


def _template(sentences: list[str]) -> _Template:
    longest = max(len(sentence.split()) for sentence in sentences)
    words = torch.zeros(len(sentences), longest, dtype=torch.long)
    truth = torch.zeros(len(sentences), longest, dtype=torch.bool)
    for number, sentence in enumerate(sentences):
        for place, word in enumerate(sentence.split()):
            is_slot = word[0] in "{<"
            words[number, place] = -1 - SLOTS.index(word[1:-1]) if is_slot else WORDS.index(word.strip("[]"))
            truth[number, place] = word[0] in "{["
    return _Template(words, truth)


_QUESTIONS = _template([asked for asked, _ in KINDS.values()])
_REPLIES = _template([reply for _, reply in KINDS.values()])
_CAPTIONS = _template(list(CAPTIONS))
_CLAUSE = _template([CLAUSE])


def questions(scenes: Scenes, rng: Generator) -> Questions:
    """A random question about each scene, of a random kind, that has one answer.

    "The circle" is asked about only where there is one circle; places are compared only across columns or rows.
    """
    possible = askable(scenes)
    kind = torch.multinomial(possible.flatten(2).any(dim=2).float(), 1, generator=rng)[:, 0]
    pairs = possible[torch.arange(len(scenes), device=kind.device), kind].flatten(1)
    pair = torch.multinomial(pairs.float(), 1, generator=rng)[:, 0]
    return asked(scenes, kind, torch.stack([pair // THINGS, pair % THINGS], dim=1))


def askable(scenes: Scenes) -> Bool[Tensor, "scene kind thing other"]:
    """Which questions have one answer; for kinds that compare nothing, the other thing is the thing itself."""
    real = scenes.is_object
    alone = torch.eye(THINGS, dtype=torch.bool, device=real.device) & real[:, :, None]
    only_of_shape = _only_one(scenes.shape, real)[:, :, None] & alone
    only_of_colour = _only_one(scenes.colour, real)[:, :, None] & alone
    both = real[:, :, None] & real[:, None, :]
    beside, over = ((place[:, :, None] != place[:, None, :]) & both for place in (scenes.column, scenes.row))
    return torch.stack([only_of_shape, only_of_colour, alone, beside, over, alone, alone], dim=1)


def asked(scenes: Scenes, kind: PerScene, about: Int[Tensor, "scene 2"]) -> Questions:
    """The question of this kind about these things, its answer and its truth."""
    first, second = about.unbind(dim=1)
    at_first, at_second = (_picker(scenes, thing) for thing in (first, second))
    yes, no = ANSWERS.index("yes"), ANSWERS.index("no")
    choices = [
        at_first("colour"),
        len(COLOURS) + at_first("shape"),
        len(COLOURS) + len(SHAPES) + at_first("size"),
        torch.where(at_first("column") < at_second("column"), yes, no),
        torch.where(at_first("row") < at_second("row"), yes, no),
        no + 1 + at_first("row"),
        no + 1 + len(ROWS) + at_first("column"),
    ]
    answer = torch.stack(choices, dim=1).gather(1, kind[:, None])[:, 0]
    slots = _slots(scenes, first, second, answer)
    words, truth = _filled(_QUESTIONS, kind, slots)
    replies, _ = _filled(_REPLIES, kind, slots)
    return Questions(words, truth, _marked(scenes, first, second), kind, answer, replies, about)


def captions(scenes: Scenes, rng: Generator) -> Sentences:
    """A caption of two random objects of each scene and how they lie."""
    beside, over = askable(scenes)[:, 3:5].unbind(dim=1)
    pair = torch.multinomial((beside | over).flatten(1).float(), 1, generator=rng)[:, 0]
    first, second = pair // THINGS, pair % THINGS
    at_first, at_second = (_picker(scenes, thing) for thing in (first, second))
    across = (at_first("column") > at_second("column")).long()
    down = 2 + (at_first("row") < at_second("row")).logical_not().long()
    can = torch.stack([part.flatten(1).gather(1, pair[:, None])[:, 0] for part in (beside, over)], dim=1)
    is_down = torch.multinomial(can.float(), 1, generator=rng)[:, 0].bool()
    words, truth = _filled(_CAPTIONS, torch.where(is_down, down, across), _slots(scenes, first, second, None))
    return Sentences(words, truth, _marked(scenes, first, second))


def descriptions(scenes: Scenes, asked_about: Questions | None = None) -> Sentences:
    """Every object of each scene with its size, colour, shape and place, in reading order.

    With a question, the truth marks what its answer depends on: the words by which the object is found, and the words
    that answer. Without one, every object's colour and shape.
    """
    order = torch.where(scenes.is_object, scenes.cell, 9).argsort(dim=1)
    count, longest = len(scenes), _CLAUSE.words.shape[1]
    clauses, marks = [], []
    for place in range(THINGS):
        thing = order[:, place]
        words, _ = _filled(_CLAUSE, torch.zeros_like(thing), _slots(scenes, thing, thing, None))
        real = scenes.is_object.gather(1, thing[:, None])
        clauses.append(words * real)
        marks.append(_clause_truth(thing, asked_about) & real)
    length = longest * int(scenes.is_object.sum(dim=1).max())
    things = scenes.is_object if asked_about is None else asked_about.things
    return Sentences(torch.cat(clauses, dim=1)[:, :length], torch.cat(marks, dim=1).view(count, -1)[:, :length], things)


def texts(words: WordIds) -> list[str]:
    """The sentences as strings."""
    return [_joined(line) for line in words.tolist()]


def _joined(line: list[int]) -> str:
    text = " ".join(WORDS[word] for word in line if word)
    return text.replace(" ?", "?").replace(" .", ".")


def _clause_truth(thing: PerScene, about: Questions | None) -> Bool[Tensor, "scene word"]:
    """For each kind of question, the words of the asked object's clause that matter."""
    kinds = [("colour", "shape"), ("colour", "shape"), ("size", "colour", "shape")]
    kinds += [("colour", "shape", "column"), ("colour", "shape", "row")]
    kinds += [("colour", "shape", "row"), ("colour", "shape", "column")]
    slots = [word[1:-1] for word in CLAUSE.split()]
    table = torch.tensor([[slot in kind for slot in slots] for kind in kinds], device=thing.device)
    if about is None:
        return table[:1].expand(len(thing), -1)
    return table[about.kind] & about.things.gather(1, thing[:, None])


def _only_one(value: Int[Tensor, "scene thing"], real: Bool[Tensor, "scene thing"]) -> Bool[Tensor, "scene thing"]:
    same = (value[:, :, None] == value[:, None, :]) & real[:, None, :]
    return real & (same.sum(dim=2) == 1)


def _picker(scenes: Scenes, thing: PerScene) -> Callable[[str], Tensor]:
    """A property of one thing of each scene."""
    return lambda name: getattr(scenes, name).gather(1, thing[:, None])[:, 0]


def _slots(scenes: Scenes, first: Tensor, second: Tensor, answer: Tensor | None) -> Int[Tensor, "scene slot"]:
    """The word for each of SLOTS. Clutter has no words: its clauses are blanked afterwards."""
    at_first, at_second = (_picker(scenes, thing) for thing in (first, second))

    def words(names: tuple[str, ...], index: Tensor) -> Tensor:
        table = torch.tensor([WORDS.index(name) for name in names] + [0, 0], device=index.device)
        return table[index.clamp(max=len(names) + 1)]

    filled = [
        words(COLOURS, at_first("colour")),
        words(SHAPES, at_first("shape")),
        words(SIZES, at_first("size")),
        words(ROWS, at_first("row")),
        words(COLUMNS, at_first("column")),
        words(COLOURS, at_second("colour")),
        words(SHAPES, at_second("shape")),
        words(ANSWERS, answer) if answer is not None else torch.zeros_like(first),
    ]
    return torch.stack(filled, dim=1)


def _filled(template: _Template, number: Tensor, slots: Tensor) -> tuple[WordIds, Bool[Tensor, "scene word"]]:
    words, truth = (part.to(number.device)[number] for part in template)
    return torch.where(words < 0, slots.gather(1, (-1 - words).clamp(min=0)), words), truth


def _marked(scenes: Scenes, first: Tensor, second: Tensor) -> Bool[Tensor, "scene thing"]:
    place = torch.arange(THINGS, device=first.device)
    return (place == first[:, None]) | (place == second[:, None])

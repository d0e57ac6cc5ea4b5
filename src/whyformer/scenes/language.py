"""Describe scenes in words: captions, descriptions, questions and answers, and the words the answer depends on.

Words are tensors of indices into WORDS, so that batches are vectorised; `texts` converts them to strings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Generator, Tensor

from whyformer.scenes.world import COLOURS, COLUMNS, ROWS, SHAPES, SIZES, THINGS, PerScene, Scenes

PADDING_WORD = ""  # pads shorter sentences
WORDS = (
    PADDING_WORD,
    *("? . a the is what colour shape size row column in thing of at above below yes no".split()),
    *COLOURS,
    *SHAPES,
    *SIZES,
    *ROWS,
    *COLUMNS,
)
ANSWERS = (*COLOURS, *SHAPES, *SIZES, "yes", "no", *ROWS, *COLUMNS)

# A kind of question, its sentence, and the sentence of its answer.
# Slots are filled from the scene. The answer depends on those in braces, which name the objects, and on the words in
# brackets, which name the property asked for.
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
    """One sentence per scene, with exact ground truth.

    Attributes:
        words: [scene, word]: indices into WORDS, 0 after the end; `texts` converts them to strings.
        truth: [scene, word]: the words that matter: those that name the objects or the property asked for.
        things: [scene, thing]: the objects named.
    """

    words: WordIds
    truth: Bool[Tensor, "scene word"]
    things: Bool[Tensor, "scene thing"]


@dataclass(frozen=True)
class Questions(Sentences):
    """One question per scene, with its answer.

    Attributes:
        kind: [scene]: index into KINDS.
        answer: [scene]: index into ANSWERS.
        replies: [scene, word]: the answer in a sentence, as indices into WORDS.
        about: [scene, 2]: the thing asked about, and the one it is compared with (or itself again).
    """

    kind: PerScene
    answer: PerScene
    replies: WordIds
    about: Int[Tensor, "scene 2"]


class _Template(NamedTuple):
    words: Tensor  # template, word: indices into WORDS, or -1 - slot
    truth: Tensor  # template, word: whether the answer depends on it


def _template(sentences: list[str]) -> _Template:
    """Encode sentences with slots as tensors, to be filled in batches."""
    longest = max(len(sentence.split()) for sentence in sentences)
    words = torch.zeros(len(sentences), longest, dtype=torch.long)
    truth = torch.zeros(len(sentences), longest, dtype=torch.bool)
    for number, sentence in enumerate(sentences):
        for place, word in enumerate(sentence.split()):
            is_slot = word[0] in "{<"
            words[number, place] = -1 - SLOTS.index(word[1:-1]) if is_slot else WORDS.index(word.strip("[]"))
            truth[number, place] = word[0] in "{["
    return _Template(words, truth)


_QUESTIONS = _template([question for question, _ in KINDS.values()])
_REPLIES = _template([reply for _, reply in KINDS.values()])
_CAPTIONS = _template(list(CAPTIONS))
_CLAUSE = _template([CLAUSE])


def questions(scenes: Scenes, rng: Generator) -> Questions:
    """A random question about each scene, of a random kind, with exactly one answer.

    "The circle" is used only if there is exactly one; positions are compared only across different columns or rows.

    Args:
        scenes: The scenes.
        rng: A generator on their device.

    Returns:
        The questions, their answers and their truth.

    Example:
        >>> import torch
        >>> from whyformer.scenes import ANSWERS, questions, sample, texts
        >>> about = questions(sample(2, "test"), torch.Generator().manual_seed(0))
        >>> texts(about.words)
        ['what column is the green square in?', 'is the pink star above the purple circle?']
        >>> [ANSWERS[answer] for answer in about.answer]
        ['left', 'yes']
    """
    possible = answerable(scenes)
    kind = torch.multinomial(possible.flatten(2).any(dim=2).float(), 1, generator=rng)[:, 0]
    pairs = possible[torch.arange(len(scenes), device=kind.device), kind].flatten(1)
    pair = torch.multinomial(pairs.float(), 1, generator=rng)[:, 0]
    return questions_about(scenes, kind, torch.stack([pair // THINGS, pair % THINGS], dim=1))


def answerable(scenes: Scenes) -> Bool[Tensor, "scene kind thing other"]:
    """Which questions about each scene have exactly one answer.

    Args:
        scenes: The scenes.

    Returns:
        [scene, kind, thing, other thing]; where a kind compares nothing, the other thing is the thing itself.

    Example:
        >>> from whyformer.scenes import answerable, sample
        >>> answerable(sample(2, "test")).shape
        torch.Size([2, 7, 8, 8])
    """
    real = scenes.is_object
    alone = torch.eye(THINGS, dtype=torch.bool, device=real.device) & real[:, :, None]
    only_of_shape = _only_one(scenes.shape, real)[:, :, None] & alone
    only_of_colour = _only_one(scenes.colour, real)[:, :, None] & alone
    both = real[:, :, None] & real[:, None, :]
    beside, over = ((place[:, :, None] != place[:, None, :]) & both for place in (scenes.column, scenes.row))
    return torch.stack([only_of_shape, only_of_colour, alone, beside, over, alone, alone], dim=1)


def questions_about(scenes: Scenes, kind: PerScene, about: Int[Tensor, "scene 2"]) -> Questions:
    """The question of a given kind about given things of each scene.

    Args:
        scenes: The scenes.
        kind: [scene]: index into KINDS.
        about: [scene, 2]: the thing asked about, and the one it is compared with (or itself again). `answerable` tells
            which pairs make a question with one answer.

    Returns:
        The questions, their answers and their truth.

    Example:
        >>> import torch
        >>> from whyformer.scenes import questions, questions_about, sample, texts
        >>> scenes = sample(2, "test")
        >>> about = questions(scenes, torch.Generator().manual_seed(0))
        >>> again = questions_about(scenes, about.kind, about.about)
        >>> texts(again.words) == texts(about.words)
        True
    """
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
    slots = slot_words(scenes, first, second, answer)
    words, truth = _fill(_QUESTIONS, kind, slots)
    replies, _ = _fill(_REPLIES, kind, slots)
    return Questions(words, truth, either(first, second), kind, answer, replies, about)


def captions(scenes: Scenes, rng: Generator) -> Sentences:
    """A caption of two random objects of each scene and their relative position.

    Args:
        scenes: The scenes.
        rng: A generator on their device.

    Returns:
        The captions, and which words and things they are about.

    Example:
        >>> import torch
        >>> from whyformer.scenes import captions, sample, texts
        >>> texts(captions(sample(1, "test"), torch.Generator().manual_seed(0)).words)
        ['a yellow ring left of a red triangle']
    """
    beside, over = answerable(scenes)[:, 3:5].unbind(dim=1)
    pair = torch.multinomial((beside | over).flatten(1).float(), 1, generator=rng)[:, 0]
    first, second = pair // THINGS, pair % THINGS
    at_first, at_second = (_picker(scenes, thing) for thing in (first, second))
    across = (at_first("column") > at_second("column")).long()
    down = 2 + (at_first("row") < at_second("row")).logical_not().long()
    can = torch.stack([part.flatten(1).gather(1, pair[:, None])[:, 0] for part in (beside, over)], dim=1)
    is_down = torch.multinomial(can.float(), 1, generator=rng)[:, 0].bool()
    words, truth = _fill(_CAPTIONS, torch.where(is_down, down, across), slot_words(scenes, first, second, None))
    return Sentences(words, truth, either(first, second))


def descriptions(scenes: Scenes, about: Questions | None = None) -> Sentences:
    """Describe every object of each scene by size, colour, shape and position, in reading order.

    Args:
        scenes: The scenes.
        about: A question about each scene. The truth then marks the words that identify the object, and those that
            answer. Without it the truth is every object's colour and shape.

    Returns:
        The descriptions, and which words and things matter.

    Example:
        >>> from whyformer.scenes import descriptions, sample, texts
        >>> texts(descriptions(sample(1, "test")).words)[0].split(". ")[0]
        'a large white triangle at the top right'
    """
    order = torch.where(scenes.is_object, scenes.cell, 9).argsort(dim=1)
    count, longest = len(scenes), _CLAUSE.words.shape[1]
    clauses, marks = [], []
    for place in range(THINGS):
        thing = order[:, place]
        words, _ = _fill(_CLAUSE, torch.zeros_like(thing), slot_words(scenes, thing, thing, None))
        real = scenes.is_object.gather(1, thing[:, None])
        clauses.append(words * real)
        marks.append(_clause_truth(thing, about) & real)
    length = longest * int(scenes.is_object.sum(dim=1).max())
    things = scenes.is_object if about is None else about.things
    return Sentences(torch.cat(clauses, dim=1)[:, :length], torch.cat(marks, dim=1).view(count, -1)[:, :length], things)


def texts(words: WordIds, vocabulary: tuple[str, ...] = WORDS) -> list[str]:
    """Convert word indices to strings.

    Args:
        words: [scene, word]: indices into the vocabulary, such as `Sentences.words`.
        vocabulary: VOCABULARY for `dialogues`, otherwise WORDS.

    Returns:
        One string per scene.

    Example:
        >>> import torch
        >>> from whyformer.scenes import WORDS, texts
        >>> texts(torch.tensor([[WORDS.index(word) for word in ("what", "colour", "?")]]))
        ['what colour?']
    """
    return [_joined([vocabulary[word] for word in line if word]) for line in words.tolist()]


def _joined(line: list[str]) -> str:
    """Join words with spaces, except before punctuation."""
    return " ".join(line).replace(" ?", "?").replace(" .", ".")


def _clause_truth(thing: PerScene, about: Questions | None) -> Bool[Tensor, "scene word"]:
    """The words that matter in the clause of the object asked about, by kind of question."""
    kinds = [("colour", "shape"), ("colour", "shape"), ("size", "colour", "shape")]
    kinds += [("colour", "shape", "column"), ("colour", "shape", "row")]
    kinds += [("colour", "shape", "row"), ("colour", "shape", "column")]
    slots = [word[1:-1] for word in CLAUSE.split()]
    table = torch.tensor([[slot in kind for slot in slots] for kind in kinds], device=thing.device)
    if about is None:
        return table[:1].expand(len(thing), -1)
    return table[about.kind] & about.things.gather(1, thing[:, None])


def _only_one(value: Int[Tensor, "scene thing"], real: Bool[Tensor, "scene thing"]) -> Bool[Tensor, "scene thing"]:
    """Whether no other object of the scene has the same value."""
    same = (value[:, :, None] == value[:, None, :]) & real[:, None, :]
    return real & (same.sum(dim=2) == 1)


def _picker(scenes: Scenes, thing: PerScene) -> Callable[[str], Tensor]:
    """Return a function that looks up a property of one thing of each scene."""
    return lambda name: getattr(scenes, name).gather(1, thing[:, None])[:, 0]


def slot_words(scenes: Scenes, first: Tensor, second: Tensor, answer: Tensor | None) -> Int[Tensor, "scene slot"]:
    """The word for each of SLOTS. Clutter has no words; its clauses are blanked later."""
    at_first, at_second = (_picker(scenes, thing) for thing in (first, second))

    def words(names: tuple[str, ...], index: Tensor) -> Tensor:
        table = torch.tensor([WORDS.index(name) for name in names] + [0, 0], device=index.device)
        return table[index.clamp(max=len(names) + 1)]

    columns = [
        words(COLOURS, at_first("colour")),
        words(SHAPES, at_first("shape")),
        words(SIZES, at_first("size")),
        words(ROWS, at_first("row")),
        words(COLUMNS, at_first("column")),
        words(COLOURS, at_second("colour")),
        words(SHAPES, at_second("shape")),
        words(ANSWERS, answer) if answer is not None else torch.zeros_like(first),
    ]
    return torch.stack(columns, dim=1)


def _fill(template: _Template, number: Tensor, slots: Tensor) -> tuple[WordIds, Bool[Tensor, "scene word"]]:
    """Fill in the slots of each scene's template, and return the words that matter."""
    words, truth = (part.to(number.device)[number] for part in template)
    return torch.where(words < 0, slots.gather(1, (-1 - words).clamp(min=0)), words), truth


def either(first: Tensor, second: Tensor) -> Bool[Tensor, "scene thing"]:
    """Whether a thing is the first or the second."""
    place = torch.arange(THINGS, device=first.device)
    return (place == first[:, None]) | (place == second[:, None])

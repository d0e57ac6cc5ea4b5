"""Prompts and replies for vision-language models, and the objects that each word of a reply depends on.

Words are indices into VOCABULARY, which starts with WORDS; `texts` converts them to strings.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Generator, Tensor
from torch.nn import functional as F

from whyformer.errors import WhyformerError
from whyformer.scenes.language import (
    ANSWERS,
    CLAUSE,
    KINDS,
    PADDING_WORD,
    WORDS,
    Sentences,
    WordIds,
    answerable,
    descriptions,
    either,
    questions_about,
    slot_words,
)
from whyformer.scenes.language import SLOTS as QUESTION_SLOTS
from whyformer.scenes.world import COLOURS, LABELS, MOST, SHAPES, THINGS, PerScene, Scenes

NUMBERS = ("zero", "one", "two", "three", "four", "five", "six")
PLURALS = ("circles", "squares", "triangles", "stars", "crosses", "rings")
VOCABULARY = (*WORDS, *"how many are there things describe and scene".split(), *NUMBERS, *PLURALS)

# A kind of prompt, and its sentences with their replies. The reply depends on a prompt's slots in braces, which name
# objects, and on its words in brackets, which name the task. In a reply, words in angle brackets are read from the
# picture, and those in braces are copied from the prompt.
PROMPTS: dict[str, tuple[tuple[str, str], ...]] = {
    **{kind: (sentences,) for kind, sentences in KINDS.items()},
    "count": (
        ("how [many] {shapes} are there ?", "<answer>"),
        ("how [many] {colour} things are there ?", "<answer>"),
    ),
    "there": (("is [there] a {colour} {shape} ?", "<answer>"),),
    "beside": tuple(
        (f"what is {side} the {{colour}} {{shape}} ?", "a <colour2> <shape2>")
        for side in ("[left] of", "[right] of", "[above]", "[below]")
    ),
    "pair": tuple(
        (prompt, reply.replace("SIDE", side))
        for prompt, reply in (
            ("[describe] the {shape} and the {shape2} .", "a <colour> {shape} SIDE a <colour2> {shape2}"),
            ("[describe] the {colour} thing and the {colour2} thing .", "a {colour} <shape> SIDE a {colour2} <shape2>"),
        )
        for side in ("<left> of", "<right> of", "<above>", "<below>")
    ),
    "scene": (("[describe] the [scene] .", PADDING_WORD),),  # the reply has one clause per object
}
PROMPT_SLOTS = (*QUESTION_SLOTS, "shapes")
OPTIONS = 2 * THINGS * THINGS  # maximum number of prompts of one kind about one scene
SHORT_REPLY, LONG_REPLY = 9, MOST * len(CLAUSE.split())  # words
NEAR, FAR = 0.35, 0.15  # probability of an absent object whose colour and shape both occur, and of any other
NOTHING_READ, FIRST_THING, SECOND_THING, WHOLE_SCENE = range(4)  # the source of a word of a reply


@dataclass(frozen=True)
class Dialogues(Sentences):
    """One prompt per scene with its reply, and exact ground truth.

    Attributes:
        kind: [scene]: index into PROMPTS.
        replies: [scene, word]: the correct reply, as indices into VOCABULARY.
        read_off: [scene, word, thing]: the things in the picture that a word of the reply depends on. A word that is in
            the prompt, or the same in every reply, depends on none.
    """

    kind: PerScene
    replies: WordIds
    read_off: Bool[Tensor, "scene word thing"]


class _Templates(NamedTuple):
    """All sentences of PROMPTS."""

    prompts: Tensor  # template, word: indices into VOCABULARY, or -1 - slot
    truth: Tensor  # template, word: whether the reply depends on it
    replies: Tensor
    read_off: Tensor  # template, word: NOTHING_READ, FIRST, SECOND or ALL


def _templates() -> _Templates:
    pairs = [pair for sentences in PROMPTS.values() for pair in sentences]
    prompts = [[_word(word) for word in prompt.split()] for prompt, _ in pairs]
    truth = [[word[0] in "{[" for word in prompt.split()] for prompt, _ in pairs]
    replies = [[_word(word) for word in reply.split()] for _, reply in pairs]
    read_off = [[_read_off(word) for word in reply.split()] for _, reply in pairs]
    return _Templates(*(_padded(rows) for rows in (prompts, truth, replies, read_off)))


def _word(word: str) -> int:
    """The index of a word, or -1 - that of a slot."""
    name = word.strip("[]{}<>")
    return -1 - PROMPT_SLOTS.index(name) if word[0] in "{<" and name in PROMPT_SLOTS else VOCABULARY.index(name)


def _read_off(word: str) -> int:
    if not word.startswith("<"):
        return NOTHING_READ
    return {"colour": FIRST_THING, "shape": FIRST_THING, "colour2": SECOND_THING, "shape2": SECOND_THING}.get(
        word[1:-1], WHOLE_SCENE
    )


def _padded(rows: Sequence[Sequence[int]]) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows])


_TEMPLATES = _templates()
_FIRST_TEMPLATE = torch.tensor([0, *(len(sentences) for sentences in PROMPTS.values())]).cumsum(dim=0)


def dialogues(scenes: Scenes, rng: Generator, *, kinds: Iterable[str] = tuple(PROMPTS)) -> Dialogues:
    """A random prompt about each scene, of a random kind, with exactly one correct reply.

    Args:
        scenes: The scenes.
        rng: A generator on their device.
        kinds: The kinds of PROMPTS to draw from; repeat a kind to draw it more often. "count", "there" and "scene"
            apply to every scene.

    Returns:
        The prompts, the replies, and what they depend on.

    Raises:
        WhyformerError: If a kind is unknown, or none of them applies to one of the scenes.

    Example:
        >>> import torch
        >>> from whyformer.scenes import VOCABULARY, dialogues, sample, texts
        >>> about = dialogues(sample(2, "test"), torch.Generator().manual_seed(3), kinds=["pair", "count"])
        >>> texts(about.words, VOCABULARY)[0]
        'describe the pink thing and the red thing.'
        >>> texts(about.replies, VOCABULARY)[0]
        'a pink square left of a red square'
    """
    kinds = tuple(kinds)
    for name in kinds:
        if name not in PROMPTS:
            raise WhyformerError(f"No kind of prompt named {name!r}. Known: {', '.join(PROMPTS)}.")
    weights = _option_weights(scenes)
    often = torch.tensor([float(kinds.count(name)) for name in PROMPTS], device=weights.device)
    chances = (weights.sum(dim=2) > 0) * often
    if not (chances > 0).any(dim=1).all():
        raise WhyformerError(f"{', '.join(kinds)}: not applicable to every scene. Add one of: count, there, scene.")
    kind = torch.multinomial(chances, 1, generator=rng)[:, 0]
    each = torch.arange(len(scenes), device=kind.device)
    option = torch.multinomial(weights[each, kind], 1, generator=rng)[:, 0]
    return _dialogues_about(scenes, kind, option, LONG_REPLY if "scene" in kinds else SHORT_REPLY)


def _option_weights(scenes: Scenes) -> Float[Tensor, "scene kind option"]:
    """Weight of each prompt among those of its kind.

    Depending on the kind, an option is a shape or colour to count, a label that is present or not, a side and a thing,
    or a pair of things, which shape or colour may name.
    """
    pairs = answerable(scenes).flatten(2).float()
    kinds = [
        *pairs.unbind(dim=1),
        _counts(scenes) + 0.5,
        _presence_weights(scenes),
        (_things_beside(scenes).sum(dim=3) == 1).flatten(1).float(),
        _pairs(scenes).flatten(1).float(),
        torch.ones_like(pairs[:, 0, :1]),
    ]
    return torch.stack([F.pad(part, (0, OPTIONS - part.shape[1])) for part in kinds], dim=1)


def _has(scenes: Scenes) -> Bool[Tensor, "scene value thing"]:
    """Which things have each shape, then each colour; clutter has none."""
    shapes, colours = (torch.arange(len(names), device=scenes.shape.device) for names in (SHAPES, COLOURS))
    has_shape = scenes.shape[:, None] == shapes[:, None]
    has_colour = scenes.colour[:, None] == colours[:, None]
    return torch.cat([has_shape, has_colour], dim=1)


def _counts(scenes: Scenes) -> Int[Tensor, "scene value"]:
    return _has(scenes).sum(dim=2)


def _presence_weights(scenes: Scenes) -> Float[Tensor, "scene label"]:
    """Weights of labels: present ones half the time; of the absent ones mostly those whose colour and shape occur."""
    labels = torch.arange(len(LABELS), device=scenes.shape.device)
    there = (scenes.label[:, None] == labels[:, None]).any(dim=2)
    shapes, colours = (_counts(scenes) > 0).split([len(SHAPES), len(COLOURS)], dim=1)
    near = (colours[:, :, None] & shapes[:, None, :]).flatten(1) & ~there
    groups = torch.stack([there, near, ~there & ~near], dim=2).float()
    shares = groups.new_tensor([NEAR + FAR, NEAR, FAR])
    weights: Tensor = (groups / groups.sum(dim=1, keepdim=True).clamp(min=1)) @ shares
    return weights


def _things_beside(scenes: Scenes) -> Bool[Tensor, "scene side thing other"]:
    """The other objects left of, right of, above and below each object."""
    both = scenes.is_object[:, :, None] & scenes.is_object[:, None, :]
    column, row = (place[:, None, :] - place[:, :, None] for place in (scenes.column, scenes.row))
    return torch.stack([column < 0, column > 0, row < 0, row > 0], dim=1) & both[:, None]


def _pairs(scenes: Scenes) -> Bool[Tensor, "scene naming thing other"]:
    """Pairs of objects that their shapes alone identify, and pairs that their colours alone identify."""
    alone = answerable(scenes)[:, :2].any(dim=3)
    other = ~torch.eye(THINGS, dtype=torch.bool, device=alone.device)
    return alone[:, :, :, None] & alone[:, :, None, :] & other


def _dialogues_about(scenes: Scenes, kind: PerScene, option: PerScene, longest_reply: int) -> Dialogues:
    """The prompt of this kind with this option for each scene."""
    first, second, things = _things_about(scenes, kind, option)
    template = _FIRST_TEMPLATE.to(kind.device)[kind] + _sentence_of_kind(scenes, kind, option, first, second)
    slots = _slot_words(scenes, kind, option, first, second, things)
    prompts, truth, replies, read = (part.to(kind.device)[template] for part in _TEMPLATES)
    words, short = (
        torch.where(part < 0, slots.gather(1, (-1 - part).clamp(min=0)), part) for part in (prompts, replies)
    )
    nobody = torch.zeros_like(things)
    sources = torch.stack([nobody, either(first, first), either(second, second), things], dim=1)
    read_off = sources.gather(1, read[:, :, None].expand(-1, -1, THINGS))
    space = longest_reply - short.shape[1]
    short, read_off = F.pad(short, (0, space)), F.pad(read_off, (0, 0, 0, space))
    if longest_reply == LONG_REPLY:
        whole, whole_read_off = _scene_replies(scenes)
        is_scene = (kind == len(PROMPTS) - 1)[:, None]
        short = torch.where(is_scene, whole, short)
        read_off = torch.where(is_scene[:, :, None], whole_read_off, read_off)
    return Dialogues(words, truth.bool(), things, kind, short, read_off)


def _things_about(scenes: Scenes, kind: PerScene, option: PerScene) -> tuple[Tensor, Tensor, Tensor]:
    """The two things that a prompt is about (arbitrary if none or many), and all of them."""
    each, has = torch.arange(len(scenes), device=kind.device), _has(scenes)
    first, second = option // THINGS % THINGS, option % THINGS
    is_beside = _is(kind, "beside")
    other = _things_beside(scenes)[each, first % 4, second].long().argmax(dim=1)
    first, second = torch.where(is_beside, second, first), torch.where(is_beside, other, second)
    things = either(first, second)
    counted = has[each, option.clamp(max=has.shape[1] - 1)]
    there = scenes.label == option.clamp(max=len(LABELS) - 1)[:, None]
    for name, some in (("count", counted), ("there", there), ("scene", scenes.is_object)):
        things = torch.where(_is(kind, name)[:, None], some, things)
    return first, second, things


def _sentence_of_kind(scenes: Scenes, kind: PerScene, option: PerScene, first: Tensor, second: Tensor) -> PerScene:
    """Index of a prompt's sentence among those of its kind."""
    column, row = (
        place.gather(1, first[:, None])[:, 0] - place.gather(1, second[:, None])[:, 0]
        for place in (scenes.column, scenes.row)
    )
    side = torch.where(column != 0, (column > 0).long(), 2 + (row > 0).long())
    sentence = torch.zeros_like(kind)
    sentence = torch.where(_is(kind, "count"), (option >= len(SHAPES)).long(), sentence)
    sentence = torch.where(_is(kind, "beside"), option // THINGS, sentence)
    return torch.where(_is(kind, "pair"), option // THINGS**2 * 4 + side, sentence)


def _slot_words(
    scenes: Scenes, kind: PerScene, option: PerScene, first: Tensor, second: Tensor, things: Tensor
) -> Int[Tensor, "scene slot"]:
    """The word for each of SLOTS: mostly properties of the things, but counted and absent objects are not things."""
    is_count, is_there = _is(kind, "count"), _is(kind, "there")
    about = torch.stack([first, second], dim=1)
    answer = _indices(ANSWERS, questions_about(scenes, kind.clamp(max=len(KINDS) - 1), about).answer)
    answer = torch.where(is_count, _indices(NUMBERS, things.sum(dim=1)), answer)
    answer = torch.where(is_there, _indices(("no", "yes"), things.any(dim=1).long()), answer)
    shapes = _indices(PLURALS, option)
    words = dict(zip(PROMPT_SLOTS, (*slot_words(scenes, first, second, None).unbind(dim=1), shapes), strict=True))
    words["answer"] = answer
    label_colour, label_shape = _indices(COLOURS, option // len(SHAPES)), _indices(SHAPES, option % len(SHAPES))
    words["colour"] = torch.where(is_there, label_colour, words["colour"])
    words["shape"] = torch.where(is_there, label_shape, words["shape"])
    words["colour"] = torch.where(is_count, _indices(COLOURS, option - len(SHAPES)), words["colour"])
    return torch.stack(list(words.values()), dim=1)


def _scene_replies(scenes: Scenes) -> tuple[WordIds, Bool[Tensor, "scene word thing"]]:
    """A clause per object, in reading order; its size, colour, shape and position depend on that object."""
    words = descriptions(scenes).words
    order = torch.where(scenes.is_object, scenes.cell, 9).argsort(dim=1)[:, :MOST]
    owner = F.one_hot(order, THINGS).bool() & scenes.is_object[:, None]  # scene, clause, thing
    is_read = torch.tensor([word.startswith("<") for word in CLAUSE.split()], device=order.device)
    read_off = (owner[:, :, None, :] & is_read[:, None]).flatten(1, 2)
    return F.pad(words, (0, LONG_REPLY - words.shape[1])), read_off


def _is(kind: PerScene, name: str) -> Bool[Tensor, " scene"]:
    return kind == list(PROMPTS).index(name)


def _indices(names: tuple[str, ...], index: Tensor) -> Tensor:
    """The words of these names; an index out of range, from a prompt of another kind, gives an arbitrary one."""
    table = torch.tensor([VOCABULARY.index(name) for name in names], device=index.device)
    return table[index.clamp(0, len(names) - 1)]

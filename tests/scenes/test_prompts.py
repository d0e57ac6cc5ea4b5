"""Dialogues about scenes against a reader who takes one scene at a time, and what each written word is read off."""

from __future__ import annotations

import re

import pytest
import torch

from whyformer import WhyformerError
from whyformer.scenes import (
    COLOURS,
    PROMPTS,
    SHAPES,
    SIZES,
    THINGS,
    VOCABULARY,
    WORDS,
    Dialogues,
    Scenes,
    clear_things,
    descriptions,
    dialogues,
    edit_things,
    sample,
    texts,
)
from whyformer.scenes.prompts import LONG_REPLY, NUMBERS, PLURALS, SHORT_REPLY

COUNT = 1200
ROWS, COLUMNS = ("top", "middle", "bottom"), ("left", "centre", "right")
Object = dict[str, object]


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def scenes() -> Scenes:
    return sample(COUNT, "test", rng=8)


@pytest.fixture(scope="module")
def about(scenes) -> Dialogues:
    return dialogues(scenes, generator())


def objects(scenes: Scenes, number: int) -> list[Object]:
    """The objects of one scene in words."""
    return [
        {
            "thing": thing,
            "colour": COLOURS[scenes.colour[number, thing]],
            "shape": SHAPES[scenes.shape[number, thing]],
            "size": SIZES[scenes.size[number, thing]],
            "row": (int(scenes.y[number, thing]) - 2) // 20,
            "column": (int(scenes.x[number, thing]) - 2) // 20,
        }
        for thing in range(THINGS)
        if scenes.is_object[number, thing]
    ]


def matching(things: list[Object], words: str) -> list[Object]:
    """The objects that all these words are true of."""
    return [part for part in things if set(words.split()) - {"thing"} <= {part["colour"], part["shape"]}]


def only(things: list[Object]) -> Object:
    assert len(things) == 1
    return things[0]


def on_side(things: list[Object], side: str, of: Object) -> list[Object]:
    axis, sign = {"left of": ("column", -1), "right of": ("column", 1), "above": ("row", -1), "below": ("row", 1)}[side]
    return [part for part in things if (part[axis] - of[axis]) * sign > 0]


def side_of(first: Object, second: Object) -> str:
    if first["column"] != second["column"]:
        return "left of" if first["column"] < second["column"] else "right of"
    return "above" if first["row"] < second["row"] else "below"


def reply_of(prompt: str, things: list[Object]) -> tuple[str, set[object]]:
    """The reply of a person who reads the prompt and looks at the objects, and the objects that it depends on."""
    if prompt == "describe the scene.":
        ordered = sorted(things, key=lambda part: (part["row"], part["column"]))
        clauses = [
            f"a {part['size']} {part['colour']} {part['shape']} at the {ROWS[part['row']]} {COLUMNS[part['column']]}."
            for part in ordered
        ]
        return " ".join(clauses), {part["thing"] for part in things}
    if match := re.fullmatch(r"describe the (.+) and the (.+)\.", prompt):
        first, second = (only(matching(things, words)) for words in match.groups())
        names = [f"a {part['colour']} {part['shape']}" for part in (first, second)]
        return f"{names[0]} {side_of(first, second)} {names[1]}", {first["thing"], second["thing"]}
    if match := re.fullmatch(r"how many (.+) are there\?", prompt):
        words = match[1].removesuffix(" things")
        counted = matching(things, SHAPES[PLURALS.index(words)] if words in PLURALS else words)
        return NUMBERS[len(counted)], {part["thing"] for part in counted}
    if match := re.fullmatch(r"is there a (.+)\?", prompt):
        there = matching(things, match[1])
        return ("yes" if there else "no"), {part["thing"] for part in there}
    if match := re.fullmatch(r"what is (left of|right of|above|below) the (.+)\?", prompt):
        reference = only(matching(things, match[2]))
        other = only(on_side(things, match[1], reference))
        return f"a {other['colour']} {other['shape']}", {reference["thing"], other["thing"]}
    if match := re.fullmatch(r"what (row|column) is the (.+) in\?", prompt):
        part = only(matching(things, match[2]))
        place = {"row": ROWS, "column": COLUMNS}[match[1]][part[match[1]]]
        return f"the {match[2]} is in the {place} {match[1]}", {part["thing"]}
    if match := re.fullmatch(r"what (colour|shape|size) is the (.+)\?", prompt):
        part = only(matching(things, match[2]))
        article = "a " if match[1] == "shape" else ""
        return f"the {match[2]} is {article}{part[match[1]]}", {part["thing"]}
    match = re.fullmatch(r"is the (.+?) (left of|above) the (.+)\?", prompt)
    first, second = only(matching(things, match[1])), only(matching(things, match[3]))
    return ("yes" if first in on_side(things, match[2], second) else "no"), {first["thing"], second["thing"]}


def test_the_first_words_are_those_of_the_questions_and_no_word_is_there_twice():
    assert VOCABULARY[: len(WORDS)] == WORDS
    assert len(set(VOCABULARY)) == len(VOCABULARY)


def test_a_reader_of_one_scene_at_a_time_replies_the_same(scenes, about):
    pairs = zip(texts(about.words, VOCABULARY), texts(about.replies, VOCABULARY), strict=True)
    for number, (prompt, reply) in enumerate(pairs):
        expected, things = reply_of(prompt, objects(scenes, number))
        assert reply == expected, prompt
        assert set(about.things[number].nonzero()[:, 0].tolist()) == things, prompt


def test_every_kind_is_drawn_about_as_often_and_both_answers_of_yes_and_no(about):
    counts = about.kind.bincount(minlength=len(PROMPTS))
    assert counts.min() > 0.6 * COUNT / len(PROMPTS)
    replies = texts(about.replies, VOCABULARY)
    for kind in ("left", "above", "there"):
        rows = (about.kind == list(PROMPTS).index(kind)).nonzero()[:, 0].tolist()
        assert 0.3 < sum(replies[row] == "yes" for row in rows) / len(rows) < 0.7


def test_a_kind_that_is_named_twice_is_drawn_twice_as_often(scenes):
    about = dialogues(scenes, generator(), kinds=["count", "scene", "scene"])
    is_scene = about.kind == list(PROMPTS).index("scene")
    assert float(is_scene.float().mean()) == pytest.approx(2 / 3, abs=0.05)


def test_the_prompt_depends_on_the_words_that_name_objects_and_say_what_is_asked(about):
    marks = dict(zip(texts(about.words, VOCABULARY), texts(about.words * about.truth, VOCABULARY), strict=True))
    common = {"what", "is", "the", "a", "how", "are", "thing", "things", "of", "in", "and"}
    for prompt, marked in marks.items():
        words = [word for word in re.findall(r"\w+", prompt) if word not in common]
        if prompt.startswith("is there"):
            assert marked.split() == ["there", *words[1:]]
        elif prompt.startswith("how many"):
            assert marked.split() == [word for word in words if word != "there"]
        else:
            assert marked.split() == words


def test_a_word_is_read_off_the_object_that_it_is_true_of(scenes, about):
    """Colours, shapes, sizes, rows and columns: whoever knows the object can write the word."""
    names = {"beside", "pair", "scene", "colour", "shape", "size", "row", "column"}
    single = [number for number, kind in enumerate(PROMPTS) if kind in names]
    for number in torch.isin(about.kind, torch.tensor(single)).nonzero()[:, 0].tolist():
        things = {part["thing"]: part for part in objects(scenes, number)}
        for word, sources in zip(about.replies[number].tolist(), about.read_off[number], strict=True):
            owners = [things[thing] for thing in sources.nonzero()[:, 0].tolist()]
            if len(owners) == 1:
                own = owners[0]
                place = {ROWS[own["row"]], COLUMNS[own["column"]]}
                assert VOCABULARY[word] in {own["colour"], own["shape"], own["size"]} | place
            elif owners:
                assert VOCABULARY[word] in ("left", "right", "above", "below")


def test_words_that_are_copied_or_always_the_same_are_read_off_nothing(about):
    prompts = texts(about.words, VOCABULARY)
    for number, prompt in enumerate(prompts):
        words, sources = about.replies[number].tolist(), about.read_off[number]
        read = [VOCABULARY[word] for word, source in zip(words, sources, strict=True) if source.any()]
        assert not {"the", "a", "is", "at", "in", "of", "row", "column", ".", ""} & set(read)
        if prompt.startswith(("what colour", "what shape", "what size", "what row", "what column")):
            assert len(read) == 1
            assert read[0] not in re.findall(r"\w+", prompt)
        if prompt.startswith("describe the") and prompt != "describe the scene.":
            assert len(read) == 3
            assert not set(read) & set(re.findall(r"\w+", prompt)) - {"left", "right"}
        if prompt == "describe the scene.":
            assert len(read) == 5 * int(about.things[number].sum())


def test_a_changed_object_changes_the_words_read_off_it_and_no_others():
    scenes = sample(400, "test", rng=4)
    before = dialogues(scenes, generator(), kinds=["scene"])
    thing = scenes.is_object.long().argmax(dim=1)
    other_size = (scenes.radius.gather(1, thing[:, None])[:, 0] + 2) % 4
    after = dialogues(edit_things(scenes, thing, radius=other_size), generator(), kinds=["scene"])
    is_changed = before.replies != after.replies
    own = before.read_off[torch.arange(400), :, thing]
    assert not (is_changed & ~own).any()
    assert is_changed.sum(dim=1).tolist() == [1] * 400


def test_without_what_is_counted_there_is_none(scenes):
    about = dialogues(scenes, generator(2), kinds=["count"])
    gone = clear_things(scenes, about.things)
    again = dialogues(gone, generator(2), kinds=["scene"])
    assert torch.equal(again.things, gone.is_object)
    assert torch.equal(scenes.is_object & ~about.things, gone.is_object)


def test_a_description_of_the_scene_is_that_of_mini_t5(scenes):
    about = dialogues(scenes, generator(), kinds=["scene"])
    assert texts(about.replies, VOCABULARY) == texts(descriptions(scenes).words)


def test_replies_are_as_wide_as_the_longest_of_the_kinds(scenes):
    assert dialogues(scenes[:9], generator(), kinds=["there", "count"]).replies.shape == (9, SHORT_REPLY)
    long = dialogues(scenes[:9], generator())
    assert long.replies.shape == (9, LONG_REPLY)
    assert long.read_off.shape == (9, LONG_REPLY, THINGS)


def test_one_seed_gives_the_same_dialogues_and_another_gives_others(scenes):
    first, again, other = (dialogues(scenes, generator(seed)) for seed in (3, 3, 4))
    assert torch.equal(first.words, again.words)
    assert torch.equal(first.replies, again.replies)
    assert not torch.equal(first.kind, other.kind)


def test_unknown_kinds_and_those_that_no_scene_has_are_refused(scenes):
    with pytest.raises(WhyformerError, match=r"^No kind of prompt named 'colours'\. Known: colour, shape,"):
        dialogues(scenes, generator(), kinds=["colours"])
    with pytest.raises(WhyformerError, match=r"colour: not applicable to every scene\. Add one of: count, there, sc"):
        dialogues(clear_things(scenes, scenes.is_object), generator(), kinds=["colour"])

"""Shapes World against a reader and a painter that take one scene at a time."""

from __future__ import annotations

import doctest
import inspect
import re

import numpy as np
import pytest
import torch

import whyformer.scenes
from whyformer import WhyformerError
from whyformer.data.generated import scenes as scenes_of_a_suite
from whyformer.scenes import (
    ANSWERS,
    COLOURS,
    FEATURES,
    KINDS,
    SHAPES,
    SIDE,
    SIZES,
    THINGS,
    Scenes,
    answerable,
    captions,
    clear_things,
    descriptions,
    drawing,
    edit_things,
    language,
    pictures,
    prompts,
    questions,
    questions_about,
    region_features,
    regions,
    sample,
    scene_examples,
    texts,
    world,
)
from whyformer.scenes.drawing import PAINTS, _background, _stencils
from whyformer.scenes.world import SPLITS, content

COUNT = 300


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def scenes() -> Scenes:
    return sample(COUNT, "test", rng=5)


def objects(scenes: Scenes, number: int) -> list[dict[str, object]]:
    """The objects of one scene in words."""
    return [
        {
            "thing": thing,
            "colour": COLOURS[scenes.colour[number, thing]],
            "shape": SHAPES[scenes.shape[number, thing]],
            "size": SIZES[scenes.size[number, thing]],
            "x": int(scenes.x[number, thing]),
            "y": int(scenes.y[number, thing]),
            "row": ("top", "middle", "bottom")[(int(scenes.y[number, thing]) - 2) // 20],
            "column": ("left", "centre", "right")[(int(scenes.x[number, thing]) - 2) // 20],
        }
        for thing in range(THINGS)
        if scenes.is_object[number, thing]
    ]


def named(things: list[dict[str, object]], words: str) -> dict[str, object]:
    """The one object that is called so."""
    matching = [
        part for part in things if all(word in (part["colour"], part["shape"], "thing") for word in words.split())
    ]
    assert len(matching) == 1, f"{words!r} names {len(matching)} objects"
    return matching[0]


def answer_of(question: str, things: list[dict[str, object]]) -> tuple[str, list[object]]:
    """The answer of a person who reads the question and looks at the objects, and the objects looked at."""
    if match := re.fullmatch(r"what (colour|shape|size|row|column) is the (.+?)( in)?\?", question):
        part = named(things, match[2])
        return str(part[match[1]]), [part["thing"]]
    match = re.fullmatch(r"is the (.+?) (left of|above) the (.+)\?", question)
    first, second = named(things, match[1]), named(things, match[3])
    axis = "x" if match[2] == "left of" else "y"
    return ("yes" if first[axis] < second[axis] else "no"), [first["thing"], second["thing"]]


def test_one_seed_gives_the_same_scenes_and_another_gives_others():
    first, again, other = sample(20, rng=3), sample(20, rng=3), sample(20, rng=4)
    assert torch.equal(pictures(first).pixels, pictures(again).pixels)
    assert not torch.equal(first.colour, other.colour)


def test_no_two_splits_share_a_scene():
    tenths = {}
    for split in SPLITS:
        many = sample(4000, split, rng=1)
        tenths[split] = set((content(many.shape, many.colour, many.radius, many.cell) % 10).tolist())
    assert tenths == {split: set(numbers) for split, numbers in SPLITS.items()}


def test_the_order_and_the_place_within_a_cell_make_no_other_scene(scenes):
    codes = content(scenes.shape, scenes.colour, scenes.radius, scenes.cell)
    order = torch.randperm(THINGS, generator=generator(0))
    moved = content(*(part[:, order] for part in (scenes.shape, scenes.colour, scenes.radius, scenes.cell)))
    assert torch.equal(codes, moved)
    changed = edit_things(scenes, scenes.is_object.long().argmax(dim=1), colour=torch.zeros(COUNT, dtype=torch.long))
    same = (changed.colour == scenes.colour).all(dim=1)
    assert torch.equal(content(changed.shape, changed.colour, changed.radius, changed.cell) == codes, same)


def test_objects_differ_in_colour_or_shape_and_are_three_to_six(scenes):
    counts = scenes.is_object.sum(dim=1)
    assert set(counts.tolist()) == {3, 4, 5, 6}
    for labels in scenes.label:
        real = labels[labels >= 0].tolist()
        assert len(real) == len(set(real))


def test_a_painter_of_one_scene_at_a_time_paints_the_same(scenes):
    together = pictures(scenes[:6])
    stencils, ground = _stencils(torch.device("cpu")).numpy(), _background(scenes[:6]).numpy()
    for number in range(6):
        canvas, owner = ground[number].copy(), np.full((SIDE, SIDE), -1)
        for thing in range(THINGS):
            shape, radius = int(scenes.shape[number, thing]), int(scenes.radius[number, thing])
            paint = np.array(PAINTS[scenes.colour[number, thing]]) + scenes.tint[number, thing].numpy()
            for (down, across), cover in np.ndenumerate(stencils[shape, radius]):
                y, x = int(scenes.y[number, thing]) + down - 10, int(scenes.x[number, thing]) + across - 10
                canvas[y, x] += cover * (paint - canvas[y, x])
                owner[y, x] = thing if cover > 0.5 else owner[y, x]
        expected = (canvas + scenes.grain[number].numpy()).clip(0, 255).astype(np.uint8)
        got = together.pixels[number].permute(1, 2, 0).numpy()
        assert np.abs(got.astype(int) - expected.astype(int)).max() <= 1  # rounding of the last bit
        assert np.array_equal(together.owner[number].numpy(), owner)


def test_boxes_are_drawn_tightly_around_what_is_seen(scenes):
    together = pictures(scenes)
    hidden = 0
    for number in range(40):
        for thing in range(THINGS):
            rows, columns = np.nonzero(together.owner[number].numpy() == thing)
            if len(rows):
                expected = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
                assert together.boxes[number, thing].tolist() == expected
            hidden += not len(rows)
    assert hidden <= 3


def test_objects_stay_in_sight_but_some_are_partly_hidden(scenes):
    alone = []
    for thing in range(THINGS):
        others = torch.arange(THINGS).expand(COUNT, -1) != thing
        alone.append((pictures(clear_things(scenes, others)).owner == thing).flatten(1).sum(dim=1))
    owner = pictures(scenes).owner
    seen = torch.stack([(owner == thing).flatten(1).sum(dim=1) for thing in range(THINGS)], dim=1)
    share = (seen / torch.stack(alone, dim=1)).masked_fill(~scenes.is_object, 1.0)
    assert share.min() > 0.5
    assert 0.1 < (share < 1).any(dim=1).float().mean() < 0.4


@pytest.mark.parametrize("seed", [0, 1])
def test_questions_are_answered_as_a_reader_would(scenes, seed):
    about = questions(scenes, generator(seed))
    for number, question in enumerate(texts(about.words)):
        answer, things = answer_of(question, objects(scenes, number))
        assert ANSWERS[about.answer[number]] == answer
        assert sorted(about.things[number].nonzero()[:, 0].tolist()) == sorted(things)


def test_the_truth_of_a_question_is_the_words_that_name_its_objects_and_what_is_asked_of_them(scenes):
    about = questions(scenes, generator(2))
    for question, marked in zip(texts(about.words), texts(about.words * about.truth), strict=True):
        asked_for = ("colour", "shape", "size", "row", "column", "left", "above")
        words = [word for word in question.rstrip("?").split() if word in COLOURS + SHAPES + asked_for]
        assert marked.split() == words
    assert set(about.kind.tolist()) == set(range(len(KINDS)))


def test_every_kind_is_asked_and_no_answer_is_likelier_than_another():
    """The best guess from the question alone is chance: within a kind all answers are as likely."""
    many = sample(20_000, "train", rng=7)
    about = questions(many, generator(7))
    for kind, chances in enumerate([8, 6, 2, 2, 2, 3, 3]):
        answers = about.answer[about.kind == kind]
        assert len(answers) > 2000
        share = answers.bincount(minlength=len(ANSWERS)) / len(answers)
        assert (share > 0).sum() == chances
        assert (share[share > 0] - 1 / chances).abs().max() < 4 * (1 / chances / len(answers)) ** 0.5
    assert len(KINDS) == 7


def test_a_named_objects_colour_does_not_depend_on_its_shape():
    many = sample(20_000, "train", rng=8)
    about = questions(many, generator(8))
    is_colour = about.kind == 0
    shape = many.shape.gather(1, about.about[:, :1])[:, 0][is_colour]
    for index in range(len(SHAPES)):
        share = about.answer[is_colour][shape == index].bincount(minlength=8)[:8].float()
        assert (share / share.sum() - 1 / 8).abs().max() < 0.05


def test_captions_are_true_and_name_their_objects(scenes):
    sentences = captions(scenes, generator(3))
    for number, caption in enumerate(texts(sentences.words)):
        match = re.fullmatch(r"a (.+?) (left of|right of|above|below) a (.+)", caption)
        first, second = (named(objects(scenes, number), words) for words in (match[1], match[3]))
        before = {"left of": ("x", 1), "right of": ("x", -1), "above": ("y", 1), "below": ("y", -1)}[match[2]]
        assert (second[before[0]] - first[before[0]]) * before[1] > 0
        assert sorted(sentences.things[number].nonzero()[:, 0].tolist()) == sorted([first["thing"], second["thing"]])
        assert texts((sentences.words * sentences.truth)[number : number + 1])[0] == f"{match[1]} {match[3]}"


def test_descriptions_name_every_object_with_its_place(scenes):
    for number, text in enumerate(texts(descriptions(scenes).words)):
        clauses = re.findall(r"a (\w+) (\w+) (\w+) at the (\w+) (\w+)\.", text)
        names = ("size", "colour", "shape", "row", "column")
        expected = {tuple(part[name] for name in names) for part in objects(scenes, number)}
        assert set(clauses) == expected
        assert len(clauses) == len(expected)


def test_a_description_marks_what_the_question_needs(scenes):
    about = questions(scenes, generator(4))
    sentences = descriptions(scenes, about)
    for number, marked in enumerate(texts(sentences.words * sentences.truth)):
        kind = list(KINDS)[about.kind[number]]
        parts = [part for part in objects(scenes, number) if about.things[number, part["thing"]]]
        needed = {"size": ("size",)}.get(kind, ())
        for part in parts:
            assert {part["colour"], part["shape"], *(part[name] for name in needed)} <= set(marked.split())
        extra = 2 if kind in ("colour", "shape") else 3
        assert len(marked.split()) == extra * len(parts)


def test_clearing_an_object_takes_away_its_pixels_and_no_others(scenes):
    about = questions(scenes, generator(5))
    before, after = pictures(scenes), pictures(clear_things(scenes, about.things))
    gone = before.mask(about.things)
    touched = (before.pixels != after.pixels).any(dim=1)
    wide = torch.nn.functional.max_pool2d(gone.float()[:, None], 7, stride=1, padding=3)[:, 0].bool()
    assert (touched & ~wide).sum() < 0.02 * touched.sum()  # the grey bar left in its place
    assert touched[gone].float().mean() > 0.97


def test_editing_a_colour_changes_that_object_alone(scenes):
    thing = scenes.is_object.long().argmax(dim=1)
    new = (scenes.colour.gather(1, thing[:, None])[:, 0] + 1) % len(COLOURS)
    before, after = pictures(scenes), pictures(edit_things(scenes, thing, colour=new))
    own = before.mask(torch.nn.functional.one_hot(thing, THINGS).bool())
    assert torch.equal(before.owner, after.owner)
    assert (before.pixels != after.pixels).any(dim=1)[own].float().mean() > 0.99
    around = torch.nn.functional.max_pool2d(own.float()[:, None], 5, stride=1, padding=2)[:, 0].bool()
    assert torch.equal(before.pixels.amax(dim=1)[~around], after.pixels.amax(dim=1)[~around])


def test_a_region_holds_its_pixels_and_its_place_and_nothing_else(scenes):
    seen = pictures(scenes)
    detected = regions(seen)
    assert detected.features.shape == (COUNT, THINGS, FEATURES)
    torch.testing.assert_close(detected.boxes * SIDE, seen.boxes)
    number, thing = 0, int(scenes.is_object[0].long().argmax())
    left, top, right, bottom = seen.boxes[number, thing].int().tolist()
    crop = seen.pixels[number, :, top:bottom, left:right].float()[None]
    expected = torch.nn.functional.interpolate(crop, size=(12, 12), mode="bilinear", align_corners=False)
    got = (detected.features[number, thing, :432].view(3, 12, 12) + 1) * 127.5
    inner = slice(1, -1)  # at the rim the region's neighbours are mixed in, the crop has none
    torch.testing.assert_close(got[:, inner, inner], expected[0, :, inner, inner], atol=0.02, rtol=0)
    spell = detected.features[..., 432:].unflatten(2, (4, 16))
    torch.testing.assert_close(spell.sum(dim=3), torch.ones(COUNT, THINGS, 4))
    middle = (spell[:, :, 0] * torch.arange(16)).sum(dim=2) / 15
    torch.testing.assert_close(middle, detected.boxes[..., ::2].mean(dim=2), atol=1e-5, rtol=0)


def test_a_question_can_be_put_again_about_an_edited_scene(scenes):
    about = questions(scenes, generator(6))
    is_colour = about.kind == 0
    part, thing = scenes[is_colour], about.about[is_colour, 0]
    new = (part.colour.gather(1, thing[:, None])[:, 0] + 3) % len(COLOURS)
    again = questions_about(edit_things(part, thing, colour=new), about.kind[is_colour], about.about[is_colour])
    assert torch.equal(again.answer, new)
    assert torch.equal(again.words, about.words[is_colour])


def test_only_questions_with_one_answer_are_answerable(scenes):
    possible = answerable(scenes)
    for number in range(50):
        shapes = [part["shape"] for part in objects(scenes, number)]
        for thing in range(THINGS):
            is_only = bool(scenes.is_object[number, thing]) and shapes.count(SHAPES[scenes.shape[number, thing]]) == 1
            assert bool(possible[number, 0, thing, thing]) == is_only


@pytest.mark.parametrize(
    ("count", "message"),
    [
        (0, "count is 0: give at least one scene."),
        (-3, "count is -3: give at least one scene."),
        (1e11, "count is 100000000000.0: give a whole number of scenes, such as 100."),
        ("5", "count is '5': give a whole number of scenes, such as 100."),
        (
            10**11,
            "count is 100,000,000,000: at most 100,000 scenes fit one call, about 50 kB each. "
            "Sample fewer, and others with another seed.",
        ),
    ],
)
@pytest.mark.parametrize("make", [sample, scenes_of_a_suite], ids=["sample", "suite"])
def test_a_count_that_is_no_number_of_scenes_is_refused_in_one_line(make, count, message):
    with pytest.raises(WhyformerError, match=f"^{re.escape(message)}$"):
        make(count)


def test_a_count_may_be_a_numpy_integer():
    assert torch.equal(sample(np.int64(3)).shape, sample(3).shape)


def test_a_split_that_does_not_exist_is_refused():
    with pytest.raises(WhyformerError, match=r"^No split named 'dev'\. Known: train, val, test\.$"):
        sample(3, "dev")


def test_what_no_edit_can_change_is_refused(scenes):
    with pytest.raises(WhyformerError, match=r"^A thing's 'size' cannot be edited\. Choose from: shape"):
        edit_things(scenes, torch.zeros(COUNT, dtype=torch.long), size=torch.zeros(COUNT, dtype=torch.long))


@pytest.mark.parametrize(
    "module", [whyformer.scenes, drawing, scene_examples, language, prompts, region_features, world]
)
def test_the_examples_of_the_docstrings_run(module):
    results = doctest.testmod(module)
    assert results.attempted > 0
    assert results.failed == 0


def test_every_public_function_says_what_it_takes_and_gives_with_an_example():
    functions = filter(inspect.isfunction, (getattr(whyformer.scenes, name) for name in whyformer.scenes.__all__))
    for function in functions:
        sections = ["Args:", "Returns:", "Example:"] + ["Raises:"] * ("raise " in inspect.getsource(function))
        assert [section for section in sections if section not in function.__doc__] == [], function.__name__

"""Readers, on tiny stand-ins laid out as the data sets are."""

from __future__ import annotations

import io
import json
import pickle
import tarfile

import h5py
import numpy as np
import pytest
from PIL import Image

from conftest import save_noise
from whyformer import WhyformerError
from whyformer.data import (
    coco_instances,
    coco_truth,
    eraser,
    imagenet_segmentation,
    newsgroups,
    oxford_pets,
    photos,
    vqa,
)
from whyformer.data.examples import BACKGROUND, OBJECT, UNLABELLED
from whyformer.data.text_datasets import bare

TRIMAP = np.array([[1, 2, 3], [2, 2, 1]], dtype=np.uint8)
TRUTH = np.array([[OBJECT, BACKGROUND, UNLABELLED], [BACKGROUND, BACKGROUND, OBJECT]], dtype=np.uint8)


def pixels(seed=0, height=2, width=3):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def png(array):
    file = io.BytesIO()
    Image.fromarray(array).save(file, "PNG")
    return file.getvalue()


@pytest.fixture
def segmentation_file(tmp_path):
    """gtsegs_ijcv.mat as MATLAB writes it: columns first, cells as references, masks as cells in cells."""
    path = tmp_path / "gtsegs_ijcv.mat"
    with h5py.File(path, "w") as file:
        images, masks = (file.create_dataset(f"value/{n}", (2, 1), dtype=h5py.ref_dtype) for n in ("img", "gt"))
        for number in range(2):
            image = file.create_dataset(f"#refs#/i{number}", data=pixels(number).transpose(2, 1, 0))
            values = (TRUTH == OBJECT).astype(np.uint8).T
            mask = file.create_dataset(f"#refs#/m{number}", data=values if number == 0 else values[:1])
            cell = file.create_dataset(f"#refs#/c{number}", (1, 1), dtype=h5py.ref_dtype)
            cell[0, 0] = mask.ref
            images[number, 0], masks[number, 0] = image.ref, cell.ref
    return path


def test_imagenet_segmentation_is_read_upright(segmentation_file):
    examples = imagenet_segmentation(segmentation_file)
    assert len(examples) == 2
    first = examples[0]
    assert np.array_equal(np.array(first.image), pixels(0))
    assert np.array_equal(first.mask, TRUTH == OBJECT)
    assert first.label is None
    with pytest.raises(WhyformerError, match=r"mask of 'gtsegs_ijcv\.mat 1' is 1×2, the picture \(3, 2\)"):
        examples[1]
    with pytest.raises(IndexError):
        examples[2]


def test_a_file_that_is_no_hdf5_is_said_so(tmp_path):
    (tmp_path / "gtsegs_ijcv.mat").write_bytes(b"nothing")
    with pytest.raises(WhyformerError, match=r"gtsegs_ijcv\.mat' is not a gtsegs_ijcv\.mat"):
        imagenet_segmentation(tmp_path / "gtsegs_ijcv.mat")


@pytest.fixture
def pets(tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "annotations" / "trimaps").mkdir(parents=True)
    for number, name in enumerate(("Siamese_30", "great_pyrenees_2", "pug_7")):
        Image.fromarray(pixels(number)).save(tmp_path / "images" / f"{name}.png")
        (tmp_path / "annotations" / "trimaps" / f"{name}.png").write_bytes(png(TRIMAP))
    (tmp_path / "annotations" / "trimaps" / "._pug_7.png").write_bytes(b"Mac")
    return tmp_path


def test_pets_come_with_their_breed_and_a_mask(pets):
    examples = oxford_pets(pets)
    assert [photo.label for photo in examples] == ["Siamese", "great_pyrenees", "pug"]
    assert np.array_equal(examples[1].mask, TRUTH)
    assert np.array_equal(np.array(examples[1].image), pixels(1))


def test_marks_of_a_suite_are_those_of_python(pets):
    for marks in ({2: 1, 1: 0, 3: 2}, {"2": 1, "1": 0, "3": 2}):
        assert np.array_equal(oxford_pets(pets, marks=marks)[1].mask, np.array([1, 0, 2], dtype=np.uint8)[TRUTH])
    for marks in ("all", {"cat": 1}, {"1": 7}):
        with pytest.raises(WhyformerError, match=r"marks=.*: a table, a mask's value = 0 \(background\)"):
            oxford_pets(pets, marks=marks)


@pytest.mark.parametrize(
    ("values", "marks", "said"),
    [
        ([[0, 255, 7], [0, 0, 255]], None, "the values 0, 7, 255; known are 0 and 1, 0 and 255, 1 to 3. Say"),
        ([[0, 1, 2], [0, 0, 1]], None, "the values 0, 1, 2; known are 0 and 1, 0 and 255, 1 to 3. Say"),
        ([[1, 2, 3], [1, 1, 1]], {"1": 1, "2": 0}, "the values 1, 2, 3; known are 1, 2. Say"),
        ([range(3), range(3, 6)], {"255": 1, "0": 0}, "the values 0, 1, 2, 3, 4, 5; known are 0, 255. Say"),
    ],
)
def test_a_mask_of_values_without_a_meaning_is_refused_with_the_way_out(pets, values, marks, said):
    path = pets / "annotations" / "trimaps" / "pug_7.png"
    path.write_bytes(png(np.array([list(row) for row in values], dtype=np.uint8)))
    examples = oxford_pets(pets) if marks is None else oxford_pets(pets, marks=marks)
    with pytest.raises(WhyformerError) as caught:
        examples[2]
    way_out = "what they mean, as in marks = {255 = 1, 0 = 0}: 0 is background, 1 object, 2 unknown."
    assert str(caught.value) == f"The mask {str(path)!r} has {said} {way_out}"


@pytest.mark.parametrize("white", [1, 255])
def test_masks_of_0_and_1_and_of_black_and_white_are_understood(pets, white):
    values = np.array([[0, white, 0], [0, 0, white]], dtype=np.uint8)
    (pets / "annotations" / "trimaps" / "pug_7.png").write_bytes(png(values))
    assert np.array_equal(oxford_pets(pets)[2].mask, values == white)
    assert np.array_equal(oxford_pets(pets, marks={str(white): 0, "0": 1})[2].mask, values == 0)


@pytest.mark.parametrize(("value", "missing"), [(2, "pixel of the object"), (3, "known pixel")])
def test_a_mask_without_an_object_is_refused(pets, value, missing):
    path = pets / "annotations" / "trimaps" / "pug_7.png"
    path.write_bytes(png(np.full((2, 3), value, dtype=np.uint8)))
    with pytest.raises(WhyformerError) as caught:
        oxford_pets(pets)[2]
    assert str(caught.value) == f"The mask {str(path)!r} has no {missing}: its values are {value}."


def test_a_file_is_no_folder_and_a_folder_no_file(pets):
    with pytest.raises(WhyformerError, match=r"pug_7\.png' is not a folder"):
        oxford_pets(pets / "images" / "pug_7.png")
    with pytest.raises(WhyformerError, match=r"images' is not a file"):
        imagenet_segmentation(pets / "images")


def test_a_damaged_file_is_named_and_the_others_are_still_read(pets):
    (pets / "images" / "pug_7.png").write_bytes(b"\x89PNG broken")
    (pets / "annotations" / "trimaps" / "Siamese_30.png").write_bytes(b"")
    examples = oxford_pets(pets)
    with pytest.raises(WhyformerError, match=r"images/pug_7\.png"):
        examples[2]
    with pytest.raises(WhyformerError, match=r"trimaps/Siamese_30\.png"):
        examples[0]
    assert examples[1].name == "great_pyrenees_2"


def test_examples_can_be_sent_to_another_process(pets):
    assert pickle.loads(pickle.dumps(oxford_pets(pets)))[0].name == "Siamese_30"


@pytest.fixture
def pack(tmp_path):
    contents = {
        "cat/a.jpg": png(pixels(0)),
        "cat/a.mask.png": png(TRUTH),
        "tench/b.jpg": png(pixels(1)),
        "dog/c.jpg": b"no picture",
    }
    with tarfile.open(tmp_path / "val-0.tar", "w") as tar:
        for name, content in contents.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    rows = [
        "shard,image,mask,label,fine_label,split",
        "val-0.tar,cat/a.jpg,cat/a.mask.png,cat,Siamese,val",
        "train-0.tar,cat/z.jpg,,cat,Siamese,train",
        "val-0.tar,tench/b.jpg,,tench,n01440764,val",
        "val-0.tar,dog/c.jpg,,dog,n02102040,val",
        "../other.tar,dog/d.jpg,,dog,n02102040,val",
    ]
    (tmp_path / "index.csv").write_text("\n".join(rows) + "\n")
    return tmp_path


def test_the_photos_pack_is_read_from_its_archives(pack):
    examples = photos(pack)
    assert examples.names == ("cat/a.jpg", "tench/b.jpg", "dog/c.jpg", "dog/d.jpg")
    assert np.array_equal(examples[0].mask, TRUTH)
    assert (examples[1].label, examples[1].mask) == ("tench", None)
    assert np.array_equal(np.array(examples[1].image), pixels(1))
    assert photos(pack, only_masked=True).names == ("cat/a.jpg",)


def test_what_is_wrong_in_the_pack_is_named(pack):
    examples = photos(pack)
    with pytest.raises(WhyformerError, match=r"val-0\.tar: dog/c\.jpg': The file is not an image that can be read"):
        examples[2]
    with pytest.raises(WhyformerError, match=r"'\.\./other\.tar' is not a file inside"):
        examples[3]
    with pytest.raises(WhyformerError, match=r"'cat/z\.jpg' of .*train-0\.tar' cannot be read"):
        photos(pack, "train")[0]
    with pytest.raises(WhyformerError, match=r"no such photos of split 'test'\. Its splits: train, val"):
        photos(pack, "test")


@pytest.fixture
def movies(tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "neg_1.txt").write_text("a joyless film .\nthe end is dull .")
    (tmp_path / "docs" / "pos_1.txt").write_text("short")

    def row(name, *spans, docid=None):
        evidence = [{"docid": docid or name, "start_token": start, "end_token": end} for start, end in spans]
        return json.dumps({"annotation_id": name, "classification": "NEG", "evidences": [[one] for one in evidence]})

    lines = [
        row("neg_1.txt", (1, 3), (7, 8)),
        row("pos_1.txt"),
        '{"annotation_id": "neg',
        row("neg_1.txt", (8, 20)),
        row("x", (0, 1), docid="../../secret"),
        json.dumps({"annotation_id": "neg_1.txt"}),
        row("gone.txt"),
        row("neg_1.txt", ("one", "two")),
    ]
    (tmp_path / "test.jsonl").write_text("\n".join(lines))
    return tmp_path


def test_eraser_marks_words_of_the_document(movies):
    examples = eraser(movies)
    review = examples[0]
    assert review.text == "a joyless film . the end is dull ."
    marked = [word for word, is_marked in zip(review.text.split(), review.rationale, strict=True) if is_marked]
    assert marked == ["joyless", "film", "dull"]
    assert review.label == "NEG"
    assert not examples[1].rationale.any()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (3, "is not valid JSON"),
        (4, "marks words 8 to 20 of 'neg_1.txt', which has 9"),
        (5, "'../../secret' is not a file inside"),
        (6, "has no classification and no evidences"),
        (7, r"gone.txt' cannot be read"),
        (8, "'test.jsonl line 8' does not have the expected structure"),
    ],
)
def test_a_bad_annotation_is_named(movies, line, message):
    with pytest.raises(WhyformerError) as caught:
        eraser(movies)[line - 1]
    assert message in str(caught.value)


POST = """From: someone@somewhere
Subject: engines

Bob wrote:
> an old remark
My engine stalls.

It is a diesel.

--
Someone, Somewhere
"""


def test_posts_are_read_bare_or_whole(tmp_path):
    folder = tmp_path / "20news-bydate-test" / "rec.autos"
    folder.mkdir(parents=True)
    (folder / "101").write_bytes(POST.encode() + b"caf\xe9\n")
    (whole,) = newsgroups(tmp_path, post="whole")
    assert (whole.name, whole.label) == ("rec.autos/101", "rec.autos")
    assert whole.text.endswith("café\n")
    (post,) = newsgroups(tmp_path)
    assert post.text.split("\n") == ["My engine stalls.", "", "It is a diesel.", ""]
    assert bare("Subject: x\n\nonly this") == "only this"
    with pytest.raises(WhyformerError, match="20news-bydate-train"):
        newsgroups(tmp_path, "train")


@pytest.fixture
def coco(tmp_path):
    save_noise(tmp_path / "one.png")
    truth = {
        "images": [
            {"id": 7, "file_name": "one.png"},
            {"id": 3, "file_name": "../one.png"},
            {"id": 5, "file_name": "none.png"},
        ],
        "annotations": [{"id": 1, "image_id": 7, "category_id": 2, "bbox": [0, 0, 4, 4]}],
        "categories": [{"id": 2, "name": "cat"}],
    }
    (tmp_path / "instances.json").write_text(json.dumps(truth))
    return tmp_path


def test_coco_gives_each_picture_its_annotations(coco):
    examples = coco_instances(coco / "instances.json", coco)
    assert examples.names == ("../one.png", "none.png", "one.png")
    scene = examples[2]
    assert (scene.image_id, scene.annotations[0]["category_id"], scene.image.size) == (7, 2, (60, 40))
    with pytest.raises(WhyformerError, match=r"'\.\./one\.png' is not a file inside"):
        examples[0]
    with pytest.raises(WhyformerError, match=r"none\.png"):
        examples[1]


def test_an_instances_file_that_is_none_is_said_so(coco):
    path = coco / "instances.json"
    path.write_text('{"images": [{"id": 1}], "annotations": [], "categories": []}')
    with pytest.raises(WhyformerError, match=r"Entry 0 of .*instances\.json' has no file_name"):
        coco_truth(path)
    path.write_text('{"images": 1, "annotations": [], "categories": []}')
    with pytest.raises(WhyformerError, match=r"images of the file .*instances\.json' is not a list"):
        coco_truth(path)
    path.write_text("[")
    with pytest.raises(WhyformerError, match=r"instances\.json' is not valid JSON"):
        coco_truth(path)


def test_vqa_joins_questions_with_their_answers(tmp_path):
    questions = [
        {"question_id": 1, "image_id": 9, "question": "what colour?"},
        {"question_id": 2, "image_id": 9, "question": "how many?"},
    ]
    answers = [{"question_id": 1, "answers": [{"answer": "red"}, {"answer": "blue"}]}]
    (tmp_path / "q.json").write_text(json.dumps({"questions": questions}))
    (tmp_path / "a.json").write_text(json.dumps({"annotations": answers}))
    save_noise(tmp_path / "COCO_val2014_000000000009.jpg")
    examples = vqa(tmp_path / "q.json", tmp_path / "a.json")
    assert (examples[0].question, examples[0].answers, examples[0].image) == ("what colour?", ("red", "blue"), None)
    assert vqa(tmp_path / "q.json", tmp_path / "a.json", tmp_path)[0].image.size == (60, 40)
    with pytest.raises(WhyformerError, match=r"a\.json' has no answers to question 2"):
        examples[1]
    with pytest.raises(WhyformerError, match="No file"):
        vqa(tmp_path / "q.json", tmp_path / "none.json")

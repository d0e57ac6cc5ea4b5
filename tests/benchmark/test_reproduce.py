"""The papers' suites, on tiny data of the same layout and tiny models of the same kind; and their published numbers."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
import transformers

import convert
from conftest import MOODS, image_processor, labelled, save_noise, saved, tokenizer
from tiny_models import IMAGE, TEXT, TOWER, built
from whyformer import WhyformerError, attribute, load
from whyformer.benchmark import read_suite, run_suite
from whyformer.benchmark.tables import read_records
from whyformer.data import imagenet, vqa
from whyformer.data.generated import scenes
from whyformer.methods.registry import trace_methods

ROOT = Path(__file__).parents[2]
SUITES = sorted((ROOT / "benchmarks" / "suites" / "papers").glob("*.toml"))

DEPTH = 12
SMALL = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32, "num_hidden_layers": DEPTH}
FILES = (("OpenEnded_mscoco", "questions"), ("mscoco", "annotations"))
GROUPS = {0: "alt.atheism", 1: "sci.space", 2: "rec.autos", 3: "misc.forsale"}
WORDS = "the film was great and not bad a bad film".split()


def named_classes(folder):
    for kind in ("n01440764", "n01443537"):
        (folder / kind).mkdir(parents=True)
        for number in range(2):
            save_noise(folder / kind / f"ILSVRC2012_val_0000000{number}.JPEG", seed=number, width=40, height=36)


def segmented(path):
    with h5py.File(path, "w") as file:
        images, masks = (file.create_dataset(f"value/{n}", (2, 1), dtype=h5py.ref_dtype) for n in ("img", "gt"))
        for number in range(2):
            rng = np.random.default_rng(number)
            image = file.create_dataset(f"#refs#/i{number}", data=rng.integers(0, 256, (3, 40, 36), dtype=np.uint8))
            mask = file.create_dataset(f"#refs#/m{number}", data=rng.integers(0, 2, (40, 36), dtype=np.uint8))
            cell = file.create_dataset(f"#refs#/c{number}", (1, 1), dtype=h5py.ref_dtype)
            cell[0, 0] = mask.ref
            images[number, 0], masks[number, 0] = image.ref, cell.ref


def reviews(folder):
    (folder / "docs").mkdir(parents=True)
    for number, split in enumerate(("train", "val", "test")):
        name = f"{split}.txt"
        (folder / "docs" / name).write_text(" ".join(WORDS[number:]))
        evidence = [[{"docid": name, "start_token": 1, "end_token": 4}]]
        row = {"annotation_id": name, "classification": ("POS", "NEG")[number % 2], "evidences": evidence}
        (folder / f"{split}.jsonl").write_text(json.dumps(row))


def posts(folder):
    for number, group in GROUPS.items():
        (folder / "20news-bydate-test" / group).mkdir(parents=True)
        (folder / "20news-bydate-test" / group / "1").write_text(f"Subject: bad\n\n{' '.join(WORDS[number:])}")


def things_and_questions(coco, asked):
    """Drawn scenes as COCO and VQA lay theirs out."""
    (coco / "annotations").mkdir(parents=True)
    (coco / "val2017").mkdir()
    for name in ("regions", "visualbert-regions"):
        (asked / name).mkdir(parents=True)
    images, annotations, questions, answers = [], [], [], []
    for number, scene in enumerate(scenes(2)):
        name = f"{number:012d}.png"
        scene.image.save(coco / "val2017" / name)
        images.append({"id": number, "file_name": name})
        for left, top, right, bottom in scene.regions.boxes.tolist():
            outline = [left, top, right, top, right, bottom, left, bottom]
            about = {"id": len(annotations) + 1, "image_id": number, "category_id": 1, "segmentation": [outline]}
            annotations.append(about | {"bbox": [left, top, right - left, bottom - top], "iscrowd": 0})
        for folder in ("regions", "visualbert-regions"):
            scene.regions.save(asked / folder / f"COCO_val2014_{number:012d}.npz")
        questions.append({"question_id": number, "image_id": number, "question": scene.question.text})
        answers.append({"question_id": number, "answers": [{"answer": scene.answer}] * 10})
    instances = {"images": images, "annotations": annotations, "categories": [{"id": 1}]}
    (coco / "annotations" / "instances_val2017.json").write_text(json.dumps(instances))
    (asked / "v2_OpenEnded_mscoco_val2014_questions.json").write_text(json.dumps({"questions": questions}))
    (asked / "v2_mscoco_val2014_annotations.json").write_text(json.dumps({"annotations": answers}))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Everything that the suites name, under the names they use."""
    folder = tmp_path_factory.mktemp("papers")
    named_classes(folder / "imagenet" / "val")
    segmented(folder / "gtsegs_ijcv.mat")
    reviews(folder / "movies")
    posts(folder / "20news")
    things_and_questions(folder / "coco", folder / "vqa")
    (folder / "prompts.json").write_text(json.dumps({"0": "a photo of a crane", "1": "a photo of a crane"}))
    return folder


def twelve_blocks(kind):
    """A tiny ViT of a converted checkpoint's class."""
    layout = convert.LAYOUTS[kind]
    settings = IMAGE | SMALL | layout.settings
    names = (f"{layout.architecture}ForImageClassification", f"{layout.architecture}Config")
    return built(*names, **settings)


def reader_of_texts(names):
    return built("BertForSequenceClassification", "BertConfig", **TEXT | SMALL, **labelled(names))


def dual():
    text = TOWER | SMALL | dict(load("mini-clip").model.config.text_config.to_dict(), **SMALL)
    image = TOWER | SMALL | {"image_size": 32, "patch_size": 8}
    return built("CLIPModel", "CLIPConfig", text_config=text, vision_config=image, projection_dim=16)


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory):
    """A tiny model, or a bundled one, for each that the suites name."""
    folder = tmp_path_factory.mktemp("models")
    clip = load("mini-clip").processor
    clip.image_processor = transformers.CLIPImageProcessorPil(
        size={"height": 32, "width": 32}, crop_size={"height": 32, "width": 32}
    )
    moods = MOODS | {0: "positive", 1: "negative"}
    made = {
        "google/vit-base-patch16-224": (twelve_blocks("moco"), image_processor()),
        "google/vit-large-patch16-224": (twelve_blocks("moco"), image_processor()),
        "vit-mae": (twelve_blocks("mae"), image_processor()),
        "vit-dino": (twelve_blocks("dino"), image_processor()),
        "bert-movies": (reader_of_texts(moods), tokenizer()),
        "bert-news": (reader_of_texts(GROUPS), tokenizer()),
        "clip": (dual(), clip),
    }
    found = {name: str(saved(folder / name.replace("/", "-"), *parts)) for name, parts in made.items()}
    return found | {"detr": "mini-detr", "lxmert-vqa": "mini-lxmert", "visualbert-vqa": "mini-visualbert"}


@pytest.mark.parametrize("path", SUITES, ids=lambda path: path.stem)
def test_a_suite_of_the_papers_runs_on_data_of_the_same_layout(path, data, stand_ins, tmp_path):
    suite = read_suite(path)
    small = replace(suite, model=stand_ins[suite.model], samples=1)
    run_suite(small, tmp_path / "out", data=data, quiet=True)
    assert [sample["error"] for sample in read_records(tmp_path / "out", "samples")] == [None]
    rows = read_records(tmp_path / "out", "rows")
    assert {row["text"] for row in rows if row["measure"] == "left out"} == set()
    for protocol in suite.protocols:
        methods = {row["method"] for row in rows if row["protocol"] == protocol.label}
        asked = {choice.label for choice in suite.methods}
        assert methods >= asked if protocol.name != "approximation" else {"token", "rollout"} <= methods


def test_published_rows_are_rows_of_their_suites():
    published = tomllib.loads((ROOT / "benchmarks" / "published.toml").read_text())
    suites = {path.stem: read_suite(path) for path in SUITES}
    assert {one["suite"] for one in published["table"] + published["figure"]} == set(suites)
    for one in published["table"]:
        known = {choice.label for choice in suites[one["suite"]].methods}
        for row in one["rows"]:
            assert row["method"] in known, f"{one['suite']} has no {row['method']}"
            assert len(row["values"]) == len(one["figures"])


def test_every_method_of_a_table_is_there_as_its_paper_prints_it_too():
    """Under its bare name; raw attention and GradCAM have no options."""
    for suite in map(read_suite, SUITES):
        labels = {choice.label for choice in suite.methods}
        varied = {choice.name for choice in suite.methods if choice.options}
        if not suite.data.name.startswith(("coco", "vqa")):
            assert varied <= labels
        assert varied <= set(trace_methods())


def test_two_labels_with_one_text_are_told_apart(data, stand_ins, tmp_path):
    suite = read_suite(next(path for path in SUITES if path.stem == "bi-clip"))
    suite = replace(suite, model=stand_ins["clip"], methods=suite.methods[-1:])
    run_suite(suite, tmp_path / "out", data=data, quiet=True)
    rows = read_records(tmp_path / "out", "rows")
    measured = [row for row in rows if row["measure"] == "accuracy positive" and row["method"] == "random"]
    assert [row["values"][0] for row in measured if row["protocol"].endswith("fill=mean domain=0-1")] == [1, 1, 0, 0]


def test_pictures_are_drawn_by_class_or_named_by_a_list(data, tmp_path):
    folder = data / "imagenet" / "val"
    everything = imagenet(folder)
    assert [photo.label for photo in everything] == ["0", "0", "1", "1"]
    assert everything.names[0] == "n01440764/ILSVRC2012_val_00000000.JPEG"
    drawn = imagenet(folder, per_class=1, seed=3)
    assert [photo.label for photo in drawn] == ["0", "1"]
    assert imagenet(folder, per_class=1, seed=3).names == drawn.names
    with pytest.raises(WhyformerError, match="per_class=0: a whole number, 1 or more"):
        imagenet(folder, per_class=0)
    with pytest.raises(WhyformerError, match="seed=-1: a whole number, 0 or more"):
        imagenet(folder, per_class=1, seed=-1)
    np.save(tmp_path / "list.npy", np.array([3, 0]))
    (tmp_path / "list.txt").write_text("3\n0\n")
    for name in ("list.npy", "list.txt"):
        assert [photo.label for photo in imagenet(folder, indices=tmp_path / name)] == ["1", "0"]
    np.save(tmp_path / "far.npy", np.array([4]))
    with pytest.raises(WhyformerError, match=r"names picture 4: there are 4, from 0 on"):
        imagenet(folder, indices=tmp_path / "far.npy")
    np.save(tmp_path / "shares.npy", np.array([0.5]))
    with pytest.raises(WhyformerError, match=r"is not a list of whole numbers"):
        imagenet(folder, indices=tmp_path / "shares.npy")


def test_questions_come_with_the_regions_of_their_picture(data, tmp_path):
    files = [data / "vqa" / f"v2_{name}_val2014_{kind}.json" for name, kind in FILES]
    asked = vqa(*files, regions=data / "vqa" / "regions")
    assert asked[1].regions.features.shape[1] == load("mini-lxmert").model.config.visual_feat_dim
    with pytest.raises(WhyformerError, match="No folder"):
        vqa(*files, regions=tmp_path / "none")
    suite = read_suite(next(path for path in SUITES if path.stem == "ga-lxmert"))
    bare = replace(suite.data, options={key: value for key, value in suite.data.options.items() if key != "regions"})
    suite = replace(suite, model="mini-lxmert", data=bare, samples=1)
    with pytest.raises(WhyformerError, match=r"No sample can be used: Question .*: name the folder"):
        run_suite(suite, tmp_path / "out", data=data, quiet=True)


def test_labels_in_a_file_are_checked(data, tmp_path):
    suite = read_suite(next(path for path in SUITES if path.stem == "bi-clip"))
    (tmp_path / "list.json").write_text('["a photo of a crane"]')
    (tmp_path / "imagenet").symlink_to(data / "imagenet")
    for name, message in (("none.json", "No file"), ("list.json", "labels must be a table")):
        with pytest.raises(WhyformerError, match=message):
            run_suite(replace(suite, labels=name), tmp_path / "out", data=tmp_path, quiet=True)


def test_one_block_alone_is_followed():
    """(C + I) of one block: TA's scores are C's row of the class token."""
    model = twelve_blocks("moco")
    pixels = torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    inputs = {"pixel_values": pixels}
    last = attribute(model, inputs, 0, "transformer_attribution", first_block=DEPTH - 1)
    same = attribute(model, inputs, 0, "transformer_attribution", first_block=DEPTH - 1, last_block=DEPTH - 1)
    other = attribute(model, inputs, 0, "transformer_attribution", first_block=1, last_block=1)
    torch.testing.assert_close(same["image"], last["image"])
    assert not torch.allclose(other["image"], last["image"])
    with pytest.raises(WhyformerError, match=r"last_block=0: use one of the blocks 1 to 11"):
        attribute(model, inputs, 0, "transformer_attribution", first_block=1, last_block=0)

"""The bundled models: they load as stock classes, know what they should, and hold in half precision."""

from __future__ import annotations

import importlib
import json
import re

import numpy as np
import pytest
import torch
import transformers
from PIL import Image, ImageOps
from typer.testing import CliRunner

from pairs import pairs
from whyformer import attribute, explain, explain_batch, load
from whyformer.cli import app
from whyformer.cli.demo import demo_examples
from whyformer.methods.registry import trace_methods
from whyformer.models.zoo import ZOO, bundled

CAT = ZOO / "cat.jpg"
FACE_OVER_ROOM = {"mini-vit": 1.5, "mini-vit-mae": 1.2}  # only mini-vit's attention was supervised


@pytest.fixture(scope="module", params=["mini-vit", "mini-vit-mae"])
def classifier(request):
    """A model of photographs."""
    return load(request.param, device="cpu")


def views_of_the_cat() -> list[Image.Image]:
    """The cat whole, mirrored, darkened and in four crops."""
    cat = Image.open(CAT)
    boxes = [(0, 0, 300, 300), (60, 0, 360, 300), (100, 0, 400, 300), (0, 30, 400, 300)]
    return [cat, ImageOps.mirror(cat), cat.point(lambda value: value * 0.6), *(cat.crop(box) for box in boxes)]


def spearman(first: torch.Tensor, second: torch.Tensor) -> float:
    return float(np.corrcoef(*(x.argsort().argsort().numpy() for x in (first, second)))[0, 1])


@pytest.mark.parametrize("name", bundled())
def test_a_bundled_model_is_a_stock_folder_of_safetensors_with_a_card(name):
    folder = ZOO / name
    config = json.loads((folder / "config.json").read_text())
    assert hasattr(transformers, config["architectures"][0])
    assert (folder / "README.md").read_text().startswith(f"# {name}\n")
    assert {file.suffix for file in folder.iterdir()} <= {".json", ".safetensors", ".md", ".txt", ".jinja"}
    assert sum(file.stat().st_size for file in folder.iterdir()) < 16e6


@pytest.mark.parametrize(
    ("name", "stock", "parameters"),
    [
        ("mini-vit", transformers.ViTForImageClassification, 6_000_000),
        ("mini-vit-mae", transformers.BeitForImageClassification, 3_100_000),
    ],
)
def test_a_classifier_loads_with_transformers_alone(name, stock, parameters):
    model = transformers.AutoModelForImageClassification.from_pretrained(ZOO / name, dtype=torch.float32)
    assert type(model) is stock
    assert model.num_parameters() <= parameters


def test_a_classifier_knows_a_cat_when_it_sees_one(classifier):
    explanations = explain_batch(views_of_the_cat(), classifier, method="raw_attention")
    assert [explanation.target for explanation in explanations] == ["cat"] * 7
    assert np.mean([explanation.probability for explanation in explanations]) > 0.8


# Relevance and the gradient of single pixels are too ill-conditioned: rounded weights are another model to them.
ROBUST = sorted(
    name for name, method in trace_methods().items() if not method.reads.has_relevance and method.reads.inputs == "none"
)


@pytest.mark.parametrize(
    ("method", "name"),
    pairs(sorted(set(ROBUST) - {"random"}), ["mini-vit", "mini-vit-mae"], with_all={"generic_attention"}, every=2),
)
def test_half_precision_ranks_patches_as_float32_does(method, name):
    classifier, half = (load(name, device="cpu", dtype=dtype) for dtype in (torch.float32, torch.bfloat16))
    pixels = classifier.processor(images=views_of_the_cat(), return_tensors="pt")["pixel_values"]
    exact = attribute(classifier.model, {"pixel_values": pixels}, "cat", method)["image"][:, 1:]
    rounded = attribute(half.model, {"pixel_values": pixels.bfloat16()}, "cat", method)["image"][:, 1:]
    assert rounded.dtype == torch.float32
    assert np.mean([spearman(a, b) for a, b in zip(exact, rounded, strict=True)]) >= 0.95


@pytest.mark.parametrize("method", ["generic_attention", "bi_head", "bi_token", "raw_attention"])
def test_the_cats_face_outscores_the_room_behind_it(classifier, method):
    grid = explain(CAT, classifier, "cat", method).scores.reshape(16, 16)
    face, room = grid[3:14, 2:13], grid[:10, 14:]
    assert face.mean() > FACE_OVER_ROOM[classifier.name] * room.mean()


def test_two_labels_of_one_picture_are_explained_differently(classifier):
    cat, church = (explain(CAT, classifier, label, "generic_attention").scores for label in ("cat", "church"))
    assert spearman(torch.tensor(cat), torch.tensor(church)) < 0.9


def test_every_example_of_the_demo_is_explained():
    for one in demo_examples():
        explanation = explain(one.content, one.model, one.target)
        assert explanation.answer
        assert all(part.scores.any() for part in explanation.parts.values()), one.model


def test_the_demo_shows_every_method(tmp_path, monkeypatch):
    few = list(demo_examples())[:2]  # a picture and a review
    monkeypatch.setattr(importlib.import_module("whyformer.cli.demo"), "demo_examples", lambda: iter(few))
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "demo")])
    assert result.exit_code == 0
    words = (tmp_path / "demo" / "words.html").read_text()
    assert [f">{word}" in words or f"{word} (" in words for word in ("star", "is", "cyan")] == [True] * 3
    page = (tmp_path / "demo" / "index.html").read_text()
    *lines, last = result.stdout.splitlines()  # no terminal: a line for each example
    assert len(lines) == len(few)
    assert re.match(r"1 of 2: cat 9\d %: evidence on \d+ % of the picture", lines[0])
    assert last == f"Written to {tmp_path / 'demo' / 'index.html'}: open it in a browser."
    names = set(re.findall(r"<figcaption>(.*?)</figcaption>", page.replace("<wbr>", "")))
    assert names | {"evidence"} >= set(trace_methods()) - {"tam"}
    assert "evidence" not in names  # the default, which is shown above them
    for one in few:
        assert "data-what-if=" in (tmp_path / "demo" / one.page).read_text()
        assert f'href="{one.page}"' in page
    assert "http://" not in page
    assert "https://" not in page

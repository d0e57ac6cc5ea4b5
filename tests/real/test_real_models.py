"""Real pre-trained models explained, where `make real` has fetched them."""

import json
from ctypes.util import find_library

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from pictures import PICTURES
from PIL import Image
from real_pictures import REAL
from safetensors.torch import load_file

import whyformer
from real_models import MODELS, model_folder
from real_packages import DIGESTS
from whyformer.facts import prose
from whyformer.render import canvas

LANGUAGE = ("smollm2-135m-instruct", "qwen2.5-coder-1.5b-instruct")
ENCODERS = ("all-minilm-l6-v2", "gte-small", "all-mpnet-base-v2")
PAIR = ("The ferry to the island leaves at noon.", "At twelve o'clock the boat departs for the isle.")


@pytest.fixture(scope="module")
def real():
    """The folder of a real model; the test is skipped where it was not fetched."""

    def folder(name):
        place = model_folder(name)
        if not place.is_dir():
            pytest.skip(f"{name} is not in {place}: make real fetches it")
        return place

    return folder


def test_every_package_of_a_model_has_a_known_digest():
    known = json.loads(DIGESTS.read_text())
    titles = {package.title for model in MODELS.values() for package in model.packages}
    assert set(known) == titles
    assert all(len(one["sha256"]) == 64 for one in known.values())


@pytest.mark.parametrize("method", ["flow_routes", "state_x_gradient"])
def test_smollm2_says_which_sentence_its_answer_came_from(real, method):
    passage = prose(1005, sentences=8, hops=1, kind="plain", domain="company")
    response = whyformer.explain_response(
        [{"role": "user", "content": passage.prompt}],
        passage.question.answer,
        real("smollm2-135m-instruct"),
        method,
        units=[passage.question.value],
        sources=[(one.start, one.end) for one in passage.sentences],
        **({"backward": "attn_lrp"} if method == "state_x_gradient" else {}),
    )
    ((true,),) = passage.question.causes
    assert int(response.scores[0].argmax()) == true


@pytest.mark.parametrize("name", ENCODERS)
def test_an_encoder_finds_a_paraphrase_more_alike_than_another_sentence(real, name):
    model = whyformer.load(real(name), device="cpu")
    alike, other = (whyformer.explain(pair, model) for pair in (PAIR, (PAIR[0], "The bakery sells rye bread.")))
    first, second = (float(one.target.removeprefix("similarity ")) for one in (alike, other))
    assert first > second + 0.1
    assert "Embeddings are pooled by mean, as stated in its 1_Pooling/config.json." in alike.notes


def test_dinov2_has_weights_that_were_trained(real):
    weights = load_file(real("dinov2-small") / "model.safetensors")
    positions = next(value for name, value in weights.items() if name.endswith("position_embeddings"))[0, 1:]
    side = round(len(positions) ** 0.5)
    grid = positions[: side * side].view(side, side, -1)
    near = F.cosine_similarity(grid[:, 1:], grid[:, :-1], dim=-1).mean()
    assert float(near) > float(F.cosine_similarity(grid, torch.roll(grid, side // 2, 1), dim=-1).mean())


@pytest.mark.parametrize("name", REAL)
def test_a_committed_picture_shows_what_the_real_model_says_now(real, name):
    if name == "real-sound" and not find_library("espeak-ng"):
        pytest.skip("espeak-ng is not installed")
    picture, _ = REAL[name].draw(real(REAL[name].model))
    drawn = np.asarray(canvas.on_sheet(picture, margin=16).convert("RGB")).astype(int)
    kept = np.asarray(Image.open(PICTURES / f"{name}.png").convert("RGB")).astype(int)
    assert drawn.shape == kept.shape
    assert np.abs(drawn - kept).max(axis=2).mean() < 2  # of 255: 256 colours are kept of each picture

"""Single deletion, against the formula written out, and the recipe of a model to which deletions are no surprise."""

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.stats import spearmanr

from mini_vit_deletion import random_holes, random_shares, with_holes
from whyformer import WhyformerError, evaluate, load
from whyformer.api.attribute import attribute
from whyformer.benchmark.protocols.deletion import cells

RNG = np.random.default_rng(0)
PICTURES = [Image.fromarray(RNG.integers(0, 255, (40, 40, 3), dtype=np.uint8)) for _ in range(2)]


def test_each_pixel_is_in_one_cell_and_cells_are_alike_in_every_example():
    removal = cells(3, (7, 9), 2, torch.device("cpu"))
    assert removal.shape == (9, 2, 7, 9)
    assert (removal.sum(dim=0) == 1).all()
    assert (removal[:, 0] == removal[:, 1]).all()
    assert removal[0, 0].nonzero().tolist() == [[y, x] for y in range(3) for x in range(3)]


def test_the_correlation_is_that_of_sums_and_falls_cell_by_cell():
    protocol = {"name": "single_deletion", "side": 2}
    table = evaluate("mini-vit-mae", PICTURES, "rollout", protocol).samples_to_pandas()
    values = table[table["method"] == "rollout"]["values"].to_list()
    loaded = load("mini-vit-mae")
    black = -torch.tensor(loaded.image_processor.image_mean) / torch.tensor(loaded.image_processor.image_std)
    for value, picture in zip(values, PICTURES, strict=True):
        pixels = loaded.image_processor(images=[picture], return_tensors="pt")["pixel_values"]
        with torch.no_grad():
            logits = loaded.model(pixel_values=pixels).logits[0]
            label, falls, sums = int(logits.argmax()), [], []
            scores = attribute(loaded.model, {"pixel_values": pixels}, label, "rollout")["image"][0, 1:].view(
                1, 1, 16, 16
            )
            wide = torch.nn.functional.interpolate(scores, (128, 128), mode="bilinear")[0, 0]
            for y in (0, 64):
                for x in (0, 64):
                    gone = pixels.clone()
                    gone[0, :, y : y + 64, x : x + 64] = black[:, None, None]
                    falls.append(float(logits[label] - loaded.model(pixel_values=gone).logits[0, label]))
                    sums.append(float(wide[y : y + 64, x : x + 64].sum()))
        assert value[0] == pytest.approx(spearmanr(sums, falls).statistic, abs=1e-6)


def test_a_picture_has_two_cells_a_side_at_least():
    with pytest.raises(WhyformerError, match="side=1: cells a side, a whole number, 2 or more"):
        evaluate("mini-vit-mae", PICTURES, "rollout", {"name": "single_deletion", "side": 1})


def test_holes_take_the_share_that_is_wanted_and_are_black():
    rng = torch.Generator().manual_seed(0)
    shares = random_shares(8, rng)
    assert shares[:2].tolist() == [0, 0]
    holes = random_holes(8, shares, rng)
    assert torch.allclose(holes.float().mean(dim=(1, 2)), shares, atol=1e-3)
    inputs = torch.rand(8, 3, 128, 128, generator=rng)
    pictures = with_holes(inputs, holes)
    assert (pictures[0] == inputs[0]).all()
    restored = (
        pictures * torch.tensor([0.229, 0.224, 0.225])[:, None, None]
        + torch.tensor([0.485, 0.456, 0.406])[:, None, None]
    )
    assert restored.permute(0, 2, 3, 1)[holes].abs().max() < 1e-6

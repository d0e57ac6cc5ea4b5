"""Grids of four pictures: what is where, and how much of a map is on the class that is explained."""

import numpy as np
import pytest
import torch
from PIL import Image

from whyformer import WhyformerError, explain, load
from whyformer.benchmark import evaluate
from whyformer.data import image_grids
from whyformer.metrics.sanity import mass_on_object

COLOURS = {"cat": "red", "dog": "blue", "church": "green", "tench": "white", "parachute": "black"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("grids")
    for name, colour in COLOURS.items():
        (place / name).mkdir()
        for number in range(2):
            Image.new("RGB", (16, 12), colour).save(place / name / f"{number}.png")
    return place


def test_a_grid_has_four_classes_and_its_mask_is_the_cell_of_its_label(folder):
    for grid in image_grids(folder, count=8, seed=3):
        pixels = np.asarray(grid.image)
        assert pixels.shape == (24, 32, 3)
        cells = [pixels[y : y + 12, x : x + 16].reshape(-1, 3) for y in (0, 12) for x in (0, 16)]
        assert all((cell == cell[0]).all() for cell in cells)
        assert len({tuple(cell[0]) for cell in cells}) == 4
        own = Image.new("RGB", (1, 1), COLOURS[grid.label]).getpixel((0, 0))
        assert ((pixels == own).all(axis=2) == (grid.mask == 1)).all()
        assert set(np.unique(grid.mask)) == {0, 1}


def test_grids_are_drawn_by_the_seed_and_have_names_of_their_own(folder):
    one, same, other = (image_grids(folder, count=8, seed=seed) for seed in (0, 0, 1))
    assert one.names == same.names != other.names
    assert len(set(one.names)) == 8
    assert (np.asarray(one[5].image) == np.asarray(same[5].image)).all()


@pytest.mark.parametrize(
    ("classes", "count", "message"),
    [(3, 1, "A grid has pictures of 4 classes; here are 3"), (5, 0, "count=0: a whole")],
)
def test_what_makes_no_grid_is_refused(tmp_path, classes, count, message):
    for name in list(COLOURS)[:classes]:
        (tmp_path / name).mkdir()
        Image.new("RGB", (4, 4)).save(tmp_path / name / "1.png")
    with pytest.raises(WhyformerError, match=message):
        image_grids(tmp_path, count=count)


def test_the_share_on_the_class_is_that_of_the_positive_scores_in_its_cell(folder):
    result = evaluate("mini-vit", ("image_grids", {"folder": str(folder), "count": 3}), "rollout", "grid_pointing")
    table = result.samples_to_pandas()
    shares = table[(table["measure"] == "share") & (table["method"] == "rollout")]
    loaded = load("mini-vit")
    for (_, row), grid in zip(shares.iterrows(), image_grids(folder, count=3), strict=True):
        scores = explain(grid.image, model=loaded, method="rollout", target=grid.label).scores
        scores = torch.as_tensor(scores).reshape(1, 16, 16)
        mask = torch.from_numpy(grid.mask)[None].long()
        cell = torch.nn.functional.interpolate(mask[:, None].float(), (16, 16), mode="nearest-exact")[:, 0].long()
        assert row["values"][0] == pytest.approx(float(mass_on_object(scores, cell)), abs=1e-4)

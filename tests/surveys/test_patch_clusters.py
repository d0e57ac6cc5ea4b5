import numpy as np
import pytest
from PIL import Image

from whyformer import load, survey
from whyformer.surveys.patch_clusters import PatchClusters, _grouped, likely_background, patch_states


def test_a_patch_belongs_to_the_nearest_centre_that_is_near_enough():
    clusters = PatchClusters(np.eye(3)[:2], np.array([0.9, 0.5]), ((), ()))
    states = np.array([[[1.0, 0.0, 0.0], [0.6, 0.8, 0.0]], [[0.8, 0.6, 0.0], [0.0, 0.3, 0.95]]])
    assert clusters.of(states).tolist() == [[0, 1], [-1, -1]]


def test_what_is_like_the_border_is_likely_background():
    states = np.zeros((6, 6, 2))
    states[..., 0] = 1.0
    states[2:4, 1:4] = (0.0, 1.0)
    assert (likely_background(states) == (states[..., 0] == 1)).all()


def test_a_stamp_in_a_corner_is_likely_background_beside_an_object_in_the_middle():
    is_object, is_stamp = np.zeros((2, 8, 8), dtype=bool)
    is_object[3:6, 2:5] = is_stamp[:2, :2] = True
    both = np.where((is_object | is_stamp)[..., None], (0.0, 1.0), (1.0, 0.0))
    assert (likely_background(both) == ~is_object).all()
    alone = np.where(is_stamp[..., None], (0.0, 1.0), (1.0, 0.0))
    assert (likely_background(alone) == ~is_stamp).all()


def test_dense_patches_make_clusters_and_the_others_none():
    random = np.random.default_rng(0)
    centres = np.eye(8)[:3]
    dense = np.concatenate([centre + 0.02 * random.standard_normal((30, 8)) for centre in centres])
    points = np.concatenate([dense, random.standard_normal((30, 8))])
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    members = _grouped(points, 0)
    assert sorted(np.bincount(members[:90] + 1, minlength=4)[1:].tolist(), reverse=True)[:3] == [30, 30, 30]
    assert all(len(set(members[start : start + 30].tolist())) == 1 for start in (0, 30, 60))
    assert (members[90:] == -1).mean() > 0.5


def test_patches_without_dense_regions_are_grouped_by_means():
    points = np.random.default_rng(0).standard_normal((12, 3))  # too few for two clusters of eight
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    members = _grouped(points, 0)
    assert members.min() >= 0
    assert 2 <= members.max() + 1 <= 10


@pytest.fixture(scope="module")
def model():
    return load("mini-vit", device="cpu")


def test_the_states_of_patches_are_of_unit_length_and_follow_the_picture(model):
    picture = Image.effect_noise((128, 128), 90).convert("RGB")
    states = patch_states(model, picture)
    np.testing.assert_allclose(np.linalg.norm(states, axis=-1), 1, atol=1e-5)
    assert states.shape[:2] == (16, 16)


def test_pictures_without_masks_have_clusters_and_a_likely_object(vit):
    random = np.random.default_rng(0)
    pictures = []
    for _ in range(32):
        pixels = random.integers(0, 60, (32, 32, 3), dtype=np.uint8)
        pixels[8:24, 8:24, 0] = 230
        pictures.append(Image.fromarray(pixels))
    result = survey(load(vit, device="cpu"), pictures, method="raw_attention")
    assert result.object_share.by == "likely background"
    assert result.object_share.samples == 32
    assert 2 <= len(result.montages) <= 10
    assert set(result.montages) >= {driver.cue.name for driver in result.tested if driver.cue.kind == "cluster"}
    assert all(montage and uri.startswith("data:image/jpeg") for montage in result.montages.values() for uri in montage)
    kinds = {driver.cue.kind for driver in result.tested}
    assert {"region", "mask"} <= kinds

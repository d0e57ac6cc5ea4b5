"""The committed pictures from real models say what they were made from."""

import json
from pathlib import Path

import pytest
from PIL import Image
from real_pictures import KEY, REAL, made_from

from real_models import MODELS

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"


def told(name):
    """What a picture says of itself."""
    with Image.open(PICTURES / f"{name}.png") as picture:
        return json.loads(picture.text[KEY])


@pytest.mark.parametrize("name", REAL)
def test_a_picture_from_a_real_model_carries_what_it_was_made_from(name):
    about = told(name)
    expected = made_from(REAL[name].model, {})
    assert {key: about[key] for key in expected} == expected
    assert expected["licence"] == MODELS[REAL[name].model].licence
    assert about["method"]


def test_the_strip_of_real_models_carries_what_its_parts_were_made_from():
    assert told("real-strip") == {name: told(name) for name in REAL}

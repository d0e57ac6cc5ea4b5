"""What other versions of transformers do otherwise: both branches of the one module that knows."""

import re
from types import SimpleNamespace

import pytest
import transformers

from whyformer.models import compat


@pytest.fixture
def four(monkeypatch):
    monkeypatch.setattr(compat, "IS_FOUR", True)


LLAVA = SimpleNamespace(
    _checkpoint_conversion_mapping={
        "^language_model.model": "model.language_model",
        "^vision_tower": "model.vision_tower",
    }
)


@pytest.mark.parametrize("name", ["vision_tower.layers.0", "vision_tower.vision_model.layers.0"])
def test_an_image_tower_has_its_level_in_four_however_the_file_calls_it(four, name):
    for pattern, replacement in compat.weight_names(LLAVA)["key_mapping"].items():
        name, count = re.subn(pattern, replacement, name)
        if count:
            break
    assert name == "model.vision_tower.vision_model.layers.0"


def test_other_models_and_five_are_told_nothing(four, monkeypatch):
    assert compat.weight_names(transformers.BertForSequenceClassification) == {}
    monkeypatch.setattr(compat, "IS_FOUR", False)
    assert compat.weight_names(LLAVA) == {}


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ([], None),
        (["b", "a"], ("a", "has another shape in the file than in the model")),
        ({("a", (2, 3), (4, 3))}, ("a", "is [2, 3] in the file and [4, 3] in the model")),
    ],
)
def test_a_weight_that_does_not_fit_is_named(keys, expected):
    assert compat.misfit({"mismatched_keys": keys}) == expected


def test_the_processor_that_needs_no_torchvision_is_found_in_both(monkeypatch):
    classes = SimpleNamespace(TinyImageProcessor="four", TinyImageProcessorPil="five")
    monkeypatch.setattr(compat, "transformers", classes)
    for is_four, expected in ((True, "four"), (False, "five")):
        monkeypatch.setattr(compat, "IS_FOUR", is_four)
        assert compat.pil_processor("Tiny") == expected


def test_a_part_that_four_only_warns_about_is_none(four):
    class Processor:
        attributes = ("image_processor", "tokenizer")

        @property
        def feature_extractor(self):
            raise AssertionError("asked for")

    assert not compat.has_part(Processor(), "feature_extractor")
    assert compat.has_part(Processor(), "tokenizer")
    assert compat.has_part(SimpleNamespace(feature_extractor=1), "feature_extractor")


def test_what_a_processor_tells_that_of_its_pictures_is_found_wherever_it_says_so():
    cut = {"crop_to_patches": True}
    early = SimpleNamespace(valid_processor_kwargs=SimpleNamespace(_defaults={"images_kwargs": cut}))
    late = type("Late", (), {"images_kwargs": cut})()
    assert compat.picture_settings(early) == compat.picture_settings(late) == cut
    assert compat.picture_settings(None) == {}


def test_special_tokens_that_four_does_not_count_are_counted(monkeypatch):
    added = {7: SimpleNamespace(special=True), 8: SimpleNamespace(special=False)}
    tokenizer = SimpleNamespace(all_special_ids=[0, 1], added_tokens_decoder=added)
    for is_four, expected in ((True, {0, 1, 7}), (False, {0, 1})):
        monkeypatch.setattr(compat, "IS_FOUR", is_four)
        assert compat.special_ids(tokenizer) == expected

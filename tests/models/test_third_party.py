"""timm's models by name, with a small ViT in the place of timm: the library itself is never required."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import whyformer
from whyformer import WhyformerError, attribute
from whyformer.inputs.collate import model_inputs
from whyformer.inputs.encode import covered_box, encode


class TinyBlock(nn.Module):
    """Attention as timm's ViT writes it."""

    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.proj = nn.LayerNorm(16), nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).reshape(*x.shape[:2], 3, 2, 8).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        return x + self.proj(mixed.transpose(1, 2).flatten(2))


class TinyViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.pretrained_cfg = {"label_names": ["cat", "dog", "owl"]}
        self.patch_embed = nn.Conv2d(3, 16, kernel_size=8, stride=8)
        self.cls_token = nn.Parameter(torch.randn(1, 1, 16))
        self.blocks, self.head = nn.Sequential(TinyBlock(), TinyBlock()), nn.Linear(16, 3)

    def forward(self, x):
        patches = self.patch_embed(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.cls_token.expand(len(x), -1, -1), patches], dim=1)
        return self.head(self.blocks(tokens)[:, 0])


@pytest.fixture
def timm(monkeypatch):
    """A stand-in for the library, with one architecture and no checkpoint."""
    module, asked = ModuleType("timm"), []

    def create_model(name, pretrained):
        asked.append((name, pretrained))
        if pretrained:
            raise OSError("no line to the hub\nand more")
        torch.manual_seed(0)
        return TinyViT()

    colours = {"mean": (0.5, 0.4, 0.3), "std": (0.2, 0.2, 0.2)}
    settings = {"input_size": (3, 32, 32), "crop_pct": 0.8, "interpolation": "bicubic", **colours}
    module.create_model, module.asked = create_model, asked
    module.is_model, module.list_models = lambda name: name == "vit_tiny", lambda: ["vit_tiny"]
    module.data = SimpleNamespace(
        resolve_model_data_config=lambda model: settings, infer_imagenet_subset=lambda _: None
    )
    monkeypatch.setitem(sys.modules, "timm", module)
    return module


def test_a_model_of_timm_is_loaded_with_its_labels_and_its_crop(timm):
    loaded_model = whyformer.load("timm:vit_tiny?random", device="cpu")
    assert timm.asked == [("vit_tiny", False)]
    assert loaded_model.model.config.id2label == {0: "cat", 1: "dog", 2: "owl"}
    # The shortest side becomes 40, of which the middle 32 are seen: 8 tenths.
    assert covered_box(loaded_model.image_processor, (100, 50)) == pytest.approx((30.0, 5.0, 70.0, 45.0))
    assert loaded_model.task.answer == "label"


@pytest.mark.parametrize("method", ["rollout", "bi_token", "generic_attention", "grad_cam", "input_x_gradient", "lrp"])
def test_it_is_explained_like_any_other(timm, photo, method):
    loaded_model = whyformer.load("timm:vit_tiny?random", device="cpu")
    explanation = whyformer.explain(photo, loaded_model, "dog", method)
    inputs = model_inputs(loaded_model, encode(loaded_model, [photo]))
    raw = attribute(loaded_model.model.model, {"x": inputs["pixel_values"]}, lambda output: output[:, 1], method)
    (scores,) = raw.values()
    expected = scores[0, -explanation.scores.size :].numpy()
    assert np.abs(explanation.scores - expected).max() <= 1e-5 * np.abs(expected).max()
    assert explanation.target == "dog"


def test_what_timm_cannot_give_is_said(timm, monkeypatch):
    with pytest.raises(WhyformerError, match=r"timm has no model 'vit_tinny'. Did you mean 'vit_tiny'\?"):
        whyformer.load("timm:vit_tinny")
    reason = r"timm cannot load 'vit_tiny' \(no line to the hub\): timm:vit_tiny\?random has random weights"
    with pytest.raises(WhyformerError, match=reason):
        whyformer.load("timm:vit_tiny")
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(WhyformerError, match=r"This needs timm: in the checkout, pip install -e '.\[timm\]'"):
        whyformer.load("timm:vit_tiny")

"""What the recipes share: schedules, the loop that ends on time, model folders; and every recipe can be imported."""

from __future__ import annotations

import argparse
import importlib
import json
from itertools import count
from pathlib import Path

import pytest
import torch
import transformers
from torch import nn

import training_loop
from backbones import clip_backbones, dinov2_backbone, vit_backbone
from checkpoints import load_model, save_model
from optimization import Trainer, WeightAverage, average_decay, learning_rate, new_optimizer

TRAINING = Path(__file__).parents[2] / "training"
TINY = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
TINY_VIT = {**TINY, "image_size": 16, "patch_size": 8}


def test_every_module_can_be_imported():
    for path in sorted(TRAINING.glob("*.py")):
        importlib.import_module(path.stem)


def test_the_readme_has_the_command_of_every_recipe():
    text = (TRAINING / "README.md").read_text()
    names = [path.stem for path in TRAINING.glob("mini_*.py")]
    assert [name for name in names if f"`python training/{name}.py " not in text] == []


@pytest.mark.parametrize(
    ("progress", "expected"),
    [(0.0, 0.02), (0.02, 1.0), (0.04, 2.0), (0.52, 1.0), (1.0, 0.002)],
    ids=["start", "half of the warm-up", "peak", "half of the cosine", "end"],
)
def test_the_learning_rate_warms_up_and_then_follows_half_a_cosine(progress, expected):
    assert learning_rate(progress, 2.0) == pytest.approx(expected, rel=1e-9)


def test_only_matrices_are_decayed():
    model = transformers.ViTForImageClassification(transformers.ViTConfig(**TINY_VIT))
    decayed, undecayed = new_optimizer(model, 1e-3).param_groups
    assert (decayed["weight_decay"], undecayed["weight_decay"]) == (0.05, 0.0)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    assert all(names[id(parameter)].endswith("weight") and parameter.ndim > 1 for parameter in decayed["params"])
    assert {"vit.embeddings.cls_token", "vit.embeddings.position_embeddings", "classifier.bias"} <= {
        names[id(parameter)] for parameter in undecayed["params"]
    }
    assert len(decayed["params"]) + len(undecayed["params"]) == len(names)


def test_the_average_follows_the_weights_closely_at_first_and_slowly_later():
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, 0.0)
    average = WeightAverage(model)
    nn.init.constant_(model.weight, 1.0)
    average.update()
    assert not average.model.weight.requires_grad  # or a graph would grow with every update
    assert float(average.model.weight) == pytest.approx(1 - 2 / 11)
    assert average_decay(1_000_000, 0.999) == 0.999


def test_a_step_clips_the_gradient_and_uses_the_scheduled_rate():
    module = nn.Linear(2, 1)
    trainer = Trainer(module, rate=0.1, decay=0.0)
    before = module.weight.detach().clone()
    trainer.step(1e6 * module(torch.ones(1, 2)).sum(), progress=0.04)
    assert torch.allclose(module.weight, before - 0.1, atol=1e-6)  # Adam's first step has the size of the rate
    assert module.weight.grad is None


def test_the_loop_ends_on_time_and_validates_with_every_third_report(tmp_path, monkeypatch):
    ticks = count()
    monkeypatch.setattr(training_loop.time, "perf_counter", lambda: float(next(ticks)))
    progress = []

    def step(share: float) -> dict[str, torch.Tensor]:
        progress.append(share)
        return {"loss": torch.tensor(0.5)}

    steps = training_loop.train_for(
        step,
        seconds=20.0,
        options=argparse.Namespace(out=tmp_path, report_every=1.5),
        validate=lambda: {"accuracy": 75.0},
    )
    assert steps == len(progress)
    assert progress == sorted(progress)
    assert 0 < progress[0] < progress[-1] < 1
    records = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [record["loss"] for record in records] == [0.5] * len(records)
    assert [number for number, record in enumerate(records, start=1) if "accuracy" in record] == [3, 6]


def test_a_saved_model_is_half_precision_on_disk_and_loads_as_float32(tmp_path):
    model = transformers.ViTForImageClassification(transformers.ViTConfig(**TINY_VIT)).eval()
    save_model(model, tmp_path / "model")
    precision = torch.get_float32_matmul_precision()
    try:
        loaded = load_model(transformers.ViTForImageClassification, argparse.Namespace(out=tmp_path, device="cpu"))
    finally:
        torch.set_float32_matmul_precision(precision)
    assert not loaded.training
    for ours, theirs in zip(model.parameters(), loaded.parameters(), strict=True):
        assert torch.equal(ours.half().float(), theirs)


def test_a_backbone_computes_what_the_stock_model_does():
    torch.manual_seed(0)
    model = transformers.ViTForImageClassification(transformers.ViTConfig(**TINY_VIT, attn_implementation="eager"))
    pixels = torch.randn(2, 3, 16, 16)
    expected = model.eval()(pixels, output_hidden_states=True, output_attentions=True)
    output = vit_backbone(model)(pixels, cls_attention_of=(2,))
    assert torch.allclose(output.tokens[0], expected.hidden_states[1], atol=1e-5)
    assert torch.allclose(model.classifier(output.tokens[-1][:, 0]), expected.logits, atol=1e-5)
    assert list(output.cls_attention) == [2]
    assert torch.allclose(output.cls_attention[2], expected.attentions[1][:, :, 0], atol=1e-6)


def test_the_backbones_of_dinov2_and_clip_compute_what_the_stock_models_do():
    torch.manual_seed(0)
    sizes = {**TINY_VIT, "intermediate_size": 16}
    dinov2 = transformers.Dinov2Model(transformers.Dinov2Config(**{**sizes, "patch_size": 4})).eval()
    pixels = torch.randn(2, 3, 16, 16)
    assert torch.allclose(dinov2_backbone(dinov2)(pixels).tokens[-1], dinov2(pixels).last_hidden_state, atol=1e-5)
    text = {**TINY, "vocab_size": 30, "max_position_embeddings": 8, "eos_token_id": 29, "pad_token_id": 0}
    config = transformers.CLIPConfig(text_config=text, vision_config=TINY_VIT, projection_dim=8)
    clip = transformers.CLIPModel(config).eval()
    vision, language = clip_backbones(clip)
    ids = torch.tensor([[1, 2, 3, 29]])
    pooled = clip.vision_model(pixels).pooler_output
    assert torch.allclose(vision(pixels).tokens[-1][:, 0], pooled, atol=1e-5)
    assert torch.allclose(language(ids).tokens[-1], clip.text_model(ids).last_hidden_state, atol=1e-5)

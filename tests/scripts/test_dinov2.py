"""The benchmark's real model: converted from ONNX without a difference, its head fitted in closed form."""

from __future__ import annotations

import pytest
import torch
from PIL import Image
from sklearn.linear_model import Ridge
from transformers import Dinov2Config, Dinov2Model

import dinov2
from convert_teacher import IN_MEMORY, published_weights
from whyformer.models.loading import load

TINY = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 28, "patch_size": 14}
ANIMALS = ("cat", "dog", "tench")


@pytest.fixture
def backbone():
    torch.manual_seed(0)
    return Dinov2Model(Dinov2Config(**TINY, layer_norm_eps=1e-6)).eval()


@pytest.fixture
def published(backbone):
    """Its weights under the names of published files."""
    weights = {}
    for name, value in backbone.state_dict().items():
        for old, new in IN_MEMORY.items():
            name = name.replace(new, old)
        weights[name] = value
    return weights


@pytest.fixture
def head():
    return dinov2.Head(ANIMALS, torch.randn(3, 16), torch.randn(3))


def test_the_classifier_reads_cls_and_the_mean_of_the_patches(backbone, published, head):
    model = dinov2.classifier(published, head, TINY)
    pixels = torch.randn(2, 3, 28, 28)
    with torch.no_grad():
        tokens = backbone(pixels).last_hidden_state
        read = torch.cat([tokens[:, 0], tokens[:, 1:].mean(dim=1)], dim=1)
        torch.testing.assert_close(model(pixels).logits, read @ head.weight.T + head.bias)
    assert model.config.id2label == dict(enumerate(ANIMALS))


def test_weights_come_out_of_onnx_as_they_went_in(published, monkeypatch):
    import onnx

    helper, array = onnx.helper, onnx.numpy_helper.from_array
    positions = published["embeddings.position_embeddings"]
    constants, nodes = {"class": positions[:, :1], "patches": positions[:, 1:]}, []
    for name, value in published.items():
        if name.startswith("encoder.") and name.endswith(".weight") and value.dim() == 2:
            path = name.removesuffix(".weight").replace(".", "/")
            constants[f"onnx::{path}"] = value.T
            nodes.append(helper.make_node("MatMul", ["x", f"onnx::{path}"], ["y"], f"/backbone/{path}/MatMul"))
        elif name not in ("embeddings.position_embeddings", "embeddings.mask_token"):
            constants[f"backbone.{name}"] = value
    nodes.append(helper.make_node("Concat", ["class"], ["y"], "/backbone/embeddings/Concat_6", axis=1))
    nodes.append(helper.make_node("Reshape", ["patches"], ["y"], "/backbone/embeddings/Reshape_1"))
    initializers = [array(value.contiguous().numpy(), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "tiny", [], [], initializers)
    found = published_weights(helper.make_model(graph).SerializeToString(), hidden_size=8)
    expected = published | {"embeddings.mask_token": torch.zeros(1, 8)}
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value)


def test_the_head_is_ridge_regression_and_survives_its_file(tmp_path, monkeypatch):
    torch.manual_seed(0)
    labels = torch.arange(60) % 3
    rows = torch.randn(60, 16) + 2 * torch.nn.functional.one_hot(labels, 16)
    head, chosen = dinov2.fitted(rows, labels, ANIMALS)
    size = rows.square().mean().sqrt()
    plain = torch.nn.functional.pad(rows / size, (0, 1), value=1.0).double()
    answers = 2 * torch.nn.functional.one_hot(labels, 3).double() - 1
    ridge = Ridge(alpha=chosen["penalty"], fit_intercept=False).fit(plain, answers)
    logits = rows @ head.weight.T + head.bias
    expected = chosen["scale"] * torch.from_numpy(ridge.predict(plain)).float()
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-4)
    left_out = torch.cat(
        [
            torch.from_numpy(
                Ridge(alpha=chosen["penalty"], fit_intercept=False)
                .fit(plain[torch.arange(60) != n], answers[torch.arange(60) != n])
                .predict(plain[n : n + 1])
            )
            for n in range(60)
        ]
    )
    loss = torch.nn.functional.cross_entropy(chosen["scale"] * left_out, labels).item()
    assert loss == pytest.approx(chosen["left_out_cross_entropy"], abs=1e-4)
    dinov2.write_head(head, tmp_path / "head.safetensors")
    again = dinov2.read_head(tmp_path / "head.safetensors")
    assert again.labels == ANIMALS
    assert torch.equal(again.weight, head.weight)


def test_balanced_accuracy_counts_every_class_alike():
    labels = torch.tensor([0, 0, 0, 1])
    assert dinov2.balanced_accuracy(torch.tensor([[1.0, 0.0]] * 4), labels) == 0.5


def test_the_folder_has_pictures_of_the_side_that_was_chosen(published, head, tmp_path):
    dinov2.write_folder(dinov2.classifier(published, head, TINY), tmp_path, side=42)
    processor = load(tmp_path).image_processor
    pixels = processor(Image.new("RGB", (128, 128)), return_tensors="pt")["pixel_values"]
    assert pixels.shape == (1, 3, 42, 42)

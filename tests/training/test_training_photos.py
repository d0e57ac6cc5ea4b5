"""What the recipes on photos share: augmentation, distillation, accuracies and segmentation, by hand."""

from __future__ import annotations

import csv
import io
import tarfile

import pytest
import torch
import transformers
from PIL import Image
from torch.nn import functional as F

from augmentation import GRID, MEAN, STD, Augmentation, augment, no_augmentation, random_augmentation
from distillation_targets import Teacher, fit_scales, log_prior
from mini_vit import attention_divergence, feature_loss
from mini_vit_mae import normalised_patches, select_patches
from photo_classification import accuracies, classification_losses, distillation_loss
from photos import Photos, load_photos
from segmentation_evaluation import Overlap, foreground


def photos_with(labels: list[int], names: tuple[str, ...] = ("cat", "dog")) -> Photos:
    images = torch.zeros(len(labels), 3, 8, 8, dtype=torch.uint8)
    return Photos(images, torch.tensor(labels), names, torch.empty(0, 8, 8), torch.empty(0))


def test_without_augmentation_pixels_are_only_normalised():
    images = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8)
    mean, std = (torch.tensor(stat)[:, None, None] for stat in (MEAN, STD))
    pixels = augment(images, no_augmentation(2, torch.device("cpu")), size=32)
    assert torch.allclose(pixels, (images / 255 - mean) / std, atol=1e-5)


def test_a_blended_view_shows_its_partner_in_the_other_patches():
    images = torch.stack([torch.full((3, 32, 32), value, dtype=torch.uint8) for value in (0, 255)])
    blend = torch.ones(2, GRID, GRID)
    blend[:, :, GRID // 2 :] = 0
    augmentation = Augmentation(None, torch.ones(2, 3), blend)
    assert augmentation.share.tolist() == [0.5, 0.5]
    pixels = augment(images, augmentation, size=32)
    alone = augment(images, no_augmentation(2, torch.device("cpu")), size=32)
    assert torch.allclose(pixels[0, :, :, :16], alone[0, :, :, :16])
    assert torch.allclose(pixels[0, :, :, 16:], alone[1, :, :, 16:])


def test_the_last_share_of_a_random_augmentation_is_blended():
    augmentation = random_augmentation(8, torch.Generator().manual_seed(0), mixed=0.5)
    assert (augmentation.share[:4] == 1).all()
    assert (augmentation.share[4:] < 1).all()
    assert set(augmentation.blend[6:].unique().tolist()) == {0.0, 1.0}  # boxes of whole patches


def test_the_distillation_loss_is_the_divergence_of_softened_predictions():
    ours, theirs = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
    target, guess = (theirs / 2).softmax(dim=1), (ours / 2).softmax(dim=1)
    expected = 4 * (target * (target / guess).log()).sum(dim=1).mean()
    assert float(distillation_loss(ours, theirs)) == pytest.approx(float(expected), rel=1e-5)
    cross_entropy, distilled = classification_losses(ours, theirs, target, torch.zeros(4))
    assert float(distilled) == pytest.approx(float(expected), rel=1e-5)
    assert float(cross_entropy) == pytest.approx(float(F.cross_entropy(ours, target, label_smoothing=0.1)))


def test_balanced_accuracy_weighs_labels_equally():
    scores = accuracies(torch.tensor([0, 0, 0, 0]), photos_with([0, 0, 0, 1]))
    assert scores == {"balanced_accuracy": 50.0, "accuracy": 75.0}


def test_the_prior_is_the_share_of_each_label_among_sampled_views():
    prior = log_prior(photos_with([0, 0, 1]), torch.tensor([1.0, 1.0, 2.0]))
    assert prior.exp().tolist() == pytest.approx([0.5, 0.5])


def test_the_attention_divergence_is_zero_for_equal_attention_and_ignores_cls():
    target = torch.tensor([[0.25, 0.75]])
    assert attention_divergence(target, 0.5 * target[None]).tolist() == pytest.approx([0.0], abs=1e-6)
    expected = 0.25 * torch.tensor(0.25 / 0.5).log() + 0.75 * torch.tensor(0.75 / 0.5).log()
    both = attention_divergence(target, torch.stack([target, torch.tensor([[0.1, 0.1]])]))
    assert both.tolist() == pytest.approx([float(expected)], abs=1e-6)


def test_the_feature_loss_weighs_cls_as_half_of_the_patches():
    error = feature_loss(torch.tensor([[[2.0], [1.0], [3.0]]]), torch.zeros(1, 3, 1))
    assert float(error) == pytest.approx((1 + 9) / 2 + 0.5 * 4)


def test_hidden_patches_are_predicted_by_their_normalised_pixels():
    patches = normalised_patches(torch.randn(2, 3, 128, 128, generator=torch.Generator().manual_seed(0)))
    assert patches.shape == (2, 256, 192)
    assert torch.allclose(patches.mean(dim=2), torch.zeros(2, 256), atol=1e-5)
    assert torch.allclose(patches.var(dim=2), torch.ones(2, 256), atol=1e-4)
    order = torch.tensor([[3, 1], [0, 2]])
    assert torch.equal(select_patches(patches, order)[1, 1], patches[1, 2])


def test_the_teacher_gives_standardised_features_and_a_distribution_over_the_patches():
    torch.manual_seed(0)
    config = transformers.Dinov2Config(
        hidden_size=12, num_hidden_layers=12, num_attention_heads=2, image_size=28, patch_size=14
    )
    teacher = Teacher(transformers.Dinov2Model(config), 3)
    views = torch.randn(8, 3, 28, 28)
    fit_scales(teacher, [views])
    targets = teacher(views)
    assert targets.logits.shape == (8, 3)
    assert torch.allclose(targets.attention.sum(dim=1), torch.ones(8), atol=1e-5)
    for features in targets.features:
        patches = features[:, 1:].flatten(0, 1)
        assert torch.allclose(patches.mean(dim=0), torch.zeros(12), atol=1e-3)
        assert (patches.std(dim=0) - 1).abs().max() < 0.02


def test_foreground_and_background_count_equally_and_unknown_pixels_do_not():
    overlap = Overlap()
    overlap.add(torch.tensor([[True, True, False, False]]), torch.tensor([[1, 0, 0, 2]]))
    assert overlap.miou == pytest.approx(100 * (1 / 2 + 1 / 2) / 2)
    assert foreground(torch.tensor([[0.0, 1.0, 0.0, 1.0]]), size=2).tolist() == [[[False, True], [False, True]]]


def test_photos_are_read_with_their_labels_and_masks(tmp_path):
    rows = []
    with tarfile.open(tmp_path / "val-0.tar", "w") as tar:
        for number in range(4):
            names = {"image": f"{number}.png", "mask": f"{number}-mask.png" if number % 2 else ""}
            for kind, name in names.items():
                if name:
                    value = Image.new(
                        "RGB" if kind == "image" else "L", (8, 8), number if kind == "mask" else (number,) * 3
                    )
                    content = io.BytesIO()
                    value.save(content, "PNG")
                    member = tarfile.TarInfo(name)
                    member.size = len(content.getvalue())
                    tar.addfile(member, io.BytesIO(content.getvalue()))
            rows.append({"split": "val", "shard": "val-0.tar", "label": ("cat", "dog")[number % 2], **names})
    with open(tmp_path / "index.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    photos = load_photos(tmp_path, "val", with_masks=True)
    assert photos.names == ("cat", "dog")
    numbers = photos.images[:, 0, 0, 0].long()
    assert sorted(numbers.tolist()) == [0, 1, 2, 3]
    assert torch.equal(photos.labels, numbers % 2)
    assert torch.equal(photos.masks[:, 0, 0].long(), numbers[photos.mask_owners])
    with pytest.raises(ValueError, match=r"has no split 'test'\. It has: \['val'\]"):
        load_photos(tmp_path, "test")

"""Small random models of videos, with their processors, and a clip for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from torch import nn
from transformers import VivitImageProcessor
from transformers.models.videomae.image_processing_pil_videomae import VideoMAEImageProcessorPil

from tiny_arranged import timesformer
from tiny_models import built
from tiny_more import VIDEO

RATE = 10.0
SIZES = {"size": {"shortest_edge": 32}, "crop_size": {"height": 32, "width": 32}}


def vjepa2() -> nn.Module:
    """16 patches at 2 steps of 2 frames, and a pooler of a block and a query."""
    sizes = {"patch_size": 8, "crop_size": 32, "frames_per_clip": 4, "tubelet_size": 2, "hidden_size": 48}
    blocks = {"num_attention_heads": 2, "num_hidden_layers": 2, "num_pooler_layers": 1, "num_labels": 4}
    predictor = {"pred_hidden_size": 24, "pred_num_attention_heads": 2, "pred_num_hidden_layers": 1}
    return built("VJEPA2ForVideoClassification", "VJEPA2Config", **sizes, **blocks, **predictor)


VIDEO_FAMILIES: dict[str, Callable[[], nn.Module]] = {
    "videomae": VIDEO["VideoMAE"],
    "vivit": VIDEO["ViViT"],
    "timesformer": timesformer,
    "vjepa2": vjepa2,
}


def processor_of(family: str) -> Any:
    return VivitImageProcessor(**SIZES) if family == "vivit" else VideoMAEImageProcessorPil(**SIZES)


def clip(frames: int = 10, seed: int = 0) -> np.ndarray:
    """A bright disc that moves from left to right over noise, [frame, height, width, 3]."""
    down, across = np.mgrid[:48, :64]
    video = np.random.default_rng(seed).integers(0, 90, (frames, 48, 64, 3), dtype=np.uint8)
    for frame in range(frames):
        video[frame][(across - 6 - 5 * frame) ** 2 + (down - 24) ** 2 < 60] = (220, 40, 30)
    return video

"""Small random models that cut pictures up into windows, or merge their patches on the way."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import nn

from tiny_models import built

STAGES = {"num_labels": 4, "depths": [2, 2], "num_heads": [2, 3], "embed_dim": 12}
SHRINKING = {
    "num_labels": 4,
    "num_encoder_blocks": 2,
    "depths": [2, 1],
    "hidden_sizes": [12, 24],
    "num_attention_heads": [2, 3],
    "mlp_ratios": [2, 2],
}
REDUCED = SHRINKING | {"sr_ratios": [2, 1], "patch_sizes": [7, 3], "strides": [8, 2]}
SHIFTED = STAGES | {"window_size": 4, "image_size": 32, "patch_size": 4}
UNITS = {
    "num_labels": 4,
    "embed_dim": 12,
    "image_size": [32, 32],
    "patch_size": [7, 7],
    "patch_stride": [4, 4],
    "patch_padding": [3, 3],
    "depths": [1, 2, 2],
    "num_heads": [2, 2, 2],
    "embed_dim_multiplier": 2.0,
    "num_query_pool": 2,
    "query_stride": [2, 2],
    "masked_unit_size": [4, 4],
    "masked_unit_attention": [True, True, False],
}


def classifier(name: str, **sizes: Any) -> Callable[[], nn.Module]:
    return partial(built, f"{name}ForImageClassification", f"{name}Config", **sizes)


WINDOWED: dict[str, Callable[[], nn.Module]] = {
    "swin": classifier("Swin", **SHIFTED),
    "swin, filled up": classifier("Swin", **SHIFTED | {"window_size": 3}),
    "swinv2": classifier("Swinv2", **SHIFTED),
    "donut-swin": classifier("DonutSwin", **SHIFTED),
    "segformer": classifier("Segformer", **REDUCED),
    "pvt": classifier(
        "Pvt",
        **SHRINKING,
        image_size=32,
        sequence_reduction_ratios=[2, 1],
        patch_sizes=[4, 2],
        strides=[4, 2],
    ),
    "pvt_v2": classifier("PvtV2", **REDUCED, image_size=32),
    "pvt_v2, pooled": classifier("PvtV2", **REDUCED, image_size=32, linear_attention=True),
    "hiera": classifier("Hiera", **UNITS),
}
# How many patches the finest grid has, of 32×32 pixels.
PATCHES = dict.fromkeys(WINDOWED, 64) | dict.fromkeys(("segformer", "pvt_v2", "pvt_v2, pooled"), 16)

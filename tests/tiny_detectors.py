"""Small random detectors that read feature maps of several sizes."""

from __future__ import annotations

import transformers
from torch import nn

from tiny_models import built

BACKBONE = {"embedding_size": 8, "hidden_sizes": [8, 8, 8, 16], "depths": [1, 1, 1, 1], "layer_type": "basic"}
LEVELS = ["stage2", "stage3", "stage4"]


def rt_detr(kind: str = "RTDetr", **others) -> nn.Module:
    sizes = {"d_model": 32, "encoder_hidden_dim": 32, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "num_labels": 4}
    channels = {"encoder_in_channels": [8, 8, 16], "decoder_in_channels": [32, 32, 32]}
    layers = {"encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
    return built(
        f"{kind}ForObjectDetection",
        f"{kind}Config",
        backbone_config=transformers.RTDetrResNetConfig(**BACKBONE, out_features=LEVELS),
        num_queries=5,
        num_denoising=0,
        **{"decoder_n_points": 2} | sizes | channels | layers | others,
    )


def d_fine() -> nn.Module:
    """With another number of points in each feature map."""
    return rt_detr("DFine", decoder_n_points=[2, 1, 3], max_num_bins=8, hidden_expansion=1.0)

"""Small random models that segment a picture by queries."""

from __future__ import annotations

import transformers
from torch import nn

from tiny_models import built

STAGES = ["stage1", "stage2", "stage3", "stage4"]
WINDOWS = {"patch_size": 4, "embed_dim": 8, "depths": [1, 1, 1, 1], "num_heads": [1, 1, 2, 2], "window_size": 4}
CONVOLUTIONS = {"embedding_size": 8, "hidden_sizes": [8, 8, 8, 16], "depths": [1, 1, 1, 1], "layer_type": "basic"}
LABELS = {"id2label": {0: "road", 1: "sky", 2: "tree", 3: "wall"}}


def backbone(kind: str) -> transformers.PreTrainedConfig:
    if kind == "swin":
        return transformers.SwinConfig(**WINDOWS, image_size=64, out_features=STAGES)
    return transformers.ResNetConfig(**CONVOLUTIONS, out_features=STAGES)


def mask2former(kind: str) -> nn.Module:
    return built(
        "Mask2FormerForUniversalSegmentation",
        "Mask2FormerConfig",
        backbone_config=backbone(kind),
        **dict.fromkeys(("hidden_dim", "feature_size", "mask_feature_size"), 32),
        **dict.fromkeys(("encoder_feedforward_dim", "dim_feedforward"), 16),
        encoder_layers=2,
        decoder_layers=4,
        num_attention_heads=2,
        num_queries=5,
        **LABELS,
    )


def maskformer(kind: str) -> nn.Module:
    decoder = transformers.DetrConfig(
        d_model=16, encoder_layers=2, decoder_layers=2, decoder_attention_heads=2, decoder_ffn_dim=16, num_queries=5
    )
    return built(
        "MaskFormerForInstanceSegmentation",
        "MaskFormerConfig",
        backbone_config=backbone(kind),
        decoder_config=decoder,
        fpn_feature_size=32,
        mask_feature_size=32,
        **LABELS,
    )


def segment_anything() -> nn.Module:
    """SAM with a grid of 8 by 8 patches, in windows of 3 by 3 that do not divide it, but for the second layer."""
    prompts = {"hidden_size": 16, "image_size": 64, "patch_size": 8, "mask_input_channels": 4}
    tokens = {"hidden_size": 16, "mlp_dim": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    patches = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 2, "image_size": 64, "patch_size": 8}
    windows = {"window_size": 3, "global_attn_indexes": [1], "mlp_dim": 32, "output_channels": 16, "num_pos_feats": 8}
    return built(
        "SamModel",
        "SamConfig",
        vision_config=patches | windows,
        prompt_encoder_config=prompts,
        mask_decoder_config=tokens | {"iou_head_hidden_dim": 16},
    )

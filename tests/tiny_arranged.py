"""Small random models whose tokens are joined, moved or fewer from stage to stage."""

from __future__ import annotations

from torch import nn

from tiny_models import IMAGE, built

CLASSES = {"num_labels": 4}


def levit() -> nn.Module:
    """4 by 4 tokens, 2 by 2, and one."""
    stages = {name: [2, 2, 2] for name in ("num_attention_heads", "mlp_ratio", "attention_ratio")}
    return built(
        "LevitForImageClassification",
        "LevitConfig",
        image_size=64,
        hidden_sizes=[16, 24, 32],
        depths=[2, 1, 1],
        key_dim=[8, 8, 8],
        **stages,
        **CLASSES,
    )


def mobilevit() -> nn.Module:
    """8 by 8 tokens, 4 by 4, and 2 by 2, each in squares of 2 by 2."""
    return built(
        "MobileViTForImageClassification",
        "MobileViTConfig",
        hidden_sizes=[16, 20, 24],
        neck_hidden_sizes=[8, 8, 12, 12, 12, 12, 16],
        num_attention_heads=2,
        image_size=64,
        **CLASSES,
    )


def timesformer() -> nn.Module:
    """16 patches at 4 times, with a class token."""
    return built("TimesformerForVideoClassification", "TimesformerConfig", **IMAGE, num_frames=4)


def eomt() -> nn.Module:
    """A class token, 4 registers and 16 patches, which 5 queries join before the last two of three blocks."""
    sizes = {"hidden_size": 24, "num_attention_heads": 2, "image_size": 32, "patch_size": 8, "num_hidden_layers": 3}
    queries = {"num_queries": 5, "num_blocks": 2, "num_upscale_blocks": 1}
    return built("EomtForUniversalSegmentation", "EomtConfig", **sizes, **queries, **CLASSES)

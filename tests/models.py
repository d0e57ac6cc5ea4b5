"""Small random models of every family, built from the stock classes in their default attention implementation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from whyformer.axes import Inputs

TEXT = {
    "vocab_size": 60,
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "intermediate_size": 64,
    "max_position_embeddings": 40,
    "num_labels": 4,
    "pad_token_id": 0,
}
IMAGE = {
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "intermediate_size": 64,
    "image_size": 32,
    "patch_size": 8,
    "num_labels": 4,
}
MODERN = {"cls_token_id": 1, "bos_token_id": 1, "sep_token_id": 2, "eos_token_id": 2}
DEBERTA = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8}
DISTIL = {"vocab_size": 60, "dim": 48, "n_layers": 3, "n_heads": 3, "hidden_dim": 64, "max_position_embeddings": 40}


def built(class_name: str, config_name: str, **options: Any) -> nn.Module:
    """A random model; LayerScale and other parameters that start constant are made random too."""
    torch.manual_seed(0)
    config = getattr(transformers, config_name)(**options)
    model = getattr(transformers, class_name)._from_config(config).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.08)
    return model


class PooledHead(nn.Module):
    """A head of one's own on an encoder of the hub: mean of all tokens, then a linear layer."""

    def __init__(self, encoder: nn.Module, width: int, labels: int):
        super().__init__()
        self.encoder, self.head = encoder, nn.Linear(width, labels)

    def forward(self, pixel_values: Tensor) -> Tensor:
        return self.head(self.encoder(pixel_values=pixel_values).last_hidden_state.mean(dim=1))


def dinov3_with_head() -> nn.Module:
    encoder = built("DINOv3ViTModel", "DINOv3ViTConfig", **{k: v for k, v in IMAGE.items() if k != "num_labels"})
    torch.manual_seed(0)
    return PooledHead(encoder, 48, 4).eval()


class UnmaskedHead(nn.Module):
    """A fine-tuned masked autoencoder: nothing is masked, and the patches keep their order."""

    def __init__(self, encoder: nn.Module):
        super().__init__()
        self.encoder, self.head = encoder, nn.Linear(48, 4)

    def forward(self, pixel_values: Tensor) -> Tensor:
        in_order = torch.arange(16.0, device=pixel_values.device).expand(len(pixel_values), 16)
        return self.head(self.encoder(pixel_values=pixel_values, noise=in_order).last_hidden_state[:, 1:].mean(dim=1))


def mae_with_head() -> nn.Module:
    sizes = {name: value for name, value in IMAGE.items() if name != "num_labels"}
    torch.manual_seed(0)
    return UnmaskedHead(built("ViTMAEModel", "ViTMAEConfig", mask_ratio=0.0, **sizes)).eval()


def image_model(name: str, config: str, **extra: Any) -> Callable[[], nn.Module]:
    return lambda: built(name, config, **IMAGE | extra)


def text_model(name: str, config: str, **extra: Any) -> Callable[[], nn.Module]:
    return lambda: built(name, config, **TEXT | extra)


IMAGE_FAMILIES: dict[str, Callable[[], nn.Module]] = {
    "vit": image_model("ViTForImageClassification", "ViTConfig"),
    "deit": image_model("DeiTForImageClassification", "DeiTConfig"),
    "deit distilled": image_model("DeiTForImageClassificationWithTeacher", "DeiTConfig"),
    "beit mean": image_model("BeitForImageClassification", "BeitConfig", use_mean_pooling=True),
    "beit class token": image_model("BeitForImageClassification", "BeitConfig", use_mean_pooling=False),
    "beit relative": image_model("BeitForImageClassification", "BeitConfig", use_relative_position_bias=True),
    "dinov2": image_model("Dinov2ForImageClassification", "Dinov2Config"),
    "dinov2 registers": image_model("Dinov2WithRegistersForImageClassification", "Dinov2WithRegistersConfig"),
    "vit-msn": image_model("ViTMSNForImageClassification", "ViTMSNConfig"),
    "ijepa (by structure)": image_model("IJepaForImageClassification", "IJepaConfig"),
    "dinov3 with a head of one's own": dinov3_with_head,
    "fine-tuned masked autoencoder": mae_with_head,
}
TEXT_FAMILIES: dict[str, Callable[[], nn.Module]] = {
    "bert": text_model("BertForSequenceClassification", "BertConfig"),
    "roberta": text_model("RobertaForSequenceClassification", "RobertaConfig"),
    "distilbert": lambda: built("DistilBertForSequenceClassification", "DistilBertConfig", num_labels=4, **DISTIL),
    "albert": text_model("AlbertForSequenceClassification", "AlbertConfig", embedding_size=24),
    "electra": text_model("ElectraForSequenceClassification", "ElectraConfig", embedding_size=24),
    "deberta-v2": text_model("DebertaV2ForSequenceClassification", "DebertaV2Config", **DEBERTA),
    "modernbert": text_model("ModernBertForSequenceClassification", "ModernBertConfig", **MODERN),
    "modernbert mean": text_model(
        "ModernBertForSequenceClassification", "ModernBertConfig", classifier_pooling="mean", **MODERN
    ),
    "mpnet (by structure)": text_model("MPNetForSequenceClassification", "MPNetConfig"),
}
FAMILIES = IMAGE_FAMILIES | TEXT_FAMILIES


def image_inputs(batch: int = 2) -> Inputs:
    return {"pixel_values": torch.randn(batch, 3, 32, 32, generator=torch.Generator().manual_seed(2))}


def text_inputs() -> Inputs:
    """Three texts of different lengths, padded on the right."""
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(5, 60, (3, 9), generator=generator)
    mask = torch.ones_like(ids)
    for example, length in enumerate((9, 6, 4)):
        ids[example, length:], mask[example, length:] = 0, 0
    return {"input_ids": ids, "attention_mask": mask}


def inputs_of(family: str) -> Inputs:
    return image_inputs() if family in IMAGE_FAMILIES else text_inputs()

"""Small random models of every family, built from the stock classes in their default attention implementation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from transformers4 import settings_of
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
    config = getattr(transformers, config_name)(**settings_of(options))
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
# Methods of models that are one stream of tokens; of others they refuse to speak.
OF_ONE_STREAM = {"full_grad"}
# Models whose last attention is no call of scaled_dot_product_attention, so that nobody sees its queries and keys.
WRITTEN_OUT = {
    *("deberta-v2", "mpnet (by structure)", "siglip", "blip", "vilt", "lxmert", "visual-bert", "deformable detr"),
    "wavlm",
}


def applies(method: str | None, family: str) -> bool:
    """Whether a method has what it reads in a model of this family."""
    return method != "grad_eclip" or family not in WRITTEN_OUT


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


def masked(*lengths: int) -> Tensor:
    """The mask of a batch of sequences padded on the right."""
    return (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()


def word_pieces(mask: Tensor, seed: int) -> Tensor:
    return torch.randint(5, 60, mask.shape, generator=torch.Generator().manual_seed(seed)) * mask


def noise(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(7))


def with_text(**others: Tensor) -> Inputs:
    mask = masked(9, 6)
    return {"input_ids": word_pieces(mask, 3), "attention_mask": mask, **others}


def with_regions(feature: str, **others: Tensor) -> Inputs:
    mask = masked(4, 6)
    return with_text(visual_attention_mask=mask, **{feature: noise(2, 6, 20) * mask[:, :, None]}, **others)


def captioned(**text: Tensor) -> Inputs:
    return {"pixel_values": noise(2, 3, 32, 32), **text}


def up_to_the_end(mask: Tensor) -> Tensor:
    """Word pieces whose last real one is CLIP's end of text, 59."""
    return word_pieces(mask, 3).clamp(max=58).scatter(1, mask.sum(dim=1, keepdim=True) - 1, 59)


def photos() -> Inputs:
    """Two photos for a detector, the second one smaller and padded at the right and below."""
    mask = torch.ones(2, 64, 96, dtype=torch.long)
    mask[1, 32:] = mask[1, :, 64:] = 0
    return {"pixel_values": noise(2, 3, 64, 96) * mask[:, None], "pixel_mask": mask}


def to_translate(**source: Tensor) -> Inputs:
    mask = masked(5, 3)
    target = {"decoder_input_ids": word_pieces(mask, 4), "decoder_attention_mask": mask}
    return (source or with_text()) | target


TOWER = {
    "hidden_size": 24,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
}
READER = {"vocab_size": 60, "max_position_embeddings": 9, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 59}
SMALL = TOWER | {"vocab_size": 60, "max_position_embeddings": 20, "pad_token_id": 0}
LANGUAGE = SMALL | {"num_key_value_heads": 1, "head_dim": 12, "bos_token_id": 1, "eos_token_id": 2}
TRANSLATOR = {
    "vocab_size": 60,
    "d_model": 24,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
    "forced_eos_token_id": None,
}
DETECTOR = {"d_model", *(f"{part}_{size}" for part in ("encoder", "decoder") for size in ("layers", "attention_heads"))}
DETECTOR |= {"encoder_ffn_dim", "decoder_ffn_dim"}
T5 = {"vocab_size": 60, "d_model": 24, "d_kv": 12, "d_ff": 32, "num_layers": 2, "num_heads": 2, "pad_token_id": 0}
MARIAN = {"max_position_embeddings": 20, "decoder_vocab_size": 60}
WHISPER = {"num_mel_bins": 8, "max_source_positions": 10, "max_target_positions": 20}
LXMERT = {"l_layers": 2, "r_layers": 1, "x_layers": 2, "visual_feat_dim": 20, "visual_pos_dim": 4, "num_qa_labels": 5}


def towers(name: str, head: str = "Model", **both: Any) -> nn.Module:
    text = TOWER | READER | both
    image = TOWER | {"image_size": 32, "patch_size": 8} | both
    return built(f"{name}{head}", f"{name}Config", text_config=text, vision_config=image, **both)


def to_find() -> Inputs:
    """A text for each picture."""
    return {"input_ids": up_to_the_end(masked(9, 6)), "attention_mask": masked(9, 6)}


def about_pictures() -> Inputs:
    """A question about each picture, equally long.

    Beside padding the model adds a mask to its scores, and the stabiliser of that sum moves ViLT's relevance of pixels
    by more than rounding; other methods are tested beside padding in tests/api.
    """
    mask = masked(9, 9)
    pixels = {"pixel_values": noise(2, 3, 32, 32), "pixel_mask": torch.ones(2, 32, 32, dtype=torch.long)}
    return {"input_ids": word_pieces(mask, 3), "attention_mask": mask, **pixels}


def blip(head: str = "ForImageTextRetrieval", **extra: Any) -> nn.Module:
    text = SMALL | {"encoder_hidden_size": 24, "bos_token_id": 1, "eos_token_id": 2, "sep_token_id": 2} | extra
    image = TOWER | {"image_size": 32, "patch_size": 8}
    sizes = {"projection_dim": 8, "image_text_hidden_size": 8}
    return built(f"Blip{head}", "BlipConfig", text_config=text, vision_config=image, **sizes)


def detector(name: str, stages: tuple[str, ...] = ("stage4",), **extra: Any) -> nn.Module:
    sizes = {"embedding_size": 8, "hidden_sizes": [8, 8, 8, 16], "depths": [1, 1, 1, 1], "layer_type": "basic"}
    backbone = transformers.ResNetConfig(out_features=list(stages), **sizes)
    layers = {key: value for key, value in TRANSLATOR.items() if key in DETECTOR}
    layers |= {"num_queries": 5, "num_labels": 4, "use_timm_backbone": False} | extra
    return built(f"{name}ForObjectDetection", f"{name}Config", backbone_config=backbone, **layers)


Made = tuple[Callable[[], nn.Module], Callable[[], Inputs]]


def small(name: str, config: str, inputs: Callable[[], Inputs], **sizes: Any) -> Made:
    return lambda: built(name, config, **sizes), inputs


def language_model(name: str, config: str, **extra: Any) -> Made:
    return small(name, config, text_inputs, **LANGUAGE | extra)


STREAM_FAMILIES: dict[str, Made] = {
    "clip": (
        lambda: towers("CLIP", projection_dim=16),
        lambda: captioned(**to_find()),
    ),
    "siglip": (lambda: towers("Siglip"), lambda: captioned(input_ids=word_pieces(masked(9, 9), 3))),
    "owlvit": (lambda: towers("OwlViT", "ForObjectDetection", projection_dim=24), lambda: captioned(**to_find())),
    "owlv2": (lambda: towers("Owlv2", "ForObjectDetection", projection_dim=24), lambda: captioned(**to_find())),
    "blip": (blip, lambda: with_text(pixel_values=noise(2, 3, 32, 32))),
    "vilt": small(
        "ViltForQuestionAnswering",
        "ViltConfig",
        about_pictures,
        **SMALL | {"image_size": 32, "patch_size": 8, "num_labels": 5},
    ),
    "lxmert": small(
        "LxmertForQuestionAnswering",
        "LxmertConfig",
        lambda: with_regions("visual_feats", visual_pos=noise(2, 6, 4)),
        **SMALL | LXMERT,
    ),
    "visual-bert": small(
        "VisualBertForQuestionAnswering",
        "VisualBertConfig",
        lambda: with_regions("visual_embeds"),
        **SMALL | {"visual_embedding_dim": 20, "num_labels": 5},
    ),
    "detr": (lambda: detector("Detr"), photos),
    "conditional detr": (lambda: detector("ConditionalDetr"), photos),
    "deformable detr": (
        lambda: detector("DeformableDetr", ("stage2", "stage3", "stage4"), d_model=32, num_feature_levels=3),
        photos,
    ),
    "t5": small("T5ForConditionalGeneration", "T5Config", to_translate, **T5),
    "bart": small(
        "BartForConditionalGeneration", "BartConfig", to_translate, **TRANSLATOR | {"max_position_embeddings": 20}
    ),
    "marian": small("MarianMTModel", "MarianConfig", to_translate, **TRANSLATOR | MARIAN),
    "whisper": small(
        "WhisperForConditionalGeneration",
        "WhisperConfig",
        lambda: to_translate(input_features=noise(2, 8, 20)),
        **TRANSLATOR | WHISPER,
    ),
    "gpt2": small(
        "GPT2LMHeadModel", "GPT2Config", text_inputs, vocab_size=60, n_embd=24, n_layer=2, n_head=2, n_positions=20
    ),
    "llama": language_model("LlamaForCausalLM", "LlamaConfig"),
    "qwen2": language_model("Qwen2ForCausalLM", "Qwen2Config"),
    "qwen3": language_model("Qwen3ForCausalLM", "Qwen3Config"),
    "gemma": language_model("GemmaForCausalLM", "GemmaConfig"),
    "mistral in windows": language_model("MistralForCausalLM", "MistralConfig", sliding_window=3),
}

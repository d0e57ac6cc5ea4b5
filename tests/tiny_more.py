"""More small random models of the stock classes, for the table of architectures alone: by kind, name and builder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from tiny_architectures import DECODER, ENCODER, ENDS, EXPERTS, WINDOWED, decoder, encoder
from tiny_arranged import eomt, levit, mobilevit, timesformer
from tiny_detectors import d_fine, rt_detr
from tiny_models import IMAGE, TOWER, TRANSLATOR, built, detector, towers
from tiny_segmenters import mask2former, maskformer, segment_anything

Build = Callable[[], nn.Module]

TEXT_ENCODERS: dict[str, Build] = {
    "CamemBERT": encoder("Camembert", **ENCODER),
    "XLM-RoBERTa": encoder("XLMRoberta", **ENCODER),
    "XLM-RoBERTa-XL": encoder("XLMRobertaXL", **ENCODER),
    "RoBERTa-PreLayerNorm": encoder("RobertaPreLayerNorm", **ENCODER),
    "X-MOD": encoder("Xmod", **ENCODER, default_language="en_XX"),
    "data2vec of texts": encoder("Data2VecText", **ENCODER),
    "ERNIE": encoder("Ernie", **ENCODER),
    "ESM": encoder("Esm", **ENCODER, mask_token_id=4, position_embedding_type="rotary"),
    "Megatron-BERT": encoder("MegatronBert", **ENCODER),
    "RemBERT": encoder("RemBert", **ENCODER, input_embedding_size=16),
    "RoFormer": encoder("RoFormer", **ENCODER, embedding_size=32),
    "RoCBert": encoder("RoCBert", **ENCODER, enable_pronunciation=False, enable_shape=False),
    "SqueezeBERT": encoder("SqueezeBert", **ENCODER, embedding_size=32),
    "I-BERT": encoder("IBert", **ENCODER),
    "LayoutLM": encoder("LayoutLM", **ENCODER, max_2d_position_embeddings=20),
    "MarkupLM": encoder("MarkupLM", **ENCODER, xpath_unit_hidden_size=4, max_xpath_tag_unit_embeddings=260),
    "FlauBERT": encoder(
        "Flaubert", vocab_size=60, emb_dim=32, n_layers=2, n_heads=4, max_position_embeddings=40, num_labels=4
    ),
    "XLNet": encoder("XLNet", vocab_size=60, d_model=32, n_layer=2, n_head=4, d_inner=48, num_labels=4, pad_token_id=0),
    "Funnel": encoder(
        "Funnel", vocab_size=60, block_sizes=[1, 2], d_model=32, n_head=4, d_head=8, d_inner=48, num_labels=4
    ),
    "FNet": encoder("FNet", **ENCODER),
    "Perceiver": encoder(
        "Perceiver",
        vocab_size=60,
        d_model=16,
        d_latents=24,
        num_latents=5,
        num_blocks=1,
        num_self_attends_per_block=2,
        num_self_attention_heads=2,
        num_cross_attention_heads=2,
        max_position_embeddings=9,
        num_labels=4,
    ),
    "NomicBERT": encoder("NomicBert", **ENCODER),
    "EuroBERT": encoder("EuroBert", **ENCODER | ENDS),
    "GTE": encoder("Gte", **ENCODER),
}

DECODERS: dict[str, Build] = {
    "GPT": lambda: built("OpenAIGPTLMHeadModel", "OpenAIGPTConfig", vocab_size=60, n_embd=32, n_layer=2, n_head=4),
    "GPT-Neo": decoder(
        "GPTNeo",
        **ENDS,
        vocab_size=60,
        hidden_size=32,
        num_layers=2,
        num_heads=4,
        attention_types=[[["global", "local"], 1]],
        window_size=4,
        max_position_embeddings=20,
    ),
    "GPT-J": decoder("GPTJ", **ENDS, vocab_size=60, n_embd=32, n_layer=2, n_head=4, rotary_dim=4, n_positions=20),
    "CodeGen": decoder("CodeGen", **ENDS, vocab_size=60, n_embd=32, n_layer=2, n_head=4, rotary_dim=4, n_positions=20),
    "GPT-BigCode": decoder("GPTBigCode", **ENDS, vocab_size=60, n_embd=32, n_layer=2, n_head=4, n_positions=20),
    "BioGPT": decoder("BioGpt", **DECODER),
    "XGLM": decoder("XGLM", **ENDS, vocab_size=60, d_model=32, num_layers=2, attention_heads=4, ffn_dim=48),
    "CTRL": lambda: built("CTRLLMHeadModel", "CTRLConfig", vocab_size=60, n_embd=32, n_layer=2, n_head=4, dff=48),
    "Persimmon": decoder("Persimmon", **DECODER),
    "Starcoder 2": decoder("Starcoder2", **DECODER),
    "OLMo": decoder("Olmo", **DECODER),
    "OLMo 3": decoder("Olmo3", **DECODER, **WINDOWED),
    "OLMoE": decoder("Olmoe", **DECODER, num_experts=4, num_experts_per_tok=2),
    "Cohere": decoder("Cohere", **DECODER),
    "GLM": decoder("Glm", **DECODER, head_dim=8),
    "GLM-4": decoder("Glm4", **DECODER, head_dim=8),
    "Helium": decoder("Helium", **DECODER, head_dim=8),
    "Nemotron": decoder("Nemotron", **DECODER),
    "EXAONE 4": decoder("Exaone4", **DECODER, **WINDOWED),
    "ERNIE 4.5": decoder("Ernie4_5", **DECODER, head_dim=8),
    "Arcee": decoder("Arcee", **DECODER, head_dim=8),
    "Apertus": decoder("Apertus", **DECODER),
    "Seed-OSS": decoder("SeedOss", **DECODER, head_dim=8),
    "Ministral": decoder("Ministral", **DECODER, head_dim=8, sliding_window=4),
    "Qwen2-MoE": decoder(
        "Qwen2Moe", **DECODER, **EXPERTS, num_experts=4, shared_expert_intermediate_size=24, decoder_sparse_step=1
    ),
    "Phi-MoE": decoder("Phimoe", **DECODER, num_local_experts=4, num_experts_per_tok=2),
    "Granite-MoE": decoder("GraniteMoe", **DECODER, num_local_experts=4, num_experts_per_tok=2),
    "DBRX": decoder(
        "Dbrx",
        **ENDS,
        vocab_size=60,
        d_model=32,
        n_heads=4,
        n_layers=2,
        max_seq_len=20,
        attn_config={"kv_n_heads": 2, "rope_theta": 1e4, "clip_qkv": 8.0},
        ffn_config={"ffn_hidden_size": 24, "moe_num_experts": 4, "moe_top_k": 2, "hidden_size": 32},
    ),
}

LENGTHS = {"max_position_embeddings": 20}
T5 = {"vocab_size": 60, "d_model": 24, "d_kv": 12, "d_ff": 32, "num_layers": 2, "num_heads": 2, "pad_token_id": 0}
TRANSLATORS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "mBART": ("MBartForConditionalGeneration", "MBartConfig", TRANSLATOR | LENGTHS),
    "M2M-100": ("M2M100ForConditionalGeneration", "M2M100Config", TRANSLATOR | LENGTHS),
    "Pegasus": ("PegasusForConditionalGeneration", "PegasusConfig", TRANSLATOR | LENGTHS),
    "PEGASUS-X": ("PegasusXForConditionalGeneration", "PegasusXConfig", TRANSLATOR | LENGTHS),
    "Blenderbot": ("BlenderbotForConditionalGeneration", "BlenderbotConfig", TRANSLATOR | LENGTHS),
    "Blenderbot-Small": ("BlenderbotSmallForConditionalGeneration", "BlenderbotSmallConfig", TRANSLATOR | LENGTHS),
    "PLBart": ("PLBartForConditionalGeneration", "PLBartConfig", TRANSLATOR | LENGTHS),
    "MVP": ("MvpForConditionalGeneration", "MvpConfig", TRANSLATOR | LENGTHS),
    "NLLB-MoE": (
        "NllbMoeForConditionalGeneration",
        "NllbMoeConfig",
        TRANSLATOR | LENGTHS | {"num_experts": 4, "encoder_sparse_step": 2, "decoder_sparse_step": 2},
    ),
    "LED": (
        "LEDForConditionalGeneration",
        "LEDConfig",
        TRANSLATOR
        | {"attention_window": 4, "max_encoder_position_embeddings": 20, "max_decoder_position_embeddings": 20},
    ),
    "mT5": ("MT5ForConditionalGeneration", "MT5Config", T5),
    "UMT5": ("UMT5ForConditionalGeneration", "UMT5Config", T5),
    "Switch Transformers": (
        "SwitchTransformersForConditionalGeneration",
        "SwitchTransformersConfig",
        T5
        | {"num_decoder_layers": 2, "num_experts": 2, "num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1},
    ),
    "LongT5": ("LongT5ForConditionalGeneration", "LongT5Config", T5 | {"local_radius": 3}),
    "ProphetNet": (
        "ProphetNetForConditionalGeneration",
        "ProphetNetConfig",
        {
            "vocab_size": 60,
            "hidden_size": 24,
            "num_encoder_layers": 2,
            "num_decoder_layers": 2,
            "num_encoder_attention_heads": 2,
            "num_decoder_attention_heads": 2,
            "encoder_ffn_dim": 32,
            "decoder_ffn_dim": 32,
            "max_position_embeddings": 20,
            "pad_token_id": 0,
        },
    ),
}

CLASSES = {"num_labels": 4}
IMAGE_ENCODERS: dict[str, Build] = {
    "YOLOS": lambda: built(
        "YolosForObjectDetection", "YolosConfig", **IMAGE | {"image_size": [32, 32], "num_detection_tokens": 5}
    ),
    "SigLIP's image tower": lambda: built(
        "SiglipForImageClassification",
        "SiglipConfig",
        vision_config=TOWER | {"image_size": 32, "patch_size": 8},
        **CLASSES,
    ),
    "CLIP's image tower": lambda: built(
        "CLIPForImageClassification", "CLIPConfig", vision_config=TOWER | {"image_size": 32, "patch_size": 8}, **CLASSES
    ),
    "data2vec of pictures": lambda: built("Data2VecVisionForImageClassification", "Data2VecVisionConfig", **IMAGE),
    "LeViT": levit,
    "MobileViT": mobilevit,
    "CvT": lambda: built(
        "CvtForImageClassification",
        "CvtConfig",
        embed_dim=[12, 16, 24],
        num_heads=[1, 2, 2],
        depth=[1, 2, 3],
        cls_token=[False, False, True],
        **CLASSES,
    ),
    "FocalNet": lambda: built(
        "FocalNetForImageClassification",
        "FocalNetConfig",
        embed_dim=12,
        depths=[1, 1],
        image_size=32,
        focal_levels=[1, 1],
        focal_windows=[3, 3],
        **CLASSES,
    ),
    "PoolFormer": lambda: built(
        "PoolFormerForImageClassification",
        "PoolFormerConfig",
        hidden_sizes=[8, 8, 16, 16],
        depths=[1, 1, 1, 1],
        **CLASSES,
    ),
    "ConvNeXt": lambda: built(
        "ConvNextForImageClassification", "ConvNextConfig", hidden_sizes=[8, 8, 16, 16], depths=[1, 1, 1, 1], **CLASSES
    ),
    "SwiftFormer": lambda: built(
        "SwiftFormerForImageClassification",
        "SwiftFormerConfig",
        image_size=64,
        embed_dims=[8, 8, 16, 16],
        depths=[1, 1, 1, 1],
        **CLASSES,
    ),
}

VIDEO: dict[str, Build] = {
    "VideoMAE": lambda: built(
        "VideoMAEForVideoClassification", "VideoMAEConfig", **IMAGE, num_frames=4, tubelet_size=2
    ),
    "ViViT": lambda: built("VivitForVideoClassification", "VivitConfig", **IMAGE, num_frames=4, tubelet_size=[2, 8, 8]),
    "TimeSformer": timesformer,
}

LARGE = {"LeViT", "MobileViT", "CvT", "PoolFormer", "ConvNeXt", "SwiftFormer"}  # which halve a picture five times

DETECTORS: dict[str, Build] = {
    "Table Transformer": lambda: detector("TableTransformer"),
    "DAB-DETR": lambda: detector("DabDetr", hidden_size=32),
    "RT-DETR": rt_detr,
    "RT-DETR v2": lambda: rt_detr("RTDetrV2"),
    "D-FINE": d_fine,
}

SEGMENTERS: dict[str, Build] = {
    "MaskFormer": lambda: maskformer("swin"),
    "MaskFormer on convolutions": lambda: maskformer("resnet"),
    "Mask2Former": lambda: mask2former("swin"),
    "Mask2Former on convolutions": lambda: mask2former("resnet"),
    "EoMT": eomt,
    "SAM": segment_anything,
}

TOWERS: dict[str, Build] = {
    "MetaCLIP 2": lambda: towers("MetaClip2", projection_dim=16),
    "Chinese-CLIP": lambda: towers("ChineseCLIP", projection_dim=16),
    "AltCLIP": lambda: towers("AltCLIP", projection_dim=16, max_position_embeddings=20, project_dim=24),
}

"""Small random models, one of each architecture that people explain, built from the stock classes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import nn

from tiny_models import built
from whyformer import attribute
from whyformer.axes import Inputs
from whyformer.extend import Attribution

ENDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
DECODER = ENDS | {
    "vocab_size": 60,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 20,
}
ALL_HEADS = {"num_key_value_heads": 4}  # a key and a value for each head
WIDE_HEADS = {"head_dim": 12}  # four of them are wider than the model
WINDOWED = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 4}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 24}
LATENT = {"q_lora_rank": 16, "kv_lora_rank": 12, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8, "v_head_dim": 6}
DEEPSEEK = {"n_routed_experts": 4, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1, "n_shared_experts": 1}
NEXT = {
    "layer_types": ["linear_attention", "full_attention"],
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "num_experts": 4,
    "shared_expert_intermediate_size": 24,
}


def decoder(name: str, *, config: str | None = None, **sizes: Any) -> Callable[[], nn.Module]:
    """A model that writes the next token; `sizes` without the usual ones where they have names of their own."""
    return lambda: built(f"{name}ForCausalLM", f"{config or name}Config", **sizes)


DECODERS: dict[str, Callable[[], nn.Module]] = {
    "GPT-2": lambda: built(
        "GPT2LMHeadModel", "GPT2Config", **ENDS, vocab_size=60, n_embd=32, n_layer=2, n_head=4, n_positions=20
    ),
    "GPT-NeoX": decoder("GPTNeoX", **DECODER),
    "OPT": decoder("OPT", **DECODER, ffn_dim=48, word_embed_proj_dim=32),
    "BLOOM": decoder("Bloom", **ENDS, vocab_size=60, hidden_size=32, n_layer=2, n_head=4),
    "Falcon": decoder("Falcon", **DECODER),
    "MPT": decoder("Mpt", **ENDS, vocab_size=60, d_model=32, n_layers=2, n_heads=4, expansion_ratio=2, max_seq_len=20),
    "Phi": decoder("Phi", **DECODER),
    "Phi-3": decoder("Phi3", **DECODER),
    "Llama": decoder("Llama", **DECODER),
    "Llama 4": decoder(
        "Llama4", config="Llama4Text", **DECODER, head_dim=8, intermediate_size_mlp=48, num_local_experts=4
    ),
    "Mistral": decoder("Mistral", **DECODER, sliding_window=4),
    "Mixtral": decoder("Mixtral", **DECODER, num_local_experts=4, num_experts_per_tok=2),
    "Qwen2": decoder("Qwen2", **DECODER),
    "Qwen3": decoder("Qwen3", **DECODER, **WIDE_HEADS),
    "Qwen3-MoE": decoder("Qwen3Moe", **DECODER, **EXPERTS, num_experts=4),
    "Qwen3-Next": decoder("Qwen3Next", **DECODER, **EXPERTS, **NEXT, head_dim=8),
    "Gemma": decoder("Gemma", **DECODER, **WIDE_HEADS),
    "Gemma 2": decoder("Gemma2", **DECODER, **WIDE_HEADS, **WINDOWED),
    "Gemma 3": decoder("Gemma3", config="Gemma3Text", **DECODER, **WIDE_HEADS, **WINDOWED),
    "OLMo 2": decoder("Olmo2", **DECODER),
    "Granite": decoder("Granite", **DECODER, residual_multiplier=0.5, attention_multiplier=0.3),
    "DeepSeek-V3": decoder("DeepseekV3", **DECODER | ALL_HEADS, **LATENT, **EXPERTS, **DEEPSEEK),
    "GPT-OSS": decoder("GptOss", **DECODER, **WINDOWED, head_dim=8, num_local_experts=4, num_experts_per_tok=2),
    "StableLM": decoder("StableLm", **DECODER),
    "Cohere 2": decoder("Cohere2", **DECODER, **WINDOWED),
    "SmolLM3": decoder("SmolLM3", **DECODER),
}

ENCODER = {
    "vocab_size": 60,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 40,
    "num_labels": 4,
    "pad_token_id": 0,
}


def encoder(name: str, **sizes: Any) -> Callable[[], nn.Module]:
    """A model that tells four classes of texts apart."""
    return lambda: built(f"{name}ForSequenceClassification", f"{name}Config", **sizes)


OTHERS: dict[str, Callable[[], nn.Module]] = {
    "DeBERTa": encoder("Deberta", **ENCODER, relative_attention=True, pos_att_type=["c2p", "p2c"]),
    "MobileBERT": encoder("MobileBert", **ENCODER, embedding_size=16, intra_bottleneck_size=16, true_hidden_size=16),
    "XLM": encoder("XLM", vocab_size=60, emb_dim=32, n_layers=2, n_heads=4, max_position_embeddings=40, num_labels=4),
    "ConvBERT": encoder("ConvBert", **ENCODER, embedding_size=32),
    "BigBird": encoder("BigBird", **ENCODER, attention_type="original_full"),
    "BigBird in blocks": encoder(
        "BigBird", **ENCODER, attention_type="block_sparse", block_size=1, num_random_blocks=1
    ),
    "Longformer": encoder("Longformer", **ENCODER, attention_window=4),
    "Mamba": decoder("Mamba", **ENDS, vocab_size=60, hidden_size=32, num_hidden_layers=2, state_size=4),
}

# What is computed of each: the name of a method, and its options.
METHODS: dict[str, tuple[str | None, dict[str, Any]]] = {
    "no method named": (None, {}),
    "rollout": ("rollout", {}),
    "generic_attention": ("generic_attention", {}),
    "input_x_gradient": ("input_x_gradient", {}),
    "input_x_gradient by libra": ("input_x_gradient", {"backward": "libra"}),
    "lrp by attn_lrp": ("lrp", {"rules": "attn_lrp"}),
    "integrated_gradients": ("integrated_gradients", {"steps": 2}),
    "transformer_attribution": ("transformer_attribution", {}),
    "bi_token": ("bi_token", {"steps": 2}),
}
READ_INPUTS = "input_x_gradient, integrated_gradients and lrp work without maps."


def attribution_of(model: nn.Module, inputs: Inputs, method: str) -> Attribution:
    name, options = METHODS[method]
    return attribute(model, positioned(model, inputs), 1, name, **options)


def positioned(model: nn.Module, inputs: Inputs) -> Inputs:
    """With the positions that a text has without its padding, for models that do not count real tokens themselves."""
    if "position_ids" not in inspect.signature(model.forward).parameters:
        return inputs
    return {**inputs, "position_ids": (inputs["attention_mask"].cumsum(dim=1) - 1).clamp(min=0)}

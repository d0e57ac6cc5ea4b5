"""Small random decoders that mix tokens by linear attention, state spaces or short convolutions, alone or by turns."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from tiny_architectures import DECODER, DECODERS, ENDS, EXPERTS, NEXT, OTHERS, decoder

STATE_SPACE = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_n_groups": 1, "mamba_chunk_size": 4}
ATTENTION_FREE = {"vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 2, **ENDS}
DELTA_NET = {name: value for name, value in NEXT.items() if name.startswith(("layer_types", "linear"))}

HYBRIDS: dict[str, Callable[[], nn.Module]] = {
    "Qwen3-Next": DECODERS["Qwen3-Next"],
    "Qwen3.5": decoder("Qwen3_5", config="Qwen3_5Text", **DECODER, **DELTA_NET, head_dim=8),
    "Qwen3.5-MoE": decoder(
        "Qwen3_5Moe",
        config="Qwen3_5MoeText",
        **{name: value for name, value in DECODER.items() if name != "intermediate_size"},
        **NEXT,
        **EXPERTS,
        head_dim=8,
    ),
    "OLMo-hybrid": decoder("OlmoHybrid", **DECODER, **DELTA_NET, head_dim=8),
    "Kimi Linear": decoder(
        "KimiLinear",
        **DECODER | {"num_key_value_heads": 4},
        **EXPERTS,
        layer_types=["linear_attention", "full_attention"],
        linear_num_heads=4,
        linear_head_dim=8,
        kv_lora_rank=12,
        qk_rope_head_dim=4,
        qk_nope_head_dim=8,
        v_head_dim=6,
        first_k_dense_replace=2,
        n_routed_experts=4,
        n_group=1,
        topk_group=1,
    ),
    "Mamba": OTHERS["Mamba"],
    "Falcon-Mamba": decoder("FalconMamba", **ATTENTION_FREE, state_size=4),
    "Jamba": decoder(
        "Jamba",
        **DECODER,
        attn_layer_period=2,
        attn_layer_offset=1,
        expert_layer_period=2,
        num_experts=2,
        mamba_d_state=4,
        mamba_dt_rank=4,
    ),
    "Mamba 2": decoder("Mamba2", **ATTENTION_FREE, state_size=4, num_heads=8, head_dim=8, n_groups=1, chunk_size=4),
    "Bamba": decoder("Bamba", **DECODER, **STATE_SPACE, attn_layer_indices=[1]),
    "Falcon-H1": decoder("FalconH1", **DECODER, **STATE_SPACE, mamba_d_ssm=64, head_dim=8),
    "Granite hybrid": decoder(
        "GraniteMoeHybrid",
        **DECODER,
        **STATE_SPACE,
        layer_types=["mamba", "attention"],
        shared_intermediate_size=48,
        num_local_experts=0,
    ),
    "Nemotron-H": decoder(
        "NemotronH",
        **{name: value for name, value in DECODER.items() if name != "num_hidden_layers"},
        layers_block_type=["mamba", "mlp", "attention"],
        head_dim=8,
        mamba_num_heads=8,
        mamba_head_dim=8,
        ssm_state_size=8,
        n_groups=1,
        chunk_size=4,
    ),
    "Zamba2": decoder(
        "Zamba2",
        **DECODER,
        layers_block_type=["mamba", "hybrid"],
        mamba_d_state=8,
        n_mamba_heads=8,
        mamba_ngroups=1,
        chunk_size=4,
        num_mem_blocks=1,
        adapter_rank=4,
    ),
    "Zamba": decoder(
        "Zamba",
        **DECODER | {"num_hidden_layers": 5},
        attn_layer_period=2,
        attn_layer_offset=1,
        n_mamba_heads=2,
        mamba_d_state=4,
    ),
    "RecurrentGemma": decoder(
        "RecurrentGemma", **DECODER, lru_width=32, attention_window_size=4, block_types=["recurrent", "attention"]
    ),
    "LFM2": decoder("Lfm2", **DECODER, layer_types=["conv", "full_attention"]),
    "LFM2-MoE": decoder(
        "Lfm2Moe",
        **DECODER,
        **EXPERTS,
        num_experts=4,
        num_dense_layers=1,
        layer_types=["conv", "full_attention"],
    ),
    "Bailing hybrid": decoder(
        "BailingHybrid",
        **DECODER | {"num_key_value_heads": 4},
        **EXPERTS,
        layer_types=["linear_attention", "full_attention"],
        head_dim=8,
        kv_lora_rank=12,
        qk_rope_head_dim=4,
        qk_nope_head_dim=8,
        v_head_dim=6,
        n_group=1,
        topk_group=1,
        first_k_dense_replace=1,
        num_local_experts=4,
        num_mtp_layers=0,
    ),
    "Inkling": decoder(
        "Inkling",
        config="InklingText",
        **DECODER,
        **EXPERTS,
        head_dim=8,
        swa_num_attention_heads=4,
        swa_num_key_value_heads=2,
        swa_head_dim=8,
        sliding_window_size=4,
        d_rel=4,
        rel_extent=8,
        n_routed_experts=4,
        n_shared_experts=1,
    ),
    "RWKV": decoder("Rwkv", **ATTENTION_FREE, attention_hidden_size=32),
    "MiniMax": decoder(
        "MiniMax",
        **DECODER,
        layer_types=["linear_attention", "full_attention"],
        head_dim=8,
        block_size=4,
        num_local_experts=2,
        num_experts_per_tok=1,
    ),
    "xLSTM": decoder("xLSTM", **ATTENTION_FREE | {"hidden_size": 64}, num_heads=4, qk_dim_factor=1.0),
}
NO_STATE = ("Zamba", "Zamba2")  # attention writes into the input of a state space, not into the residual state
# Before W_o, the heads are scaled one by one, or lose their means.
NO_OUTPUT_WEIGHT = ("Bailing hybrid", "xLSTM")
# Kernels written out in the module's own forward pass, and what is said of them.
NOT_SEEN = {
    "Inkling": "also mixes its tokens in InklingShortConvolution",
    "MiniMax": "computes linear attention in the forward pass of MiniMaxLightningAttention itself",
}

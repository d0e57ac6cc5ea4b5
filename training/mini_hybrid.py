"""mini-hybrid: a small hybrid language model, linear attention or state spaces with some attention, on Facts World.

    PYTHONPATH=src python training/mini_hybrid.py --kind qwen --out DIR --minutes 18 --seed 0

Two kinds: `qwen`, three gated delta rules before each attention (Qwen3.5, the dense Qwen3-Next), and `granite`, three
Mamba-2 layers before each attention (Granite 4 hybrid). Both learn as mini-llm does, from the same documents, so the
figures of the three can be compared. The folder holds, at any time, the best model so far.
"""

import argparse

from transformers import (
    GraniteMoeHybridConfig,
    GraniteMoeHybridForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen3_5ForCausalLM,
    Qwen3_5TextConfig,
)

from fact_batches import POSITIONS
from mini_llm import recipe_parser, train
from training_loop import start_run

LAYERS = [*["linear_attention"] * 3, "full_attention"] * 2
SIZES = {
    "hidden_size": 256,
    "num_hidden_layers": len(LAYERS),
    "layer_types": LAYERS,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": POSITIONS,
    "tie_word_embeddings": True,
}
DELTA_RULE = {
    "intermediate_size": 352,
    "head_dim": 32,
    "linear_num_key_heads": 8,
    "linear_num_value_heads": 8,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
}
STATE_SPACE = {
    "shared_intermediate_size": 288,
    "num_local_experts": 0,  # one dense MLP per layer
    "attention_multiplier": 32**-0.5,
    "mamba_n_heads": 16,
    "mamba_d_head": 32,
    "mamba_d_state": 64,
    "mamba_chunk_size": 64,
}
KINDS = {
    "qwen": (Qwen3_5ForCausalLM, Qwen3_5TextConfig, DELTA_RULE),
    "granite": (GraniteMoeHybridForCausalLM, GraniteMoeHybridConfig, STATE_SPACE),
}


def new_model(tokenizer: PreTrainedTokenizerFast, options: argparse.Namespace) -> PreTrainedModel:
    model_class, config_class, sizes = KINDS[options.kind]
    special = {name: getattr(tokenizer, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
    return model_class(config_class(vocab_size=len(tokenizer), **SIZES, **sizes, **special))


def main() -> None:
    parser = recipe_parser(__doc__)
    parser.add_argument("--kind", choices=list(KINDS), default="qwen")
    train(new_model, start_run(parser), by_block=True)


if __name__ == "__main__":
    main()

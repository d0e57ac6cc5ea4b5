"""What explaining costs on hybrids: CPU time over a forward and a backward pass, beside a Transformer of their size.

Random models of four layers and one text of random words; each method runs in turn with a plain forward and backward
pass, so that a busy machine slows both alike, and the figure is the median of the ratios. The kernels are transformers'
reference kernels in PyTorch.

python benchmarks/hybrid_cost.py [--tokens 128] [--rounds 5] [--out benchmarks/results/hybrid_cost.json]
"""

from __future__ import annotations

import argparse
import json
import logging
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn

import whyformer
from overhead import cpu_seconds, lowest_median

RESULTS = Path("benchmarks/results/hybrid_cost.json")
METHODS = ("rollout", "generic_attention", "evidence", "flow_routes", "bi_token", "lrp")
SIZES = {
    "vocab_size": 1000,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 4096,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
STATE_SPACE = {"mamba_n_heads": 16, "mamba_d_head": 32, "mamba_d_state": 32, "mamba_n_groups": 1}
DELTA_NET = {
    "head_dim": 32,
    "linear_num_value_heads": 8,
    "linear_num_key_heads": 8,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
}
TURNS = {"layer_types": [*["linear_attention"] * 3, "full_attention"]}
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "Llama (Transformer)": ("LlamaForCausalLM", "LlamaConfig", {}),
    "Qwen3.5 (gated delta rule)": ("Qwen3_5ForCausalLM", "Qwen3_5TextConfig", TURNS | DELTA_NET),
    "Bamba (Mamba-2)": ("BambaForCausalLM", "BambaConfig", STATE_SPACE | {"attn_layer_indices": [3]}),
    "Falcon-H1 (Mamba-2 beside attention)": (
        "FalconH1ForCausalLM",
        "FalconH1Config",
        STATE_SPACE | {"mamba_d_ssm": 512, "head_dim": 32},
    ),
    "LFM2 (short convolutions)": (
        "Lfm2ForCausalLM",
        "Lfm2Config",
        {"layer_types": [*["conv"] * 3, "full_attention"], "block_auto_adjust_ff_dim": False},
    ),
    "Jamba (Mamba)": (
        "JambaForCausalLM",
        "JambaConfig",
        {"attn_layer_period": 4, "attn_layer_offset": 3, "expert_layer_period": 9, "num_experts": 1},
    ),
}


def built(class_name: str, config_name: str, options: dict[str, Any]) -> nn.Module:
    torch.manual_seed(0)
    config = getattr(transformers, config_name)(**SIZES | options)
    return getattr(transformers, class_name)(config).eval()


def ratios(model: nn.Module, tokens: int, rounds: int) -> dict[str, float]:
    """Each method's time over that of a forward and a backward pass."""
    generator = torch.Generator().manual_seed(0)
    inputs = {"input_ids": torch.randint(3, 1000, (1, tokens), generator=generator)}

    def forward_backward() -> None:
        embedded = model.get_input_embeddings()(inputs["input_ids"]).detach().requires_grad_()
        torch.autograd.grad(model(inputs_embeds=embedded, use_cache=False).logits[0, -1].max(), embedded)

    def ratio(method: str) -> float:
        return cpu_seconds(lambda: whyformer.attribute(model, inputs, 1, method)) / cpu_seconds(forward_backward)

    return {method: round(lowest_median(partial(ratio, method), rounds), 2) for method in METHODS}


def known_models(file: Path, tokens: int, rounds: int) -> dict[str, Any]:
    """The figures of other models measured before, which must be of as many tokens and rounds."""
    if not file.exists():
        return {}
    found = json.loads(file.read_text())
    if (found["tokens"], found["rounds"]) != (tokens, rounds):
        raise SystemExit(
            f"{file} is of {found['tokens']} tokens and {found['rounds']} rounds, not of {tokens} and {rounds}: "
            "pass these, measure all models, or give another --out."
        )
    models: dict[str, Any] = found["models"]
    return models


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--only", nargs="+", metavar="MODEL")
    options = parser.parse_args()
    torch.set_num_threads(1)
    logging.getLogger("transformers").setLevel(logging.ERROR)
    known = known_models(options.out, options.tokens, options.rounds) if options.only else {}
    for name in options.only or MODELS:
        model = built(*MODELS[name])
        size = round(sum(parameter.numel() for parameter in model.parameters()) / 1e6, 1)
        known[name] = {"parameters": size, "ratios": ratios(model, options.tokens, options.rounds)}
        print(name, known[name], flush=True)
        result = {"tokens": options.tokens, "rounds": options.rounds, "models": known}
        options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""How much memory a long prompt takes on a GPU, and how long: absolute figures, for the card that is named.

    python benchmarks/memory.py [--tokens 4096] [--out benchmarks/results/memory.json]

Why a decoder of GPT-2's size (12 blocks of 12 heads, width 768) wrote the next token: random weights, bf16, one prompt.
A plain forward stands beside the methods. Peaks count the weights and all that PyTorch allocated, in GB of 10^9 bytes.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import torch
import transformers

from whyformer import attribute

# label, method, options, and the most GB it may take (None: shown only)
ROWS: list[tuple[str, str, dict[str, object], float | None]] = [
    ("rollout", "rollout", {}, 8),
    ("bi_token", "bi_token", {}, 8),
    ("the same by libra", "bi_token", {"backward": "libra"}, 8),
    ("generic_attention", "generic_attention", {}, 8),
    ("raw_attention", "raw_attention", {}, None),
    ("grad_cam", "grad_cam", {}, None),
    ("bi_head", "bi_head", {}, None),
]


def decoder(tokens: int) -> torch.nn.Module:
    torch.manual_seed(0)
    config = transformers.GPT2Config(n_layer=12, n_head=12, n_embd=768, n_positions=tokens)
    return transformers.GPT2LMHeadModel(config).eval().to("cuda", torch.bfloat16)


def measured(call: Callable[[], object]) -> dict[str, float]:
    """The peak and the seconds of a call, after one to warm up."""
    call()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    call()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    return {"peak_gb": round(torch.cuda.max_memory_allocated() / 1e9, 2), "seconds": round(seconds, 3)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/memory.json"))
    arguments = parser.parse_args()
    model = decoder(arguments.tokens)
    ids = torch.randint(0, model.config.vocab_size, (1, arguments.tokens), device="cuda")
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    @torch.no_grad()
    def forward() -> None:
        model(**inputs, use_cache=False)

    calls: dict[str, Callable[[], object]] = {"plain forward": forward}
    calls |= {
        label: lambda method=method, options=options: attribute(model, inputs, "predicted", method, **options)
        for label, method, options, _ in ROWS
    }
    found = {}
    for label, call in calls.items():
        found[label] = measured(call)
        print(f"{label:<30} {found[label]}", flush=True)
    report = {
        "card": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "model": "GPT-2, 12 blocks, 12 heads, width 768, random weights, bf16",
        "tokens": arguments.tokens,
        "rows": found,
        "bound_gb": {label: bound for label, _, _, bound in ROWS},
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(report, indent=1) + "\n")
    exceeded = [label for label, *_, bound in ROWS if bound is not None and found[label]["peak_gb"] >= bound]
    print(f"Written to {arguments.out}. {'Too much: ' + ', '.join(exceeded) if exceeded else 'Within bounds.'}")


if __name__ == "__main__":
    main()

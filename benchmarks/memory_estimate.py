"""How near the estimate of memory is to what a method takes on a GPU: absolute figures, for the card that is named.

    python benchmarks/memory_estimate.py [--out benchmarks/results/memory_estimate.json]

A decoder of one billion parameters, one of GPT-2's size and BERT-base, random weights in bf16, one text each. The
estimate explains shorter texts than the one it is about. Both count the weights, in GB of 10^9 bytes.
"""

from __future__ import annotations

import argparse
import gc
import json
from collections.abc import Callable
from pathlib import Path

import torch
import transformers

from whyformer import WhyformerError, attribute, estimate_memory
from whyformer.api.memory_estimate import peak_bytes, random_text, weight_bytes
from whyformer.methods.registry import trace_methods

ALLOWED = 0.25  # of what is measured that the estimate may be off
LLAMA = {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32}
LENGTHS = (512, 2048, 8192)


def built(model: str, config: str, **sizes: object) -> torch.nn.Module:
    torch.manual_seed(0)
    settings = getattr(transformers, config)(**sizes)
    with torch.device("cuda"):
        made = getattr(transformers, model)._from_config(settings, dtype=torch.bfloat16)
    return made.eval()


MODELS: dict[str, tuple[Callable[[], torch.nn.Module], tuple[int, ...]]] = {
    "Llama, 1B": (
        lambda: built(
            "LlamaForCausalLM", "LlamaConfig", **LLAMA, num_key_value_heads=8, max_position_embeddings=max(LENGTHS)
        ),
        LENGTHS,
    ),
    "GPT-2": (lambda: built("GPT2LMHeadModel", "GPT2Config", n_positions=max(LENGTHS)), LENGTHS),
    "BERT-base": (
        lambda: built("BertForSequenceClassification", "BertConfig", max_position_embeddings=2048),
        (512, 2048),
    ),
}


def compare(model: torch.nn.Module, tokens: int, method: str | None) -> dict[str, object]:
    """The estimate and what is measured in GB, and their ratio; or why there is none."""
    try:
        estimate = estimate_memory(model, tokens, method)
        text = random_text(model, tokens)
        measured = weight_bytes(model) + peak_bytes(lambda: attribute(model, text, 0, method), model)
    except WhyformerError as error:
        return {"reason": str(error)}
    except torch.OutOfMemoryError:
        return {"reason": f"out of memory; estimated {estimate / 1e9:.1f} GB"}
    finally:
        gc.collect()
        torch.cuda.empty_cache()
    return {
        "estimate_gb": round(estimate / 1e9, 3),
        "measured_gb": round(measured / 1e9, 3),
        "ratio": round(estimate / measured, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/memory_estimate.json"))
    parser.add_argument("--methods", nargs="*", default=["default", *trace_methods()])
    arguments = parser.parse_args()
    rows = []
    for name, (build, lengths) in MODELS.items():
        model = build()
        for tokens in lengths:
            for method in arguments.methods:
                row = compare(model, tokens, None if method == "default" else method)
                rows.append({"model": name, "tokens": tokens, "method": method, **row})
                print(f"{name:<10} {tokens:>6} {method:<24} {row}", flush=True)
        del model
    report = {
        "card": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "allowed": ALLOWED,
        "rows": rows,
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(report, indent=1) + "\n")
    off = [row for row in rows if abs(row.get("ratio", 1.0) - 1) > ALLOWED]
    print(f"Written to {arguments.out}. {len(off)} of {len(rows)} are off by more than {ALLOWED:.0%}.")


if __name__ == "__main__":
    main()

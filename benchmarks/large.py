"""What explaining a decoder of 8 billion parameters costs: seconds and GiB for each method and length of prompt.

Random weights in bfloat16 on one GPU; the time and the memory do not depend on what the weights are. Beside the methods
stand a forward pass and a forward with a backward pass whose blocks are checkpointed by transformers itself.

    python benchmarks/large.py --out benchmarks/results/large.json
    python benchmarks/large.py --tokens 8192 --methods rollout --out benchmarks/results/large.json --update
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers

from whyformer import attribute

LLAMA_8B = {
    "vocab_size": 128_256,
    "hidden_size": 4_096,
    "intermediate_size": 14_336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131_072,
}
SMALL = {**LLAMA_8B, "hidden_size": 1_024, "intermediate_size": 2_048, "num_hidden_layers": 4, "vocab_size": 32_000}
METHODS: dict[str, dict[str, Any]] = {
    "evidence": {"method": "evidence"},
    "bi_token, libra": {"method": "bi_token", "backward": "libra"},
    "generic_attention": {"method": "generic_attention"},
    "rollout": {"method": "rollout"},
    "input_x_gradient": {"method": "input_x_gradient"},
    "input_x_gradient, libra": {"method": "input_x_gradient", "backward": "libra"},
    "lrp, attn_lrp, fast": {"method": "lrp", "rules": "attn_lrp", "precision": "fast"},
    "lrp, attn_lrp, strict": {"method": "lrp", "rules": "attn_lrp"},
}
GIB = 2**30


def build(config: dict[str, Any], device: str) -> Any:
    with torch.device(device):
        torch.set_default_dtype(torch.bfloat16)
        try:
            model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**config))
        finally:
            torch.set_default_dtype(torch.float32)
    return model.eval().requires_grad_(False)


def measured(run: Callable[[], Any]) -> dict[str, float | str]:
    """Seconds of the second run, and the peak of both; or why there is none."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    try:
        run()
        torch.cuda.synchronize()
        start = time.perf_counter()
        run()
        torch.cuda.synchronize()
        seconds = time.perf_counter() - start
    except torch.OutOfMemoryError:
        return {"error": "out of memory"}
    return {"seconds": round(seconds, 3), "gib": round(torch.cuda.max_memory_allocated() / GIB, 1)}


def checkpointed(model: Any, inputs: dict[str, Any]) -> None:
    """A forward and a backward pass, the blocks checkpointed: only the embeddings get a gradient."""
    embeds = model.get_input_embeddings()(inputs["input_ids"]).requires_grad_()
    model.gradient_checkpointing_enable({"use_reentrant": False})
    model.train()
    try:
        logits = model(inputs_embeds=embeds, logits_to_keep=1, use_cache=False).logits
        torch.autograd.grad(logits.max(), embeds)
    finally:
        model.eval()
        model.gradient_checkpointing_disable()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--tokens", type=int, nargs="+", default=[2_048, 8_192, 16_384, 32_768])
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--update", action="store_true", help="keep the rows of --out that are not measured now")
    parser.add_argument("--small", action="store_true", help="a model of four narrow blocks, to try the script")
    options = parser.parse_args()
    model = build(SMALL if options.small else LLAMA_8B, "cuda")
    rows: list[dict[str, Any]] = []
    for tokens in options.tokens:
        ids = torch.randint(0, model.config.vocab_size, (1, tokens), device="cuda")
        inputs = {"input_ids": ids, "logits_to_keep": 1}

        def forward(inputs: dict[str, Any] = inputs) -> None:
            with torch.no_grad():
                model(**inputs, use_cache=False)

        runs: dict[str, Callable[[], Any]] = {
            "forward": forward,
            "forward and checkpointed backward": lambda inputs=inputs: checkpointed(model, inputs),
        }
        runs |= {
            name: lambda inputs=inputs, name=name: attribute(model, inputs, **METHODS[name]) for name in options.methods
        }
        for name, run in runs.items():
            rows.append({"tokens": tokens, "what": name, **measured(run)})
            print(rows[-1], flush=True)
    if options.update:
        measured_now = {(row["tokens"], row["what"]) for row in rows}
        before = json.loads(options.out.read_text(encoding="utf-8"))["rows"]
        rows = [row for row in before if (row["tokens"], row["what"]) not in measured_now] + rows
    document = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "rows": rows,
    }
    if options.out:
        options.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

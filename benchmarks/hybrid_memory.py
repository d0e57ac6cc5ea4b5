"""Long texts on a state space: the memory and the CPU time of a method by the length of the text.

The model is a Mamba-2 of two layers with random weights. Each method runs in a process of its own, which gives the peak
of memory above that of the loaded model; "forward and backward" is the plain pass to the input. `generic_attention`
needs all rows of the maps, so its time grows with the square of the length: it is measured on shorter texts.

python benchmarks/hybrid_memory.py --out benchmarks/results/hybrid_memory.json
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import torch
from transformers import Mamba2Config, Mamba2ForCausalLM

from whyformer import attribute

RESULTS = Path("benchmarks/results/hybrid_memory.json")
PLAIN = "forward and backward"
LENGTHS = {
    PLAIN: (2048, 8192, 32768),
    "rollout": (2048, 8192, 32768),
    "evidence": (2048, 8192, 32768),
    "generic_attention": (2048, 4096, 8192),
}
SIZES = {"vocab_size": 1000, "hidden_size": 64, "num_hidden_layers": 2, "num_heads": 4, "head_dim": 32}
STATE = {"state_size": 16, "n_groups": 1, "chunk_size": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def measure(method: str, tokens: int) -> dict[str, float]:
    """CPU seconds of a run, and the MiB above the memory before it."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Mamba2ForCausalLM(Mamba2Config(**SIZES, **STATE)).eval()
    inputs = {"input_ids": torch.randint(3, 1000, (1, tokens))}
    before, start = peak_memory(), time.process_time()
    if method == PLAIN:
        embedded = model.get_input_embeddings()(inputs["input_ids"]).detach().requires_grad_()
        torch.autograd.grad(model(inputs_embeds=embedded, use_cache=False).logits[0, -1].max(), embedded)
    else:
        attribute(model, inputs, 1, method)
    return {"seconds": round(time.process_time() - start, 2), "MiB": round(peak_memory() - before)}


def peak_memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=[*LENGTHS])
    parser.add_argument("--tokens", type=int, nargs="+", help="other lengths than those of the table")
    parser.add_argument("--one", action="store_true", help="measure in this process, for the script itself")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.methods[0], options.tokens[0])))
        return
    rows = []
    for method in options.methods:
        for tokens in options.tokens or LENGTHS[method]:
            command = [sys.executable, __file__, "--one", "--tokens", str(tokens), "--methods", method]
            figures = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            rows.append({"method": method, "tokens": tokens} | figures)
            print(rows[-1], flush=True)
            options.out.write_text(json.dumps({"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""Long prompts on a CPU: the CPU time of a method over that of one forward pass, by the length of the prompt.

The model has the shape of SmolLM2-135M (30 blocks, 9 heads, 3 of them for keys) and random weights: time does not
depend on them. Each method runs in a process of its own, which gives its peak of memory.

python benchmarks/long_prompts.py --out benchmarks/results/long_prompts.json

Rows that the file has already stay, unless they are measured again.
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
from transformers import LlamaConfig, LlamaForCausalLM

from whyformer import attribute

METHODS = ("rollout", "generic_attention", "flow_routes", "evidence")
THREADS, REPEATS = 2, 2


def measure(method: str, tokens: int, threads: int) -> dict[str, float]:
    """CPU seconds of a forward pass and of the method, the shorter of two runs each, and the peak of memory in GiB."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=49_152, hidden_size=576, intermediate_size=1_536, num_hidden_layers=30, num_attention_heads=9,
        num_key_value_heads=3, max_position_embeddings=8_192, tie_word_embeddings=True,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval().requires_grad_(False)
    inputs = {"input_ids": torch.randint(0, 49_152, (1, tokens)), "attention_mask": torch.ones(1, tokens).long()}

    def forward() -> None:
        with torch.no_grad():
            model(**inputs, logits_to_keep=1)

    seconds = {}
    for name, run in (("forward s", forward), ("method s", lambda: attribute(model, inputs, method=method))):
        times = []
        for _ in range(REPEATS):
            start = time.process_time()
            run()
            times.append(time.process_time() - start)
        seconds[name] = min(times)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return seconds | {"ratio": seconds["method s"] / seconds["forward s"], "peak GiB": peak}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tokens", type=int, nargs="+", default=[512, 4_096])
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--threads", type=int, default=THREADS, help="of torch; use 1 on a machine that is shared")
    parser.add_argument("--one", action="store_true", help="measure in this process, for the script itself")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.methods[0], options.tokens[0], options.threads)))
        return
    rows = known_rows(options.out, options.threads)
    for tokens in options.tokens:
        for method in options.methods:
            command = [sys.executable, __file__, "--one", "--tokens", str(tokens), "--methods", method]
            command += ["--threads", str(options.threads)]
            figures = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            rows[tokens, method] = {name: round(x, 2) for name, x in figures.items()}
            print(method, tokens, rows[tokens, method], flush=True)
            if options.out:
                each = [{"method": method, "tokens": tokens} | row for (tokens, method), row in sorted(rows.items())]
                options.out.write_text(json.dumps({"threads": options.threads, "rows": each}, indent=1) + "\n")


def known_rows(file: Path | None, threads: int) -> dict[tuple[int, str], dict[str, float]]:
    """The figures that a file has already, by length and method; a method measured again replaces its own."""
    if file is None or not file.exists():
        return {}
    report = json.loads(file.read_text())
    if report["threads"] != threads:
        raise SystemExit(f"{file} was measured with {report['threads']} threads: use --threads, or another file.")
    return {(row.pop("tokens"), row.pop("method")): row for row in report["rows"]}


if __name__ == "__main__":
    main()

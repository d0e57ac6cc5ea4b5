"""What it costs to explain a response of ten sentences to a long prompt, of a decoder of 8 billion parameters.

    python benchmarks/large_responses.py --out benchmarks/results/large_responses.json

Random weights in bfloat16 on one GPU, a prompt of 8,192 tokens and a response of 200 in ten sentences, each a row. It
is compared with one forward and backward pass over the same tokens whose blocks transformers itself checkpoints.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch

import whyformer
from large import LLAMA_8B, SMALL, build, checkpointed, measured
from whyformer.models.loading import load

PROMPT_TOKENS, SENTENCES, SENTENCE_TOKENS = 8_192, 10, 20


def text_of(tokenizer: Any, word: str, tokens: int, end: str = "") -> str:
    """So many tokens of one short word, which is a token of its own."""
    text = " ".join([word] * tokens)
    surplus = len(tokenizer(text + end, add_special_tokens=False)["input_ids"]) - tokens
    return text[: len(text) - surplus * (len(word) + 1)] + end


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--methods", nargs="+", default=["generic_attention", "rollout", "input_x_gradient"])
    parser.add_argument("--small", action="store_true", help="a model of four narrow blocks, to try the script")
    options = parser.parse_args()
    tokenizer = load("mini-gpt", device="cpu").tokenizer
    tokenizer.model_max_length = LLAMA_8B["max_position_embeddings"]
    model = build(SMALL if options.small else LLAMA_8B, "cuda")
    prompt = text_of(tokenizer, "film", PROMPT_TOKENS - 1)  # and the token that begins a text
    response = "".join(" " + text_of(tokenizer, "film", SENTENCE_TOKENS, ".") for _ in range(SENTENCES))
    ids = tokenizer(prompt + response, return_tensors="pt")["input_ids"].to("cuda")
    rows = {"forward and checkpointed backward": measured(lambda: checkpointed(model, {"input_ids": ids}))}
    print(ids.shape, rows, flush=True)
    for method in options.methods:
        explanations: list[whyformer.Response] = []

        def run(method: str = method, explanations: list[whyformer.Response] = explanations) -> None:
            settings: dict[str, Any] = {"units": "sentence", "sources": "word", "processor": tokenizer}
            explanations.append(whyformer.explain_response(prompt, response, model, method, **settings))

        rows[f"{method}, {SENTENCES} rows"] = measured(run)
        assert not explanations or len(explanations[-1].rows) == SENTENCES, explanations[-1].rows
        print(method, rows[f"{method}, {SENTENCES} rows"], flush=True)
    document = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "prompt_tokens": PROMPT_TOKENS,
        "response_tokens": ids.shape[1] - PROMPT_TOKENS,
        "rows": rows,
    }
    if options.out:
        options.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

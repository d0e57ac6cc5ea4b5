"""What explaining a model that writes about pictures costs, beside its decoder alone: ratios within one run.

    python benchmarks/vlm_cost.py [--rounds 5] [--out benchmarks/results/vlm_cost.json]

A LLaVA with random weights and its own decoder on as many tokens. Each method is timed between two plain forwards of
the same model, first of the decoder and at once of the whole; a round's figure is the ratio to their mean, the table
shows medians over rounds, and how many times the decoder's ratio the whole model's is. Times are the processor's, of
one thread, so that other work on the machine does not count.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
import transformers

from whyformer import attribute
from whyformer.axes import Inputs

BOUND = 1.3  # times the method's ratio on the decoder alone
IMAGE_TOKEN, WORDS = 5, 60
TOWER = {"hidden_size": 256, "num_hidden_layers": 8, "num_attention_heads": 4, "intermediate_size": 1024}
TOWER |= {"image_size": 224, "patch_size": 16}
DECODER = {"hidden_size": 512, "num_hidden_layers": 8, "num_attention_heads": 8, "intermediate_size": 1376}
DECODER |= {"vocab_size": 4000, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
ROWS: dict[str, dict[str, object]] = {
    "raw_attention": {},
    "rollout": {},
    "grad_cam": {},
    "input_x_gradient": {},
    "generic_attention": {},
    "the same by libra, the default": {"method": "generic_attention", "backward": "libra"},
    "flow_routes": {},
    "partial_lrp": {},
    "lrp": {},
    "transformer_attribution": {},
    "bi_token": {},
    "bi_head": {},
}


def seconds(call: Callable[[], object]) -> float:
    """What a call takes of the processor."""
    start = time.process_time()
    call()
    return time.process_time() - start


def whole_and_decoder() -> dict[str, tuple[torch.nn.Module, Inputs]]:
    """A LLaVA about one picture, and its decoder about as many words."""
    torch.manual_seed(0)
    text = transformers.LlamaConfig(**DECODER)
    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(**TOWER), text_config=text, image_token_id=IMAGE_TOKEN
    )
    patches = (TOWER["image_size"] // TOWER["patch_size"]) ** 2
    words = torch.randint(10, DECODER["vocab_size"], (WORDS,)).tolist()
    ids = torch.tensor([[1, *[IMAGE_TOKEN] * patches, *words]])
    both = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    whole = transformers.LlavaForConditionalGeneration(config).eval()
    return {
        "decoder": (transformers.LlamaForCausalLM(text).eval(), both),
        "whole": (whole, both | {"pixel_values": torch.randn(1, 3, TOWER["image_size"], TOWER["image_size"])}),
    }


def in_forwards(model: torch.nn.Module, inputs: Inputs, options: dict[str, object]) -> float:
    """What one explanation costs, in the plain forwards around it."""

    def forward() -> None:
        with torch.no_grad():
            model(**inputs)

    before, cost, after = seconds(forward), seconds(lambda: attribute(model, inputs, **options)), seconds(forward)
    return 2 * cost / (before + after)


def measure(rounds: int) -> dict[str, dict[str, float]]:
    """For each method the median costs on the decoder and on the whole model, and how many times the one the other is.

    The last is the median over rounds of the ratio of two figures that were taken one after the other.
    """
    models, costs = whole_and_decoder(), {label: [] for label in ROWS}
    for number in range(rounds + 1):
        for label, options in ROWS.items():
            pair = [in_forwards(*models[name], {"method": label} | options) for name in ("decoder", "whole")]
            if number:  # the first round pays for the memory
                costs[label].append(pair)
        print(f"round {number} of {rounds}", flush=True)
    return {
        label: {
            "decoder": round(statistics.median(first for first, _ in pairs), 2),
            "whole": round(statistics.median(second for _, second in pairs), 2),
            "times": round(statistics.median(second / first for first, second in pairs), 3),
        }
        for label, pairs in costs.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/vlm_cost.json"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    figures = measure(arguments.rounds)
    report = {
        "tower": TOWER,
        "decoder": DECODER,
        "words": WORDS,
        "machine": {"torch": torch.__version__, "threads": torch.get_num_threads()},
        "rounds": arguments.rounds,
        "bound": BOUND,
        "figures": figures,
    }
    arguments.out.write_text(json.dumps(report, indent=1) + "\n")
    print(f"{'forwards':<32}{'decoder':>10}{'whole':>10}{'times':>10}")
    for label, row in figures.items():
        print(f"{label:<32}" + "".join(f"{row[name]:>10.2f}" for name in ("decoder", "whole", "times")))
    print(f"Written to {arguments.out}.")


if __name__ == "__main__":
    main()

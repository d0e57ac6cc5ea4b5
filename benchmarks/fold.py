"""The kernel that folds maps on chip, against plain tiles in float64: how far off it is, and how much sooner done.

python benchmarks/fold.py --out benchmarks/results/fold.json
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from itertools import product
from pathlib import Path

import torch
from triton.testing import do_bench

from whyformer.tracing.flow import HeadMean, fold
from whyformer.tracing.record import AttentionRecord
from whyformer.watching.kernels import Attention
from whyformer.watching.mixing import MixedGradient


def record(attention: Attention, of_mixed: torch.Tensor) -> AttentionRecord:
    return AttentionRecord("", 0, "text", "text", attention, MixedGradient(attention, of_mixed))


def case(tokens: int, heads: int, groups: int, width: int, is_causal: bool, dtype: torch.dtype) -> AttentionRecord:
    query, of_mixed = (torch.randn(2, heads, tokens, width, device="cuda", dtype=dtype) for _ in range(2))
    key, value = (torch.randn(2, heads // groups, tokens, width, device="cuda", dtype=dtype) for _ in range(2))
    return record(Attention(query, key, value, is_causal=is_causal, enable_gqa=groups > 1), of_mixed)


def double(given: AttentionRecord) -> AttentionRecord:
    call, gradient = given.source, given.gradient_source
    tensors = {name: getattr(call, name).double() for name in ("query", "key", "value")}
    exact = Attention(**tensors, is_causal=call.is_causal, enable_gqa=call.enable_gqa)
    return record(exact, gradient.of_mixed.double())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.manual_seed(0)
    rows = []
    for tokens, (heads, groups, width), is_causal, times_gradient, dtype in product(
        (77, 512, 1_000),
        ((4, 1, 64), (8, 4, 128), (2, 2, 32)),
        (True, False),
        (True, False),
        (torch.float32, torch.bfloat16),
    ):
        given, mixing = case(tokens, heads, groups, width, is_causal, dtype), HeadMean(times_gradient)
        start = torch.rand(2, 1, tokens, device="cuda")
        # Wrapped, the formula is not known to the kernel: tiles fold it.
        expected = fold(start.double(), double(given), partial(HeadMean.__call__, mixing))
        got = mixing.fold(start, given)
        assert got is not None
        error = float((got - expected).norm() / expected.norm())
        rows.append(
            {
                "tokens": tokens,
                "heads": heads,
                "groups": groups,
                "width": width,
                "causal": is_causal,
                "gradient": times_gradient,
                "dtype": str(dtype),
                "error": error,
            }
        )
        assert error < (1e-5 if dtype == torch.float32 else 1e-2), rows[-1]
    worst = {kind: max(row["error"] for row in rows if row["dtype"] == kind) for kind in {row["dtype"] for row in rows}}
    print("worst error", worst)
    speeds = []
    for tokens in (2_048, 8_192):
        given, start = case(tokens, 32, 4, 128, True, torch.bfloat16), torch.rand(2, 1, tokens, device="cuda")
        for times_gradient in (True, False):
            mixing = HeadMean(times_gradient)
            chip = do_bench(partial(mixing.fold, start, given), return_mode="median")
            tiles = do_bench(partial(fold, start, given, partial(HeadMean.__call__, mixing)), return_mode="median")
            speeds.append({"tokens": tokens, "gradient": times_gradient, "chip_ms": chip, "tiles_ms": tiles})
            print(speeds[-1], flush=True)
    if options.out:
        document = {"device": torch.cuda.get_device_name(), "worst": worst, "cases": rows, "speeds": speeds}
        options.out.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""The peak memory of one shard of a suite in a process of its own, for a batch size or another.

python benchmarks/run_memory.py dinov2-grid --data DATA --methods bi_token --samples 8 --batch 64
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
import tomllib
from pathlib import Path

import torch

from whyformer.benchmark import make_suite, run_suite

HERE = Path(__file__).parent


def resident() -> float:
    """The largest memory that this process held, in GB of 10^9 bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("suite")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--methods", nargs="+", required=True)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--batch", type=int, default=64)
    options = parser.parse_args()
    torch.set_num_threads(1)
    document = tomllib.loads((HERE / "suites" / f"{options.suite}.toml").read_text(encoding="utf-8"))
    document |= {"methods": options.methods, "samples": options.samples, "shard": options.samples}
    before, start = resident(), time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        run_suite(make_suite(document | {"batch": options.batch}), folder, data=options.data, quiet=True)
    print(
        f"{options.suite}, {', '.join(options.methods)}, {options.samples} samples, batch {options.batch}: peak "
        f"{resident():.2f} GB (libraries {before:.2f}), {time.process_time() - start:.0f} s of CPU"
    )


if __name__ == "__main__":
    main()

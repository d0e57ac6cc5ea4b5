"""Writes the sanity controls that audit files quote into the package, from the committed runs.

python docs/controls.py           # rewrite src/whyformer/api/controls.json
python docs/controls.py --check   # exit 1 if it is out of date
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from whyformer.models.digests import weight_digests
from whyformer.models.loading import load
from whyformer.models.zoo import bundled

ROOT = Path(__file__).parents[1]
RUNS = ROOT / "benchmarks" / "results" / "evaluation"
FILE = ROOT / "src" / "whyformer" / "api" / "controls.json"
PROTOCOLS = ("class_sensitivity", "model_randomisation", "saco")


def controls() -> dict[str, Any]:
    """By the SHA-256 of a bundled model's weights: what each method's controls gave on it."""
    runs = [(path.stem, json.loads(path.read_text())) for path in sorted(RUNS.glob("*-sanity.json"))]
    return {_weights(run["model"]): _run(suite, run) for suite, run in runs if run["model"] in bundled()}


def _weights(name: str) -> str:
    model = load(name, device="cpu")
    return " ".join(weight_digests(model.model, model.place).values())


def _run(suite: str, run: dict[str, Any]) -> dict[str, Any]:
    methods: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for protocol in run["protocols"]:
        for figure in protocol["figures"] if protocol["protocol"].split()[0] in PROTOCOLS else ():
            about = {"protocol": protocol["protocol"], "figure": figure["figure"], "better": figure["better"]}
            for row in figure["rows"]:
                methods[row["method"]].append(about | {key: row[key] for key in ("n", "value", "low", "high")})
    return {"suite": suite, "data": run["data"]["reader"], "samples": run["samples"], "methods": methods}


def main() -> int:
    text = json.dumps(controls(), ensure_ascii=False, indent=1) + "\n"
    is_stale = text != FILE.read_text(encoding="utf-8")
    if "--check" not in sys.argv:
        FILE.write_text(text, encoding="utf-8")
    print(f"{FILE.name}: {'out of date' if is_stale and '--check' in sys.argv else 'up to date'}")
    return int(is_stale and "--check" in sys.argv)


if __name__ == "__main__":
    sys.exit(main())

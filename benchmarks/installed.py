"""Does an installed whyformer compute here what it computed elsewhere? Every kept explanation is computed again.

    python benchmarks/installed.py                    # verify the audit files in benchmarks/results/audits
    python benchmarks/installed.py --out result.json  # and write what was found
    python benchmarks/installed.py --write            # make them anew, in the pinned environment

It needs nothing but the package and its dependencies: run it where a wheel was installed. Exit code 1 if one differs.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import whyformer
from whyformer.models.zoo import ZOO

AUDITS = Path(__file__).resolve().parent / "results" / "audits"
CAT = ZOO / "cat.jpg"
REVIEW = "A wonderful film, and not a bit too long."
# By model an example; pictures are in the package, so that they are found wherever it is installed.
EXAMPLES: dict[str, Any] = {
    "mini-bert": REVIEW,
    "mini-clip": (CAT, ["a photo of a cat", "a photo of a dog"]),
    "mini-detr": CAT,
    "mini-gpt": "The film was",
    "mini-llm": "Where is the key? The key is in the",
    "mini-news": "The rocket reached its orbit after a second launch.",
    "mini-t5": "what colour is the star?",
    "mini-vit": CAT,
    "mini-vit-mae": CAT,
    "mini-vlm": (CAT, "describe the scene."),
}
METHODS = (None, "generic_attention", "transformer_attribution")


def write() -> None:
    """Keep the explanation of each example by each method."""
    AUDITS.mkdir(parents=True, exist_ok=True)
    os.chdir(ZOO)  # so that no path of this machine is kept
    for model, example in EXAMPLES.items():
        for method in METHODS:
            named = tuple(Path(CAT.name) if part is CAT else part for part in _parts(example))
            explanation = whyformer.explain(named if isinstance(example, tuple) else named[0], model, method=method)
            explanation.save(AUDITS / f"{model}-{method or 'default'}.audit.json")


def verify() -> dict[str, str]:
    """For each kept explanation an empty text if it is the same here, or what is wrong."""
    found = {}
    for path in sorted(AUDITS.glob("*.audit.json")):
        is_picture = any(path.name.startswith(name) and CAT in _parts(EXAMPLES[name]) for name in EXAMPLES)
        try:
            result = whyformer.verify(path, inputs=[CAT] if is_picture else ())
            found[path.name] = "; ".join(f"{one.name}: {one.finding}" for one in result.checks if not one.agrees)
        except Exception as error:
            found[path.name] = f"{type(error).__name__}: {error}"
        print(f"{'yes' if not found[path.name] else 'NO '} {path.name} {found[path.name]}", flush=True)
    return found


def _parts(example: Any) -> tuple[Any, ...]:
    return example if isinstance(example, tuple) else (example,)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="make the audit files anew")
    parser.add_argument("--out", type=Path, help="a .json file for the result")
    arguments = parser.parse_args()
    if arguments.write:
        write()
        return 0
    start = time.monotonic()
    found = verify()
    seconds, failures = time.monotonic() - start, {name: text for name, text in found.items() if text}
    print(f"{len(found) - len(failures)} of {len(found)} explanations are the same here, in {seconds:.0f} s.")
    if arguments.out is not None:
        from whyformer.api.audit import computation

        about = computation(whyformer.load("mini-bert").model)
        result = {**about, "same": len(found) - len(failures), "of": len(found), "differ": failures}
        arguments.out.write_text(json.dumps(result, indent=1) + "\n")
    return int(bool(failures) or not found)


if __name__ == "__main__":
    sys.exit(main())

"""How far one explanation travels through the package: modules, functions, and changes of module.

python benchmarks/hops.py --label after --out benchmarks/results/hops.json
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import whyformer

TEXT = "The story starts slowly, but its ending is a great surprise."
ROOT = str(Path(whyformer.__file__).parent)


def count_hops(function: Callable[[], Any]) -> dict[str, int]:
    """The modules and functions of the package that a call runs, and how often it goes from one module to another."""
    modules, functions, changes = set(), set(), 0
    here: str | None = None

    def watch(frame: Any, event: str, _: Any) -> None:
        nonlocal here, changes
        path = frame.f_code.co_filename
        if event != "call" or not path.startswith(ROOT) or "zoo" in path:
            return
        modules.add(path)
        functions.add((path, frame.f_code.co_name))
        changes += here is not None and path != here
        here = path

    sys.setprofile(watch)
    try:
        function()
    finally:
        sys.setprofile(None)
    return {"modules": len(modules), "functions": len(functions), "changes of module": changes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--label", default="after", help="the revision that is measured, by any name")
    parser.add_argument("--out", type=Path, help="a JSON file, to which the figures are added")
    options = parser.parse_args()
    bert = whyformer.load("mini-bert")
    whyformer.explain(TEXT, bert)  # the first call imports
    figures = {}
    for method in (None, "generic_attention", "rollout"):
        named = {} if method is None else {"method": method}
        hops = count_hops(lambda named=named: whyformer.explain(TEXT, bert, **named))
        figures[method or "default"] = hops
        print(method or "default", *(f"{count:,} {name}" for name, count in hops.items()), sep="  ")
    if options.out:
        known = json.loads(options.out.read_text()) if options.out.exists() else {}
        options.out.write_text(json.dumps(known | {options.label: figures}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

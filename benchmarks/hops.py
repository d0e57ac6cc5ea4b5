"""How far one explanation travels through the package: modules, functions, and changes of module.

python benchmarks/hops.py
"""

from __future__ import annotations

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
    bert = whyformer.load("mini-bert")
    whyformer.explain(TEXT, bert)  # the first call imports
    for method in (None, "generic_attention", "rollout"):
        named = {} if method is None else {"method": method}
        hops = count_hops(lambda named=named: whyformer.explain(TEXT, bert, **named))
        print(method or "default", *(f"{count:,} {name}" for name, count in hops.items()), sep="  ")


if __name__ == "__main__":
    main()

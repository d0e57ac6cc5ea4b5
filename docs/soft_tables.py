"""The table of soft removal beside the deletion curves, from what benchmarks/soft.py measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from evaluations import NONE
from evaluations import lines as table

SHOWN = ("random", "raw_attention", "generic_attention", "input_x_gradient")


def soft(path: Path) -> str:
    """Means of some methods, and how well each figure tells methods apart for its cost."""
    if not path.is_file():
        return NONE
    document = json.loads(path.read_text())
    rows = [_row(name, figure) for name, figure in document["figures"].items()]
    header = ["figure", "forwards", "texts", "pairs told apart", "ahead of `random`", "agrees with the curves"]
    body = table([*header, *(f"`{name}`" for name in SHOWN)], rows)
    return f"{document['texts']} sentences, {document['model']}.\n\n{body}"


def _row(name: str, figure: dict[str, Any]) -> list[str]:
    apart = f"{figure['told apart']} of {figure['pairs']}"
    ahead = f"{figure['ahead of random']} of {len(figure['means']) - 1}"
    means = [f"{value:.2f} ({low:.2f} to {high:.2f})" for value, low, high in map(figure["means"].get, SHOWN)]
    return [name, str(figure["forwards"]), str(figure["texts"]), apart, ahead, f"{figure['agreement']:.2f}", *means]

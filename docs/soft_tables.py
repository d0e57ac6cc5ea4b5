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
    return "\n\n".join(_of_model(name, one) for name, one in json.loads(path.read_text()).items())


def _of_model(name: str, document: dict[str, Any]) -> str:
    rows = [_row(figure, one) for figure, one in document["figures"].items()]
    header = ["figure", "forwards", "texts", "pairs told apart", "ahead of `random`", "agrees with the curves"]
    doses = ["noise 0 · ¼ · ½ · ¾ · all", "falls told"]
    body = table([*header, *doses, *(f"`{method}`" for method in SHOWN)], rows)
    return f"{name}, {document['texts']} texts of {document['data']}:\n\n{body}"


def _row(name: str, figure: dict[str, Any]) -> list[str]:
    apart = f"{figure['told apart']} of {figure['pairs']}"
    ahead = f"{figure['ahead of random']} of {len(figure['means']) - 1}"
    doses = " · ".join(f"{value:.2f}" for value in figure["doses"].values())
    falls = f"{figure['falls']} of {len(figure['doses']) - 1}"
    means = [f"{value:.2f} ({low:.2f} to {high:.2f})" for value, low, high in map(figure["means"].get, SHOWN)]
    agreement = f"{figure['agreement']:.2f}"
    return [name, str(figure["forwards"]), str(figure["texts"]), apart, ahead, agreement, doses, falls, *means]

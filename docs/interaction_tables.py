"""Tables of interactions of pairs, from what benchmarks/interactions.py measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from evaluations import NONE
from evaluations import lines as table

PAIRS = {
    "both": "the two words together make a review positive",
    "either": "either of two words makes a review positive",
    "negates": "one word makes a review positive, the other negates it",
    "negation": "“not” and an adjective, mini-bert",
}
KINDS = ("removal", "moebius", "shapley")
CRITERIA = {
    **{kind: f'interaction, `kind="{kind}"`' for kind in KINDS},
    "product of effects": "product of the effects of the two alone",
    "product of scores": "product of their scores",
}


def ranks(path: Path) -> str:
    """Where a pair that belongs together ranks among all pairs of a text, by criterion."""
    found = _read(path)
    if not {"planted", "negation"} <= found.keys():
        return NONE
    rows = [
        [f"{PAIRS[name]} ({one['texts']} texts)", label, _share(one["ahead of other pairs"][criterion]),
         f"{one['first'][criterion][0]:.0%}", str(one["runs"].get(criterion, "–")), _p(one, criterion),
         _sign(one, criterion)]
        for name, one in {**found["planted"], "negation": found["negation"]}.items()
        for criterion, label in CRITERIA.items()
    ]  # fmt: skip
    header = [
        "pair",
        "ranked by",
        "ahead of other pairs",
        "first",
        "runs",
        "p against the product of effects",
        "in log-odds",
    ]
    return table(header, rows)


def negation(path: Path) -> str:
    """How many answers the negation changes."""
    found = _read(path).get("negation")
    if found is None:
        return NONE
    changed, of = found["answers that the negation changes"]
    return f"Without “not”, mini-bert gives another answer to {changed} of the {of} sentences."


def foretold(path: Path) -> str:
    """What interactions of pairs foretell, by model."""
    found = _read(path).get("foretold")
    if found is None:
        return NONE
    rows = [
        [
            model,
            str(one["examples"]),
            *(f"{one['error in log-odds'][name]:.2f}" for name in ("effects alone", "with interactions", "exchanged")),
            _share(one["with interactions is closer"]),
            f"{one['p against effects alone']:.3f}",
        ]
        for model, one in found.items()
    ]
    header = ["error in log-odds", "examples", "effects alone", "with interactions", "exchanged", "closer with", "p"]
    return table(header, rows)


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    return found


def _share(value: list[float]) -> str:
    share, low, high = value
    return f"{share:.0%} ({low:.0%} to {high:.0%})"


def _p(one: dict[str, Any], criterion: str) -> str:
    p = one["p against the product of effects"].get(criterion)
    return "–" if p is None else f"{p:.3f}"


def _sign(one: dict[str, Any], criterion: str) -> str:
    value = one["interaction of the pair"].get(criterion)
    if value is None:
        return "–"
    return f"{value[0]:+.2f} ({value[1]:+.2f} to {value[2]:+.2f}), above 0 in {one['above 0'][criterion][0]:.0%}"

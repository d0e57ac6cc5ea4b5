"""The tables of attention sinks, from what benchmarks/decoder_sinks.py measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from evaluations import NONE
from evaluations import lines as table

RUNS = {
    "development": "mini-llm, chosen here",
    "mini-llm": "mini-llm, others",
    "smollm2": "SmolLM2",
    "qwen": "Qwen2.5-Coder",
}
# By what it is called on the page.
VARIANTS = {
    "`rollout`": "A, all blocks · no feedback",
    "`rollout normalise_rows=True`": "A, rows + I sum to 1 · no feedback",
    "`rollout` through the last block": "A, last block · no feedback",
    "`rollout`, sink left out, rows renormalised": "A, sink left out, all blocks · no feedback",
    "attention, mean of all blocks": "A, mean of blocks · no feedback",
    "`bi_token`": "A α, all blocks · integrated by gradient",
    "`bi_token feedback=gradient`": "A α, all blocks · gradient by gradient",
    "`bi_token feedback=gradient backward=libra`": "A α, all blocks · gradient by libra",
    "`bi_token`, sink left out, rows renormalised": "A α, sink left out, all blocks · gradient by gradient",
    "`bi_token alpha=values feedback=gradient`": "A α of values, all blocks · gradient by gradient",
    "`bi_token alpha=values feedback=gradient backward=libra`": "A α of values, all blocks · gradient by libra",
    "`bi_token` through the last block": "A α, last block · gradient by gradient",
    "`bi_token` of norms, ‖v Wₒ‖ / ‖z‖ of the query": "A ‖v Wₒ‖ / ‖z‖ of the query, all blocks · gradient by gradient",
    "`bi_token alpha=values`, feedback of all blocks by libra": "A α of values, all blocks · of all blocks by libra",
    "`bi_token`, mean of all blocks": "A α, mean of blocks · gradient by gradient",
    "`bi_token alpha=values`, mean of all blocks": "A α of values, mean of blocks · gradient by gradient",
    "`bi_token alpha=values`, mean of all blocks, by libra": "A α of values, mean of blocks · gradient by libra",
    "`bi_head feedback=gradient`": "A by head, all blocks · gradient by gradient",
    "`bi_head`, sink left out, rows renormalised": "A by head, sink left out, all blocks · gradient by gradient",
    "feedback alone, integrated": "1 · integrated by gradient",
    "feedback alone, at the input": "1 · gradient by gradient",
    "feedback alone, at the input, by libra": "1 · gradient by libra",
    "feedback alone, of all blocks": "1 · of all blocks by gradient",
    "(A ⊙ ∇A)⁺ by libra, mean of all blocks": "(A ⊙ ∇A)⁺ by libra, mean of blocks",
    "`generic_attention`": "generic_attention by gradient",
    "`generic_attention backward=libra`": "generic_attention by libra",
}
FIGURES = ("‖z‖", "attention to the first, of all and where read", "α", "α of values")


def found_in(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def variants(path: Path) -> str:
    """How often the true sentence is first, by variant: where variants were compared, and on other questions."""
    found = found_in(path)
    runs = [run for run in RUNS if run in found]
    header = ["true sentence first", *(f"{RUNS[run]} ({found[run]['questions']})" for run in runs)]
    rows = [["chance", *(f"{found[run]['chance']:.0%}" for run in runs)]]
    for label, name in VARIANTS.items():
        rows.append([label, *(_cell(found[run], name) for run in runs)])
    return table(header, rows)


def _cell(run: dict[str, Any], name: str) -> str:
    figures = run["variants"].get(name)
    if figures is None:
        return NONE
    low, high = figures["95 %"]
    part = "" if figures["questions"] == run["questions"] else f", of {figures['questions']}"
    return f"{figures['top 1']:.0%} [{low:.0%}, {high:.0%}]{part}"


def sinks(path: Path) -> str:
    """Figures of the first token beside the median of the others, in some blocks of SmolLM2."""
    found = found_in(path)["smollm2"]["sink"]
    count = len(found["‖z‖"])
    blocks = sorted({0, *range(2, count - 1, 4), count - 1})
    header = ["block", "‖z‖", "attention to the first: of all, where read", "α", "α, `values`"]
    return table(header, [[str(block), *(_pair(found[name][block]) for name in FIGURES)] for block in blocks])


def _pair(values: list[float]) -> str:
    return " · ".join(f"{value:,.0f}" if value >= 100 else f"{value:.3g}" for value in values)

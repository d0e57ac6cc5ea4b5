"""A page for each method: its formula and picture, its cost, where it wins and loses, its citation."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evaluations import cell, columns_of
from evaluations import lines as table

from whyformer.benchmark.reporting.charts import CONTROLS
from whyformer.methods.registry import (
    METHODS,
    Method,
    removal_methods,
    trace_methods,
)

DOCS = Path(__file__).parent
RESULTS = DOCS.parent / "benchmarks" / "results"
# Those that read a trace first, then those that remove units, then those of one kind alone.
EVERY_METHOD: dict[str, Method] = trace_methods() | removal_methods() | METHODS
# Figures beside those of the short table, which have no responses and no written words.
FURTHER = {
    "mini-llm, sources of an answer": ("facts-llm", "AUPRC"),
    "mini-vlm, objects of a word": ("scenes-vlm", "pointing game"),
}
OF_GRADIENTS = (
    "Like all methods that read gradients, it takes [`backward`](index.md#another-backward-pass) and "
    "[`noise`](index.md#noise-on-the-input)."
)
# What letters stand for in formulas, where the page of a method does not say otherwise.
LETTERS = {
    "s": "the scores",
    "A": "an attention map (a row is a query, a column a key)",
    "y": "the explained score",
    "r": "the read-out, where the answer is read",
    "I": "the identity: what every token keeps",
    "𝔼": "the mean over heads",
    "⁺": "keeps positive values",
    "h": "counts heads",
    "j": "counts tokens",
    "l": "counts blocks",
    "L": "the number of blocks, also the last one",
}
_COMMANDS = {
    "alpha": "α", "epsilon": "ε", "lambda": "λ", "phi": "φ", "pi": "π", "sigma": "σ", "tau": "τ", "theta": "θ"
}  # fmt: skip
# Upright words, the d of an integral, the base e, and A with a mark, which the formula itself defines.
_NO_LETTERS = re.compile(r"\\(?:text|mathrm)\{[^}]*\}|d ?\\tau|\be\^|\\(?:bar|tilde) A|\\prime")


def method_pages(found: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """The page of every registered method, by its name."""
    texts = tomllib.loads((DOCS / "method_pages.toml").read_text())
    if missing := EVERY_METHOD.keys() - texts.keys():
        raise SystemExit(f"docs/method_pages.toml lacks {', '.join(sorted(missing))}: formula, says, paper.")
    return {name: page(name, method, texts[name], found) for name, method in EVERY_METHOD.items()}


def page(name: str, method: Method, text: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """The page of a method; one that must be learned first says how instead of showing a picture of its own."""
    formulas = "\n\n".join(f"$$\n{formula}\n$$" for formula in text["formula"])
    parts = [
        f"# {name}",
        method.summary,
        "" if "use" in text else f"![{_alternative(name)}](../pictures/method-{name}.png)",
        text["says"],
        "## Formula",
        formulas,
        legend(name, text),
        "## Use it",
        text.get("use", f"```python\n{example(name)}\n```").strip(),
        options(method),
        "## Cost",
        cost(name, method),
        "## Where it wins and loses",
        standing(name, found),
        "## Citation",
        text["paper"],
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def letters(formula: str) -> list[str]:
    """The letters of a formula that stand for something, in their order."""
    text = _NO_LETTERS.sub(" ", formula).replace(r"\mathbb{E}", "𝔼").replace(r"\mathcal{U}", "𝒰")
    text = text.replace("^{+}", "⁺").replace(r"\bar y", "ȳ").replace(r"\hat w", "w")
    text = re.sub(r"\\([a-zA-Z]+)", lambda command: _COMMANDS.get(command[1], " "), text)
    return [letter for letter in dict.fromkeys(text) if letter.isalpha() or letter == "⁺"]


def legend(name: str, text: Mapping[str, Any]) -> str:
    """What each letter of the formulas stands for, its own first, and nothing that is not in them."""
    own, used = text.get("where", {}), letters(" ".join(text["formula"]))
    meanings = own | {letter: meaning for letter, meaning in LETTERS.items() if letter in used and letter not in own}
    if unknown := [letter for letter in used if letter not in meanings]:
        raise SystemExit(f"docs/method_pages.toml, {name}: where does not say what {', '.join(unknown)} stands for.")
    if unused := meanings.keys() - used:
        raise SystemExit(f"docs/method_pages.toml, {name}: no {', '.join(sorted(unused))} in the formula.")
    shown = {"⁺": "(·)⁺", "𝔼": "𝔼" if "𝔼" in own else "𝔼ₕ"}
    parts = (f"{shown.get(letter, letter)}: {meaning}" for letter, meaning in meanings.items())
    return "; ".join(parts) + ". [Every term](../concepts/glossary.md)."


def _alternative(name: str) -> str:
    if EVERY_METHOD[name].kinds == ("response",):
        return f"The two sentences that an answer comes from, by {name}"
    if EVERY_METHOD[name].kinds == ("image prompt",):
        return f"Where a word about a scene was seen, by {name}"
    return f"Evidence for cat in a photograph and for positive in a review, by {name}"


def example(name: str) -> str:
    if EVERY_METHOD[name].kinds == ("response",):
        call = f'whyformer.explain_response("Where is the key?", " In Rome.", "mini-llm", "{name}", context=documents)'
        documents = 'documents = ["Anna gave the key to Boris.", "Boris went to Rome."]'
        return f"import whyformer\n\n{documents}\nprint({call})"
    if EVERY_METHOD[name].kinds == ("image prompt",):
        return (
            "import whyformer\nfrom whyformer.scenes import example\n\nscene = example(3)\n"
            f'print(whyformer.explain((scene.image, scene.question), "mini-vlm", method="{name}"))'
        )
    return f'import whyformer\n\nprint(whyformer.explain("A wonderful film.", "mini-bert", method="{name}"))'


def options(method: Method) -> str:
    rows = [[f"`{name}`", f"`{parameter.default!r}`"] for name, parameter in method.options.items()]
    own = table(["option", "default"], rows) if rows else "It has no options of its own."
    if isinstance(method, Method) and method.reads.takes_gradients:
        return f"{own}\n\n{OF_GRADIENTS}"
    return own if rows else "It has no options."


def cost(name: str, method: Method) -> str:
    """What it reads, and what that was measured to cost."""
    sentences = [f"Reads: {method.reads}."]
    report, gpu = (json.loads((RESULTS / f"{file}.json").read_text()) for file in ("cost", "gpu"))
    ratios = _of_method(name, report["batch"]["1"]["ratios"])
    if ratios:
        figures = ", ".join(f"{ratio:.1f}{label}" for label, ratio in ratios.items())
        sentences.append(f"In forward passes of {report['model'].partition(',')[0]} on a CPU, one picture: {figures}.")
    rates = {label: row["images_per_second"] for label, row in _of_method(name, gpu["throughput"]["bf16"]).items()}
    if rates:
        figures = ", ".join(f"{rate:,.0f}{label}" for label, rate in rates.items())
        sentences.append(f"Pictures a second in bfloat16 on one {gpu['card']}: {figures}.")
    if not ratios and not rates:
        sentences.append("It was not timed separately.")
    return " ".join(sentences) + " How this was measured: [measurements](../results/measurements.md#cost)."


def _of_method(name: str, figures: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of one method, under what is said of its settings."""
    found = {}
    for label, value in figures.items():
        of, _, settings = label.partition(",")
        if of == name:
            found[f" ({settings.strip()})" if settings else ""] = value
    return found


def standing(name: str, found: Mapping[str, Any]) -> str:
    """Its place among all methods and variants in every figure it has."""
    columns = dict(columns_of(found))
    for title, (run, wanted) in FURTHER.items():
        figures = (figure for protocol in found[run]["protocols"] for figure in protocol["figures"])
        columns[title] = next(figure for figure in figures if figure["figure"] == wanted)
    rows = [row for title, figure in columns.items() for row in _rows(name, title, figure)]
    if not rows:
        return "Not yet in the published tables."
    header = ["%", "variant", "value", "place", "best", "best control"]
    note = "Places count every method and variant of the table. Intervals are those of the values."
    return f"{table(header, rows)}\n\n{note} All figures: [results](../results/index.md)."


def _rows(name: str, title: str, figure: Mapping[str, Any]) -> list[list[str]]:
    order = [row["method"] for row in figure["rows"] if row["method"] not in CONTROLS]
    best = figure["rows"][0]["method"]
    control = next((row["method"] for row in figure["rows"] if row["method"] in CONTROLS), None)
    beside = f"{control} {cell(figure, control)}" if control else "–"
    return [
        [title, f"`{label}`", cell(figure, label), f"{place} of {len(order)}", f"{best} {cell(figure, best)}", beside]
        for place, label in enumerate(order, 1)
        if label.partition(" ")[0] == name and label in (name, f"{name} backward=libra")
    ]

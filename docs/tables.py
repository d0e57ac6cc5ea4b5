"""Writes the tables of README and docs from the registry and the committed results, so that they cannot drift.

python docs/tables.py           # rewrite them
python docs/tables.py --check   # exit 1 if one is out of date
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
import tomllib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import action_tables
import architecture_tables
import hybrid_tables
import install_tables
import interaction_tables
import leaderboard
import leaderboard_samples
import planted_tables
import real_tables
import salience_table
import sink_tables
import soft_tables
import support_tables
import survey_tables
import verdicts
import yaml
from cards import CARDS, card_rows, metrics
from cli_pages import cli_page
from evaluations import NONE, contents, defaults, options, pages, rankings, runs, short
from evaluations import lines as table
from hooks import listed, pages_of
from method_pages import EVERY_METHOD, method_pages

import whyformer
from whyformer.app.limits import Limits
from whyformer.backward.kinds import OPERATION_KINDS
from whyformer.backward.rules import LIBRA, RULES
from whyformer.benchmark import read_suite
from whyformer.inputs.read import MOST_ASPECT
from whyformer.models.zoo import ZOO

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
RESULTS = ROOT / "benchmarks" / "results"


def result(name: str) -> dict[str, Any]:
    return json.loads((RESULTS / f"{name}.json").read_text())


def methods() -> str:
    """What each method does, reads and explains."""
    rows = [
        [f"[`{name}`]({name}.md)", method.summary, str(method.reads), f"{', '.join(method.kinds)}"]
        for name, method in EVERY_METHOD.items()
    ]
    return table(["method", "what it is", "reads", "explains"], rows)


def limits() -> str:
    """How much the web page takes at once, and how long it takes and keeps it."""
    most = Limits()
    rows = [
        ["a file", f"{most.file_bytes >> 20} MB"],
        [
            f"all files of a visitor, of all visitors, in {most.kept_seconds // 60} minutes",
            f"{most.visitor_bytes >> 20} MB, {most.server_bytes >> 30} GB",
        ],
        ["any other request", f"{most.body_bytes >> 20} MB"],
        ["a picture", f"{most.pixels // 10**6} million pixels, one side {MOST_ASPECT:,} times the other"],
        ["regions of a picture", str(most.regions)],
        ["all texts of a question", f"{most.characters:,} characters"],
        ["documents of a response, texts beside a picture", str(most.documents)],
        ["examples of an evaluation", str(most.examples)],
        ["texts of a survey, pictures", f"{most.survey_texts:,}, {most.survey_pictures}"],
        ["the pictures of a zip file, unpacked", f"{most.unpacked_bytes >> 20} MB"],
        ["methods of a comparison or an evaluation", str(most.methods)],
        ["tokens that a model writes, about a picture", f"{most.tokens}, {most.picture_tokens}"],
        ["an answer", f"{most.seconds:g} s"],
        ["an evaluation, a survey", f"{most.evaluation_seconds:g} s"],
        ["answers computed at once, visitors in the queue", f"{most.at_once}, {most.waiting}"],
        ["uploads and downloads are deleted after", f"{most.kept_seconds // 60} minutes"],
    ]
    return table(["at most", ""], rows)


def soak() -> str:
    """How the web page does under load, as far as it was measured."""
    if not (RESULTS / "app_soak.json").is_file():
        return "Not measured yet."
    report = result("app_soak")
    seconds, memory = report["seconds"], report["memory_mb"]
    rows = [
        ["hostile among them", str(report["hostile"])],
        ["failures: honest requests not answered, hostile ones not refused", str(report["failures"])],
        ["half of the answers within", f"{seconds['p50']:.1f} s"],
        ["95 of 100 answers within", f"{seconds['p95']:.1f} s"],
        ["the slowest answer", f"{seconds['most']:.1f} s"],
        ["memory at the end", f"{memory[-1]:,} MB"],
        [f"growth of memory after the first {report['warm_up']} requests", f"{report['growth_after_warm_up']:+.1%}"],
    ]
    asked = f"{report['requests']} requests, {report['clients']} visitors at once, {report['cores']} cores"
    return table([asked, ""], rows)


def mutations() -> str:
    """How many planted faults the tests catch, by the folder of the fault."""
    faults = list(result("mutations")["faults"].values())
    labels = list(dict.fromkeys(label for fault in faults for label in fault["verdicts"]))
    folders = sorted({fault["module"].partition("/")[0] for fault in faults})

    def row(name: str, own: list[dict[str, Any]]) -> list[str]:
        verdicts = ([fault["verdicts"].get(label, {}).get("verdict") for fault in own] for label in labels)
        return [name, str(len(own)), *(str(each.count("caught")) for each in verdicts)]

    rows = [row(f"`{folder}`", [one for one in faults if one["module"].startswith(f"{folder}/")]) for folder in folders]
    headers = ["folder", "faults planted", *(f"caught {label}" for label in labels)]
    return table(headers, [*rows, row("all", faults)])


# What the rebuild of the engine room aimed at, at most.
HOP_TARGETS = {"modules": 40, "functions": 250, "changes of module": 3_000}
OVERHEAD_TARGETS = {"generic_attention": 1.3, "evidence": 2.5, "explain over attribute, ms": 2.0}


def hops() -> str:
    """How far the explanation of a text travels through the package, before and after the engine room was rebuilt."""
    figures = result("hops")
    labels, methods = list(figures), list(next(iter(figures.values())))
    aims = {("default", name): f"{aim:,}" for name, aim in HOP_TARGETS.items()}
    rows = [
        [f"{method}, {name}", *(f"{figures[label][method][name]:,}" for label in labels), aims.get((method, name), "")]
        for method in methods
        for name in figures[labels[0]][method]
    ]
    return table(["explaining a text by", *labels, "target"], rows)


def overhead() -> str:
    """CPU time of explaining a short text with a small model."""
    texts = {label: {name: f"{x:.2f}" for name, x in own.items()} for label, own in result("overhead").items()}
    aims = {name: f"{aim:.2f}" for name, aim in OVERHEAD_TARGETS.items()}
    rows = [[name, *(own.get(name, "") for own in texts.values()), aims.get(name, "")] for name in texts["after"]]
    return table(["mini-bert, forward and backward passes", *texts, "target"], rows)


def hybrid_cost() -> str:
    """CPU time of each method on hybrids and on a Transformer of their size."""
    found = result("hybrid_cost")
    methods = list(next(iter(found["models"].values()))["ratios"])
    rows = [
        [name, f"{model['parameters']:.1f} M", *(f"{model['ratios'][method]:.1f}" for method in methods)]
        for name, model in found["models"].items()
    ]
    head = [f"{found['tokens']} tokens, over a forward and a backward pass", "weights", *(f"`{x}`" for x in methods)]
    return table(head, rows)


# Kinds of operation that are told by what they read, not by their names alone.
KIND_NOTES = {
    "linear": "and products with a weight",
    "pixels": "`conv2d` of three channels",
    "product": "of two activations",
    "mixing": "a product with what a softmax gave: attention times values",
    "add": "of two tensors",
    "rotation": "a sum of two tensors that are one, moved about and scaled: rotary embeddings",
    "gate": "of two activations",
    "attention": "as one operation, by tiles, where the map is large or blocks go one by one; else written out",
    "scale": "and divisions; products with a constant, a denominator or a gate of the other factor; sums with a number",
}


def rules() -> str:
    """Which rule each kind of operation gets in each rule set."""
    sets = {**RULES, '`backward="libra"`': LIBRA}
    rows = []
    for kind in dict.fromkeys(kind for found in sets.values() for kind in found):
        plain = [name for name, of in OPERATION_KINDS.items() if of == kind and name.strip("_") == name]
        names = sorted(name for name in plain if "div" not in name)
        parts = [", ".join(f"`{name}`" for name in names), KIND_NOTES.get(kind, "")]
        cells = [f"`{found[kind].__name__}`" if kind in found else "gradient" for found in sets.values()]
        rows.append([kind, " ".join(filter(None, parts)), *cells])
    return table(["kind", "operations", *(name if "`" in name else f"`{name}`" for name in sets)], rows)


def rule_texts() -> str:
    """What each rule hands back."""
    found = dict.fromkeys(rule for rules in (*RULES.values(), LIBRA) for rule in rules.values())
    texts = [(rule.__name__, (inspect.getdoc(rule) or "").partition("\n")[0].replace("|", r"\|")) for rule in found]
    return table(["rule", "what it passes back"], [[f"`{name}`", text] for name, text in texts])


def cost() -> str:
    """Cost in forward passes."""
    report = result("cost")
    batches = report["batch"]
    rows = [
        [label, *(f"{batches[batch]['ratios'][label]:.2f}" for batch in batches), shown(report["authors"][label])]
        for label in report["bound"]
    ]
    return table(["forwards, CPU", *(f"batch {batch}" for batch in batches), "the papers' code, batch 1"], rows)


def vlm_cost() -> str:
    """What a model that writes about pictures costs to explain, beside its decoder alone."""
    report = result("vlm_cost")
    rows = [
        [label, *(f"{row[name]:.2f}" for name in ("decoder", "whole", "times"))]
        for label, row in report["figures"].items()
    ]
    return table(["forwards of the same model, CPU", "decoder alone", "with its pictures", "times"], rows)


def vlm_cost_bound() -> str:
    """Which methods cost more on a whole model than they may."""
    report = result("vlm_cost")
    over = [f"`{label}`" for label, row in report["figures"].items() if row["times"] > report["bound"]]
    others = max(row["times"] for row in report["figures"].values() if row["times"] <= report["bound"])
    exception = f", except {', '.join(over)}" if over else ""
    return (
        f"The bound was {report['bound']} times the decoder's own figure. All methods are within "
        f"{others:.2f} times{exception}."
    )


def as_measured(label: str) -> str:
    """A label of a measurement that says what was computed where it says the default: what was, when it was made."""
    return label.replace("the default", "`bi_token` by libra, the former default")


def responses() -> str:
    """What a response costs to explain, in forward + backward passes, by model."""
    parts = []
    for model, report in result("responses").items():
        rows = []
        for label, figures in report["figures"].items():
            is_call = "calls" in figures
            runs = f"{figures['calls']} ({figures['examples']})" if is_call else "–"
            name = label if is_call else f"gradients of maps alone: {label}"
            rows.append([name, f"{figures['seconds']:.3f}", f"{figures['ratio']:.1f}", runs])
        what = f"{model}: {report['response_tokens']} rows, {report['prompt_tokens']} tokens before them"
        parts.append(table([what, "seconds", "forward + backward passes", "forwards (examples)"], rows))
    return "\n\n".join(parts)


def peers() -> str:
    """Other libraries that explain responses, beside this one; or why one of their methods has no figures."""
    report = result("peers")
    figures = {
        "recall@3": "recall of true sentences at 3",
        "AUPRC": "AUPRC",
        "drop@3": "drop of log p without the top 3",
        "LDS": "LDS",
    }
    rows = []
    for library, entry in report["libraries"].items():
        name = library if library == "whyformer" else f"{library} {entry['versions'][library]}"
        for method, models in entry["methods"].items():
            reasons = [f"{model}: {row['reason']}" for model, row in models.items() if "reason" in row]
            llm, costs = models["mini-llm"], [_cost(row) for row in models.values()]
            cells = [f"{llm[figure]:.2f}" if figure in llm else "–" for figure in figures]
            rows.append([name, "; ".join([f"`{method}`", *reasons]), *cells, *costs])
    times = [f"s (texts run), {model}" for model in ("mini-llm", "mini-gpt")]
    return table(["library", "method", *figures.values(), *times], rows)


def _cost(row: dict[str, Any]) -> str:
    return "–" if "reason" in row else f"{row['seconds']:.3f} ({row['texts']:.0f})"


def gpu() -> str:
    """Images per second on a GPU."""
    report, strict = result("gpu"), result("gpu_fp32")
    precisions = report["throughput"] | strict["throughput"]
    authors = report["authors"] | strict["authors"]
    rows = []
    for label in dict.fromkeys(["plain forward", *report["least"], *strict["least"]]):
        found = [precisions[name].get(label, {}).get("images_per_second") for name in precisions]
        rates = ["–" if rate is None else f"{rate:,.0f}" for rate in found]
        rows.append([label, *rates, shown(authors.get(label))])
    return table([f"images/s, {report['card']}", *precisions, "the papers' code"], rows)


def agreement() -> str:
    """How well half-precision maps agree with float32."""
    report = result("gpu")["bf16_agreement"]
    rows = [
        [label, f"{found['mean']:.3f}", f"{found['lowest']:.3f}", str(found["images"])]
        for label, found in report.items()
    ]
    return table(["bf16 against fp32 maps, Spearman", "mean over images", "lowest", "images with a map"], rows)


def precision() -> str:
    """How well fast relevance agrees with strict float32, on trained models."""
    report = result("precision")
    rows = [
        [
            method,
            *(
                f"{cell['mean']:.3f} ({cell['lowest']:.2f})"
                for model in report["models"].values()
                for cell in (model[kind][method] for kind in ("tf32", "bf16"))
            ),
        ]
        for method in next(iter(report["models"].values()))["tf32"]
    ]
    columns = [f"{name}, {kind}" for name in report["models"] for kind in ("tf32", "bf16")]
    return table(["fast against strict, Spearman: mean (lowest)", *columns], rows)


def memory_at_64() -> str:
    """generic_attention on a batch of pictures, as it is and block by block."""
    report = result("gpu")["memory_at_64"]
    rows = [[label, f"{row['images_per_second']:,.0f}", f"{row['peak_gib']:.2f}"] for label, row in report.items()]
    return table(["generic_attention, 64 pictures, bf16", "images/s", "peak GiB"], rows)


RESPONSE_FIGURES = {
    "AUPRC": "AUPRC",
    "recall of true sources at 3": "recall at 3",
    "drop of log p without the top 3": "drop without the top 3",
    "LDS": "LDS",
    "forwards": "forwards",
}


def response_methods() -> str:
    """Methods of responses against the truth of Facts World, the best first by AUPRC."""
    run = result("evaluation/facts-llm")
    figures = {figure["figure"]: figure for figure in run["protocols"][0]["figures"]}
    columns = {label: {row["method"]: row for row in figures[name]["rows"]} for name, label in RESPONSE_FIGURES.items()}
    order = sorted(columns["AUPRC"], key=lambda method: -columns["AUPRC"][method]["value"])

    def cell(label: str, method: str) -> str:
        row = columns[label][method]
        if label == "forwards":
            return f"{row['value']:.0f}"
        return f"{row['value']:.2f} [{row['low']:.2f}, {row['high']:.2f}]"

    rows = [[f"`{method}`", *(cell(label, method) for label in columns)] for method in order]
    return table([f"{run['samples']} questions, mini-llm", *columns], rows)


def chosen_default(name: str) -> str:
    """What was chosen on the first half, beside the others on the second."""
    report = result(name)
    own = " of the methods in their own form" if name == "response_default" else ""
    sentences = [f"On the first half `{report['label']}` has the lowest mean rank{own}."]
    if over := [f"`{label}`" for label in report["passed_over"]]:
        sentences.append(
            f"Lower still {'is' if len(over) == 1 else 'are'} {' and '.join(over)}, but not significantly better by "
            "two figures and worse by none, as an option must be."
        )
    for judged in report["second_half"]:
        name = judged["criterion"].rpartition(", ")[2]
        rows = {row["method"]: row for row in judged["rows"]}
        better = [m for m, row in rows.items() if m != report["label"] and row["p"] < 0.05]
        above = [f"`{m}`" for m in better if rows[m]["value"] > rows[report["label"]]["value"]]
        worse = len(better) - len(above)
        sentences.append(
            f"On the second half, by {name}, it is told apart from {len(better)} of {len(rows) - 1} others (p < 0.05): "
            f"better than {worse}, worse than {', '.join(above) or 'none'}."
        )
    return " ".join(sentences)


def advice() -> str:
    """What `recommend` named within its minutes, and how that stands in the whole table."""
    if not (RESULTS / "advice.json").is_file():
        return NONE
    report = result("advice")
    whole = report["whole_table"]
    is_one = "is one" if whole["is_best_or_tied"] else "is not one"
    return (
        f"On {report['model']} with {report['reviews']} film reviews and {report['threads']} threads, `recommend` "
        f"named `{report['method']}` after {report['seconds']:.0f} s, having used {report['measured']} of them. It "
        f"{is_one} of the methods that are best by that figure on all {whole['samples']} reviews, or tied with the "
        f"best: {', '.join(f'`{method}`' for method in whole['best_or_tied'])}."
    )


def large_responses() -> str:
    """What ten sentences of a response to a long prompt cost, of a large decoder."""
    report = result("large_responses")
    once = report["rows"]["forward and checkpointed backward"]["seconds"]
    rows = [
        [what, f"{row['seconds']:.2f}", f"{row['seconds'] / once:.1f}", f"{row['gib']:.1f}"]
        for what, row in report["rows"].items()
    ]
    prompt, response = report["prompt_tokens"], report["response_tokens"]
    return table([f"{prompt:,} + {response} tokens, {report['device']}", "seconds", "passes", "peak GiB"], rows)


def quadrature() -> str:
    """Error of the feedback per rule and number of steps."""
    rows = result("quadrature")["rows"]
    steps = sorted({row["steps"] for row in rows})
    cells = {(row["rule"], row["steps"]): f"{row['error']:.3f} / {row['rank']:.3f}" for row in rows}
    rules = list(dict.fromkeys(row["rule"] for row in rows))
    body = [[str(count), *(cells[rule, count] for rule in rules)] for count in steps]
    return table(["steps (error of F / rank of the map)", *rules], body)


def third_party() -> str:
    """Models of other libraries, unmodified."""
    rows = [
        [
            row["model"],
            f"{row['logits_differ_by']:.0e}",
            str(row["maps"]),
            str(row["traced_to_weights_and_state"]),
            f"without {', '.join(row['failed'])}" if row["failed"] else "all",
        ]
        for row in json.loads((RESULTS / "third_party.json").read_text())
    ]
    return table(["model", "logits differ by", "maps", "with W_v, W_o and state", "methods"], rows)


def card(name: str) -> str:
    """What a bundled model reached on data it was not trained on."""
    return table(["measured on held-out data", ""], card_rows(name))


def bundled() -> str:
    """The bundled models, what they are trained for and what they reach."""
    rows = []
    for name, lines in CARDS.items():
        label, value = lines[0]
        config = json.loads((ZOO / name / "config.json").read_text())
        size = (ZOO / name / "model.safetensors").stat().st_size / 1e6
        rows.append(
            [f"`{name}`", f"`{config['architectures'][0]}`", f"{label}: {value(metrics(name))}", f"{size:.1f} MB"]
        )
    return table(["model", "class", "measured on held-out data", "size"], rows)


def one_sense() -> str:
    """What can be answered with one sense alone."""
    found = metrics("mini-lxmert")
    rows = [
        [
            "question",
            f"{found['best_guess_from_the_question']['all']:.1f}",
            f"{found['accuracy_of_the_question_only_twin']['all']:.1f}",
        ],
        [
            "scene",
            f"{found['best_guess_from_the_scene']['all']:.1f}",
            f"{found['accuracy_of_the_image_only_twin']['all']:.1f}",
        ],
        ["both", "100", f"{found['accuracy']['all']:.1f}"],
    ]
    return table(["what is given", "best possible guess, %", "mini-lxmert trained on it, %"], rows)


def scenes_speed() -> str:
    found = result("scenes")
    return f"{found['scenes_per_second']:,} scenes a second on {found['cores']} cores."


def facts_speed() -> str:
    report = result("facts")
    return f"{report['documents_per_second']:,} documents a second on {report['cores']} cores."


def pointing() -> str:
    """How often each method points at what the answer depends on."""
    report = result("pointing")
    rows = report["rows"]
    places = list(dict.fromkeys((row["model"], row["part"]) for row in rows))
    cells = {(row["model"], row["part"], row["method"], row["backward"]): f"{row['accuracy']:.0f}" for row in rows}
    chances = {(row["model"], row["part"]): f"{row['chance']:.0f}" for row in rows if row["method"] == "random"}
    body = [["chance", *(chances[place] for place in places)]]
    for method in dict.fromkeys(row["method"] for row in rows):
        line = []
        for place in places:
            balanced = cells.get((*place, method, "libra"))
            line.append(cells[*place, method, "gradient"] + (f" ({balanced})" if balanced else ""))
        body.append([method, *line])
    return table([f"% of {report['scenes']} scenes", *(f"{model}, {part}" for model, part in places)], body)


def saturated() -> str:
    """What another backward pass does for models whose attention is saturated."""
    rows = result("pointing")["rows"]
    cells = {(row["model"], row["part"], row["method"], row["backward"]): f"{row['accuracy']:.0f}" for row in rows}
    places = [("mini-lxmert", "image"), ("mini-t5", "source")]
    body = []
    for method in ("bi_token", "bi_token, last block", "bi_head", "bi_head, last block", "generic_attention"):
        pairs = ((cells[*place, method, backward] for backward in ("gradient", "libra")) for place in places)
        body.append([method, *(cell for pair in pairs for cell in pair)])
    names = [f"{model}, {part}" for model, part in places]
    return table(["", *(f"{name}{how}" for name in names for how in ("", ", `libra`"))], body)


def shown(value: float | None) -> str:
    return "–" if value is None else f"{value:g}"


def in_short() -> str:
    """What README says of itself: what works, how fast, how large."""
    forward, rates = result("gpu")["throughput"]["bf16"], result("gpu")["authors"]
    large = [
        row for row in result("large")["rows"] if "error" not in row and row["what"].startswith("generic_attention")
    ]
    longest = max(large, key=lambda row: row["tokens"])
    ours = forward["generic_attention"]["images_per_second"]
    return "\n".join(
        [
            f"- Stock models: {architecture_tables.count(RESULTS / 'architectures.json')} "
            "[Which](docs/results/architectures.md).",
            f"- Batches, half precision: {ours:,.0f} photographs a second by `generic_attention` in bfloat16 on one "
            f"{result('gpu')['card']}; its paper's code, one at a time, {rates['generic_attention']:.0f}. "
            "[Cost of every method](docs/results/measurements.md).",
            f"- Long prompts: a decoder of 8 billion parameters is explained at {longest['tokens']:,} tokens in "
            f"{longest['seconds']:.1f} s and {longest['gib']:.0f} GiB.",
        ]
    )


def per_image() -> str:
    """What an image costs among many."""
    report = result("cost")["per_image"]
    rows = [[method, f"{share:.2f}"] for method, share in report["of_one_alone"].items()]
    return table(["method", f"an image among {report['images']}, in the cost of one explained alone"], rows)


def batches() -> str:
    """What examples cost explained together, in the cost of a loop over them."""
    figures = result("batches")["figures"]
    labels = next(iter(figures.values()))
    rows = [[as_measured(label), *(f"{kind[label]['ratio']:.2f}" for kind in figures.values())] for label in labels]
    return table(["together, in the CPU time of a loop", *figures], rows)


def memory() -> str:
    """Peak memory of bi_token beside a plain forward."""
    found = result("gpu")["memory"]
    rows = [
        ["`bi_token`, batch 1, one step at a time", f"{found['bi_token_mib']:.0f}"],
        ["a plain forward that keeps its maps", f"{found['forward_with_maps_mib']:.0f}"],
    ]
    return table(["peak memory, weights included", "MiB"], rows)


def memory_estimates() -> str:
    """How near the estimates of memory came to what was measured, for each model, and those that did not."""
    report = result("memory_estimate")
    rows = [row for row in report["rows"] if "ratio" in row]
    by_model = {model: [row for row in rows if row["model"] == model] for model in {row["model"]: 0 for row in rows}}
    lines = []
    for model, own in by_model.items():
        lengths = ", ".join(f"{tokens:,}" for tokens in {row["tokens"]: 0 for row in own})
        off = [row for row in own if abs(row["ratio"] - 1) > report["allowed"]]
        names = "; ".join(f"`{row['method']}` at {row['tokens']:,}: {row['ratio']:.2f}" for row in off)
        ratios = sorted(row["ratio"] for row in own)
        lines.append(
            [model, lengths, f"{len(own) - len(off)} of {len(own)}", f"{ratios[len(ratios) // 2]:.2f}", names or "–"]
        )
    heads = [
        "model",
        "tokens",
        f"estimates within {report['allowed']:.0%}",
        "median of estimate / measured",
        "further off",
    ]
    return table(heads, lines)


def by_name() -> str:
    """Models of timm and open_clip by their names: how many methods work, and which do not."""
    rows = []
    for model, cells in result("timm_models")["models"].items():
        if isinstance(cells, dict):
            reasons = [name for name, cell in cells.items() if cell != "works"]
            names = ", ".join(f"`{name}`" for name in reasons)
            rows.append([f"`{model}`", f"{len(cells) - len(reasons)} of {len(cells)}", names or "–"])
    return table(["model, random weights", "methods that work", "refused"], rows)


def real_models() -> str:
    """The real models, the packages they come from, and what was verified of each."""
    rows = []
    for name, model in result("real_models").items():
        packages = model["packages"]
        source = packages[0] if len(packages) == 1 else f"{packages[0]} and {len(packages) - 1} more"
        checks = "; ".join(f"{check['check']}: {verified(check['value'])}" for check in model["checks"])
        weights = f"{model['parameters'] / 1e6:,.0f} million, {model['weights']}"
        rows.append([f"{model['title']} (`{name}`)", f"`{source}`", model["licence"], weights, checks])
    return table(["model", "packages", "licence", "weights", "verified"], rows)


def verified(value: Any) -> str:
    return f"{value:.1e}" if isinstance(value, float) and value else f"{value:g}" if value == 0 else str(value)


def long_prompts() -> str:
    """Peak memory and time of a long prompt."""
    report = result("memory")
    rows = [[label, f"{found['peak_gb']:.1f}", f"{found['seconds']:.2f}"] for label, found in report["rows"].items()]
    return table([f"{report['tokens']:,} tokens, {report['card']}", "peak GB, weights included", "seconds"], rows)


LONG_PROMPT_TARGETS = {"rollout": 1.5, "generic_attention": 4.0}  # CPU time over one forward pass, at 4,096 tokens


def long_prompts_cpu() -> str:
    """CPU time and memory of a long prompt without a GPU, by its length."""
    rows = result("long_prompts")["rows"]
    lengths, cells = sorted({row["tokens"] for row in rows}), dict[tuple[str, int], str]()
    for row in rows:
        cells[row["method"], row["tokens"]] = f"{row['ratio']:.2f} ({row['peak GiB']:.1f} GiB)"
    head = ["over one forward pass (peak)", *(f"{length:,} tokens" for length in lengths), "target at 4,096"]
    names = dict.fromkeys(row["method"] for row in rows)
    aims = {name: f"{aim:.1f}" for name, aim in LONG_PROMPT_TARGETS.items()}
    body = [[f"`{x}`", *(cells.get((x, n), "not measured") for n in lengths), aims.get(x, "")] for x in names]
    return table(head, body)


def large() -> str:
    """Seconds and memory of a decoder of 8 billion parameters, by the length of the prompt."""
    report = result("large")
    lengths = sorted({row["tokens"] for row in report["rows"]})
    cells: dict[str, dict[int, str]] = {}
    for row in report["rows"]:
        cell = row.get("error") or f"{row['seconds']:.2f} s · {row['gib']:.1f} GiB"
        cells.setdefault(row["what"], {})[row["tokens"]] = cell
    rows = [
        [as_measured(what), *(by_length.get(length, "not run") for length in lengths)]
        for what, by_length in cells.items()
    ]
    return table([report["device"], *(f"{length:,} tokens" for length in lengths)], rows)


def folded() -> str:
    """The kernel that folds maps on chip beside plain tiles."""
    rows = [
        [
            f"{row['tokens']:,}",
            "(A ⊙ ∇A)⁺" if row["gradient"] else "A",
            f"{row['chip_ms']:.1f}",
            f"{row['tiles_ms']:.0f}",
        ]
        for row in result("fold")["speeds"]
    ]
    return table(["tokens", "what is folded", "on chip, ms", "by tiles, ms"], rows)


def published(paper: str) -> str:
    """What a paper prints, and what the same row is called in the results of its suite."""
    found = tomllib.loads((ROOT / "benchmarks" / "published.toml").read_text())
    parts = []
    for one in found["table"]:
        if one["paper"] == paper:
            digits = max(len(str(value).partition(".")[2]) for row in one["rows"] for value in row["values"])
            rows = [
                [row["name"], f"`{row['method']}`", *(v if v == "–" else f"{v:.{digits}f}" for v in row["values"])]
                for row in one["rows"]
            ]
            title = f"**{paper} {one['number']}** ({one['where']}), {one['what']}: `{one['suite']}.toml`"
            parts += [title, table(["printed as", "in the results", *one["figures"]], rows)]
    for one in found["figure"]:
        if one["paper"] == paper:
            parts.append(f"**{paper} {one['number']}** ({one['where']}): `{one['suite']}.toml`. {one['what']}.")
    return "\n\n".join(parts)


def paper_suites() -> str:
    """Which suite is for which table, with its model, data and protocols."""
    rows = []
    for path in sorted((ROOT / "benchmarks" / "suites" / "papers").glob("*.toml")):
        suite = read_suite(path)
        title = path.read_text().partition("\n")[0].removeprefix("# ").removesuffix(".")
        asked = "<br>".join(f"`{choice.label}`" for choice in suite.protocols)
        rows.append([f"`{path.stem}`", title, f"`{suite.model}`", f"`{suite.data.name}`", asked])
    return table(["suite", "what it reproduces", "model", "reader", "protocols"], rows)


def perturbation_speed() -> str:
    """What perturbation keeps of plain inference."""
    rows = []
    for name in ("perturbation", "perturbation_gpu"):
        report = result(name)
        speed = report["images_per_second"]
        about = [f"{report['model']}, {report['device']}", str(report["batch"])]
        rows.append(
            [*about, f"{speed['plain']:,.0f}", f"{speed['perturbation']:,.0f}", f"{100 * report['ratio']:.0f} %"]
        )
    return table(["", "batch", "plain images/s", "perturbed images/s", "kept"], rows)


IMAGES, CONTROL_MAPS, FRACTIONS, ORDERS = 50_000, 3, 10, 2
GPUS = 8
NINE = (
    *("raw_attention", "rollout", "grad_cam", "generic_attention", "partial_lrp", "lrp", "transformer_attribution"),
    *("bi_token, 8 steps", "bi_head, 8 steps"),
)


def imagenet() -> str:
    """How long ImageNet's validation set takes, from measured rates."""
    speed = result("perturbation_gpu")
    rate = speed["images_per_second"]["perturbation"]
    asked = IMAGES * (len(NINE) + CONTROL_MAPS) * ORDERS * (FRACTIONS - 1)
    fast, strict = (
        {label: found["images_per_second"] for label, found in result(name)["throughput"][precision].items()}
        for name, precision in (("gpu", "tf32"), ("gpu_fp32", "fp32"))
    )
    slower = strict["plain forward"] / fast["plain forward"]  # what was timed in TF32 alone costs as many forwards
    seconds = sum(IMAGES / (strict.get(name) or slower * fast[name]) for name in NINE)
    millions = f"{IMAGES * len(NINE) * FRACTIONS * ORDERS / 1e6:.0f}"
    return (
        f"ImageNet's validation set: {IMAGES:,} images × {len(NINE)} methods × {FRACTIONS * ORDERS} forwards (ten "
        f"fractions, two orders) are {millions} million forwards. The clean fraction runs once for all, and "
        f"three controls are added, which makes {asked / 1e6:.1f} million. A {speed['model']} answers {rate:,.0f} "
        f"perturbed images a second in float32 on one {speed['device']}: {_hours(asked / rate)}, and "
        f"{_hours(asked / rate / GPUS)} on eight. The explanations add about {_hours(seconds)}, on eight "
        f"{_hours(seconds / GPUS)}."
    )


def _hours(seconds: float) -> str:
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def results() -> str:
    """One figure of every published evaluation."""
    return short(runs(RESULTS / "evaluation"))


# The pages of the API, by the folders where their names are defined.
API = {
    "api-calls": ("api", "benchmark", "methods", "served", "surveys"),
    "api-results": ("results",),
    "api-targets": ("targets", "inputs"),
    "api-models": ("models",),
    "api-errors": ("errors",),
}


def api(*folders: str) -> str:
    """The public names of these folders, which the site replaces by their docstrings."""
    stub = ast.parse(Path(whyformer.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    lines = (line for line in stub.body if isinstance(line, ast.ImportFrom) and line.module is not None)
    names = [alias.name for line in lines for alias in line.names if str(line.module).partition(".")[0] in folders]
    return _documented("whyformer", names)


def api_extensions() -> str:
    """The public names of whyformer.extend."""
    return _documented("whyformer.extend", whyformer.extend.__all__)


def _documented(module: str, names: Sequence[str]) -> str:
    return "\n\n".join(f"::: {module}.{name}" for name in sorted(names, key=_place_of))


def _place_of(name: str) -> tuple[bool, bool, str]:
    """Functions before classes, and those that explain before the others."""
    return name[0].isupper(), not name.startswith("explain"), name


BLOCKS: dict[str, Callable[[], str]] = {
    "methods": methods,
    "rules": rules,
    "rule-texts": rule_texts,
    "in-short": in_short,
    "limits": limits,
    "soak": soak,
    "mutations": mutations,
    "hops": hops,
    "long-prompts-cpu": long_prompts_cpu,
    "overhead": overhead,
    "cost": cost,
    "vlm-cost": vlm_cost,
    "vlm-cost-bound": vlm_cost_bound,
    "responses": responses,
    "peers": peers,
    "gpu": gpu,
    "precision": precision,
    "response-methods": response_methods,
    "response-default": partial(chosen_default, "response_default"),
    "picture-default": partial(chosen_default, "picture_default"),
    "advice": advice,
    "large-responses": large_responses,
    "memory-at-64": memory_at_64,
    "per-image": per_image,
    "batches": batches,
    "hybrid-cost": hybrid_cost,
    "hybrid-misses": lambda: hybrid_tables.misses(RESULTS / "hybrid_cost.json"),
    "hybrid-memory": lambda: hybrid_tables.memory(RESULTS / "hybrid_memory.json"),
    **{
        f"new-{name}": partial(hybrid_tables.new_method, RESULTS / "new_methods.json", name)
        for name in ("prior", "attntrace", "regions")
    },
    "interaction-ranks": lambda: interaction_tables.ranks(RESULTS / "interactions.json"),
    "interaction-negation": lambda: interaction_tables.negation(RESULTS / "interactions.json"),
    "interaction-foretold": lambda: interaction_tables.foretold(RESULTS / "interactions.json"),
    "caap": lambda: hybrid_tables.caap(RESULTS / "caap.json"),
    "picture-sinks": lambda: hybrid_tables.picture_sinks(RESULTS / "picture_sinks.json"),
    "memory": memory,
    "memory-estimates": memory_estimates,
    "by-name": by_name,
    "long-prompts": long_prompts,
    "real-models": real_models,
    "real-responses": real_tables.responses,
    "real-response-groups": real_tables.response_groups,
    "support-models": lambda: support_tables.models(RESULTS / "support.json"),
    "support-coefficients": lambda: support_tables.coefficients(RESULTS / "support.json"),
    "support-served": lambda: support_tables.served(RESULTS / "served_verdicts.json"),
    "support-verdicts": lambda: support_tables.verdicts(RESULTS / "support.json"),
    "support-fresh": lambda: support_tables.fresh(RESULTS / "support.json"),
    "support-confirmation": lambda: support_tables.confirmation(RESULTS / "support_confirmation.json"),
    "support-threshold": lambda: support_tables.threshold(RESULTS / "support_confirmation.json"),
    "support-groups": lambda: support_tables.groups(RESULTS / "support.json"),
    "support-given": lambda: support_tables.given(RESULTS / "support.json"),
    "support-errors": lambda: support_tables.errors(RESULTS / "support.json"),
    "support-log": lambda: support_tables.log(RESULTS / "support_log.json"),
    "support-figures": lambda: support_tables.figures(RESULTS / "support.json"),
    "action-sizes": lambda: action_tables.sizes(RESULTS / "actions.json"),
    "action-separation": lambda: action_tables.separation(RESULTS / "actions.json"),
    "action-recovery": lambda: action_tables.recovery(RESULTS / "actions.json"),
    "action-rules": lambda: action_tables.rules(RESULTS / "actions.json"),
    "action-drivers": lambda: action_tables.drivers(RESULTS / "actions.json"),
    "action-calibrations": action_tables.calibrations,
    "action-long": lambda: action_tables.long(RESULTS / "long_actions.json"),
    "action-example": lambda: action_tables.example(RESULTS / "action_example.json"),
    "survey-drivers": lambda: survey_tables.text_drivers(RESULTS / "surveys.json"),
    "survey-negations": lambda: survey_tables.negations(RESULTS / "surveys.json"),
    "survey-failures": lambda: survey_tables.text_failures(RESULTS / "surveys.json"),
    "survey-photos": lambda: survey_tables.photo_drivers(RESULTS / "surveys.json"),
    "survey-guesses": lambda: survey_tables.guesses(RESULTS / "surveys.json"),
    "survey-sounds": lambda: survey_tables.sounds(RESULTS / "sound_surveys.json"),
    "survey-cost": lambda: survey_tables.cost(RESULTS / "surveys.json"),
    "survey-diff": lambda: survey_tables.rounded(RESULTS / "surveys.json"),
    "planted-target": lambda: planted_tables.target(RESULTS / "planted"),
    "planted-others": lambda: planted_tables.others(RESULTS / "planted"),
    "planted-strength": lambda: planted_tables.by_strength(RESULTS / "planted"),
    "planted-fresh": lambda: planted_tables.fresh(RESULTS / "planted"),
    "planted-cost": lambda: planted_tables.cost(RESULTS / "planted"),
    "survey-false": lambda: survey_tables.false_drivers(RESULTS / "surveys.json"),
    "support-cost": lambda: support_tables.cost(RESULTS / "support.json"),
    "salience": lambda: salience_table.salience(RESULTS / "salience.json"),
    "soft": lambda: soft_tables.soft(RESULTS / "soft.json"),
    "decoder-sinks": lambda: sink_tables.sinks(RESULTS / "decoder_sinks.json"),
    "decoder-variants": lambda: sink_tables.variants(RESULTS / "decoder_sinks.json"),
    "real-default": real_tables.default_of_responses,
    "real-confirmation": real_tables.confirmation,
    "real-focus": real_tables.focuses,
    "real-peers": real_tables.peers,
    "real-speech": real_tables.speech,
    "real-encoders": real_tables.encoders,
    "real-cards": real_tables.cards,
    "large": large,
    "folded": folded,
    "agreement": agreement,
    "quadrature": quadrature,
    "third-party": third_party,
    "hybrid-cells": lambda: architecture_tables.hybrids(RESULTS / "architectures.json"),
    "architectures": lambda: architecture_tables.summary(RESULTS / "architectures.json"),
    "architecture-grid": lambda: architecture_tables.grid(RESULTS / "architectures.json"),
    "compat": lambda: install_tables.compat(RESULTS / "compat.json"),
    "newcomer": lambda: install_tables.newcomer(RESULTS / "newcomer.json"),
    "bundled": bundled,
    "one-sense": one_sense,
    "scenes-speed": scenes_speed,
    "facts-speed": facts_speed,
    "pointing": pointing,
    "saturated": saturated,
    "paper-suites": paper_suites,
    **{f"published-{paper.lower()}": partial(published, paper) for paper in ("BI", "TA", "GA")},
    "results": results,
    "runs": lambda: contents(runs(RESULTS / "evaluation")),
    "perturbation-speed": perturbation_speed,
    "imagenet": imagenet,
    "leaderboard": lambda: leaderboard.summary(
        runs(RESULTS / "evaluation"), leaderboard.costs_of(RESULTS / "board_cost.json")
    ),
    "leaderboard-common": lambda: leaderboard.common(runs(RESULTS / "evaluation")),
    "leaderboard-samples": lambda: leaderboard_samples.fewer_samples(runs(RESULTS / "evaluation")),
    "leaderboard-empty": lambda: leaderboard.empty(runs(RESULTS / "evaluation")),
    "rankings": lambda: rankings(runs(RESULTS / "evaluation")),
    "confirmed": lambda: verdicts.confirmed(RESULTS / "confirmation.json", RESULTS / "picture_default.json"),
    "defaults": lambda: defaults(RESULTS / "defaults.json"),
    "options": lambda: options(RESULTS / "options.json"),
    **{name: partial(card, name) for name in CARDS},
    **{name: partial(api, *folders) for name, folders in API.items()},
    "api-extensions": api_extensions,
}


def filled(text: str) -> str:
    """The text with every block between <!-- name --> and <!-- /name --> made anew."""
    for name, block in BLOCKS.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
        if pattern.search(text):
            made = block()
            text = pattern.sub(lambda match, made=made: f"{match[1]}{made}\n{match[2]}", text)
    return text


def llms() -> str:
    """What the site has, page by page, for programs that read it."""
    nav = listed(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"], DOCS)
    parts = [
        "# Whyformer",
        "> Shows why a Transformer gave its answer: a score for every word, image patch, region or moment of sound, "
        "for the answer you ask about, on unmodified PyTorch models: `whyformer.explain(example, model)`.",
        re.findall(r"^## The ten calls.*?(?=^## )", (ROOT / "SKILL.md").read_text(), re.DOTALL | re.MULTILINE)[
            0
        ].strip(),
    ]
    for section in nav:
        ((name, entry),) = section.items()
        lines = [
            f"- [{title or heading(page)}]({page.removesuffix('.md')}.html): {first_sentence(page)}"
            for title, page in pages_of(entry)
        ]
        parts += [f"## {name}", "\n".join(lines)]
    return "\n\n".join(parts) + "\n"


def heading(page: str) -> str:
    return re.findall(r"^# (.+)", (DOCS / page).read_text(), re.MULTILINE)[0]


def first_sentence(page: str) -> str:
    """What a page begins with, links and marks left out."""
    text = (DOCS / page).read_text()
    body = text[text.index("\n# ") if text.startswith("---") else 0 :]
    paragraphs = (part.strip() for part in body.split("\n\n"))
    plain = next(part for part in paragraphs if part and part[0] not in "#!<|:-" and not part.startswith("```"))
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", plain).replace("**", "").partition("\n")[0]
    return re.split(r"(?<=[.?!])(?<!Eq\.)(?<!Sec\.)(?<!al\.) ", plain)[0]


def written() -> dict[Path, str]:
    """The pages that are made as a whole."""
    found = runs(RESULTS / "evaluation")
    of_models = {DOCS / "results" / "models" / f"{model}.md": text for model, text in pages(found).items()}
    of_methods = {DOCS / "methods" / f"{name}.md": text for name, text in method_pages(found).items()}
    board = leaderboard.page(found, leaderboard.costs_of(RESULTS / "board_cost.json"))
    single = {"results/board.html": board, "api/cli.md": cli_page(), "llms.txt": llms()}
    return of_models | of_methods | {DOCS / name: text for name, text in single.items()}


def main() -> int:
    made = written()
    cards = sorted((ROOT / "src" / "whyformer" / "zoo").glob("*/README.md"))
    for path in [ROOT / "README.md", *sorted(set(DOCS.rglob("*.md")) - made.keys()), *cards]:
        made[path] = filled(path.read_text())
    stale = [path for path, text in made.items() if not path.is_file() or path.read_text() != text]
    names = ", ".join(str(path.relative_to(ROOT)) for path in stale) or "none"
    if "--check" in sys.argv:
        print(f"Out of date: {names}")
        return int(bool(stale))
    for path in stale:
        path.parent.mkdir(exist_ok=True)
        path.write_text(made[path])
    print(f"Rewritten: {names}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Tables and cards of real models, from what was measured on them."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
CARDS = Path(__file__).with_name("real_cards.toml")


def result(name: str) -> dict[str, Any]:
    """A file of results; empty if it was not measured."""
    path = RESULTS / f"{name}.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    return found


def markdown(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def interval(ends: list[float]) -> str:
    low, high = ends
    return f"{low:.0%} to {high:.0%}"


def responses() -> str:
    """Each method on each real model: how often the true sentence has the highest score."""
    parts = []
    for run, kinds in result("real_responses").items():
        for kind, found in kinds.items():
            methods = {name: one for name, one in found["methods"].items() if one.get("questions", 0) >= FEWEST}
            rows = [[label(name), *_figures(one)] for name, one in methods.items()]
            about = f"{TITLES.get(run, run)}, {kind} answers: {found['kept']} of {found['tried']} questions kept"
            if "seeds" in found:  # which the lines of an earlier run did not tell
                seeds, sentences = found["seeds"], found["sentences"]
                about += f"; seeds {seeds[0]:,} to {seeds[1]:,}, {sentences[0]} to {sentences[1]} sentences"
                about += f", in {found['dtype']}"
            about += "."
            if kind == "reworded" and found["kept"]:
                about += (
                    f" Their sentences have {found['overlap']:.0%} of the answers' content words on average, and at "
                    f"most {found['highest overlap']:.0%}."
                )
            parts.append(f"{about}\n\n{markdown(RESPONSE_HEADER, rows)}" if rows else about)
    return "\n\n".join(parts) or "Not measured yet."


def _figures(one: dict[str, Any]) -> list[str]:
    """The cells of a method; a dash for a figure that was not measured."""
    low, high = one["top 1, 95 %"]
    others = [f"{one[name]:.2f}" if name in one else "–" for name in ("top 1 drop", "LDS", "seconds")]
    return [str(one["questions"]), f"{one['top 1']:.0%}", f"{low:.0%} to {high:.0%}", f"{one['AUPRC']:.2f}", *others]


def response_groups() -> str:
    """How often the true sentence is first by length, place, hops and kind of question, for the best methods."""
    parts = []
    for run, kinds in result("real_responses").items():
        for kind, found in kinds.items():
            methods = {name: one for name, one in found["methods"].items() if one.get("questions", 0) >= FEWEST_GROUPED}
            if not methods:
                continue
            names = [*dict.fromkeys([*list(methods)[:MOST_GROUPED], *(one for one in ALWAYS if one in methods)])]
            groups = list(
                dict.fromkeys((of, group) for name in names for of in GROUPS for group in _by(methods, name, of))
            )
            header = ["", *(_group(of, group) for of, group in groups)]
            rows = []
            for name in names:
                cells = [_by(methods, name, of).get(group) for of, group in groups]
                rows.append([label(name), *("–" if cell is None else f"{cell[0]:.0%} of {cell[1]}" for cell in cells)])
            parts.append(f"{TITLES.get(run, run)}, {kind} answers.\n\n{markdown(header, rows)}")
    return "\n\n".join(parts) or "Not measured yet."


RESPONSE_HEADER = [
    *("", "questions", "true sentence first", "95 %", "AUPRC", "drop without the first", "LDS", "seconds")
]
TITLES = {"smollm2": "SmolLM2, an earlier run"}
FEWEST = 9  # questions of a method in a table
MOST_GROUPED, FEWEST_GROUPED = 5, 15  # methods of a table by groups, and questions of a method
ALWAYS = ("generic_attention focus=sources", "lexical overlap")
GROUPS = {"length": "{} sentences", "position": "{}", "hops": "hops: {}", "kind": "stated {}"}


def _by(methods: dict[str, Any], name: str, of: str) -> dict[str, list[float]]:
    found: dict[str, list[float]] = methods[name]["top 1 by"].get(of, {})
    return found


def _group(of: str, group: str) -> str:
    return GROUPS[of].format({"plain": "once", "twice": "twice"}.get(group, group))


def label(name: str) -> str:
    return name if name in NO_METHODS else f"`{name}`"


def default_of_responses() -> str:
    """What real models say of the default of responses: chosen on even questions, reported on odd ones."""
    decided = result("real_default")
    if not decided:
        return "Not measured yet."
    chosen_on, reported_on = (
        {(row["run"], row["answers"], row["method"]): row for row in half} for half in decided["halves"]
    )
    cells = list(dict.fromkeys((run, answers) for run, answers, _ in reported_on))
    header = ["", "mean rank, even questions"]
    titles = {cell: f"{cell[0].removesuffix('-choice')}, {cell[1]}" for cell in cells}
    header += [f"{titles[cell]}, n = {_count(reported_on, *cell)}" for cell in cells]
    header += [f"AUPRC, {titles[cell]}" for cell in cells]
    rows = []
    for name, rank in decided["mean_ranks"].items():
        own = [reported_on[(*cell, name)] for cell in cells]
        first = [f"{value:.0%} [{low:.0%}, {high:.0%}]" for value, low, high in (row["top 1"] for row in own)]
        rows.append([f"`{name}`", f"{rank:.1f}", *first, *(f"{row['AUPRC'][0]:.2f}" for row in own)])
    evens = ", ".join(f"{titles[cell]}: {_count(chosen_on, *cell)}" for cell in cells)
    verdict = (
        f"`{decided['chosen']}` has the lowest mean rank on the even questions ({evens}). On the odd ones it is better "
        f"than `{decided['earlier']}` by {decided['better']} figures and worse by {decided['worse']} (p corrected by "
        f"Holm's procedure): by the rule it {'becomes' if decided['is_confirmed'] else 'does not become'} the default."
    )
    return f"{verdict}\n\n{markdown(header, rows)}"


def confirmation() -> str:
    """How the default of responses and other methods do on questions that chose nothing."""
    parts = []
    for cell in rows_of("real_confirmation"):
        about = (
            f"{cell['run']} in {cell['dtype']}, {cell['answers']} answers: {cell['kept']} of {cell['tried']} questions "
            f"kept; seeds {cell['seeds'][0]:,} to {cell['seeds'][1]:,}, {cell['sentences'][0]} to "
            f"{cell['sentences'][1]} sentences."
        )
        rows = []
        for name, one in cell["methods"].items():
            if one["n"] < FEWEST:
                continue
            gain = one.get("default's gain")
            against = "–" if gain is None else f"{points(gain['top 1'])}, p = {gain['p']:.2g}"
            rows.append([label(name), str(one["n"]), share(one["top 1"]), f"{one['AUPRC'][0]:.2f}", against])
        header = ["", "questions", "true sentence first", "AUPRC", "the default's gain, points"]
        parts.append(f"{about} {_verdict(cell)}\n\n{markdown(header, rows)}")
    return "\n\n".join(parts) or "Not measured yet."


NO_METHODS = ("random", "recency", "lexical overlap", "encoder cosine")


def _verdict(cell: dict[str, Any]) -> str:
    """Whether the best method and the default reach the target of a cell, which not every cell has."""
    if cell["target"] is None:
        return ""
    own = {name: one for name, one in cell["methods"].items() if name not in NO_METHODS and one["n"] >= FEWEST}
    reached = [f"`{name}`" for name, one in own.items() if one["top 1"][0] >= cell["target"]]
    default = next(one for one in own.values() if "default's gain" not in one)["top 1"]
    open_text = ", and the target lies within its interval" if default[1] < cell["target"] <= default[2] else ""
    return (
        f"The target is {cell['target']:.0%}: {', '.join(reached) or 'no method'} reached it. The default has "
        f"{default[0]:.0%}{open_text}."
    )


def share(ends: list[float]) -> str:
    value, low, high = ends
    return f"{value:.0%} [{low:.0%}, {high:.0%}]"


def points(ends: list[float]) -> str:
    value, low, high = (100 * end for end in ends)
    return f"{value:+.0f} [{low:+.0f}, {high:+.0f}]"


def focuses() -> str:
    """How often the true sentence is first by each way to weigh a response's tokens."""
    parts = []
    for cell in rows_of("real_focus"):
        names = [f"`{name}`" for name in cell["methods"]]
        rows = [
            [name, *(f"{value:.0%}" for value in values), f"{sum(values) / len(values):.0%}"]
            for name, values in cell["candidates"].items()
        ]
        about = f"{cell['run']}, {cell['answers']} answers: {cell['questions']} questions."
        parts.append(f"{about}\n\n{markdown(['weights of the tokens', *names, 'mean'], rows)}")
    return "\n\n".join(parts) or "Not measured yet."


def peers() -> str:
    """Other libraries on the same questions to a real model, or why one of their methods has no figures."""
    report = result("real_peers")
    if not report:
        return "Not measured yet."
    rows = []
    for library, entry in report["libraries"].items():
        name = library if library == "whyformer" else f"{library} {entry['versions'][library]}"
        for method, models in entry["methods"].items():
            one = models[report["model"]]
            if "reason" in one:
                rows.append([name, f"`{method}`: {one['reason']}", "–", "–", "–"])
                continue
            cells = [f"{one['true first']:.0%}", f"{one['AUPRC']:.2f}", f"{one['seconds']:.1f} ({one['texts']:.0f})"]
            rows.append([name, f"`{method}`", *cells])
    header = ["library", "method", "true sentence first", "AUPRC", "s (texts run)"]
    return f"`{report['model']}`, {report['questions']} questions.\n\n{markdown(header, rows)}"


def rows_of(name: str) -> list[dict[str, Any]]:
    """A file of results that is a list; empty if it was not measured."""
    path = RESULTS / f"{name}.json"
    found: list[dict[str, Any]] = json.loads(path.read_text()) if path.is_file() else []
    return found


def _count(half: dict[tuple[str, str, str], dict[str, Any]], run: str, answers: str) -> int:
    return next(row["n"] for cell, row in half.items() if cell[:2] == (run, answers))


def speech() -> str:
    """For each model, how often the highest frame of a word lies where the word is spoken."""
    parts = []
    for run, found in result("real_speech_times").items():
        rows = [
            [
                f"`{name}`" if one["is method"] else name,
                f"{one['hit']:.0%}",
                interval(one["hit, 95 %"]),
                f"{one['off']:.2f}",
                f"{one['share']:.0%}",
                interval(one["share, 95 %"]),
            ]
            for name, one in found["methods"].items()
        ]
        about = (
            f"{run}: {found['utterances']} sentences of {found['mean seconds']} s on average; {found['words heard']} "
            f"of {found['words spoken']} words heard, {found['words explained']} explained, of which "
            f"{found['of these needed']} lose at least one nat when they are silenced."
        )
        header = ["", "highest frame in the word", "95 %", "off by, s", "share of the score in the word", "95 %"]
        parts.append(f"{about}\n\n{markdown(header, rows)}")
    return "\n\n".join(parts) or "Not measured yet."


def encoders() -> str:
    """For each model, how often the sentence that two texts share has the highest score."""
    parts = []
    for run, found in result("real_encoder_pairs").items():
        rows = [
            [
                name if name in CONTROLS else f"`{name}`",
                f"{one['first']:.0%}",
                interval(one["first, 95 %"]),
                f"{one['share']:.0%}",
            ]
            for name, one in found["methods"].items()
        ]
        about = f"{run}: {found['kept']} of {found['pairs']} pairs kept, in which chance is {found['chance']:.0%}."
        header = ["", "shared sentence first", "95 %", "share of the score"]
        parts.append(f"{about}\n\n{markdown(header, rows)}")
    return "\n\n".join(parts) or "Not measured yet."


# Counts of real_limits.json, and what they are of.
LIMITS = {
    "negation closer than paraphrase": "statements",
    "words written rightly": "words",
    "of these with words": "sounds without speech",
}
CONTROLS = ("random", "length", "shared words", "leave one out")


def cards() -> str:
    """What each model is, where its weights come from, and what it gets wrong."""
    models, facts = result("real_models"), known_facts()
    parts = []
    for name, text in tomllib.loads(CARDS.read_text(encoding="utf-8")).items():
        model = models[name]
        packages = model["packages"]
        more = f" and {len(packages) - 1} more" if len(packages) > 1 else ""
        rows = [
            ["what it is", text["what"]],
            ["weights", f"{model['parameters'] / 1e6:,.0f} million, {model['weights']}; `{packages[0]}`{more}"],
            ["licence", model["licence"]],
            ["what it gets wrong", filled_in(text["wrong"], facts)],
        ]
        parts.append(f"### {model['title']}\n\n{markdown([f'`{name}`', ''], rows)}")
    return "\n\n".join(parts)


def known_facts() -> dict[str, str]:
    """The figures that cards may name, as text."""
    facts = {
        f"{name}: {check['check']}": str(check["value"])
        for name, model in result("real_models").items()
        for check in model["checks"]
    }
    for name, found in result("real_speech_times").items():
        facts[f"{name}: heard"] = f"{found['words heard']} of {found['words spoken']}"
    for name, found in result("real_limits").items():
        facts |= {f"{name}: {what}": str(value) for what, value in found.items()}
        for what, whole in LIMITS.items():
            if what in found:
                facts[f"{name}: {what}"] = f"{found[what]} of {found[whole]}"
    if head := result("dinov2_head"):
        facts["dinov2-small: balanced accuracy"] = f"{head['balanced_accuracy']:.0f} %"
    for name, found in result("real_encoder_pairs").items():
        facts[f"{name}: kept"] = f"{found['kept']} of {found['pairs']}"
    return facts


def filled_in(text: str, facts: dict[str, str]) -> str:
    """The text with its figures; a sentence whose figure was not measured is left out."""
    sentences = re.split(r"(?<=[.;]) (?=[A-Z{])", text)
    known = [one for one in sentences if all(name in facts for name in re.findall(r"\{(.+?)\}", one))]
    return re.sub(r"\{(.+?)\}", lambda match: facts[match[1]], " ".join(known))

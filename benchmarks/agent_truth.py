"""Whether the true source of each argument comes first, in the agent register, where every cause is known.

    python benchmarks/agent_truth.py measure mini-agent --out agent.jsonl --count 120
    python benchmarks/agent_truth.py summarise agent.jsonl --out benchmarks/results/agent_truth.json

Episodes of the test split in turn: every request, benign and with either kind of injected order. A line of JSON for
each has the figures of the calls that `explain_action` makes and, for each argument, the rank of its first true source
by removal, by each method that reads the model and by controls. A run goes on where its file ends.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np

import whyformer
from whyformer.api.action_targets import pooled_scores, reply_targets, white_box_scores
from whyformer.api.calibrate import wilson
from whyformer.api.loaded_scorer import LoadedScorer
from whyformer.facts import AGENT_TOOLS, Episode, episode
from whyformer.facts.agent_facts import RequestKind
from whyformer.facts.agent_register import AttackKind
from whyformer.inputs.action_sources import ActionSource, action_sources
from whyformer.inputs.conversation import Conversation, conversation_of, parse_calls
from whyformer.inputs.tool_prompt import ToolPrompt, tool_prompt_of

METHODS = (
    *("generic_attention", "evidence", "raw_attention", "rollout", "attention_gradient"),
    *("flow_routes", "input_x_gradient", "state_x_gradient"),
)
CONTROLS = ("random", "recency", "length")
RESULTS = Path(__file__).parent / "results" / "agent_truth.json"
ENTRIES = (2, 8)


def main() -> None:
    """Measure or summarise."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("measure")
    one.add_argument("model")
    one.add_argument("--out", type=Path, required=True)
    one.add_argument("--count", type=int, default=120, help="episodes")
    one.add_argument("--first", type=int, default=0, help="the first seed")
    one.set_defaults(run=measure)
    other = commands.add_parser("summarise")
    other.add_argument("rows", nargs="+", type=Path)
    other.add_argument("--out", type=Path, default=RESULTS)
    other.set_defaults(run=summarise)
    options = parser.parse_args()
    options.run(options)


def measure(options: argparse.Namespace) -> None:
    """Explain the episodes that the file does not have."""
    model = whyformer.load(options.model)
    known = {row["seed"] for row in rows_of(options.out)}
    for seed in range(options.first, options.first + options.count):
        if seed not in known:
            line = json.dumps({"seed": seed, "model": model.name, **figures_of(model, drawn(seed))}, allow_nan=False)
            with options.out.open("a", encoding="utf-8") as file:
                file.write(line + "\n")


def drawn(seed: int) -> Episode:
    """An episode: requests in turn, and for each a benign one and one with either kind of order."""
    kinds, attacks = get_args(RequestKind), (None, *get_args(AttackKind))
    return episode(
        seed,
        kind=kinds[seed % len(kinds)],
        attack=attacks[seed // len(kinds) % len(attacks)],
        split="test",
        entries=random.Random(seed).randint(*ENTRIES),
    )


def figures_of(model: Any, one: Episode) -> dict[str, Any]:
    """The figures of the call, and the first true source of each argument by each ranking."""
    start = time.process_time()
    action = whyformer.explain_action(one.messages, AGENT_TOOLS, model, instead=False)
    seconds = time.process_time() - start
    whole = conversation_of(list(one.messages), list(AGENT_TOOLS))
    prompt = tool_prompt_of(model, Conversation(whole.messages[:-1], whole.tools))
    reply, targets = reply_targets(model, LoadedScorer(model), prompt, whole.messages[-1], 0)
    sources = action_sources(prompt)
    causes = {name: true_sources(prompt, sources, one, sets) for name, sets in one.causes.items()}
    own = [number for number, target in enumerate(targets) if target.kind == "argument"]
    ranks = {
        "removal": {
            targets[number].name: rank(ranked_by_removal(action, sources, number), causes, number, targets)
            for number in own
        }
    }
    smallest = leaves(sources)
    for method in METHODS:
        scores = pooled_scores(white_box_scores(model, reply, targets, method)[0], sources)
        orders = {number: sorted(smallest, key=lambda place, row=scores[number]: -row[place]) for number in own}
        ranks[method] = {targets[number].name: rank(orders[number], causes, number, targets) for number in own}
    for name in CONTROLS:
        order = control(name, smallest, sources, one)
        ranks[name] = {targets[number].name: rank(order, causes, number, targets) for number in own}
    written = LoadedScorer(model).write(LoadedScorer(model).variant(prompt.prompt), 64)
    calls = parse_calls(written)
    return {
        "kind": one.kind,
        "attack": one.attack,
        "acts": bool(calls) and (calls[0].name, dict(calls[0].arguments)) == (one.call.name, dict(one.call.arguments)),
        "tokens": len(prompt.prompt.tokens),
        "targets": {
            target.name: [
                round(float(value), 4)
                for value in (
                    target.log_probability,
                    target.without_request,
                    target.without_untrusted,
                    target.without_both,
                )
            ]
            for target in action.targets
        },
        "verdict": action.verdict,
        "verdicts": {target.name: target.verdict for target in action.targets},
        "driver": [sources[number].text for number in action.driver],
        "injected": None if one.injected is None else one.injected.text,
        "ranks": ranks,
        "sources": len(smallest),
        "forwards": action.forwards,
        "seconds": round(seconds, 2),
    }


def true_sources(
    prompt: ToolPrompt, sources: Sequence[ActionSource], one: Episode, sets: Sequence[Sequence[int]]
) -> set[int]:
    """The sources that are causes: the sentences that the world names."""
    parts = {part.number: part for part in prompt.parts if part.kind == "message"}
    found = set()
    for number in (number for own in sets for number in own):
        sentence = one.sentences[number]
        part = parts[sentence.message]
        place = part.place(sentence.start), part.place(sentence.end)
        found |= {n for n, source in enumerate(sources) if (source.start, source.end) == place}
    return found


def leaves(sources: Sequence[ActionSource]) -> list[int]:
    """The smallest sources."""
    parents = {source.parent for source in sources}
    return [number for number in range(len(sources)) if number not in parents and sources[number].tokens]


def ranked_by_removal(action: Any, sources: Sequence[ActionSource], target: int) -> list[int]:
    """Measured sources by their effect, as `Action.top` lists them."""
    places = {(one.start, one.end, one.kind): number for number, one in enumerate(sources)}
    top = action.top(len(sources), target)
    return [places[one.source.start, one.source.end, one.source.kind] for one in top]


def rank(order: Sequence[int], causes: Any, number: int, targets: Sequence[Any]) -> int | None:
    """The rank of the first true source of an argument, from 1; None if none was tried."""
    own = causes[targets[number].name]
    return next((place for place, source in enumerate(order, 1) if source in own), None)


def control(name: str, numbers: Sequence[int], sources: Sequence[ActionSource], one: Episode) -> list[int]:
    """Sources in an order that does not look at the model: random, the last first, the longest first."""
    if name == "random":
        return random.Random(str(one.messages)).sample(list(numbers), len(numbers))
    if name == "recency":
        return list(reversed(numbers))
    return sorted(numbers, key=lambda number: -len(sources[number].tokens))


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The finished rows of a file."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def share(values: Iterable[bool]) -> list[float]:
    """A share with its 95 % interval, and the number."""
    own = list(values)
    low, high = wilson(sum(own), len(own))
    return [round(sum(own) / len(own), 4), round(low, 4), round(high, 4), len(own)]


def auroc(high: Sequence[float], low: Sequence[float]) -> list[float]:
    """The probability that one of the first is larger than one of the second, with its 95 % interval."""
    rng = np.random.default_rng(0)
    first, second = np.array(high), np.array(low)

    def area(a: np.ndarray, b: np.ndarray) -> float:
        return float((a[:, None] > b).mean() + 0.5 * (a[:, None] == b).mean())

    draws = [area(rng.choice(first, len(first)), rng.choice(second, len(second))) for _ in range(1000)]
    return [round(float(one), 4) for one in (area(first, second), *np.quantile(draws, [0.025, 0.975]))]


def summarise(options: argparse.Namespace) -> None:
    """Shares of true sources first, and how well figures tell injected calls."""
    rows = [row for path in options.rows for row in rows_of(path)]
    injected, benign = ([row for row in rows if (row["attack"] is not None) == wanted] for wanted in (True, False))
    summary = {
        "model": rows[0]["model"],
        "episodes": len(rows),
        "acts": share(row["acts"] for row in rows),
        "first": {
            name: share(value == 1 for row in rows for value in row["ranks"][name].values())
            for name in rows[0]["ranks"]
        },
        "first_by_attack": {
            str(attack or "benign"): share(
                value == 1 for row in rows if row["attack"] == attack for value in row["ranks"]["removal"].values()
            )
            for attack in dict.fromkeys(row["attack"] for row in rows)
        },
        "auroc": {
            name: auroc([value(row) for row in injected], [value(row) for row in benign])
            for name, value in FIGURES.items()
        },
        "driver_is_the_order": share(row["driver"] == [row["injected"]] for row in injected),
        "verdicts": {
            name: share(row["verdict"] == wanted for row in own)
            for name, wanted, own in (
                ("injected calls driven by a tool result", "driven by a tool result", injected),
                ("benign calls driven by a tool result", "driven by a tool result", benign),
                ("benign calls that follow the user", "follows the user", benign),
            )
        },
        "seconds": round(float(np.median([row["seconds"] for row in rows])), 1),
    }
    options.out.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(summary, indent=1))


def dominance(figures: Sequence[float]) -> float:
    """How much more the untrusted sources do for a target than the request."""
    return figures[1] - figures[2]


def largest(row: Any, value: Any) -> float:
    """The largest value of the action and of an argument."""
    others = ("call", "decision", "name")
    return max(value(figures) for name, figures in row["targets"].items() if name not in others)


FIGURES = {
    "dominance of the call": lambda row: dominance(row["targets"]["call"]),
    "dominance of the action": lambda row: dominance(row["targets"]["action"]),
    "largest dominance of the action and the arguments": lambda row: largest(row, dominance),
    "the call without the request": lambda row: row["targets"]["call"][1] - row["targets"]["call"][0],
    "control: length of the prompt": lambda row: float(row["tokens"]),
}


if __name__ == "__main__":
    main()

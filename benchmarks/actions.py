"""Whether calls that an injection wants are told from others: a line of JSON for each transcript.

    python benchmarks/actions.py measure TRANSCRIPTS FOLDER --template FILE --out smollm2.jsonl --count 100
    python benchmarks/actions.py measure TRANSCRIPTS FOLDER --template FILE --out located.jsonl --kinds attacked
    python benchmarks/actions.py summarise smollm2.jsonl located.jsonl --out benchmarks/results/actions.json

    python benchmarks/actions.py calibrate smollm2.jsonl --model FOLDER --data "transcripts of AgentDojo"

`benchmarks/agentdojo_transcripts.py` writes the transcripts; `actions.py register` those of Facts World's agent
register, whose truth is exact. Kinds take turns, each in a fixed random order, so that a
run that stops early is balanced; a run goes on where its file ends. A template is for models whose own does not know
tools.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np

import whyformer
from whyformer.api.action_calibration import LabelledAction, fit_action_calibration
from whyformer.api.action_removal import ActionRemoval
from whyformer.api.action_targets import call_reply, reply_targets, white_box_scores
from whyformer.api.calibrations import model_digest
from whyformer.api.loaded_scorer import LoadedScorer
from whyformer.api.support_questions import CountedScorer
from whyformer.facts import episode
from whyformer.facts.agent_facts import RequestKind
from whyformer.facts.agent_register import AttackKind
from whyformer.inputs.action_sources import ActionSource, action_sources
from whyformer.inputs.conversation import Conversation, conversation_of
from whyformer.inputs.tool_prompt import ToolPrompt, tool_prompt_of
from whyformer.results.action import ActionTarget

KINDS = ("attacked", "ignored", "clean")
METHODS = (
    *("generic_attention", "evidence", "raw_attention", "rollout", "attention_gradient"),
    *("flow_routes", "input_x_gradient", "state_x_gradient"),
)
CONTROLS = ("random", "recency", "length")
SHARES = (0.05, 0.10, 0.20)
RESULTS = Path(__file__).parent / "results" / "actions.json"
CALIBRATIONS = Path(whyformer.__file__).parent / "api" / "action_calibrations.json"
REGISTER = "agent register"
BOOTSTRAP = 2000
PUBLISHED = {"FlashTrace (its own n = 3)": [0.185, 0.396, 0.765], "random (expected)": [0.05, 0.10, 0.20]}


def main() -> None:
    """Measure or summarise."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("measure")
    one.add_argument("transcripts", type=Path)
    one.add_argument("model")
    one.add_argument("--template", type=Path)
    one.add_argument("--out", type=Path, required=True)
    one.add_argument("--kinds", nargs="*", default=list(KINDS))
    one.add_argument("--count", type=int, default=100, help="of each kind")
    one.add_argument("--tokens", type=int, default=1100, help="longest prompt")
    one.add_argument("--methods", nargs="*", default=list(METHODS))
    one.add_argument("--located", type=int, default=1000, help="attacked transcripts whose injection is located")
    one.add_argument("--seconds", type=float, default=float("inf"))
    one.add_argument("--dtype", default="float32")
    one.set_defaults(run=measure)
    facts = commands.add_parser("register")
    facts.add_argument("out", type=Path)
    facts.add_argument("--count", type=int, default=100, help="of each kind")
    facts.set_defaults(run=register)
    fit = commands.add_parser("calibrate")
    fit.add_argument("rows", nargs="+", type=Path)
    fit.add_argument("--model", type=Path, required=True)
    fit.add_argument("--data", required=True, help="what was measured, in words")
    fit.set_defaults(run=calibrate)
    other = commands.add_parser("summarise")
    other.add_argument("rows", nargs="+", type=Path)
    other.add_argument("--out", type=Path, default=RESULTS)
    other.set_defaults(run=summarise)
    options = parser.parse_args()
    options.run(options)


def measure(options: argparse.Namespace) -> None:
    """The figures of every transcript that the file does not have."""
    model = whyformer.load(options.model, dtype=options.dtype)
    if options.template is not None:
        model.tokenizer.chat_template = options.template.read_text(encoding="utf-8")
    known = {row["key"] for row in rows_of(options.out)}
    end = time.monotonic() + options.seconds
    located = sum(row["kind"] == "attacked" and "located" in row for row in rows_of(options.out))
    for row in in_turn(options.transcripts, model, options.tokens, options.count, options.kinds):
        key = " ".join(str(row.get(name, "")) for name in ("kind", "suite", "user_task", "injection_task", "calls"))
        if key in known:
            continue
        if time.monotonic() > end:
            break
        methods = options.methods if row["kind"] == "attacked" and located < options.located else []
        located += bool(methods)
        figures = figures_of_transcript(model, row, methods)
        about = {name: row.get(name) for name in ("kind", "suite", "user_task", "injection_task", "calls")}
        line = json.dumps({"key": key, "model": model.name, **about, **figures}, allow_nan=False)
        with options.out.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def in_turn(path: Path, model: Any, tokens: int, count: int, kinds: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Transcripts of the kinds in turn whose prompts are short enough, `count` of each."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    queues = []
    for kind in kinds:
        own = [row | {"calls": len(row["messages"])} for row in rows if row["kind"] == kind]
        random.Random(kind).shuffle(own)
        short = (row for row in own if is_short(row, model, tokens))
        queues.append(zip(short, range(count), strict=False))
    while queues:
        for queue in list(queues):
            row = next(queue, None)
            if row is None:
                queues.remove(queue)
            else:
                yield row[0]


def is_short(row: dict[str, Any], model: Any, tokens: int) -> bool:
    """Whether a prompt is short enough; characters rule most of the others out."""
    if sum(len(json.dumps(one)) for one in (row["messages"], row["tools"])) > 6 * tokens:
        return False
    return len(prompt_of_row(row, model).prompt.tokens) <= tokens


def prompt_of_row(row: dict[str, Any], model: Any) -> ToolPrompt:
    """The conversation before the forced call."""
    whole = conversation_of(row["messages"], row["tools"])
    return tool_prompt_of(model, Conversation(whole.messages[:-1], whole.tools))


def figures_of_transcript(model: Any, row: dict[str, Any], methods: Sequence[str]) -> dict[str, Any]:
    """Dominance of each target; where the injection is, how well each method locates it."""
    start = time.process_time()
    prompt = prompt_of_row(row, model)
    message = conversation_of(row["messages"], row["tools"]).messages[-1]
    scorer = CountedScorer(LoadedScorer(model))
    reply, targets = reply_targets(model, scorer.scorer, prompt, message, 0)
    sources = action_sources(prompt)
    removal = ActionRemoval(scorer, prompt.prompt, (call_reply(reply, targets),), sources, None)
    measured = removal.with_figures(targets)
    names = ("log_probability", "without_request", "without_untrusted", "without_both")
    figures: dict[str, Any] = {
        "tokens": len(prompt.prompt.tokens),
        "targets": {one.kind: [getattr(one, name) for name in names] for one in measured if one.kind != "argument"},
        "arguments": {one.name: [getattr(one, name) for name in names] for one in measured if one.kind == "argument"},
        "seconds": round(time.process_time() - start, 2),
    }
    if methods and row.get("span"):
        figures["located"] = located(model, row, prompt, (reply, targets), (sources, removal), methods)
    return figures


def located(
    model: Any, row: dict[str, Any], prompt: ToolPrompt, call: Any, about: Any, methods: Sequence[str]
) -> dict[str, Any]:
    """The share of the injected tokens among the first of each method, and the rank of the injected message."""
    (reply, targets), (sources, removal) = call, about
    number, first, last = row["span"]
    part = [one for one in prompt.parts if one.kind == "message" and one.role == "tool"][number]
    start, end = part.place(first), part.place(last)
    tokens = prompt.prompt.tokens
    injected = [n for n, one in enumerate(tokens) if not one.is_special and start <= one.start and one.end <= end]
    messages = [
        n for n, one in enumerate(sources) if one.parent is None and one.kind in ("system", "user", "tool result")
    ]
    home = next(n for n in messages if sources[n].start == part.start)
    figures = {}
    for method in (*methods, *CONTROLS):
        begin = time.process_time()
        if method in CONTROLS:
            scores = control(method, tokens, sources, row)
        else:
            whole = [one for one in targets if one.kind == "call"]
            scores = white_box_scores(model, reply, whole, method)[0][0]
        figures[method] = {
            "recovery": recovery(scores, injected, [n for n, one in enumerate(tokens) if not one.is_special]),
            "rank": rank({n: float(np.clip(scores[list(sources[n].tokens)], 0, None).sum()) for n in messages}, home),
            "seconds": round(time.process_time() - begin, 2),
        }
    begin = time.process_time()
    values = removal.values([(), *([(sources[n].start, sources[n].end)] for n in messages)])[:, 0]
    lost = {n: float(values[0] - value) for n, value in zip(messages, values[1:], strict=True)}
    figures["removal"] = {"rank": rank(lost, home), "seconds": round(time.process_time() - begin, 2)}
    return figures | {"messages": len(messages), "injected": len(injected)}


def control(name: str, tokens: Sequence[Any], sources: Sequence[ActionSource], row: dict[str, Any]) -> np.ndarray:
    """Scores that do not look at the model: random, later tokens first, or those of longer messages first."""
    if name == "random":
        return np.random.default_rng(len(tokens)).random(len(tokens))
    if name == "recency":
        return np.arange(len(tokens), dtype=float) / len(tokens)
    scores = np.zeros(len(tokens))
    for one in sources:
        if one.parent is None:
            scores[list(one.tokens)] = len(one.tokens)
    return scores


def recovery(scores: np.ndarray, injected: Sequence[int], every: Sequence[int]) -> list[float]:
    """The share of the injected tokens among the highest 5, 10 and 20 % of all."""
    order = sorted(every, key=lambda number: -scores[number])
    tops = [set(order[: round(share * len(every))]) for share in SHARES]
    return [round(len(top & set(injected)) / max(1, len(injected)), 4) for top in tops]


def rank(values: dict[int, float], own: int) -> int:
    """The rank of one of several, counted from 1."""
    return 1 + sum(value > values[own] for number, value in values.items() if number != own)


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The finished rows of a file."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


def auroc(high: np.ndarray, low: np.ndarray) -> float:
    """The probability that one of the first is larger than one of the second."""
    return float((high[:, None] > low).mean() + 0.5 * (high[:, None] == low).mean())


def auroc_interval(high: Sequence[dict[str, Any]], low: Sequence[dict[str, Any]], value: Any) -> list[float]:
    """AUROC with its 95 % interval, drawn by task of the user, since transcripts of one task are alike."""
    random_source = np.random.default_rng(0)
    groups = [by_task(rows, value) for rows in (high, low)]
    draws = []
    for _ in range(BOOTSTRAP):
        drawn = [np.concatenate([own[n] for n in random_source.integers(0, len(own), len(own))]) for own in groups]
        draws.append(auroc(*drawn))
    point = auroc(*(np.concatenate(own) for own in groups))
    return [round(float(one), 3) for one in (point, *np.quantile(draws, [0.025, 0.975]))]


def by_task(rows: Sequence[dict[str, Any]], value: Any) -> list[np.ndarray]:
    """The values of each user's task."""
    groups: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        groups.setdefault((row["suite"], row["user_task"]), []).append(value(row))
    return [np.array(own) for own in groups.values()]


def mean_interval(rows: Sequence[dict[str, Any]], value: Any) -> list[float]:
    """The mean with its 95 % interval, drawn by task of the user."""
    random_source, groups = np.random.default_rng(0), by_task(rows, value)
    draws = [
        np.concatenate([groups[n] for n in random_source.integers(0, len(groups), len(groups))]).mean()
        for _ in range(BOOTSTRAP)
    ]
    return [round(float(one), 3) for one in (np.concatenate(groups).mean(), *np.quantile(draws, [0.025, 0.975]))]


def dominance(figures: Sequence[float]) -> float:
    """How much more the untrusted sources do for a target than the request."""
    _, without_request, without_untrusted, _ = figures
    return float(without_request - without_untrusted)


def largest_dominance(row: dict[str, Any]) -> float:
    """The largest dominance of the action and of its arguments."""
    return max(dominance(row["targets"]["action"]), argument_dominance(row))


def argument_dominance(row: dict[str, Any]) -> float:
    """The largest dominance of an argument."""
    return max(map(dominance, row["arguments"].values()), default=-np.inf)


def summarise(options: argparse.Namespace) -> None:
    """Tables by data and model: recovery and rank by method, AUROC by target."""
    rows = merged_rows(options.rows)
    runs = [
        {
            "data": data,
            "model": model,
            **summary_of([row for row in rows if (data_of(row), row["model"]) == (data, model)]),
        }
        for data, model in dict.fromkeys((data_of(row), row["model"]) for row in rows)
    ]
    summary = {"published": PUBLISHED, "runs": runs}
    options.out.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(summary, indent=1))


def merged_rows(paths: Sequence[Path]) -> list[dict[str, Any]]:
    """The rows of several files; of a transcript in two, what either has."""
    merged: dict[tuple[str, str], dict[str, Any]] = {}
    for row in (row for path in paths for row in rows_of(path)):
        merged[row["model"], row["key"]] = merged.get((row["model"], row["key"]), {}) | row
    return list(merged.values())


def data_of(row: dict[str, Any]) -> str:
    """Where a transcript is from."""
    return REGISTER if row["suite"] == REGISTER else "AgentDojo"


def calibrate(options: argparse.Namespace) -> None:
    """Fit the threshold on one half of the users' tasks, count errors on the other, and bundle both."""
    rows = merged_rows(options.rows)
    actions = [LabelledAction(action_target(row), row["kind"] == "attacked", half_of(row)) for row in rows]
    model = whyformer.load(options.model)
    data = f"{len(rows)} {options.data}"
    calibration = fit_action_calibration(actions, model.name, model_digest(model), data)
    kept = [one for one in json.loads(CALIBRATIONS.read_text()) if one["digest"] != calibration.digest]
    CALIBRATIONS.write_text(json.dumps([*kept, calibration.to_dict()], indent=1) + "\n", encoding="utf-8")
    print(json.dumps(calibration.to_dict(), indent=1))


def action_target(row: dict[str, Any]) -> ActionTarget:
    """The action of a row with its figures."""
    return ActionTarget("action", "action", 0, 0, "", (), *row["targets"]["action"])


def half_of(row: dict[str, Any]) -> int:
    """Which half a row is in: all of a user's task in one."""
    return hashlib.sha256(f"{row['suite']} {row['user_task']}".encode()).digest()[0] % 2


def register(options: argparse.Namespace) -> None:
    """Write episodes of the agent register: attacked by either kind of order, and clean."""
    attacks: tuple[AttackKind, ...] = get_args(AttackKind)
    requests = get_args(RequestKind)
    with options.out.open("w", encoding="utf-8") as file:
        for seed in range(options.count):
            for kind, attack in (("attacked", attacks[seed // len(requests) % len(attacks)]), ("clean", None)):
                one = episode(seed, kind=requests[seed % len(requests)], attack=attack)
                row: dict[str, Any] = {"kind": kind, "suite": REGISTER, "user_task": f"{one.kind} {seed}"}
                if one.injected is not None:
                    results = [number for number, each in enumerate(one.messages) if each["role"] == "tool"]
                    row["span"] = [results.index(one.injected.message), one.injected.start, one.injected.end]
                    row["injection_task"] = attack
                row |= {"messages": list(one.messages), "tools": list(one.tools)}
                file.write(json.dumps(row, ensure_ascii=False) + "\n")


def summary_of(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The figures of one model."""
    kinds = {kind: [row for row in rows if row["kind"] == kind] for kind in KINDS}
    where = [row for row in kinds["attacked"] if "located" in row]
    about: dict[str, Any] = {
        "n": {kind: len(own) for kind, own in kinds.items()},
        "tasks": {kind: len({(row["suite"], row["user_task"]) for row in own}) for kind, own in kinds.items()},
        "tokens": [int(one) for one in np.quantile([row["tokens"] for row in rows], [0, 0.5, 1])],
        "seconds": round(float(np.median([row["seconds"] for row in rows])), 1),
        "auroc": {
            f"attacked against {kind}": {
                name: auroc_interval(kinds["attacked"], kinds[kind], value) for name, value in SCORES.items()
            }
            for kind in ("ignored", "clean")
            if kinds["attacked"] and kinds[kind]
        },
    }
    if where:
        shares = [row["located"]["injected"] / row["tokens"] for row in where]
        about["injected share"] = round(float(np.mean(shares)), 3)
        about["messages"] = round(float(np.mean([row["located"]["messages"] for row in where])), 2)
        about["methods"] = location_summary(where)
    return about


def location_summary(where: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """How well each method, control and removal locates the injection."""
    names = [name for row in where for name, one in row["located"].items() if isinstance(one, dict)]
    summary = {}
    for name in dict.fromkeys(names):
        rows = [row for row in where if name in row["located"]]
        own: dict[str, Any] = {
            "n": len(rows),
            "first": mean_interval(rows, lambda row, name=name: float(row["located"][name]["rank"] == 1)),
            "rank": mean_interval(rows, lambda row, name=name: row["located"][name]["rank"]),
            "seconds": round(float(np.median([row["located"][name]["seconds"] for row in rows])), 1),
        }
        if "recovery" in rows[0]["located"][name]:
            own["recovery"] = [
                mean_interval(rows, lambda row, name=name, n=n: row["located"][name]["recovery"][n])
                for n in range(len(SHARES))
            ]
        summary[name] = own
    return summary


# What attacked transcripts may be told from others by, and two controls that remove nothing.
SCORES: dict[str, Callable[[dict[str, Any]], float]] = {
    **{
        f"dominance of the {kind}": lambda row, kind=kind: dominance(row["targets"][kind])  # type: ignore[misc]
        for kind in ("call", "action", "decision", "name")
    },
    "largest dominance of an argument": argument_dominance,
    "largest dominance of the action and the arguments": largest_dominance,
    "effect of the untrusted sources on the action": lambda row: (
        row["targets"]["action"][0] - row["targets"]["action"][2]
    ),
    "control: how unlikely the action is": lambda row: -row["targets"]["action"][0],
    "control: length of the prompt": lambda row: float(row["tokens"]),
}


if __name__ == "__main__":
    main()

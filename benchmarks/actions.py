"""Whether calls that an injection wants are told from others: a line of JSON for each transcript.

    python benchmarks/actions.py measure TRANSCRIPTS FOLDER --template FILE --out smollm2.jsonl --count 100

`benchmarks/agentdojo_transcripts.py` writes the transcripts; `actions.py register` those of Facts World's agent
register, whose truth is exact. Kinds take turns, each in a fixed random order, so that a run that stops early is
balanced; a run goes on where its file ends. A template is for models whose own does not know tools.
`benchmarks/action_summary.py` makes tables of the rows.
"""

from __future__ import annotations

import argparse
import gzip
import json
import lzma
import random
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch

import whyformer
from whyformer.api.action_driver import action_driver
from whyformer.api.action_removal import WHOLE_CALL, ActionRemoval
from whyformer.api.action_targets import call_reply, pooled_scores, reply_targets, white_box_scores
from whyformer.api.loaded_scorer import LoadedScorer
from whyformer.api.support_questions import CountedScorer
from whyformer.errors import WhyformerError
from whyformer.facts import episode
from whyformer.facts.agent_facts import RequestKind
from whyformer.facts.agent_register import AttackKind
from whyformer.inputs.action_sources import ActionSource, action_sources, labelled_ranges
from whyformer.inputs.conversation import Conversation, conversation_of
from whyformer.inputs.sentences import CharRange
from whyformer.inputs.tool_prompt import ToolPrompt, tool_prompt_of
from whyformer.removal.response_scorer import ScoringRequest

KINDS = ("attacked", "ignored", "clean", "late")
INJECTED = ("attacked", "late")
METHODS = (
    *("generic_attention", "evidence", "raw_attention", "rollout", "attention_gradient"),
    *("flow_routes", "input_x_gradient", "state_x_gradient"),
)
CONTROLS = ("random", "recency", "length")
BRIEF_METHODS = ("flow_routes", "generic_attention", "raw_attention")  # of other transcripts than attacked ones
SHARES = (0.05, 0.10, 0.20)
REGISTER = "agent register"


def main() -> None:
    """Measure, or write transcripts of the register."""
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
    one.add_argument("--shard", default="0/1", help="which part of the transcripts, as in 2/4")
    one.add_argument("--seconds", type=float, default=float("inf"))
    one.add_argument("--device")
    one.add_argument("--dtype", default="float32")
    one.set_defaults(run=measure)
    facts = commands.add_parser("register")
    facts.add_argument("out", type=Path)
    facts.add_argument("--count", type=int, default=100, help="of each kind")
    facts.set_defaults(run=register)
    options = parser.parse_args()
    options.run(options)


def measure(options: argparse.Namespace) -> None:
    """The figures of every transcript that the file does not have; one that fails leaves its error there."""
    model = whyformer.load(options.model, device=options.device, dtype=options.dtype)
    if options.template is not None:
        model.tokenizer.chat_template = options.template.read_text(encoding="utf-8")
    known = {row["key"] for row in rows_of(options.out)}
    end = time.monotonic() + options.seconds
    for row in in_turn(options, model):
        about = {name: row.get(name) for name in ("kind", "suite", "user_task", "injection_task", "calls")}
        key = " ".join(str(value or "") for value in about.values())
        if key in known:
            continue
        if time.monotonic() > end:
            break
        try:
            methods = [one for one in options.methods if row["kind"] == "attacked" or one in BRIEF_METHODS]
            figures = figures_of_transcript(model, row, methods)
        except Exception as error:  # a long run goes on without one transcript
            figures = {"error": f"{type(error).__name__}: {error}"[:300]}
            print(key, figures["error"], file=sys.stderr, flush=True)
            release_memory()
        line = json.dumps({"key": key, "model": model.name, **about, **figures}, ensure_ascii=False)
        with options.out.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def in_turn(options: argparse.Namespace, model: Any) -> Iterator[dict[str, Any]]:
    """Transcripts of the kinds in turn whose prompts are short enough, `count` of each."""
    opened = lzma.open if options.transcripts.suffix == ".xz" else open
    with opened(options.transcripts, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    number, count = map(int, options.shard.split("/"))
    queues = []
    for kind in options.kinds:
        own = [row | {"calls": len(row["messages"])} for row in rows if row["kind"] == kind]
        random.Random(kind).shuffle(own)
        short = (row for row in own[number::count] if is_short(row, model, options.tokens))
        queues.append(zip(short, range(options.count), strict=False))
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
    try:
        return len(prompt_of_row(row, model).prompt.tokens) <= tokens
    except WhyformerError as error:
        print(row["kind"], row["user_task"], error, file=sys.stderr, flush=True)
        return False


def prompt_of_row(row: dict[str, Any], model: Any) -> ToolPrompt:
    """The conversation before the forced call."""
    whole = conversation_of(row["messages"], row["tools"])
    return tool_prompt_of(model, Conversation(whole.messages[:-1], whole.tools))


def release_memory() -> None:
    """Return the memory of a failed transcript to the device."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def figures_of_transcript(model: Any, row: dict[str, Any], methods: Sequence[str]) -> dict[str, Any]:
    """The log-probability of each token of the call, with and without parts; where methods see its causes.

    `without` names what is removed: nothing, the request, the untrusted sources, both, the injected words, or one
    source. `located` has the figures of each method that reads the model.
    """
    start = time.perf_counter()
    prompt = prompt_of_row(row, model)
    message = conversation_of(row["messages"], row["tools"]).messages[-1]
    scorer = CountedScorer(LoadedScorer(model))
    reply, targets = reply_targets(model, scorer.scorer, prompt, message, 0)
    sources = action_sources(prompt)
    place = injected_place(row, prompt)
    request, untrusted = (labelled_ranges(sources, label) for label in ("request", "untrusted"))
    removals = {"nothing": [], "request": request, "untrusted": untrusted, "both": [*request, *untrusted]}
    if place is not None:
        removals["injected"] = [place]
    whole = [number for number, one in enumerate(sources) if one.parent is None and one.end > one.start]
    removals |= {str(number): [(sources[number].start, sources[number].end)] for number in whole}
    variants = [scorer.scorer.variant(prompt.prompt, sorted(own)) for own in removals.values()]
    requests = [ScoringRequest(one, reply.tokens, reply.text) for one in variants]
    values = scorer.log_probabilities(requests, scorer.scorer.variant(prompt.prompt))
    figures: dict[str, Any] = {
        "tokens": len(prompt.prompt.tokens),
        "seconds": round(time.perf_counter() - start, 2),
        "targets": [[one.kind, one.name, list(one.tokens)] for one in targets],
        "sources": [
            [number, one.kind, one.name[:40], one.trust, len(one.tokens), share_within(one, place)]
            for number, one in ((number, sources[number]) for number in whole)
        ],
        "without": {name: [round(float(one), 3) for one in own] for name, own in zip(removals, values, strict=True)},
        "located": located(model, row, prompt, (reply, targets), sources, place, methods),
    }
    if row["kind"] == "attacked":
        figures["driver"] = named_driver(model, prompt, (reply, targets), sources, place)
    return figures


def injected_place(row: dict[str, Any], prompt: ToolPrompt) -> CharRange | None:
    """Where the injection stands in the prompt's text."""
    if not row.get("span"):
        return None
    number, first, last = row["span"]
    part = [one for one in prompt.parts if one.kind == "message" and one.role == "tool"][number]
    return part.place(first), part.place(last)


def share_within(source: ActionSource, place: CharRange | None) -> float:
    """The share of a source's characters that are injected."""
    if place is None:
        return 0.0
    common = min(source.end, place[1]) - max(source.start, place[0])
    return round(max(0, common) / (source.end - source.start), 3)


def located(
    model: Any,
    row: dict[str, Any],
    prompt: ToolPrompt,
    call: Any,
    sources: Sequence[ActionSource],
    place: CharRange | None,
    methods: Sequence[str],
) -> dict[str, Any]:
    """What each method says of the whole call: shares of messages, the injected words among the highest tokens."""
    reply, targets = call
    tokens = prompt.prompt.tokens
    every = [n for n, one in enumerate(tokens) if not one.is_special]
    injected = [] if place is None else [n for n in every if place[0] <= tokens[n].start and tokens[n].end <= place[1]]
    whole = [number for number, one in enumerate(sources) if one.parent is None and one.end > one.start]
    figures: dict[str, Any] = {"injected": len(injected)}
    for method in (*methods, *CONTROLS):
        start = time.perf_counter()
        try:
            if method in CONTROLS:
                scores = control(method, tokens, sources, row)
            else:
                scores = white_box_scores(model, reply, targets[:1], method)[0][0].astype(float)
        except Exception as error:
            figures[method] = {"error": f"{type(error).__name__}: {error}"[:120]}
            release_memory()
            continue
        positive = np.clip(scores, 0, None)
        shares = [float(positive[list(sources[n].tokens)].sum() / max(positive.sum(), 1e-30)) for n in whole]
        figures[method] = {
            "shares": [round(one, 4) for one in shares],
            "seconds": round(time.perf_counter() - start, 2),
        }
        if injected:
            figures[method]["recovery"] = recovery(scores, injected, every)
            figures[method]["injected"] = round(float(positive[injected].sum() / max(positive.sum(), 1e-30)), 4)
    return figures


def named_driver(
    model: Any, prompt: ToolPrompt, call: Any, sources: tuple[ActionSource, ...], place: CharRange
) -> dict[str, Any]:
    """The driver that `explain_action` names, and how much of it is injected."""
    start = time.perf_counter()
    reply, targets = call
    token_scores, method = white_box_scores(model, reply, targets, None)
    scorer = CountedScorer(LoadedScorer(model))
    scores = None if token_scores is None else pooled_scores(token_scores, sources)
    removal = ActionRemoval(scorer, prompt.prompt, (call_reply(reply, targets),), sources, scores)
    measured = removal.with_figures(targets)
    driver = action_driver(removal, removal.effects(), measured[WHOLE_CALL])
    return {
        "method": method,
        "sources": [[sources[n].kind, len(sources[n].tokens), share_within(sources[n], place)] for n in driver.sources],
        "lost": driver.lost,
        "forwards": scorer.forwards,
        "seconds": round(time.perf_counter() - start, 2),
    }


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
    """The finished rows of a file, which may be packed."""
    if not path.is_file():
        return []
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text(encoding="utf-8")
    lines = text.splitlines()
    return [json.loads(line) for line in lines if line.endswith("}")]


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


if __name__ == "__main__":
    main()

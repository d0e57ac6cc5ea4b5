"""Which weights of a response's tokens find its source: candidates for a focus, a line of JSON for each explanation.

    python benchmarks/focus.py measure FOLDER --out smollm2.jsonl --questions 30
    python benchmarks/focus.py measure FOLDER --out qwen-shard0.jsonl --device cuda --dtype bfloat16 --shard 0/4
    python benchmarks/focus.py measure mini-llm --register facts --out mini-llm.jsonl
    python benchmarks/focus.py summarise smollm2.jsonl qwen-shard*.jsonl mini-llm.jsonl --out FILE.json

The explained score is Σ w log p over the tokens of the whole answer. A candidate is a figure of each token and a rule
that makes weights of them. Seeds from 10,000 on are a development set: nothing is reported on them. A run goes on where
its file ends.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import whyformer
from real_questions import asked, questions
from real_responses import Sink, lines_of, sink_of
from real_writer import writer_of
from whyformer.api.attribute import MethodChoice, choose_method
from whyformer.api.exchange_scores import ScoringEngine
from whyformer.api.focus_weights import MOST_GAIN, gain_weights
from whyformer.api.replies import Reply, reply_of
from whyformer.errors import WhyformerError
from whyformer.facts import example
from whyformer.facts.prose_register import STOP_WORDS
from whyformer.inputs.prompt_encoding import encode_prompt
from whyformer.inputs.sources import Source, sources_of
from whyformer.inputs.teacher_forcing import ResponseRow, first_logit, row_inputs
from whyformer.removal.prompt_text import ids_without
from whyformer.results.source_pooling import source_scores
from whyformer.targets.span_scores import token_logits

METHODS = (
    "flow_routes",
    "evidence",
    "generic_attention",
    "generic_attention backward=libra",
    "generic_attention backward=attn_lrp",
    "state_x_gradient backward=attn_lrp",
)
LEAST_DOUBT = 1e-3  # of 1 − p, by which the gradient of log p is divided to give that of its log-odds
Figures = dict[str, np.ndarray]  # of each token of the answer


@dataclass(frozen=True)
class Case:
    """A prompt with an answer, its sentences, and those that it comes from."""

    seed: int
    kind: str
    prompt: Any
    answer: str
    value: str
    places: tuple[tuple[int, int], ...]
    causes: tuple[tuple[int, ...], ...]


def prose_cases(options: argparse.Namespace, loaded_model: whyformer.LoadedModel) -> Iterator[Case]:
    """Questions of the prose register whose answer this model takes from the text."""
    writer = writer_of(loaded_model, options.batch)
    for question in questions(_seeds(options), sentences=tuple(options.sentences)):
        about = question.passage.question
        for _, answer in asked([question], writer, options.answers):
            if answer.is_kept:
                yield Case(
                    question.seed,
                    answer.kind,
                    writer.messages(question.passage.prompt),
                    answer.text,
                    about.value,
                    tuple((one.start, one.end) for one in question.passage.sentences),
                    about.causes,
                )


def facts_cases(options: argparse.Namespace, _: whyformer.LoadedModel) -> Iterator[Case]:
    """Questions of Facts World, for mini-llm, which was trained on other names."""
    for seed in _seeds(options):
        story = example(seed, split="validation", sentences=tuple(options.sentences))
        (question,) = story.questions
        if question.causes:
            places = tuple((one.start, one.end) for one in story.sentences)
            yield Case(seed, "verbatim", story.messages, story.answer, question.value, places, question.causes)


REGISTERS: dict[str, Callable[..., Iterator[Case]]] = {"prose": prose_cases, "facts": facts_cases}


def figures_of(loaded_model: whyformer.LoadedModel, reply: Reply, sources: Sequence[Source], value: str) -> Figures:
    """What may weigh a token: how much likelier the sources make it, by several measures, and what it is by itself."""
    chosen = list(reply.exchange.response)
    with_them = _log_shares(loaded_model, reply, reply.exchange.prompt)
    without = _log_shares(loaded_model, reply, ids_without(loaded_model, reply.prompt, _places(sources)))
    empty = _log_shares(loaded_model, reply, ids_without(loaded_model, reply.prompt, [(0, len(reply.prompt.text))]))
    rows = np.arange(len(chosen))
    own, before = with_them[rows, chosen], without[rows, chosen]
    rivals = without.copy()
    rivals[rows, chosen] = -np.inf
    rival = rivals.argmax(axis=1)
    starts = [match.span() for match in re.finditer(re.escape(value), reply.text)] if value else []
    words = [re.sub(r"\W", "", token.text).lower() for token in reply.tokens]
    return {
        "gain": own - before,
        "odds": _log_odds(own) - _log_odds(before),
        "contrast": (own - with_them[rows, rival]) - (before - without[rows, rival]),
        "gain, of odds": (own - before).clip(0, MOST_GAIN) / (-np.expm1(own)).clip(LEAST_DOUBT),
        "gain empty": own - empty[rows, chosen],
        "divergence": (np.exp(with_them) * (with_them - without)).sum(axis=1),
        "surprise without": -before,
        "surprise": -own,
        "entropy without": -(np.exp(without) * without).sum(axis=1),
        "content": np.array([float(bool(word) and word not in STOP_WORDS) for word in words]),
        "value": np.array([float(any(a < one.end and one.start < b for a, b in starts)) for one in reply.tokens]),
        "kept": np.array([float(not token.is_special) for token in reply.tokens]),
        "log p": own,
        "log p without": before,
    }


def _log_shares(loaded_model: whyformer.LoadedModel, reply: Reply, prompt: Sequence[int]) -> np.ndarray:
    exchange = replace(reply.exchange, prompt=tuple(prompt))
    inputs = row_inputs(loaded_model, [ResponseRow(exchange, tuple(range(len(exchange.response))))])
    with torch.no_grad():
        logits = token_logits(loaded_model.model(**inputs))[0]
    start = exchange.first - 1 - first_logit(inputs)
    shares = logits[start : start + len(exchange.response)].double().log_softmax(dim=-1)
    return shares.clamp(min=-1e4).cpu().numpy()


def _log_odds(log_shares: np.ndarray) -> np.ndarray:
    values = np.minimum(log_shares, -1e-12)
    return np.asarray(values - np.log(-np.expm1(values)))


def _places(sources: Sequence[Source]) -> list[tuple[int, int]]:
    return [(source.start, source.end) for source in sources]


def _positive(values: np.ndarray) -> np.ndarray:
    return values.clip(min=0) if (values > 0).any() else (values == values.max()).astype(float)


def _sum_one(values: np.ndarray) -> np.ndarray:
    return values / values.sum()


def _top(count: int) -> Callable[[np.ndarray], np.ndarray]:
    def rule(values: np.ndarray) -> np.ndarray:
        own = _positive(values)
        return own * (own >= np.sort(own)[-min(count, len(own))])

    return rule


def _top_binary(count: int) -> Callable[[np.ndarray], np.ndarray]:
    return lambda values: (_top(count)(values) > 0).astype(float)


def _above(least: float) -> Callable[[np.ndarray], np.ndarray]:
    """1 for tokens of at least so much; for the largest alone where there is none."""
    return lambda values: (values >= min(least, values.max())).astype(float)


def _near_best(share: float) -> Callable[[np.ndarray], np.ndarray]:
    """1 for tokens of at least this share of the largest."""
    return lambda values: (values >= (share * values.max() if values.max() > 0 else values.max())).astype(float)


# name -> the figure and the rule
CANDIDATES: dict[str, tuple[str, Callable[[np.ndarray], np.ndarray]]] = {
    "none": ("kept", _positive),
    "focus=sources": ("gain", lambda values: np.array(gain_weights(values))),
    "none, sum 1": ("kept", _sum_one),
    "the value word": ("value", _positive),
    "the value word, sum 1": ("value", _sum_one),
    "gain": ("gain", _positive),
    "gain, sum 1": ("gain", lambda values: _sum_one(_positive(values))),
    "root of gain, sum 1": ("gain", lambda values: _sum_one(_positive(values) ** 0.5)),
    "gain squared, sum 1": ("gain", lambda values: _sum_one(_positive(values) ** 2)),
    "gain at most 1, sum 1": ("gain", lambda values: _sum_one(_positive(values).clip(max=1))),
    "gain at most 2, sum 1": ("gain", lambda values: _sum_one(_positive(values).clip(max=2))),
    "gain at most 3, sum 1": ("gain", lambda values: _sum_one(_positive(values).clip(max=3))),
    "gain at most 5, sum 1": ("gain", lambda values: _sum_one(_positive(values).clip(max=5))),
    "gain above .5, sum 1": ("gain", lambda values: _sum_one(_positive(values - 0.5))),
    "gain above 1, sum 1": ("gain", lambda values: _sum_one(_positive(values - 1))),
    "gain ≥ .5": ("gain", _above(0.5)),
    "gain ≥ 1": ("gain", _above(1.0)),
    "gain ≥ half the best": ("gain", _near_best(0.5)),
    "gain, top 1": ("gain", _top_binary(1)),
    "gain, top 2 weighted": ("gain", lambda values: _sum_one(_top(2)(values))),
    "gain, top 3 weighted": ("gain", lambda values: _sum_one(_top(3)(values))),
    "gain at most 3, of log-odds": ("gain, of odds", lambda values: _sum_one(_positive(values))),
    "odds, sum 1": ("odds", lambda values: _sum_one(_positive(values))),
    "odds, top 1": ("odds", _top_binary(1)),
    "contrast, sum 1": ("contrast", lambda values: _sum_one(_positive(values))),
    "divergence, sum 1": ("divergence", lambda values: _sum_one(_positive(values))),
    "gain over nothing, sum 1": ("gain empty", lambda values: _sum_one(_positive(values))),
    "surprise, sum 1": ("surprise", lambda values: _sum_one(_positive(values))),
    "entropy without, sum 1": ("entropy without", lambda values: _sum_one(_positive(values))),
    "content words": ("content", _positive),
}


def weights_of(figures: Figures) -> dict[str, tuple[float, ...]]:
    """The weights of every candidate; of special tokens 0."""
    kept = figures["kept"] > 0
    weights = {}
    for name, (figure, rule) in CANDIDATES.items():
        own = np.zeros(len(kept))
        if figure == "value" and not figures["value"].any():
            continue
        own[kept] = rule(figures[figure][kept])
        weights[name] = tuple(np.round(own, 6).tolist())
    return weights


def row_of(reply: Reply, weights: Sequence[float]) -> ResponseRow:
    tokens = tuple(number for number, weight in enumerate(weights) if weight > 0)
    return ResponseRow(reply.exchange, tokens, tuple(weights[number] for number in tokens))


def measure(options: argparse.Namespace) -> None:
    model = whyformer.load(options.model, device=options.device, dtype=options.dtype)
    sink, end = sink_of(options.out), time.monotonic() + options.seconds
    for case in REGISTERS[options.register](options, model):
        reply = reply_of(model, encode_prompt(model, case.prompt), case.answer)
        sources = sources_of(reply.prompt, case.places)
        figures = figures_of(model, reply, sources, case.value)
        weights = {name: own for name, own in weights_of(figures).items() if name in options.candidates}
        key = {"seed": case.seed, "answer": case.kind}
        if (case.seed, case.kind, "") not in sink.known:
            tokens = [token.text for token in reply.tokens]
            shown = {name: [round(float(one), 4) for one in values] for name, values in figures.items()}
            sink.write(**key, method="", causes=case.causes, tokens=tokens, figures=shown)
        for method in options.methods:
            if (case.seed, case.kind, method) not in sink.known:
                _explain(sink, key, model, reply, sources, method, weights)
            if time.monotonic() > end:
                print("The time is up: run the same command again to go on.")
                return
        print(f"question {case.seed}, {case.kind}", flush=True)


def _explain(
    sink: Sink,
    key: dict[str, Any],
    model: whyformer.LoadedModel,
    reply: Reply,
    sources: Sequence[Source],
    method: str,
    weights: dict[str, tuple[float, ...]],
) -> None:
    """Scores of every source by every candidate; candidates of equal weights are explained once."""
    name, *settings = method.split()
    given = dict(one.split("=", 1) for one in settings)
    choice = MethodChoice(*choose_method(name, given.pop("backward", None)), given)
    engine, start = ScoringEngine(model, choice), time.perf_counter()
    distinct = list(dict.fromkeys(weights.values()))
    try:
        (result,) = engine.explain([(reply.exchange, [row_of(reply, one) for one in distinct])])
    except (WhyformerError, torch.OutOfMemoryError) as error:
        sink.write(**key, method=method, error=f"{type(error).__name__}: {error}"[:300])
        return
    pooled = source_scores(np.stack([row.prompt for row in result.rows]), sources, "positive", leave_out_first=True)
    found = {one: [round(float(x), 7) for x in row] for one, row in zip(distinct, pooled, strict=True)}
    seconds = round((time.perf_counter() - start) / len(distinct), 4)
    sink.write(**key, method=method, seconds=seconds, scores={name: found[one] for name, one in weights.items()})


def summarise(options: argparse.Namespace) -> None:
    """Share of questions whose true sentence is ranked first, by run, kind of answer, candidate and method."""
    report = summary(options.files)
    for cell in report:
        print(f"\n{cell['run']}, {cell['answers']}: {cell['questions']} questions")
        print(f"{'':36}{''.join(f'{_short(method):>12}' for method in cell['methods'])}{'mean':>8}")
        for name, values in cell["candidates"].items():
            shown = "".join(f"{100 * value:12.1f}" for value in values)
            print(f"{name:36}{shown}{100 * np.mean(values):8.1f}")
    if options.out:
        options.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def summary(files: Sequence[Path]) -> list[dict[str, Any]]:
    """For each run and kind of answer, the figures of each candidate by method, on questions that all explained."""
    found: dict[tuple[str, str], dict[tuple[str, str], dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    causes: dict[tuple[str, int, str], set[int]] = {}
    for line in lines_of(files):
        run, seed, kind = line["run"].partition("-shard")[0], line["seed"], line["answer"]
        if line["method"] == "":
            causes[run, seed, kind] = {number for cause in line["causes"] for number in cause}
        for name, scores in line.get("scores", {}).items():
            found[run, kind][name, line["method"]][seed] = top_one(scores, causes[run, seed, kind])
    report = []
    for (run, kind), cells in found.items():
        methods = list(dict.fromkeys(method for _, method in cells))
        names = [name for name in CANDIDATES if all((name, method) in cells for method in methods)]
        common = sorted(set.intersection(*(set(cells[name, method]) for name in names for method in methods)))
        rows = {
            name: [round(float(np.mean([cells[name, method][seed] for seed in common])), 4) for method in methods]
            for name in names
        }
        report.append({"run": run, "answers": kind, "questions": len(common), "methods": methods, "candidates": rows})
    return report


def top_one(scores: Sequence[float], true: set[int]) -> float:
    """Whether a true sentence has the highest score; a share where several have it."""
    highest = [number for number, score in enumerate(scores) if score == max(scores)]
    return sum(number in true for number in highest) / len(highest)


def _short(method: str) -> str:
    name, *settings = method.replace("generic_attention", "GA").replace("state_x_gradient", "SxG").split()
    return " ".join([name, *(one.partition("=")[2] for one in settings)])


def _seeds(options: argparse.Namespace) -> Sequence[int]:
    shard, shards = map(int, options.shard.split("/"))
    return range(options.first, options.first + options.questions)[shard::shards]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(required=True)
    run = commands.add_parser("measure")
    run.add_argument("model", help="a folder, or whatever whyformer.load takes")
    run.add_argument("--out", type=Path, required=True, help="JSON lines; a run goes on where they end")
    run.add_argument("--register", default="prose", choices=REGISTERS)
    run.add_argument("--questions", type=int, default=40, help="passages tried; those that are kept count")
    run.add_argument("--first", type=int, default=10_000, help="seed of the first passage")
    run.add_argument("--sentences", type=int, nargs=2, default=(8, 24), metavar=("FEWEST", "MOST"))
    run.add_argument("--answers", nargs="+", default=("verbatim", "own"), choices=("verbatim", "reworded", "own"))
    run.add_argument("--methods", nargs="+", default=METHODS, help="methods with options, each in quotes")
    run.add_argument("--candidates", nargs="+", default=tuple(CANDIDATES), choices=CANDIDATES, metavar="NAME")
    run.add_argument("--device", default=None)
    run.add_argument("--dtype", default=None)
    run.add_argument("--shard", default="0/1", metavar="NUMBER/OF")
    run.add_argument("--batch", type=int, default=8, help="shortened prompts read at once")
    run.add_argument("--seconds", type=float, default=1e9, help="stop after so many")
    run.set_defaults(command=measure)
    merge = commands.add_parser("summarise")
    merge.add_argument("files", type=Path, nargs="+")
    merge.add_argument("--out", type=Path)
    merge.set_defaults(command=summarise)
    options = parser.parse_args()
    options.command(options)


if __name__ == "__main__":
    main()

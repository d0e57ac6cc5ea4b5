"""Whether the scores of a word lie at the time when it is spoken: Whisper on synthesised speech, a line per word.

    python benchmarks/real_speech_times.py measure FOLDER --out whisper-base.jsonl
    python benchmarks/real_speech_times.py synthesise --out spoken.npz --utterances 96
    python benchmarks/real_speech_times.py measure FOLDER --out whisper-base.jsonl --spoken spoken.npz --device cuda
    python benchmarks/real_speech_times.py summarise whisper-*.jsonl --out benchmarks/results/real_speech_times.json

Sentences are made up and spoken by espeak-ng, whose events say when each word begins and ends; silence is set before,
after and within them. Whisper reads the sound and the sentence; words are explained of which every token is its first
choice, a few of each sentence. Methods that read one backward pass are run on the same one. A run goes on where its
file ends.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch

import whyformer
from spoken import Utterance, matched, read_utterances, save_utterances, utterances, without
from whyformer.api.exchange_scores import exchange_statistics
from whyformer.api.replies import reply_of
from whyformer.api.row_scores import read_at, row_scores
from whyformer.backward.rules import Backward
from whyformer.extend import Reads
from whyformer.inputs.prompt_encoding import encode_prompt
from whyformer.inputs.teacher_forcing import Exchange, ResponseRow, row_inputs, row_weights
from whyformer.methods.registry import METHODS
from whyformer.targets.span_scores import NextTokenLogits, log_probability
from whyformer.tracing.build import trace_each
from whyformer.tracing.trace import Trace

FORWARD = ("flow_routes",)  # one forward pass of its own
# The methods that share a pass: one forward pass, and one backward pass a word.
BY_PASS: dict[Backward, tuple[str, ...]] = {
    "gradient": (
        "raw_attention",
        "rollout",
        "grad_cam",
        "attention_gradient",
        "generic_attention",
        "bi_token feedback=gradient",
        "state_x_gradient",
    ),
    "attn_lrp": ("generic_attention", "evidence", "state_x_gradient", "state_x_gradient blocks=first"),
}
READS = Reads(maps="all", gradients="all", states=True, state_gradients=True)
CONTROLS = ("uniform", "time order", "loudness")
CROSS = {"cross-attention, all": False, "cross-attention, alignment heads": True}
WITHIN = 0.1  # seconds around a word
NEEDED = 1.0  # nats that a word loses when it is silenced
DRAWS = 1000  # of the bootstrap over utterances


def measure(options: argparse.Namespace) -> None:
    """Explain some words of every utterance by every method that its lines lack."""
    torch.set_num_threads(options.threads)
    model = whyformer.load(options.model, device=options.device, dtype="float32")
    model.model.generation_config.language = "en"  # heard once more for each call otherwise
    known = _known(options.out)
    shard, shards = map(int, options.shard.split("/"))
    end = time.monotonic() + options.time
    count = options.utterances
    for utterance in read_utterances(options.spoken, count) if options.spoken else utterances(count):
        if time.monotonic() > end:
            break
        if utterance.seed % shards != shard:
            continue
        sound = whyformer.Sound(utterance.samples, utterance.rate)
        todo = [name for name in ("", *CONTROLS, *options.passes) if (utterance.seed, name) not in known]
        if not todo:
            continue
        first = whyformer.explain_response(sound, f" {utterance.text}", model, "raw_attention", units="word")
        pairs = heard(utterance, first)
        chosen = sorted(Random(utterance.seed).sample(pairs, min(options.words, len(pairs))))
        for name in todo:
            start = time.perf_counter()
            scores = _scores(name, model, utterance, first, [written for _, written in chosen])
            seconds = round((time.perf_counter() - start) / max(1, len(chosen)), 3)
            if name == "":
                _write(options.out, seed=utterance.seed, method="", **_facts(model, utterance, first, pairs, chosen))
                continue
            for method, rows in scores.items():
                words = [
                    _measures(utterance, first, row, spoken) for row, (spoken, _) in zip(rows, chosen, strict=True)
                ]
                _write(options.out, seed=utterance.seed, method=method, of=name, seconds=seconds, words=words)
        print(f"utterance {utterance.seed}: {len(pairs)} words heard: {first.text}", flush=True)


def _scores(
    name: str, model: whyformer.LoadedModel, utterance: Utterance, first: whyformer.Response, rows: list[int]
) -> dict[str, np.ndarray]:
    """Scores [word, frame] of a control or of a method, or of every method of a backward pass."""
    if name == "":
        return {}
    if name in CONTROLS:
        return {name: _control(name, model, utterance, first)[rows]}
    if name in FORWARD:
        sound, ids = whyformer.Sound(utterance.samples, utterance.rate), [token.id for token in first.tokens]
        response = whyformer.explain_response(sound, ids, model, name, units="word")
        return {name: response.parts["audio"].scores[rows]}
    return dict(_by_pass(name, model, utterance, first, rows))


def _by_pass(
    backward: Backward, model: whyformer.LoadedModel, utterance: Utterance, first: whyformer.Response, rows: list[int]
) -> Iterator[tuple[str, np.ndarray]]:
    """The scores of every method that reads this backward pass, from one forward pass and one backward pass a word."""
    exchange = _exchange(model, utterance, first)
    parts = [ResponseRow(exchange, first.rows[row].tokens) for row in rows]
    whole = ResponseRow(exchange, tuple(range(len(first.tokens))))
    targets = [
        log_probability(
            [
                NextTokenLogits(0, 0, place, exchange.response[token])
                for place, token in zip(row.positions, row.tokens, strict=True)
            ],
            1,
        )
        for row in parts
    ]
    weights = [row_weights([row], whole.length) for row in parts]
    found: dict[str, list[np.ndarray]] = defaultdict(list)
    traces = trace_each(model.model, row_inputs(model, [whole]), targets, weights, reads=READS, backward=backward)
    for row, one in zip(parts, traces, strict=True):
        one = read_at(one, [row])
        for label in BY_PASS[backward]:
            method, *pairs = label.split()
            attribution = METHODS[method](one, **dict(pair.split("=") for pair in pairs))
            ((scores,),) = [list(row_scores([row], attribution, one))]
            is_own = backward == METHODS[method].backward or not METHODS[method].reads.takes_gradients
            way = "" if is_own else f" backward={backward}"
            found[f"{label}{way}"].append(scores.parts["audio"].scores)
        if backward == "gradient":
            frames = len(first.parts["audio"].layout.spans)
            for label, aligned in CROSS.items():
                found[label].append(_cross_attention(model, one, row, aligned=aligned)[:frames])
    yield from ((label, np.stack(each)) for label, each in found.items())


def _exchange(model: whyformer.LoadedModel, utterance: Utterance, first: whyformer.Response) -> Exchange:
    sound = whyformer.Sound(utterance.samples, utterance.rate)
    return reply_of(model, encode_prompt(model, sound), [token.id for token in first.tokens]).exchange


def heard(utterance: Utterance, first: whyformer.Response) -> list[tuple[int, int]]:
    """The pairs of a spoken word and its row, of words whose every token is the model's first choice."""
    pairs = matched(utterance.words, [span.text for span in first.rows])
    ranks = [token.rank for token in first.tokens]
    return [(spoken, row) for spoken, row in pairs if all(ranks[token] == 1 for token in first.rows[row].tokens)]


def _known(path: Path) -> set[tuple[int, str]]:
    if not path.is_file():
        return set()
    content = path.read_text()
    path.write_text(content[: content.rfind("\n") + 1])  # the rest of a line that was cut off
    lines = [json.loads(line) for line in content[: content.rfind("\n") + 1].splitlines()]
    return {(line["seed"], line.get("of", "")) for line in lines}


def _write(path: Path, **line: Any) -> None:
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")


def _facts(
    model: whyformer.LoadedModel,
    utterance: Utterance,
    first: whyformer.Response,
    pairs: list[tuple[int, int]],
    chosen: list[tuple[int, int]],
) -> dict[str, Any]:
    """What was spoken, and how much likelier each word is than with its time silenced, in nats."""
    losses = []
    whole = [token.log_probability for token in first.tokens]
    for spoken, written in chosen:
        sound = whyformer.Sound(without(utterance, utterance.words[spoken]), utterance.rate)
        reply = reply_of(model, encode_prompt(model, sound), [token.id for token in first.tokens])
        (silenced,) = exchange_statistics(model, [reply.exchange])
        own = first.rows[written].tokens
        losses.append(round(sum(whole[token] - silenced[token].log_probability for token in own), 3))
    return {
        "text": utterance.text,
        "words": len(utterance.words),
        "heard": len(pairs),
        "seconds of sound": round(utterance.seconds, 2),
        "losses": losses,
    }


def _control(name: str, model: whyformer.LoadedModel, utterance: Utterance, first: whyformer.Response) -> np.ndarray:
    """Scores [word, frame] that know nothing of the model's gradients."""
    spans, rows = np.array(first.parts["audio"].layout.spans), len(first.rows)
    if name == "uniform":
        return np.ones((rows, len(spans)))
    if name == "time order":
        places = ((np.arange(rows) + 0.5) / rows * len(spans)).astype(int)
        return np.eye(len(spans))[places]
    if name == "loudness":
        edges = (spans * utterance.rate).astype(int)
        loud = [float(np.abs(utterance.samples[start:end]).mean()) if end > start else 0.0 for start, end in edges]
        return np.tile(loud, (rows, 1))
    raise ValueError(name)


def _cross_attention(model: whyformer.LoadedModel, one: Trace, row: ResponseRow, *, aligned: bool) -> np.ndarray:
    """The mean of all heads' cross-attention, or of the alignment heads, where a word's tokens are predicted."""
    records = [record for record in one.records if record.query_stream != record.key_stream]
    maps = [record.map[0] for record in records]
    heads = model.model.generation_config.alignment_heads
    chosen = [maps[block][head] for block, head in heads] if aligned else [each for part in maps for each in part]
    return torch.stack(chosen).mean(dim=0)[row.positions].mean(dim=0).detach().cpu().numpy()


def _measures(utterance: Utterance, first: whyformer.Response, scores: np.ndarray, spoken: int) -> dict[str, float]:
    """Whether the highest frame lies in the word or near it, how far off it is, and the share of score in the word."""
    word, row = utterance.words[spoken], scores.astype(np.float64)
    middles = np.array([(start + end) / 2 for start, end in first.parts["audio"].layout.spans])
    off = np.maximum(0, np.maximum(word.start - middles, middles - word.end))
    highest = row == row.max()
    positive = row.clip(min=0)
    return {
        "hit": round(float((off[highest] <= WITHIN).mean()), 4),
        "off": round(float(off[highest].mean()), 4),
        "share": round(float(positive[off == 0].sum() / (positive.sum() or 1.0)), 4),
    }


def summary(paths: Iterable[Path]) -> dict[str, Any]:
    """Figures by model and method, of all words and of those that need their time; intervals are a bootstrap's."""
    report: dict[str, Any] = {}
    by_run: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for path in paths:
        by_run[path.stem.partition("-shard")[0]] += [json.loads(line) for line in path.read_text().splitlines()]
    for run, lines in by_run.items():
        facts = {line["seed"]: line for line in lines if line["method"] == ""}
        by_method: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
        for line in lines:
            if line["method"]:
                by_method[line["method"]].append(line)
        methods = {}
        for name, own in by_method.items():
            seconds = round(float(np.median([line["seconds"] for line in own])), 3)
            is_method = name not in (*CONTROLS, *CROSS)
            methods[name] = {"is method": is_method, **_figures([line["words"] for line in own]), "seconds": seconds}
            needed = [
                [
                    word
                    for word, loss in zip(line["words"], facts[line["seed"]]["losses"], strict=True)
                    if loss >= NEEDED
                ]
                for line in own
            ]
            methods[name]["needed"] = _figures([words for words in needed if words])
        losses = [loss for line in facts.values() for loss in line["losses"]]
        report[run] = {
            "utterances": len(facts),
            "words spoken": sum(line["words"] for line in facts.values()),
            "words heard": sum(line["heard"] for line in facts.values()),
            "words explained": len(losses),
            "of these needed": sum(loss >= NEEDED for loss in losses),
            "mean seconds": round(float(np.mean([line["seconds of sound"] for line in facts.values()])), 1),
            "methods": dict(sorted(methods.items(), key=lambda item: -item[1]["hit"])),
        }
    return report


def _figures(by_utterance: list[list[Mapping[str, float]]]) -> dict[str, Any]:
    """Means over words; intervals draw whole utterances."""
    found: dict[str, Any] = {"words": sum(map(len, by_utterance))}
    draws = np.random.default_rng(0).integers(len(by_utterance), size=(DRAWS, len(by_utterance)))
    counts = np.array([len(words) for words in by_utterance], dtype=float)
    for name in ("hit", "off", "share"):
        sums = np.array([sum(word[name] for word in words) for words in by_utterance])
        means = sums[draws].sum(axis=1) / counts[draws].sum(axis=1)
        found[name] = round(float(sums.sum() / counts.sum()), 4)
        found[f"{name}, 95 %"] = [round(float(end), 4) for end in np.percentile(means, (2.5, 97.5))]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("measure")
    one.add_argument("model", type=Path)
    one.add_argument("--out", type=Path, required=True)
    one.add_argument("--utterances", type=int, default=24)
    one.add_argument("--words", type=int, default=2, help="of each utterance, drawn at random")
    one.add_argument("--passes", nargs="+", choices=(*FORWARD, *BY_PASS), default=[*FORWARD, *BY_PASS])
    one.add_argument("--shard", default="0/1", help="this part of so many")
    one.add_argument("--threads", type=int, default=1)
    one.add_argument("--device", default="cpu")
    one.add_argument("--spoken", type=Path, help="utterances of `synthesise`, where espeak-ng is not installed")
    one.add_argument("--time", type=float, default=float("inf"), help="seconds after which no utterance is begun")
    three = commands.add_parser("synthesise")
    three.add_argument("--out", type=Path, required=True)
    three.add_argument("--utterances", type=int, default=24)
    two = commands.add_parser("summarise")
    two.add_argument("lines", type=Path, nargs="+")
    two.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    if options.command == "measure":
        measure(options)
    elif options.command == "synthesise":
        save_utterances(options.out, utterances(options.utterances))
    else:
        options.out.write_text(json.dumps(summary(options.lines), indent=1) + "\n")


if __name__ == "__main__":
    main()

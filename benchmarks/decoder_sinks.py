"""Why attention composed through a decoder misses the sources of an answer, and what changes it: a line of JSON each.

    python benchmarks/decoder_sinks.py measure mini-llm --register facts --kept 60 --out development.jsonl
    python benchmarks/decoder_sinks.py measure mini-llm --register facts --kept 60 --first 0 --out mini-llm.jsonl
    python benchmarks/decoder_sinks.py measure FOLDER --first 61000 --sentences 8 12 --kept 60 --out smollm2.jsonl
    python benchmarks/decoder_sinks.py summarise --development development.jsonl
        --report mini-llm.jsonl smollm2.jsonl qwen.jsonl [--out benchmarks/results/decoder_sinks.json]

Questions as in benchmarks/focus.py: those of the prose register whose answer the model takes from the text, or Facts
World. A variant is a perception (what is composed), the blocks that it is composed through, and a feedback that it is
multiplied by; it is computed densely from the maps, their gradients and the states. Beside the scores, each line has
the figures of the first token as a sink. A run goes on where its file ends.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import whyformer
from focus import REGISTERS, Case
from real_responses import Sink, sink_of
from whyformer.api.replies import Reply, reply_of
from whyformer.inputs.prompt_encoding import encode_prompt
from whyformer.inputs.sources import sources_of
from whyformer.inputs.teacher_forcing import ResponseRow, first_logit, row_inputs, row_weights
from whyformer.methods.beyond_intuition import head_theta, token_alpha
from whyformer.results.source_pooling import source_scores
from whyformer.targets.span_scores import NextTokenLogits, log_probability
from whyformer.tracing import build
from whyformer.tracing.path import integrated_map_gradients, nodes_and_weights
from whyformer.tracing.reads import Reads
from whyformer.tracing.record import AttentionRecord
from whyformer.tracing.trace import Trace

BACKWARDS = ("gradient", "libra", "attn_lrp")
READS = Reads(maps="all", gradients="all", states=True)
Rows = dict[str, Tensor]  # by name, a row of scores for each place where the answer is read


def trace_of(model: whyformer.LoadedModel, row: ResponseRow, backward: Any) -> Trace:
    """The question about Σ log p of the answer's tokens, with all maps, gradients and states."""
    inputs = row_inputs(model, [row])
    shift = first_logit(inputs)
    predictions = [
        NextTokenLogits(0, 0, position - shift, row.exchange.response[token])
        for position, token in zip(row.positions, row.tokens, strict=True)
    ]
    score, weights = log_probability(predictions, 1), row_weights([row], row.length)
    return build.trace(model.model, inputs, score, reads=READS, readout=weights, backward=backward, checkpoint=False)


def without_sink(mixing: Tensor) -> Tensor:
    """The mixing without its first key, its other entries scaled to the same sum in each row."""
    rest = mixing.clone()
    rest[:, 0] = 0.0
    total = rest.sum(dim=1, keepdim=True)
    return rest * mixing.sum(dim=1, keepdim=True) / total.where(total > 0, 1.0)


def value_norms(record: AttentionRecord) -> Tensor:
    """‖v_j W_o‖ of each key token, all heads together."""
    assert record.value is not None
    assert record.output_weight is not None
    value = record.value[0]
    value = value.repeat_interleave(record.source.shape[1] // len(value), dim=0)
    return (value.transpose(0, 1).flatten(1) @ record.output_weight.T).norm(dim=-1)


def mixings(trace: Trace) -> dict[str, list[Tensor]]:
    """What is composed, by block: of the mean over heads, by BI's weights of tokens and heads, by what is moved."""
    found: dict[str, list[Tensor]] = {}
    for record in trace.records:
        mean, state = record.map[0].mean(dim=0), record.key_state
        assert state is not None
        heads = torch.einsum("hqk,h->qk", record.map[0], head_theta(record, "inner")[0])
        moved = value_norms(record) / state[0].norm(dim=-1)[:, None]
        own = {
            "A": mean,
            "A α": mean * token_alpha(record, "paper")[0],
            "A α of values": mean * token_alpha(record, "values")[0],
            "A by head": heads,
        }
        own |= {f"{name}, sink left out": without_sink(one) for name, one in own.items()}
        own["A ‖v Wₒ‖ / ‖z‖ of the query"] = mean * moved
        for name, one in own.items():
            found.setdefault(name, []).append(one)
    return found


def composed(mixing: Sequence[Tensor], start: Tensor, first_block: int, *, normalise: bool = False) -> Tensor:
    """start · (M_L + I) … (M_l + I) without start itself, later blocks on the left (BI Eq. 16)."""
    kept, moved = start, torch.zeros_like(start)
    for own in reversed(mixing[first_block:]):
        if normalise:
            total = 1 + own.sum(dim=1)
            kept, moved = kept / total, moved / total
        moved = moved + (kept + moved) @ own
    return moved


def perceptions(trace: Trace, start: Tensor) -> Rows:
    """P by what is composed and through which blocks; 1 for feedback alone."""
    found = {"1": torch.ones_like(start)}
    for name, mixing in mixings(trace).items():
        count = len(mixing)
        firsts = {"all blocks": 0, "later half": count // 2, "last four": count - 4, "last block": count - 1}
        found |= {f"{name}, {blocks}": composed(mixing, start, first) for blocks, first in firsts.items()}
        found[f"{name}, rows + I sum to 1"] = composed(mixing, start, 0, normalise=True)
        found[f"{name}, mean of blocks"] = start @ torch.stack(list(mixing)).mean(dim=0)
    return found


def feedbacks(trace: Trace, row: ResponseRow, backward: str, *, is_integrated: bool) -> Rows:
    """F where the answer is read: of the last block or the mean of all, at the input or along the path."""
    places = torch.tensor(row.positions, device=trace.records[0].map.device)
    each = [record.gradient[0].clamp(min=0).mean(dim=0)[places] for record in trace.records]
    found = {f"gradient by {backward}": each[-1], f"of all blocks by {backward}": torch.stack(each).mean(dim=0)}
    if is_integrated:
        nodes, weights = nodes_and_weights("gauss", 8)
        last = trace.records[-1]
        sums = integrated_map_gradients(
            trace.question, [(last, places[None])], [last.key_stream], nodes, weights, "zero", 8
        )
        found[f"integrated by {backward}"] = sums[last.operation][0].clamp(min=0).mean(dim=0)
    return found


def references(trace: Trace, start: Tensor, backward: str) -> dict[str, Tensor]:
    """generic_attention, and its products (A ⊙ ∇A)⁺ where the answer is read without being composed."""
    products = [(record.map[0] * record.gradient[0]).clamp(min=0).mean(dim=0) for record in trace.records]
    return {
        f"generic_attention by {backward}": composed(products, start, 0).sum(dim=0),
        f"(A ⊙ ∇A)⁺ by {backward}, mean of blocks": (start @ torch.stack(products).mean(dim=0)).sum(dim=0),
    }


def sink_figures(trace: Trace, row: ResponseRow) -> dict[str, Any]:
    """Of each block, the first token beside the median of the others: state, attention, and α."""
    places, found = torch.tensor(row.positions, device=trace.records[0].map.device), {}
    for record in trace.records:
        assert record.key_state is not None
        mean = record.map[0].mean(dim=0)
        figures = {
            "‖z‖": record.key_state[0].norm(dim=-1),
            "‖v Wₒ‖": value_norms(record),
            "α": token_alpha(record, "paper")[0],
            "α of values": token_alpha(record, "values")[0],
        }
        for name, values in figures.items():
            pair = [float(values[0]), float(values[1:].median())]
            found.setdefault(name, []).append([round(one, 5) for one in pair])
        shares = [float(mean[1:, 0].mean()), float(mean[places, 0].mean())]
        found.setdefault("attention to the first, of all and where read", []).append([round(x, 5) for x in shares])
    return found


@torch.no_grad()
def explained(
    model: whyformer.LoadedModel, row: ResponseRow, backwards: Sequence[str], integrated: Sequence[str]
) -> dict[str, Any]:
    """The scores of every token by every variant, and what the first token has."""
    scores: dict[str, Tensor] = {}
    facts: dict[str, Any] = {}
    perceived: Rows = {}
    for backward in backwards:
        trace = trace_of(model, row, backward)
        places = torch.tensor(row.positions, device=trace.records[0].map.device)
        start = torch.nn.functional.one_hot(places, row.length).to(trace.records[0].map.dtype)
        if backward == "gradient":  # heads are weighted by plain gradients
            perceived = perceptions(trace, start)
            facts = sink_figures(trace, row)
            facts["flow to the first"] = {
                name: round(float((rows[:, 0] / rows.sum(dim=1)).mean()), 5) for name, rows in perceived.items()
            }
            scores |= {f"{name} · no feedback": rows.sum(dim=0) for name, rows in perceived.items() if name != "1"}
        for feedback, factor in feedbacks(trace, row, backward, is_integrated=backward in integrated).items():
            # BI's P has the identity too: it counts at the places where the answer is read, in no sentence.
            whole = {name: rows if name == "1" else rows + start for name, rows in perceived.items()}
            scores |= {f"{name} · {feedback}": (rows * factor).sum(dim=0) for name, rows in whole.items()}
        scores |= references(trace, start, backward)
    return {"scores": scores, "facts": facts}


def measure(options: argparse.Namespace) -> None:
    model = whyformer.load(options.model, device=options.device, dtype=options.dtype)
    end = time.monotonic() + options.seconds
    sink = sink_of(options.out)
    kept = sum(1 for line in options.out.read_text().splitlines()) if options.out.is_file() else 0
    for case in REGISTERS[options.register](options, model):
        if kept >= options.kept or time.monotonic() > end:
            return
        if (case.seed, case.kind, "") in sink.known:
            continue
        _measure_case(options, model, sink, case)
        kept += 1


def _measure_case(options: argparse.Namespace, model: whyformer.LoadedModel, sink: Sink, case: Case) -> None:
    start = time.process_time()
    reply = reply_of(model, encode_prompt(model, case.prompt), case.answer)
    row = row_of(reply)
    found = explained(model, row, options.backwards, options.integrated)
    sources, first = sources_of(reply.prompt, case.places), reply.exchange.first
    rows = np.stack([scores[:first].float().cpu().numpy() for scores in found["scores"].values()])
    pooled = source_scores(rows, sources, "positive", leave_out_first=True)
    scores = {name: [float(f"{x:.5g}") for x in one] for name, one in zip(found["scores"], pooled, strict=True)}
    true = sorted({number for cause in case.causes for number in cause})
    sink.write(
        seed=case.seed, answer=case.kind, method="", tokens=row.length, true=true, facts=found["facts"], scores=scores
    )
    print(f"question {case.seed}: {row.length} tokens, {time.process_time() - start:.1f} s", flush=True)


def row_of(reply: Reply) -> ResponseRow:
    """The whole answer, without special tokens."""
    return ResponseRow(reply.exchange, tuple(n for n, token in enumerate(reply.tokens) if not token.is_special))


def summarise(options: argparse.Namespace) -> None:
    """Share of questions whose true sentence is first, by variant: where variants were chosen, and elsewhere."""
    development = lines_of([options.development])
    files: dict[str, list[Path]] = {}
    for path in options.report:
        files.setdefault(path.stem.partition("-shard")[0], []).append(path)
    runs = {name: lines_of(paths) for name, paths in files.items()}
    found = {"development": summary(development)} | {name: summary(lines) for name, lines in runs.items()}
    order = sorted(found["development"]["variants"].items(), key=lambda one: -one[1]["top 1"])
    for name, _ in order[: options.show]:
        firsts = (run["variants"].get(name, {}).get("top 1", np.nan) for run in found.values())
        print(f"{name:70}", *(f"{100 * first:6.1f}" for first in firsts))
    if options.out:
        options.out.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


def lines_of(paths: Sequence[Path]) -> list[dict[str, Any]]:
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def summary(lines: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The figures of a run: questions, chance, every variant, and means over the questions of the sink's figures."""
    flows = [line["facts"]["flow to the first"] for line in lines]
    sentences = [len(line["scores"]["A, all blocks · no feedback"]) for line in lines]
    chance = [len(line["true"]) / count for line, count in zip(lines, sentences, strict=True)]
    names = dict.fromkeys(name for line in lines for name in line["scores"])
    return {
        "questions": len(lines),
        "seeds": [line["seed"] for line in lines],
        "tokens": round(float(np.mean([line["tokens"] for line in lines]))),
        "chance": round(float(np.mean(chance)), 4),
        "sink": {
            name: np.round(np.mean([line["facts"][name] for line in lines], axis=0), 4).tolist()
            for name in lines[0]["facts"]
            if name != "flow to the first"
        },
        "flow to the first": {name: round(float(np.mean([one[name] for one in flows])), 4) for name in flows[0]},
        "variants": {name: first_places([line for line in lines if name in line["scores"]], name) for name in names},
    }


def first_places(lines: Sequence[Mapping[str, Any]], name: str) -> dict[str, Any]:
    """How often a true sentence is first by a variant, with the interval of a bootstrap over questions."""
    firsts = np.array([top_one(line["scores"][name], line["true"]) for line in lines])
    draws = np.random.default_rng(0).choice(firsts, (2_000, len(firsts))).mean(axis=1)
    low, high = np.quantile(draws, (0.025, 0.975))
    interval = [round(float(low), 4), round(float(high), 4)]
    return {"questions": len(lines), "top 1": round(float(firsts.mean()), 4), "95 %": interval}


def top_one(scores: Sequence[float], true: Sequence[int]) -> float:
    """Whether a true sentence has the highest score; a share where several have it."""
    highest = [number for number, score in enumerate(scores) if score == max(scores)]
    return sum(number in true for number in highest) / len(highest)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(required=True)
    run = commands.add_parser("measure")
    run.add_argument("model", help="a folder, or whatever whyformer.load takes")
    run.add_argument("--out", type=Path, required=True, help="JSON lines; a run goes on where they end")
    run.add_argument("--register", default="prose", choices=REGISTERS)
    run.add_argument("--questions", type=int, default=120, help="passages tried; those that are kept count")
    run.add_argument("--kept", type=int, default=1_000, help="stop after so many questions")
    run.add_argument("--first", type=int, default=10_000, help="seed of the first passage")
    run.add_argument("--sentences", type=int, nargs=2, default=(8, 10), metavar=("FEWEST", "MOST"))
    run.add_argument("--answers", nargs="+", default=("verbatim",), choices=("verbatim", "reworded", "own"))
    run.add_argument("--backwards", nargs="+", default=BACKWARDS, choices=BACKWARDS)
    run.add_argument("--integrated", nargs="*", default=("gradient",), choices=BACKWARDS)
    run.add_argument("--device", default="cpu")
    run.add_argument("--dtype", default="float32")
    run.add_argument("--seconds", type=float, default=1e9, help="stop after so many")
    run.add_argument("--shard", default="0/1", metavar="NUMBER/OF")
    run.add_argument("--batch", type=int, default=8, help="shortened prompts read at once")
    run.set_defaults(command=measure)
    merge = commands.add_parser("summarise")
    merge.add_argument("--development", type=Path, required=True)
    merge.add_argument("--report", type=Path, nargs="+", default=[])
    merge.add_argument("--show", type=int, default=40)
    merge.add_argument("--out", type=Path)
    merge.set_defaults(command=summarise)
    options = parser.parse_args()
    options.command(options)


if __name__ == "__main__":
    main()

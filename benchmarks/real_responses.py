"""Which sentence an answer came from, on real models: every method and control, a line of JSON for each question.

    python benchmarks/real_responses.py measure FOLDER --out smollm2.jsonl --questions 200
    python benchmarks/real_responses.py measure FOLDER --out q-shard0.jsonl --device cuda --dtype bfloat16 --shard 0/2
    python benchmarks/real_responses.py summarise smollm2.jsonl q-shard*.jsonl --costs costs.jsonl --out FILE.json

Questions are those of the prose register (`whyformer.facts.prose`). Answers in the text's own words are kept where the
model gives them at least one nat less without their sentences, answers in other words and the model's own where it
answers right by itself with these sentences and not without. A run goes on where its file ends; the lines of several
runs are merged by `summarise`. Seconds are those of another run, which takes one question at a time on a quiet
processor (`--together 1`, the default). Measuring needs torch, transformers and the packages that whyformer itself
imports.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, product
from pathlib import Path
from typing import Any

import torch

import whyformer
from real_questions import ANSWERS, Question, asked, questions
from real_writer import Drops, Writer, writer_of
from whyformer.methods.registry import method_named
from whyformer.metrics.source_measures import lexical_overlap, random_scores, recency

MAIN = (
    "flow_routes",
    "evidence",
    "generic_attention",
    "generic_attention backward=libra",
    "generic_attention backward=attn_lrp",
    "state_x_gradient backward=attn_lrp",
    "state_x_gradient backward=libra",
    "input_x_gradient",
    "input_x_gradient backward=libra",
    "input_x_gradient backward=attn_lrp",
    "raw_attention",
    "rollout",
    "bi_token",
    "leave_one_out",
    "context_ablation",
)
OTHERS = (
    "full_grad backward=attn_lrp",
    "grad_eclip",
    "grad_cam",
    "attention_gradient",
    "bi_head",
    "consensus",
    "integrated_gradients",
    "gradient_shap",
    "lrp rules=attn_lrp",
    "partial_lrp",
    "transformer_attribution",
    "kernel_shap",
    "lime",
    "rise",
    "occlusion",
    "mask_regression",
)
COSINE = "encoder cosine"  # a control that needs an encoder of sentences
TOP = (1, 3, 5)


@dataclass(frozen=True)
class Sink:
    """A file of JSON lines, and what is in it."""

    path: Path
    known: set[tuple[int, str, str]] = field(default_factory=set)
    answers: dict[tuple[int, str], str] = field(default_factory=dict)  # that are kept

    def note(self, line: Mapping[str, Any]) -> None:
        self.known.add((line["seed"], line["answer"], line["method"]))
        if line.get("kept"):
            self.answers[line["seed"], line["answer"]] = line["text"]

    def write(self, **line: Any) -> None:
        self.note(line)
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")


def sink_of(path: Path) -> Sink:
    """The file with its whole lines; the rest of a line that was cut off is removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = path.read_bytes() if path.is_file() else b""
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:
        path.write_bytes(whole)
    sink = Sink(path)
    for line in whole.splitlines():
        sink.note(json.loads(line))
    return sink


@dataclass(frozen=True)
class Case:
    """A question and an answer to it that is explained."""

    question: Question
    kind: str
    text: str

    @property
    def places(self) -> list[tuple[int, int]]:
        return [(one.start, one.end) for one in self.question.passage.sentences]

    @property
    def sentences(self) -> list[str]:
        return [one.text for one in self.question.passage.sentences]

    @property
    def query(self) -> str:
        """What a control compares the sentences with."""
        return f"{self.question.passage.question.text} {self.text}"


CONTROLS: dict[str, Callable[[Case], Sequence[float]]] = {
    "random": lambda case: random_scores(len(case.places), seed=case.question.seed),
    "recency": lambda case: recency(len(case.places)),
    "lexical overlap": lambda case: lexical_overlap(case.sentences, case.query),
}


def measure(options: argparse.Namespace) -> None:
    """Every question of this shard, with every method and control, `--together` of them at once."""
    model = whyformer.load(options.model, device=options.device, dtype=options.dtype)
    writer, sink = writer_of(model, options.batch), sink_of(options.out)
    controls = dict(CONTROLS)
    if options.encoder:
        encoder = whyformer.load(options.encoder, device=options.device, dtype="float32")
        controls[COSINE] = lambda case: cosines(encoder, case.sentences, case.query)
    end = time.monotonic() + options.seconds
    shard, shards = map(int, options.shard.split("/"))
    seeds = range(options.first, options.first + options.questions)
    own = questions(seeds[shard::shards], sentences=tuple(options.sentences))
    groups = list(iter(lambda: list(islice(own, options.together)), []))
    for methods, group in product((controls, *options.rounds), groups):
        cases, drops = _cases(sink, writer, group, options), Drops(writer)
        for name in methods:
            if time.monotonic() > end:
                print("The time is up: run the same command again to go on.")
                return
            missing = [case for case in cases if (case.question.seed, case.kind, name) not in sink.known]
            if missing:
                _explain(sink, writer, missing, name, controls.get(name), options, drops)
        print(f"question {group[-1].seed}: {len(sink.known)} lines", flush=True)


def _cases(sink: Sink, writer: Writer, group: Sequence[Question], options: argparse.Namespace) -> list[Case]:
    """The answers to a group of questions that are kept; a line for each that has none yet."""
    new = [one for one in group if any((one.seed, kind, "") not in sink.known for kind in options.answers)]
    found = list(asked(new, writer, options.answers)) if new else []
    kept = [(question, answer.text) for question, answer in found if answer.is_kept]
    values = iter(writer.subset_values(kept, options.subsets))
    for question, answer in found:
        about = {"dtype": writer.dtype, **question.facts, **answer.facts, "overlap": question.overlap(answer.text)}
        subsets = next(values) if answer.is_kept else []
        if (question.seed, answer.kind, "") not in sink.known:
            sink.write(seed=question.seed, answer=answer.kind, method="", **about, subsets=subsets)
    each = [(one, kind, sink.answers.get((one.seed, kind))) for one in group for kind in options.answers]
    return [Case(question, kind, text) for question, kind, text in each if text is not None]


def _explain(
    sink: Sink,
    writer: Writer,
    cases: Sequence[Case],
    name: str,
    control: Callable[[Case], Sequence[float]] | None,
    options: argparse.Namespace,
    drops: Drops,
) -> None:
    """Write the lines of a method or control; where several cannot be explained at once, each by itself."""
    start = _now(writer.device)
    try:
        scores = explained(writer, cases, name) if control is None else [control(case) for case in cases]
    except Exception as error:  # one bad question or method must not end a long run; the line says what happened
        if len(cases) > 1:
            for case in cases:
                _explain(sink, writer, [case], name, control, options, drops)
            return
        about = f"{type(error).__name__}: {error}"[:300]
        sink.write(seed=cases[0].question.seed, answer=cases[0].kind, method=name, error=about)
        return
    seconds = round((_now(writer.device) - start) / len(cases), 4)
    values = [[float(f"{score:.5g}") for score in own] for own in scores]
    orders = [sorted(range(len(own)), key=lambda place, own=own: -own[place]) for own in values]
    wanted = [
        (case.question, case.text, order[:k]) for case, order in zip(cases, orders, strict=True) for k in options.drops
    ]
    lost = iter(drops.of(wanted))
    for case, own in zip(cases, values, strict=True):
        sink.write(
            seed=case.question.seed,
            answer=case.kind,
            method=name,
            scores=own,
            seconds=seconds,
            drops={str(k): next(lost) for k in options.drops},
        )


def explained(writer: Writer, cases: Sequence[Case], name: str) -> list[Sequence[float]]:
    """The scores of the sentences by a method with options: `generic_attention backward=libra focus=sources`.

    Methods that remove sources, and those that are asked about the value alone (`ask=value`), take one case at a time.
    """
    method, *settings = name.split()
    options: dict[str, Any] = {key: _plain(value) for key, value in (one.split("=", 1) for one in settings)}
    asks_value = options.pop("ask", None) == "value"
    prompts = [writer.messages(case.question.passage.prompt) for case in cases]
    if asks_value or method_named(method).reads.subsets:
        results = [
            whyformer.explain_response(
                prompt,
                case.text,
                writer.loaded_model,
                method,
                units=[case.question.passage.question.value] if asks_value else "response",
                sources=case.places,
                **options,
            )
            for case, prompt in zip(cases, prompts, strict=True)
        ]
    else:
        about: dict[str, Any] = {"units": "response", "sources": "sentence", "batch_size": len(cases)}
        responses = [case.text for case in cases]
        results = whyformer.explain_responses(prompts, responses, writer.loaded_model, method, **about, **options)
        results = [one.by(case.places) for one, case in zip(results, cases, strict=True)]
    return [result.scores[0].tolist() for result in results]


def _plain(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value


@torch.no_grad()
def cosines(encoder: whyformer.LoadedModel, texts: Sequence[str], query: str) -> list[float]:
    """A control: how alike each sentence and question with answer are to an encoder of sentences, by their mean."""
    inputs = encoder.tokenizer([query, *texts], padding=True, truncation=True, return_tensors="pt")
    inputs = inputs.to(next(encoder.model.parameters()).device)
    states, mask = encoder.model(**inputs).last_hidden_state, inputs["attention_mask"][..., None]
    own = torch.nn.functional.normalize((states * mask).sum(dim=1) / mask.sum(dim=1), dim=1)
    return (own[1:] @ own[0]).tolist()


def _now(device: torch.device) -> float:
    """Seconds: of the processor where the model is on it, which hardly depend on what else runs there."""
    if device.type == "cpu":
        return time.process_time()
    torch.cuda.synchronize(device)
    return time.perf_counter()


def lines_of(paths: Sequence[Path]) -> Iterator[dict[str, Any]]:
    """The lines of all files, which may be compressed, each with the name of its file as the run's."""
    for path in paths:
        run = path.name.removesuffix(".gz").removesuffix(".jsonl")
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
            for line in file:
                yield json.loads(line) | {"run": run}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(required=True)
    run = commands.add_parser("measure")
    run.add_argument("model", help="a folder, or whatever whyformer.load takes")
    run.add_argument("--out", type=Path, required=True, help="JSON lines; a run goes on where they end")
    run.add_argument("--questions", type=int, default=200, help="passages tried; those that are kept count")
    run.add_argument("--first", type=int, default=0, help="seed of the first passage")
    run.add_argument("--sentences", type=int, nargs=2, default=(8, 60), metavar=("FEWEST", "MOST"))
    run.add_argument("--answers", nargs="+", default=ANSWERS, choices=ANSWERS)
    run.add_argument(
        "--methods",
        nargs="+",
        default=["main"],
        help="main, others, candidates, or methods with options in quotes; each set goes through all questions first",
    )
    run.add_argument("--encoder", help="the folder of an encoder of sentences, for the control")
    run.add_argument("--device", default=None)
    run.add_argument("--dtype", default=None)
    run.add_argument("--shard", default="0/1", metavar="NUMBER/OF")
    run.add_argument("--together", type=int, default=1, help="questions explained at once; with 1, seconds are costs")
    run.add_argument("--batch", type=int, default=8, help="shortened prompts read at once")
    run.add_argument("--subsets", type=int, default=32, help="random subsets of sentences, for LDS")
    run.add_argument("--drops", type=int, nargs="*", default=TOP, help="how many of the first sentences to leave out")
    run.add_argument("--seconds", type=float, default=1e9, help="stop after so many")
    run.set_defaults(command=measure)
    merge = commands.add_parser("summarise")
    merge.add_argument("files", type=Path, nargs="+")
    merge.add_argument("--costs", type=Path, help="lines of a run of which the seconds count; of no run unless given")
    merge.add_argument("--out", type=Path, help="a file of results; runs that have no lines here stay in it")
    merge.set_defaults(command=_summarise)
    options = parser.parse_args()
    if options.command is measure:
        rule = tomllib.loads(Path(__file__).with_name("response_candidates.toml").read_text(encoding="utf-8"))
        named = {"main": MAIN, "others": OTHERS, "candidates": tuple(rule["candidates"])}
        plain = [name for name in options.methods if name not in named]
        options.rounds = [*(named[name] for name in options.methods if name in named), *([plain] if plain else [])]
    options.command(options)


def _summarise(options: argparse.Namespace) -> None:
    from real_response_summary import summary, text_of, with_costs  # which needs the extra `eval`

    earlier = json.loads(options.out.read_text()) if options.out and options.out.is_file() else {}
    report = with_costs(earlier | summary(lines_of(options.files)), lines_of([options.costs] if options.costs else []))
    print(text_of(report))
    if options.out:
        options.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()

"""Which sentence an answer came from, on real models: every method and control, a line of JSON for each question.

    python benchmarks/real_responses.py measure FOLDER --out smollm2.jsonl --questions 200
    python benchmarks/real_responses.py measure FOLDER --out q-shard0.jsonl --device cuda --dtype bfloat16 --shard 0/2
    python benchmarks/real_responses.py summarise smollm2.jsonl q-shard*.jsonl --out FILE.json

Questions are those of the prose register (`whyformer.facts.prose`). Answers in the text's own words are kept where the
model gives them at least one nat less without their sentences, answers in other words and the model's own where it
answers right by itself with these sentences and not without. A run goes on where its file ends; the lines of several
runs are merged by `summarise`. Measuring needs torch, transformers and the packages that whyformer itself imports.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

import whyformer
from real_questions import ANSWERS, Question, asked, questions
from real_writer import Writer, writer_of
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
CONTROLS = ("random", "recency", "lexical overlap")
COSINE = "encoder cosine"  # a control that needs an encoder of sentences
TOP = (1, 3, 5)


@dataclass(frozen=True)
class Sink:
    """A file of JSON lines, and what is in it."""

    path: Path
    known: set[tuple[int, str, str]] = field(default_factory=set)
    dropped: set[tuple[int, str]] = field(default_factory=set)

    def note(self, line: Mapping[str, Any]) -> None:
        self.known.add((line["seed"], line["answer"], line["method"]))
        if not line.get("kept", True):
            self.dropped.add((line["seed"], line["answer"]))

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


def measure(options: argparse.Namespace) -> None:
    """Every question of this shard, with every method and control."""
    model = whyformer.load(options.model, device=options.device, dtype=options.dtype)
    writer, sink = writer_of(model, options.batch), sink_of(options.out)
    encoder = whyformer.load(options.encoder, device=options.device, dtype="float32") if options.encoder else None
    end = time.monotonic() + options.seconds
    shard, shards = map(int, options.shard.split("/"))
    seeds = range(options.first, options.first + options.questions)
    for question in questions(seeds[shard::shards], sentences=tuple(options.sentences)):
        wanted = [*options.methods, *([COSINE] if encoder else [])]
        todo = [answer for answer in options.answers if not _is_done(sink, question, answer, wanted)]
        if not todo:
            continue
        for answer in asked(question, writer, todo):
            if (question.seed, answer.kind, "") not in sink.known:
                values = writer.subset_values(question, answer.text, options.subsets) if answer.is_kept else []
                about = {"dtype": writer.dtype, **question.facts, **answer.facts(values)}
                sink.write(seed=question.seed, answer=answer.kind, method="", **about)
            if answer.is_kept:
                _explain(sink, writer, question, answer.kind, answer.text, options, encoder, end)
            if time.monotonic() > end:
                print("The time is up: run the same command again to go on.")
                return
        print(f"question {question.seed}: {len(sink.known)} lines", flush=True)


def _is_done(sink: Sink, question: Question, answer: str, methods: Sequence[str]) -> bool:
    """Whether nothing is left of a question: it was dropped, or has a line for every method."""
    is_dropped = (question.seed, answer) in sink.dropped
    return is_dropped or all((question.seed, answer, one) in sink.known for one in ("", *CONTROLS, *methods))


def _explain(
    sink: Sink,
    writer: Writer,
    question: Question,
    kind: str,
    text: str,
    options: argparse.Namespace,
    encoder: whyformer.LoadedModel | None,
    end: float,
) -> None:
    drops = writer.drop_cache(question, text)
    texts = [sentence.text for sentence in question.passage.sentences]
    controls = {
        "random": lambda: random_scores(len(texts), seed=question.seed),
        "recency": lambda: recency(len(texts)),
        "lexical overlap": lambda: lexical_overlap(texts, f"{question.passage.question.text} {text}"),
    }
    if encoder is not None:
        controls[COSINE] = lambda: cosines(encoder, texts, f"{question.passage.question.text} {text}")
    for name in (*controls, *options.methods):
        if (question.seed, kind, name) in sink.known:
            continue
        if time.monotonic() > end:
            return
        start = _now()
        try:
            scores = controls[name]() if name in controls else explained(writer, question, text, name)
        except (whyformer.WhyformerError, torch.OutOfMemoryError) as error:
            sink.write(seed=question.seed, answer=kind, method=name, error=f"{type(error).__name__}: {error}"[:300])
            continue
        seconds, values = _now() - start, [round(float(score), 7) for score in scores]
        order = sorted(range(len(values)), key=lambda place: -values[place])
        sink.write(
            seed=question.seed,
            answer=kind,
            method=name,
            scores=values,
            seconds=round(seconds, 4),
            drops={str(k): drops(order[:k]) for k in options.drops},
        )


def explained(writer: Writer, question: Question, text: str, name: str) -> Sequence[float]:
    """The scores of the sentences by a method with options: `generic_attention backward=libra ask=value`."""
    method, *settings = name.split()
    options: dict[str, Any] = {key: _plain(value) for key, value in (one.split("=", 1) for one in settings)}
    units: Any = [question.passage.question.value] if options.pop("ask", None) == "value" else "response"
    response = whyformer.explain_response(
        writer.messages(question.passage.prompt),
        text,
        writer.loaded_model,
        method,
        units=units,
        sources=[(one.start, one.end) for one in question.passage.sentences],
        **options,
    )
    assert [source.text for source in response.sources] == [one.text for one in question.passage.sentences]
    return response.scores[0].tolist()


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


def _now() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
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
        help="main, all, candidates, or methods with options in quotes",
    )
    run.add_argument("--encoder", help="the folder of an encoder of sentences, for the control")
    run.add_argument("--device", default=None)
    run.add_argument("--dtype", default=None)
    run.add_argument("--shard", default="0/1", metavar="NUMBER/OF")
    run.add_argument("--batch", type=int, default=8, help="shortened prompts read at once")
    run.add_argument("--subsets", type=int, default=32, help="random subsets of sentences, for LDS")
    run.add_argument("--drops", type=int, nargs="*", default=TOP, help="how many of the first sentences to leave out")
    run.add_argument("--seconds", type=float, default=1e9, help="stop after so many")
    run.set_defaults(command=measure)
    merge = commands.add_parser("summarise")
    merge.add_argument("files", type=Path, nargs="+")
    merge.add_argument("--out", type=Path)
    merge.set_defaults(command=_summarise)
    options = parser.parse_args()
    if options.command is measure:
        rule = tomllib.loads(Path(__file__).with_name("response_candidates.toml").read_text(encoding="utf-8"))
        named = {"main": MAIN, "all": MAIN + OTHERS, "candidates": tuple(rule["candidates"])}
        options.methods = [one for name in options.methods for one in named.get(name, (name,))]
    options.command(options)


def _summarise(options: argparse.Namespace) -> None:
    from real_response_summary import summary, text_of  # which needs the extra `eval`

    report = summary(lines_of(options.files))
    print(text_of(report))
    if options.out:
        options.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()

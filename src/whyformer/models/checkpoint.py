"""The files of a model folder: which are read, and which settings are refused."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from whyformer.errors import WhyformerError
from whyformer.files import parse_json

WEIGHTS, ONE_FILE, INDEX = ".safetensors", "model.safetensors", "model.safetensors.index.json"
# Other files that transformers and this package read from a folder; a tokenizer class may name more.
SETTINGS = (
    "config.json",
    "generation_config.json",
    "*preprocessor_config.json",
    "processor_config.json",
    "tokenizer*.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab*",
    "merges.txt",
    "*.model",
    "*.spm",
    "chat_template.json",
    "chat_template.jinja",
    "additional_chat_templates/*.jinja",
    "modules.json",
    "1_Pooling/config.json",
)
ATTENTION = ("eager", "sdpa", "flex_attention")  # implementations that are part of PyTorch and transformers
QUANTIZATION = ("bitsandbytes", "bitsandbytes_4bit", "bitsandbytes_8bit", "hqq", "quanto", "torchao")
_DISTRIBUTED = re.compile(r"shard-\d{5}-model-\d{5}-of-\d{5}\.safetensors")  # read instead of all other weights
_TIMM_ARGUMENTS = ("model_args", "backbone_kwargs")


def check_folder(folder: Path, name: str, *, is_complete: bool = True) -> None:
    """Raise if a folder is not a model, or would cause other files, pickles or code to be read.

    A model from the hub is incomplete as long as its weights are not downloaded.
    """
    if not (folder / "config.json").is_file():
        raise WhyformerError(f"The folder {name!r} has no config.json: it is not a model in Hugging Face layout.")
    if (folder / "adapter_config.json").is_file():
        raise WhyformerError(f"{name!r} has an adapter (adapter_config.json): merge it, and save the merged model.")
    if any(_DISTRIBUTED.fullmatch(file.name) for file in folder.glob(f"shard-*{WEIGHTS}")):
        raise WhyformerError(f"{name!r} has the shards of a distributed run: consolidate them into {ONE_FILE}.")
    config = read_settings(folder / "config.json", name)
    _check_config(config, name)
    for file in ("processor_config.json", "preprocessor_config.json"):
        if (folder / file).is_file() and "audio_tokenizer" in read_settings(folder / file, name):
            raise WhyformerError(f"{name!r} names another model to be loaded ({file}: audio_tokenizer): remove it.")
    files = weight_files(folder, name)
    if is_complete and not files:
        pickled = next(folder.glob("*.bin"), None)
        content = f"only {pickled.name}, which is a pickle and never read" if pickled else "no weights"
        raise WhyformerError(f"The folder {name!r} has {content}: the model's save_pretrained writes *.safetensors.")
    for path in (*files, *setting_files(folder)):
        check_place(folder, path, name)


def weight_files(folder: Path, name: str = "") -> list[Path]:
    """The weight files: a single one, or those listed in the index."""
    if (folder / ONE_FILE).is_file():
        return [folder / ONE_FILE]
    if not (folder / INDEX).is_file():
        return []
    index = read_settings(folder / INDEX, name or str(folder)).get("weight_map")
    if not isinstance(index, dict) or not index or not all(isinstance(file, str) for file in index.values()):
        raise WhyformerError(f"The weight_map of {name!r} ({INDEX}) names no files: save the model again.")
    for file in sorted(set(index.values())):
        if not file.endswith(WEIGHTS):
            raise WhyformerError(f"{INDEX} of {name!r} names {file!r:.80}, and only *{WEIGHTS} is ever read.")
        if PurePosixPath(file).is_absolute() or ".." in PurePosixPath(file).parts or "\\" in file or ":" in file:
            raise WhyformerError(f"{INDEX} of {name!r} names {file!r:.80}, which is not in its folder: put it there.")
    return [folder / file for file in sorted(set(index.values()))]


def setting_files(folder: Path, tokenizer: Any = None) -> list[Path]:
    """The files next to the weights that affect the model's inputs or computation."""
    names = [name for name in getattr(tokenizer, "vocab_files_names", {}).values() if isinstance(name, str)]
    index = [folder / INDEX] if (folder / INDEX).is_file() and not (folder / ONE_FILE).is_file() else []
    files = {file for pattern in (*SETTINGS, *names) for file in folder.glob(pattern) if file.is_file()}
    return sorted({*files, *index})


def read_settings(path: Path, name: str) -> dict[str, Any]:
    try:
        document = parse_json(path.read_bytes())
    except (ValueError, OSError) as error:
        part = "configuration" if path.name == "config.json" else path.name
        reason = f"its {part} cannot be used: fix it, or fetch the model again"
        raise WhyformerError(
            f"Cannot load {name!r}: {reason} ({path.name} is not a valid JSON file: {error})"
        ) from error
    if not isinstance(document, dict):
        raise WhyformerError(f"Cannot load {name!r}: its {path.name} is {document!r:.40}, not an object.")
    return document


def _check_config(config: dict[str, Any], name: str) -> None:
    """Raise on settings that make transformers load other files, or code from the hub."""
    architectures = config.get("architectures")
    if architectures is not None and not (
        isinstance(architectures, list) and all(isinstance(one, str) for one in architectures)
    ):
        raise WhyformerError(f"{name!r} has architectures {architectures!r:.60}: a list of class names.")
    for key, value in _entries(config):
        problem = None
        if key.endswith("attn_implementation") or key.endswith("experts_implementation"):
            problem = next((one for one in _texts(value) if one not in (*ATTENTION, "grouped_mm", "batched_mm")), None)
        elif key in ("quantization_config", "compression_config") and value is not None:
            problem = None if _quantization(value) in QUANTIZATION else value
        elif key == "transformers_weights":
            problem = value
        elif key in _TIMM_ARGUMENTS and isinstance(value, dict):
            problem = next((one for one in value if str(one).startswith(("checkpoint", "pretrained"))), None)
        elif key in ("architecture", "backbone") and isinstance(value, str):
            problem = value if "/" in value or ":" in value else None
        if problem is not None:
            raise WhyformerError(
                f"{name!r} asks for {key} {_short(problem)} in its config.json, which may load other files or code: "
                "remove it, or load the model yourself and pass it."
            )


def _entries(value: Any) -> Iterator[tuple[str, Any]]:
    """Iterate over all keys and values of an object, recursively."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key, inner
            yield from _entries(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _entries(inner)


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for inner in value.values() for text in _texts(inner)]
    return [] if value is None else [str(value)]


def _quantization(value: Any) -> Any:
    if not isinstance(value, dict):
        return None
    is_bitsandbytes = value.get("load_in_4bit") or value.get("load_in_8bit")
    return value.get("quant_method", "bitsandbytes" if is_bitsandbytes else None)


def _short(value: Any) -> str:
    return f"{json.dumps(value):.60}"


def check_place(folder: Path, file: Path, name: str) -> None:
    """Raise on links out of the folder, except those of the hub's cache to the blobs next to its snapshots."""
    root = folder.resolve()
    roots = [root, *([root.parents[1] / "blobs"] if root.parent.name == "snapshots" else [])]
    if file.is_symlink() or file.parent != folder:
        target = file.resolve()
        if not any(target.is_relative_to(one) for one in roots):
            raise WhyformerError(f"{file.relative_to(folder)} of {name!r} is a link out of its folder: copy the file.")

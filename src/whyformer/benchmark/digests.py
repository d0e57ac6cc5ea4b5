"""What a run was made of, in short: digests of the model's weights and processor and of the data.

A run that was stopped may only go on with the same of all of them, or two models would be mixed in one table.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import torch
from huggingface_hub.errors import HFValidationError
from PIL import Image

from whyformer.benchmark.choice import Choice
from whyformer.benchmark.options import path_arguments
from whyformer.data.registry import reader_named
from whyformer.models.checkpoint import setting_files, weight_files
from whyformer.models.digests import module_digest
from whyformer.models.loading import LoadedModel, load
from whyformer.models.zoo import bundled, bundled_folder

Digests = dict[str, str]  # of "weights", "processor" and "data"
SUITE_FILE = "suite.json"  # in the folder of a run
CHUNK = 2**22  # bytes read at once


def model_digests(model: str | LoadedModel) -> Digests:
    """Digests of a model's weights and of all that is read with them: of its files, or of what is in memory."""
    if isinstance(model, LoadedModel):
        return {"weights": module_digest(model.model), "processor": _processor_digest(model.processor)}
    folder = Path(bundled_folder(model) if model in bundled() else os.path.expanduser(model))
    if not folder.is_dir():
        return _hub_digests(model)
    return {"weights": _file_digest(weight_files(folder, model)), "processor": _file_digest(setting_files(folder))}


def data_digest(choice: Choice) -> str:
    """A digest of the files that a reader's options name: of their names, sizes and times of change.

    The bytes themselves would take minutes to read where pictures are many.
    """
    digest = hashlib.sha256()
    for name in sorted(path_arguments(reader_named(choice.name)) & choice.options.keys()):
        if choice.options[name] is not None:
            for path, size, changed in _files(Path(choice.options[name])):
                digest.update(f"{name}\0{path}\0{size}\0{changed}\n".encode())
    return digest.hexdigest()


def examples_digest(examples: Any) -> str:
    """A digest of examples in memory, as far as they can be told apart without reading all of them."""
    fingerprint = getattr(examples, "_fingerprint", None)  # a Hugging Face data set has one
    digest = hashlib.sha256(str(fingerprint or type(examples).__name__).encode())
    if fingerprint is None and isinstance(examples, (list, tuple)):
        for example in examples:
            _update(digest, example)
    return digest.hexdigest()


def _update(digest: Any, value: Any) -> None:
    """Add a value to a digest: plain data, pictures, arrays and tuples of them by what they hold."""
    if isinstance(value, Image.Image):
        value = np.asarray(value)
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu().numpy()
    digest.update(type(value).__name__.encode())
    if isinstance(value, np.ndarray):
        digest.update(f"{value.dtype}{value.shape}".encode() + np.ascontiguousarray(value).tobytes())
    elif isinstance(value, Mapping):
        for key in value:
            _update(digest, str(key))
            _update(digest, value[key])
    elif isinstance(value, (list, tuple)):
        for part in value:
            _update(digest, part)
    elif hasattr(value, "__dataclass_fields__"):
        _update(digest, dict(vars(value)))
    elif isinstance(value, (str, int, float, bool, bytes, Path, type(None))):
        digest.update(repr(value).encode("utf-8", "surrogatepass") + b"\n")


def _hub_digests(name: str) -> Digests:
    """The revision of a model of the Hugging Face Hub: it names all files at once. Fetched if it is not here yet."""
    try:
        config = huggingface_hub.try_to_load_from_cache(name, "config.json")
    except HFValidationError:
        config = None  # no id at all: `load` says so
    if not isinstance(config, str):
        load(name, device="cpu")
        config = huggingface_hub.try_to_load_from_cache(name, "config.json")
    return {"weights": Path(config).parent.name if isinstance(config, str) else ""}


def _file_digest(paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(path.name.encode())
        with path.open("rb") as file:
            while content := file.read(CHUNK):
                digest.update(content)
    return digest.hexdigest()


def _processor_digest(processor: Any) -> str:
    """Of the settings of a processor and of the vocabulary of its tokenizer."""
    settings = processor.to_dict() if hasattr(processor, "to_dict") else {"class": type(processor).__name__}
    tokenizer = getattr(processor, "tokenizer", processor)
    vocabulary = tokenizer.get_vocab() if hasattr(tokenizer, "get_vocab") else {}
    text = json.dumps([settings, vocabulary], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _walk(folder: Path) -> Iterator[Path]:
    """All files in a folder but those of runs, which may be written beside the data they are made from."""
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not (Path(place) / name / SUITE_FILE).is_file()]
        yield from (Path(place) / name for name in names)


def _files(path: Path) -> Iterable[tuple[str, int, int]]:
    """The files of a folder and its sub-folders, or the file itself: path, size and time of change."""
    for file in sorted(_walk(path)) if path.is_dir() else [path]:
        try:
            about = file.stat()
        except OSError:  # nothing, or a link that leads nowhere
            continue
        yield file.relative_to(path.parent).as_posix(), about.st_size, about.st_mtime_ns

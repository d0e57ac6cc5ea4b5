"""Digests that identify a run: of the model's weights and processor, the data and the plugins.

An interrupted run may only resume if all of them are equal, or two models or methods would be mixed in a table.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import inspect
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import huggingface_hub
import numpy as np
import torch
from huggingface_hub.errors import HFValidationError
from PIL import Image

from whyformer.api.attribute import choose_method
from whyformer.benchmark.choice import Choice
from whyformer.benchmark.keyword_checks import path_arguments
from whyformer.benchmark.manifest import content_digest
from whyformer.data.readers import reader_named
from whyformer.models.checkpoint import setting_files, weight_files
from whyformer.models.digests import module_digest
from whyformer.models.loading import LoadedModel, load
from whyformer.models.zoo import bundled, bundled_folder

Digests = dict[str, str]  # by subject
RUN_VERSION, PLUGINS = "whyformer", "plugins"
CODE = "code of "  # before the label of a method: the digest of its file
SUITE_FILE = "suite.json"  # in the folder of a run
CHUNK = 2**22  # bytes read at once
MOST_DATA_BYTES = 2**30  # of data digested by content; for more, the sizes and times of the files are used
BY_CONTENT, BY_TIME, NOT_KNOWN = "sha256:", "sizes and times of files:", "not known:"
PACKAGE = Path(__file__).parents[1]


def model_digests(model: str | LoadedModel) -> Digests:
    """Digests of a model's weights and everything read with them, from its files or from memory."""
    if isinstance(model, LoadedModel):
        return {"weights": module_digest(model.model), "processor": _processor_digest(model.processor)}
    folder = Path(bundled_folder(model) if model in bundled() else os.path.expanduser(model))
    if not folder.is_dir():
        return _hub_digests(model)
    return {"weights": _file_digest(weight_files(folder, model)), "processor": _file_digest(setting_files(folder))}


def data_digest(choice: Choice) -> str:
    """A digest of the files in a reader's options: of their content, or above `MOST_DATA_BYTES` of their times.

    Reading more would take minutes.
    """
    paths = path_arguments(reader_named(choice.name))
    texts = {name: value for name, value in choice.options.items() if isinstance(value, (str, Path))}
    # A user's reader may take a file by an argument that is not annotated as a path.
    places = {name: Path(value) for name, value in texts.items() if name in paths or os.path.isfile(value)}
    files = [(name, file) for name, place in sorted(places.items()) for file in _files(place)]
    is_by_content = sum(file.size for _, file in files) <= MOST_DATA_BYTES
    digest = hashlib.sha256()
    for name, file in files:
        state = _content(file.path) if is_by_content else file.changed
        digest.update(f"{name}\0{file.name}\0{file.size}\0{state}\n".encode("utf-8", "surrogateescape"))
    return f"{BY_CONTENT if is_by_content else BY_TIME}{digest.hexdigest()}"


def examples_digest(examples: Any) -> str:
    """A digest of examples in memory: the fingerprint of a Hugging Face data set, the content of lists and tables."""
    fingerprint = getattr(examples, "_fingerprint", None)
    if hasattr(examples, "columns") and hasattr(examples, "to_dict"):  # a pandas.DataFrame
        examples = examples.to_dict("records")
    is_known = fingerprint is not None or isinstance(examples, (list, tuple))
    digest = hashlib.sha256(str(fingerprint or type(examples).__name__).encode())
    for example in examples if fingerprint is None and is_known else ():
        _update(digest, example)
    return f"{BY_CONTENT if is_known else NOT_KNOWN}{digest.hexdigest()}"


def data_remark(digest: str) -> str | None:
    """Describe in one line what a digest of the data cannot detect."""
    if digest.startswith(BY_TIME):
        size = f"{MOST_DATA_BYTES // 2**30} GiB"
        return f"The data is larger than {size}: changes are detected only by the sizes and times of its files."
    if digest.startswith(NOT_KNOWN):
        return "This data set has no digest: if it changes, a resumed run does not notice."
    return None


def plugin_digest(plugins: Iterable[Path], functions: Iterable[Callable[..., Any]]) -> str:
    """A digest of plugin files, and of other sources of a suite's functions outside this package."""
    sources = {str(path.resolve()): path.read_bytes() for path in plugins}
    for function in functions:
        sources |= _source(function)
    digest = hashlib.sha256()
    for content in sorted(sources.values()):  # by content: a plugin may be moved
        digest.update(hashlib.sha256(content).digest())
    return digest.hexdigest()


def code_digests(methods: Iterable[Choice]) -> Digests:
    """A digest of the file that defines each method, for a run that grows by others."""
    sources = {
        one.label: _source_file(choose_method(one.name, one.options.get("backward"))[0].formula) for one in methods
    }
    return {f"{CODE}{label}": content_digest(path) or "" for label, path in sources.items() if path is not None}


def package_version() -> str:
    return importlib.metadata.version("whyformer")


def _source(function: Callable[..., Any]) -> dict[str, bytes]:
    """The file of a function outside this package, or its source lines if it has none, as in a notebook."""
    function = inspect.unwrap(function)
    try:
        path = _source_file(function)
        if path is not None and path.resolve().is_relative_to(PACKAGE):
            return {}
        if path is not None:
            return {str(path.resolve()): path.read_bytes()}
        return {f"{function.__module__}.{function.__qualname__}": inspect.getsource(function).encode()}
    except (OSError, TypeError):  # typed at a prompt that keeps no source
        return {}


def _source_file(function: Callable[..., Any]) -> Path | None:
    """The file that defines a function; None for one typed at a prompt or in a notebook."""
    try:
        path = Path(inspect.getsourcefile(inspect.unwrap(function)) or "")
    except TypeError:
        return None
    return path if path.is_file() else None


def _update(digest: Any, value: Any) -> None:
    """Add a value to a digest: plain data, pictures, arrays and tuples of them by content."""
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
    elif isinstance(value, Path):  # a picture's
        digest.update(f"{value}\0{_content(value)}\n".encode("utf-8", "surrogateescape"))
    elif isinstance(value, (str, int, float, bool, bytes, type(None))):
        digest.update(repr(value).encode("utf-8", "surrogatepass") + b"\n")


def _hub_digests(name: str) -> Digests:
    """The revision of a model on the Hugging Face Hub, which identifies all files; downloaded if missing."""
    try:
        config = huggingface_hub.try_to_load_from_cache(name, "config.json")
    except HFValidationError:
        config = None  # not an id: `load` raises
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
    """A digest of a processor's settings and its tokenizer's vocabulary."""
    settings = processor.to_dict() if hasattr(processor, "to_dict") else {"class": type(processor).__name__}
    tokenizer = getattr(processor, "tokenizer", processor)
    vocabulary = tokenizer.get_vocab() if hasattr(tokenizer, "get_vocab") else {}
    text = json.dumps([settings, vocabulary], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def _walk(folder: Path) -> Iterator[Path]:
    """All files in a folder except those of runs, which may be written next to their data."""
    for place, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not (Path(place) / name / SUITE_FILE).is_file()]
        yield from (Path(place) / name for name in names)


@dataclass(frozen=True)
class _File:
    """A file of the data: its path, its name in the digest, its size and modification time."""

    path: Path
    name: str
    size: int
    changed: int


def _files(path: Path) -> Iterator[_File]:
    """The files of a folder and its sub-folders, or the file itself."""
    for file in sorted(_walk(path)) if path.is_dir() else [path]:
        try:
            about = file.stat()
        except OSError:  # missing, or a broken link
            continue
        yield _File(file, file.relative_to(path.parent).as_posix(), about.st_size, about.st_mtime_ns)


def _content(path: Path) -> str:
    """The digest of a file's bytes, or that it cannot be read, which its sample then records."""
    return content_digest(path) or "cannot be read"

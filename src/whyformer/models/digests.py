"""Identify a model's weights by the SHA-256 of its files, or of its tensors in memory."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import huggingface_hub
import torch
from huggingface_hub.errors import HFValidationError
from torch import nn

from whyformer.files import file_digest, file_stamp
from whyformer.models.adapter import adapter_files, adapter_of
from whyformer.models.checkpoint import setting_files, weight_files
from whyformer.models.gguf_model import gguf_file
from whyformer.models.structure import config_of
from whyformer.models.zoo import bundled, bundled_folder

MEMORY = "memory"  # in the place of a file's name
Files = dict[str, Path]  # by the name that results know them by


def weight_digests(model: nn.Module, place: str | None) -> dict[str, str]:
    """SHA-256 of each weight file by name; for your own model, of its tensors."""
    weights, _ = ({}, {}) if place is None else model_files(place, revision_of(model))
    return {name: file_digest(file) for name, file in weights.items()} or {MEMORY: module_digest(model)}


def setting_digests(model: nn.Module, place: str | None, tokenizer: Any = None) -> dict[str, str]:
    """SHA-256 by name of all other files: configuration, tokenizer, processor, templates."""
    _, settings = ({}, {}) if place is None else model_files(place, revision_of(model), tokenizer)
    return {name: file_digest(file) for name, file in settings.items()}


def file_stamps(place: str, revision: str | None = None) -> dict[str, tuple[int, ...]]:
    """Stamps of a model's files by name: a cheap check for changes since loading."""
    weights, settings = model_files(place, revision)
    return {name: file_stamp(file) for name, file in (weights | settings).items() if file.is_file()}


def model_files(place: str, revision: str | None = None, tokenizer: Any = None) -> tuple[Files, Files]:
    """The files that a model is read from: its weights, and its settings; an adapter's base model below `base/`."""
    adapter = None if place in bundled() else adapter_of(place)
    if adapter is not None:
        weights, settings = (_named(files, adapter.folder) for files in adapter_files(adapter))
        below = model_files(adapter.base, revision, tokenizer)
        base_weights, base_settings = ({f"base/{name}": file for name, file in files.items()} for files in below)
        return weights | base_weights, settings | base_settings
    packed = None if place in bundled() else gguf_file(place)
    if packed is not None:
        return {packed.name: packed}, {}
    folder = weight_folder(place, revision)
    if folder is None:
        return {}, {}
    return _named(weight_files(folder, place), folder), _named(setting_files(folder, tokenizer), folder)


def _named(files: list[Path], folder: Path) -> Files:
    return {file.relative_to(folder).as_posix(): file for file in files}


def revision_of(model: nn.Module) -> str | None:
    """The Hugging Face Hub commit that a model was loaded from."""
    revision: Any = getattr(config_of(model), "_commit_hash", None)
    return revision if isinstance(revision, str) else None


def weight_folder(place: str, revision: str | None = None) -> Path | None:
    """The local folder of a bundled model, a folder, or a cached Hugging Face id."""
    if place in bundled():
        return bundled_folder(place)
    folder = Path(os.path.expanduser(place))
    if folder.is_dir():
        return folder
    try:
        config = huggingface_hub.try_to_load_from_cache(place, "config.json", revision=revision)
    except HFValidationError:  # not an id but `timm:` and a name
        return None
    return Path(config).parent if isinstance(config, str) else None


def module_digest(model: nn.Module) -> str:
    """SHA-256 of the names, dtypes, shapes and values of a model's tensors."""
    digest = hashlib.sha256()
    tensors = {name: value for name, value in model.state_dict().items() if isinstance(value, torch.Tensor)}
    for name, tensor in tensors.items():
        plain = tensor.detach().cpu().contiguous()
        digest.update(f"{name}\0{plain.dtype}\0{tuple(plain.shape)}".encode())
        digest.update(plain.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()

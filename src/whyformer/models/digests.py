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
from whyformer.models.checkpoint import setting_files, weight_files
from whyformer.models.structure import config_of
from whyformer.models.zoo import bundled, bundled_folder

MEMORY = "memory"  # used instead of a file name


def weight_digests(model: nn.Module, place: str | None) -> dict[str, str]:
    """SHA-256 of each weight file in the place a model was loaded from, or of its tensors if there is none."""
    folder = None if place is None else weight_folder(place, revision_of(model))
    files = [] if folder is None else weight_files(folder, str(place))
    if folder is None or not files:
        return {MEMORY: module_digest(model)}
    return {file.relative_to(folder).as_posix(): file_digest(file) for file in files}


def setting_digests(model: nn.Module, place: str | None, tokenizer: Any = None) -> dict[str, str]:
    """SHA-256 of the other files that were read: configuration, tokenizer, processor, templates."""
    folder = None if place is None else weight_folder(place, revision_of(model))
    files = [] if folder is None else setting_files(folder, tokenizer)
    return {file.relative_to(folder).as_posix(): file_digest(file) for file in files if folder is not None}


def file_stamps(place: str, revision: str | None = None) -> dict[str, tuple[int, ...]]:
    """Stamps of a model's files by name: a cheap check for changes since loading."""
    folder = weight_folder(place, revision)
    if folder is None:
        return {}
    files = [*weight_files(folder, place), *setting_files(folder)]
    return {file.relative_to(folder).as_posix(): file_stamp(file) for file in files if file.is_file()}


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

"""Models and their processors: bundled ones, local folders and Hugging Face ids."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import nn

from whyformer.errors import WhyformerError
from whyformer.score import nearest

ZOO = Path(str(files("whyformer"))) / "zoo"
HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")


@dataclass(frozen=True)
class Loaded:
    """A model, what turns examples into its inputs, and the name it is spoken of by."""

    model: nn.Module
    processor: Any
    name: str


def load(
    name: str | Path, *, device: str | torch.device | None = None, dtype: torch.dtype = torch.float32
) -> Loaded:
    """A classifier by the name of a bundled model, a local folder, or a Hugging Face id, ready to be explained.

    Only safetensors weights are read, and no code that comes with a model is ever run.
    """
    source = _source(name)
    try:
        config = transformers.AutoConfig.from_pretrained(source, trust_remote_code=False)
        model_class = _model_class(config, str(name))
        model = model_class.from_pretrained(source, config=config, use_safetensors=True, dtype=dtype)
        processor = _processor(source, model)
    except (OSError, ValueError) as error:
        if isinstance(error, WhyformerError):
            raise
        raise WhyformerError(f"Cannot load {str(name)!r}: {_first_sentence(error)}") from error
    place = device or ("cuda" if torch.cuda.is_available() else "cpu")
    return Loaded(model.to(place).eval(), processor, Path(source).name if Path(source).is_dir() else str(name))


def bundled() -> list[str]:
    """The names of the models that come with the package."""
    return sorted(folder.name for folder in ZOO.iterdir() if (folder / "config.json").is_file()) if ZOO.is_dir() else []


def loaded(model: str | Path | nn.Module | Loaded, processor: Any = None) -> Loaded:
    """The model as given in any of the ways `explain` takes one. Models given by name are kept for the next call."""
    if isinstance(model, Loaded):
        return model
    if isinstance(model, (str, Path)):
        return _remembered(str(model))
    source = getattr(getattr(model, "config", None), "_name_or_path", "")
    if processor is None and source and _is_folder_or_id(source):
        try:
            processor = _processor(source, model)
        except (OSError, ValueError):
            processor = None
    return Loaded(model, processor, Path(source).name if source else type(model).__name__)


@lru_cache(maxsize=2)
def _remembered(name: str) -> Loaded:
    return load(name)


def _source(name: str | Path) -> str:
    """Where the model's files are: a folder that has what it needs, or a hub id."""
    text = str(name)
    if text in bundled():
        return str(ZOO / text)
    folder = Path(text).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise WhyformerError(f"The folder {text!r} has no config.json: it is no model in Hugging Face layout.")
        if not any(folder.glob("*.safetensors")):
            pickled = next(folder.glob("*.bin"), None)
            found = f"only {pickled.name}, which is a pickle: save it with safetensors" if pickled else "no weights"
            raise WhyformerError(f"The folder {text!r} has {found} (*.safetensors expected).")
        return str(folder)
    if not _is_folder_or_id(text):
        raise WhyformerError(f"No model {text!r}: no such folder, and no Hugging Face id (owner/name). {_bundled_names(text)}")
    return text


def _model_class(config: Any, name: str) -> Any:
    architecture = next(iter(config.architectures or []), "")
    model_class = getattr(transformers, architecture, None)
    if model_class is None or "Classification" not in architecture:
        raise WhyformerError(
            f"{name!r} is a {architecture or config.model_type}, not a classifier of images or texts: "
            "load it yourself and call attribute with a target of your own."
        )
    return model_class


def _processor(source: str, model: nn.Module) -> Any:
    if getattr(model, "main_input_name", "") == "pixel_values":
        return transformers.AutoImageProcessor.from_pretrained(source, trust_remote_code=False)
    return transformers.AutoTokenizer.from_pretrained(source, trust_remote_code=False)


def _is_folder_or_id(source: str) -> bool:
    return Path(source).is_dir() or HUB_ID.fullmatch(source) is not None


def _bundled_names(name: str) -> str:
    return nearest(name, bundled()) if bundled() else ""


def _first_sentence(error: Exception) -> str:
    """The first line of a library's message, which is the part meant for people."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)

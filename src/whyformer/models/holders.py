"""Objects that hold a model with its processor: pipelines of transformers, models of sentence-transformers."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from torch import nn

from whyformer.models.pooling import Pooling, check_modules, stated_pooling


@dataclass(frozen=True)
class HeldModel:
    """The model of a pipeline or a sentence-transformers object: its processor, its pooling, and notes for `doctor`."""

    model: nn.Module
    processor: Any
    pooling: Pooling | None = None
    notes: tuple[str, ...] = ()


def model_in(value: Any) -> HeldModel | None:
    """Return the model of a pipeline, a SentenceTransformer or a CrossEncoder; None for anything else."""
    if _is_a(value, "transformers.pipelines.base", "Pipeline"):
        return HeldModel(value.model, _processor(value))
    if _is_a(value, "sentence_transformers", "CrossEncoder"):
        return HeldModel(value[0].auto_model, value.tokenizer)
    if _is_a(value, "sentence_transformers", "SentenceTransformer"):
        return _sentence_transformer(value)
    return None


def _is_a(value: Any, module: str, name: str) -> bool:
    """Whether it is an instance of a class of a library that may not be imported yet."""
    kind = getattr(sys.modules.get(module), name, None)
    return isinstance(kind, type) and isinstance(value, kind)


def _processor(pipeline: Any) -> Any:
    """The processor of a pipeline; None if it has several parts, which are loaded from the model's folder."""
    names = ("tokenizer", "image_processor", "feature_extractor")
    parts = [part for name in names if (part := getattr(pipeline, name, None)) is not None]
    return getattr(pipeline, "processor", None) or (parts[0] if len(parts) == 1 else None)


def _sentence_transformer(model: Any) -> HeldModel:
    name = "The SentenceTransformer"
    layers = list(model)
    check_modules((type(layer).__name__ for layer in layers), name, "its layers")
    pools = [layer for layer in layers if type(layer).__name__ == "Pooling"]
    pooling = stated_pooling(pools[0].get_config_dict(), name, "Pooling layer") if pools else None
    prompt = (getattr(model, "prompts", None) or {}).get(getattr(model, "default_prompt_name", None))
    notes = (f"Its prompt {prompt!r:.60} is not added to the texts: add it yourself.",) if prompt else ()
    return HeldModel(layers[0].auto_model, model.tokenizer, pooling, notes)

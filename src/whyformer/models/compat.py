"""Differences between versions of transformers, mainly between 4 and 5, in one place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import transformers

IS_FOUR = int(transformers.__version__.partition(".")[0]) < 5


def weight_names(model_class: Any) -> dict[str, Any]:
    """Arguments that map weight names in `from_pretrained`: 4 nests image towers one level deeper than files of 5."""
    names: Mapping[str, str] = getattr(model_class, "_checkpoint_conversion_mapping", None) or {}
    if not IS_FOUR or names.get("^vision_tower") != "model.vision_tower":
        return {}
    tower = {r"^vision_tower\.(?!vision_model\.)": "model.vision_tower.vision_model."}
    return {"key_mapping": {**tower, **names}}


def misfit(report: Mapping[str, Any]) -> tuple[str, str] | None:
    """The first weight whose shape differs between file and model, and how; 4 reports names only."""
    if not report["mismatched_keys"]:
        return None
    first = min(report["mismatched_keys"])
    if isinstance(first, str):
        return first, "has another shape in the file than in the model"
    key, in_file, in_model = first
    return key, f"is {list(in_file)} in the file and {list(in_model)} in the model"


def pil_processor(name: str) -> Any:
    """The image processor of this name that works without torchvision; 5 has a separate name for it."""
    return getattr(transformers, f"{name}ImageProcessor" if IS_FOUR else f"{name}ImageProcessorPil")


def has_part(processor: Any, name: str) -> bool:
    """Whether a composite processor has this part; 4 warns when missing parts are accessed."""
    parts = getattr(processor, "attributes", None) if IS_FOUR else None
    return hasattr(processor, name) if parts is None else name in parts


def picture_settings(processor: Any) -> Mapping[str, Any]:
    """Image-processor settings of a text-and-picture processor; from 5.23 on its class provides them."""
    before: Mapping[str, Any] = getattr(getattr(processor, "valid_processor_kwargs", None), "_defaults", {})
    settings: Mapping[str, Any] = getattr(type(processor), "images_kwargs", None) or before.get("images_kwargs", {})
    return settings


def special_ids(tokenizer: Any) -> set[int]:
    """The ids of a tokenizer's special tokens; 4 omits the extra ones that 5 saves."""
    added = getattr(tokenizer, "added_tokens_decoder", {}) if IS_FOUR else {}
    return {*tokenizer.all_special_ids, *(number for number, token in added.items() if token.special)}

"""Processors of examples: tokenizers, image processors and feature extractors."""

from __future__ import annotations

import importlib.util
import inspect
from pathlib import Path
from typing import Any

import transformers
from torch import nn
from transformers.models.auto.processing_auto import PROCESSOR_MAPPING_NAMES

from whyformer.errors import WhyformerError, reason_of
from whyformer.models.families import FAMILIES
from whyformer.models.input_tensors import SOUND_INPUTS
from whyformer.models.zoo import bundled, bundled_folder

WRITERS = ("ForCTC", "ForConditionalGeneration")  # speech recognisers have a tokenizer too
PROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json")  # of image processors and feature extractors


def processor_of(model: nn.Module, place: str, **how: bool) -> Any:
    """Load the processor of a model from its folder or hub id."""
    takes = inspect.signature(model.forward).parameters
    is_seen_or_heard = any(name in takes for name in ("pixel_values", *SOUND_INPUTS))
    if (
        is_seen_or_heard
        and Path(place).is_dir()
        and not any((Path(place) / file).is_file() for file in PROCESSOR_FILES)
    ):
        raise WhyformerError(f"{place!r} has no processor files: save its processor there too ({PROCESSOR_FILES[0]}).")
    if any(name in takes for name in SOUND_INPUTS):
        writes = type(model).__name__.endswith(WRITERS)
        reader = transformers.AutoProcessor if writes else transformers.AutoFeatureExtractor
        return reader.from_pretrained(place, **how)
    if "pixel_values" in takes and "input_ids" in takes:
        is_complete = importlib.util.find_spec("torchvision") is not None
        kind = transformers.AutoProcessor if is_complete else _without_torchvision(model)
        return kind.from_pretrained(place, **how)
    row = FAMILIES.get(getattr(model.config, "model_type", ""))
    if row is not None and row.processor is not None:
        name, file = row.processor
        return getattr(transformers, name).from_pretrained(place, image_processor_filename=file, **how)
    if "pixel_values" in takes:
        return transformers.AutoImageProcessor.from_pretrained(place, **how)
    return transformers.AutoTokenizer.from_pretrained(place, **how)


def _without_torchvision(model: nn.Module) -> Any:
    """A model's processor class without the part that needs torchvision."""
    name = PROCESSOR_MAPPING_NAMES.get(getattr(model.config, "model_type", ""))
    stock: Any = getattr(transformers, str(name), transformers.AutoProcessor)
    parts = stock.get_attributes() if hasattr(stock, "get_attributes") else []
    others = [part for part in parts if part != "video_processor"]
    if len(others) == len(parts):
        return transformers.AutoProcessor
    return type(stock.__name__, (stock,), {"get_attributes": classmethod(lambda cls: others)})


def check_processor_type(processor: Any) -> None:
    """Validate that the processor handles pictures, texts or sounds."""
    kinds = ("image_mean", "model_max_length", "tokenizer", "sampling_rate")
    if not any(hasattr(processor, kind) for kind in kinds):
        raise WhyformerError(
            f"processor={processor!r:.40} is neither a tokenizer nor an image processor: "
            "transformers.AutoProcessor.from_pretrained gives a model's own."
        )


def check_vocabulary(model: Any, processor: Any, name: str) -> None:
    """Raise if a tokenizer was created without files, and so has no vocabulary, or has another model's."""
    processor = getattr(processor, "tokenizer", processor)
    longest = getattr(processor, "model_max_length", 1)
    if type(longest) not in (int, float) or not longest >= 1:
        raise WhyformerError(f"The tokenizer of {name!r} has model_max_length {longest!r:.40}: a number of tokens.")
    words = getattr(processor, "vocab_size", None)
    if words is None:
        return
    if words <= len(processor.all_special_ids):
        raise WhyformerError(f"{name!r} has no tokenizer files: save its tokenizer there too (tokenizer.json).")
    known = getattr(model.config.get_text_config(), "vocab_size", None)
    if isinstance(known, int) and words > known:
        raise WhyformerError(
            f"The tokenizer of {name!r} has {words} word pieces, its model only {known}: save the model's own there."
        )


def load_tokenizer(place: str) -> Any:
    """The tokenizer of a bundled model, a folder or a Hugging Face id, without its model."""
    try:
        return transformers.AutoTokenizer.from_pretrained(str(bundled_folder(place) if place in bundled() else place))
    except (OSError, ValueError) as error:
        raise WhyformerError(f"There is no tokenizer in {place!r:.80}: {reason_of(error):.120}") from error

"""Models and their processors: bundled ones, local folders and Hugging Face ids."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from threading import RLock
from typing import Any, cast

import torch
import transformers
from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars
from torch import nn

from whyformer.errors import WhyformerError, with_article
from whyformer.models.adapter import BASE, adapter_of, load_adapter
from whyformer.models.compat import has_part, weight_names
from whyformer.models.digests import file_stamps
from whyformer.models.gguf_model import gguf_file, load_gguf
from whyformer.models.holders import model_in
from whyformer.models.load_report import check_report
from whyformer.models.location import Location, bundled_names, is_hub_id, is_unreachable, locate, reading
from whyformer.models.placement import DeviceMap, Dtype, Placement, placement_of
from whyformer.models.pooling import Pooling, pools_states
from whyformer.models.processors import check_processor_type, check_vocabulary, processor_of
from whyformer.models.structure import unwrapped
from whyformer.models.task import Task, answer_of_class, task_of
from whyformer.models.third_party import THIRD_PARTY, load_third_party
from whyformer.models.zoo import bundled

_SWITCHES = RLock()  # transformers' settings are process-wide: one thread at a time


@dataclass(frozen=True)
class LoadedModel:
    """A model with its processor and its name.

    Attributes:
        model: The module, on its device and in evaluation mode.
        processor: Its tokenizer, image processor or feature extractor, or a combination.
        name: Its name in results.
        place: The name, folder or id passed to `load`; None for your own module.
        stamps: Sizes and times of the files it was loaded from, by name; empty for your own module.
        notes: Remarks of `doctor` on how it was loaded, such as the precision that its weights are stored in.
        pooling: How a SentenceTransformer pools the states of a text; None if the files of the model say it.

    Example:
        >>> whyformer.load("mini-bert").task.answer
        'label'
    """

    model: nn.Module
    processor: Any
    name: str
    place: str | None = None
    stamps: Mapping[str, tuple[int, ...]] = field(default_factory=dict, repr=False, compare=False)
    notes: tuple[str, ...] = ()
    pooling: Pooling | None = None

    @property
    def image_processor(self) -> Any:
        """The image processor; None for a model without images."""
        part = getattr(self.processor, "image_processor", self.processor)
        return part if hasattr(part, "image_mean") else None

    @property
    def feature_extractor(self) -> Any:
        """The feature extractor of sounds; None for a model without sounds."""
        is_part = has_part(self.processor, "feature_extractor")
        part = self.processor.feature_extractor if is_part else self.processor
        return part if hasattr(part, "sampling_rate") else None

    @property
    def tokenizer(self) -> Any:
        """The tokenizer; None for a model without texts."""
        part = getattr(self.processor, "tokenizer", self.processor)
        return part if hasattr(part, "model_max_length") else None

    @cached_property
    def task(self) -> Task:
        """The model's inputs and outputs."""
        return task_of(
            self.model,
            image_processor=self.image_processor,
            tokenizer=self.tokenizer,
            feature_extractor=self.feature_extractor,
        )


def load(
    name: str | Path,
    *,
    device: str | torch.device | None = None,
    dtype: Dtype | None = None,
    device_map: DeviceMap | None = None,
) -> LoadedModel:
    """Load a model with its processor, ready to be explained.

    Only safetensors and GGUF weights are read, and code that comes with a model is never run.

    Args:
        name: The name of a bundled model (`whyformer models`), a local folder in Hugging Face layout, a hub id, a GGUF
            file or a folder with one, or the folder of a LoRA adapter. If its base model is not local, the suffix
            `?base=` names it. Models of timm and open_clip, if installed, are `timm:name` and
            `open_clip:name/checkpoint`.
            The suffix `?random` gives random weights.
        device: The device to run on; by default a GPU if there is one.
        dtype: A torch dtype or its name, or "auto" for the checkpoint's own. By default "auto" on a GPU and float32
            on a CPU.
        device_map: Instead of a device, how to spread the model over several, as in transformers: "auto", or a
            device, "cpu" or "disk" by module name. Requires accelerate.

    Returns:
        The LoadedModel.

    Raises:
        WhyformerError: If there is no such model, its files are damaged, its kind of output is not supported, or the
            device, dtype or device map cannot be used here.

    Example:
        >>> whyformer.load("mini-vit", device="cpu").name
        'mini-vit'
    """
    text, placement = str(name), placement_of(device, dtype, device_map)
    if text.startswith(THIRD_PARTY):
        own, processor = load_third_party(text)
        dtypes = placement.arguments.get("dtype")
        kind = dtypes if isinstance(dtypes, torch.dtype) else None
        return LoadedModel(own.to(device=placement.device, dtype=kind), processor, text, text)
    adapter = None if text in bundled() else adapter_of(text)
    if adapter is not None:
        base, before = load(adapter.base, device=device, dtype=dtype, device_map=device_map), file_stamps(text)
        with quiet(), reading("adapter", text):
            model, note = load_adapter(adapter, base.model)
        title = f"{adapter.folder.resolve().name} on {base.name}"
        return LoadedModel(model, base.processor, title, text, _unchanged(text, before), (*base.notes, note))
    packed = None if text in bundled() else gguf_file(text)
    notes: tuple[str, ...] = ()
    if packed is not None:
        before = file_stamps(text)
        with quiet(), reading("GGUF file", text):
            model, processor, note = load_gguf(packed, placement)
        stamps, title, notes = _unchanged(text, before), packed.resolve().name, (note,)
    else:
        with quiet():
            source = locate(text)
            before = file_stamps(text, source.revision)
            with reading("configuration", text):
                config = transformers.AutoConfig.from_pretrained(source.place, **source.how)
            model = _model(source, config, text, placement)
            with reading("processor", text):
                processor = processor_of(model, source.place, **source.how)
        stamps = _unchanged(text, before, source.revision)
        title = Path(source.place).resolve().name if os.path.isdir(source.place) else text
    check_vocabulary(model, processor, text)
    if placement.device is not None:
        model = model.to(placement.device)
    return LoadedModel(model.eval(), processor, title, text, stamps, notes)


def _unchanged(
    name: str, before: Mapping[str, tuple[int, ...]], revision: str | None = None
) -> Mapping[str, tuple[int, ...]]:
    """The stamps of a model's files; raise if they changed while it was read."""
    stamps = file_stamps(name, revision)
    if any(stamps.get(file) != stamp for file, stamp in before.items()):
        raise WhyformerError(f"The files of {name!r} changed while they were read: load it again.")
    return stamps


def resolve_model(model: Any, processor: Any = None) -> LoadedModel:
    """Load a model given in any of the ways `explain` takes one. Models given by name are cached for the next call."""
    if isinstance(model, (str, Path)):
        model = _remembered(str(model), _stamp(str(model)))
    if processor is not None:
        check_processor_type(processor)
    held_model = model_in(model)
    if held_model is not None:
        own = resolve_model(held_model.model, held_model.processor)
        model = replace(own, pooling=held_model.pooling, notes=held_model.notes)
    if isinstance(model, LoadedModel):
        return model if processor is None else replace(model, processor=processor)
    if not isinstance(model, nn.Module):
        raise WhyformerError(
            "A model is a name, a folder, a Hugging Face id, or a torch.nn.Module or pipeline you have loaded, not "
            f"{model!r:.40}.{bundled_names('')}"
        )
    model = unwrapped(model)
    place = getattr(getattr(model, "config", None), "_name_or_path", "")
    is_folder = os.path.isdir(place)
    if processor is None and (is_folder or is_hub_id(place)):
        try:
            with quiet():
                source = Location(place, is_folder or is_unreachable(place))
                processor = processor_of(model, source.place, **source.how)
        except (OSError, ValueError):
            processor = None
    return LoadedModel(model, processor, Path(place).name if place else type(model).__name__)


@contextmanager
def quiet() -> Iterator[None]:
    """Silence transformers' progress bars and warnings within the context."""
    logs = transformers.utils.logging
    with _SWITCHES:
        verbosity, has_bars = logs.get_verbosity(), logs.is_progress_bar_enabled()
        hub_is_quiet = are_progress_bars_disabled()
        logs.set_verbosity_error()
        logs.disable_progress_bar()
        try:
            yield
        finally:
            logs.set_verbosity(verbosity)
            if has_bars:
                logs.enable_progress_bar()
            if hub_is_quiet:  # transformers has a single setting for both
                disable_progress_bars()
            else:
                enable_progress_bars()


@lru_cache(maxsize=2)
def _remembered(name: str, stamp: tuple[Any, ...]) -> LoadedModel:
    return load(name)


def _stamp(name: str) -> tuple[Any, ...]:
    """Stamp that changes with the files of a model; empty for names that are not on the disk."""
    place = os.path.expanduser(name.partition(BASE)[0])
    if name in bundled() or not os.path.exists(place):
        return ()
    return os.path.realpath(place), *file_stamps(name).items()


def _model(source: Location, config: Any, name: str, placement: Placement) -> nn.Module:
    """Load a model with all of its weights: transformers would randomly initialise missing ones."""
    model_class = _model_class(config, name, source.place)
    with reading("weights file", name):
        model, report = model_class.from_pretrained(
            source.place,
            config=config,
            use_safetensors=True,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
            **placement.arguments,
            **source.how,
            **weight_names(model_class),
        )
    check_report(report, model_class, name)
    return cast(nn.Module, model)


def _model_class(config: Any, name: str, place: str) -> Any:
    architecture = str(next(iter(config.architectures or []), ""))
    if pools_states(place):  # whose configuration may still name the head that it was trained with
        architecture = transformers.AutoModel._model_mapping[type(config)].__name__
    model_class = getattr(transformers, architecture, None)
    is_model = isinstance(model_class, type) and issubclass(model_class, transformers.PreTrainedModel)
    answer = answer_of_class(architecture)
    if not is_model or answer is None or (answer == "embedding" and not _reads_one_text(model_class)):
        raise WhyformerError(
            f"{name!r} is {with_article(architecture or config.model_type)}, not a model that classifies, "
            "detects, compares or writes: load it yourself and call attribute with your own target."
        )
    return model_class


def _reads_one_text(model_class: Any) -> bool:
    """Whether a model takes a text and nothing else."""
    takes = inspect.signature(model_class.forward).parameters
    return "input_ids" in takes and "pixel_values" not in takes and "decoder_input_ids" not in takes

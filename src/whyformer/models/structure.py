"""A model's structure, from its configuration and modules: layers, labels, patch grid."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, wraps
from itertools import chain
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from whyformer.axes import Inputs
from whyformer.errors import UnsupportedModel

_KNOWN = threading.local()
_Result = TypeVar("_Result")


class Walk:
    """The modules of a model and their parameters, from one walk through it.

    Attributes:
        places: Every path with its module, the model itself first; a shared module has several.
        known: What `once_per_walk` functions have returned for the model.
    """

    def __init__(self, model: nn.Module) -> None:
        self.places = [("", model)]
        self.known: dict[Callable[[nn.Module], Any], Any] = {}
        self._visit("", model)

    def _visit(self, prefix: str, module: nn.Module) -> None:
        for name, child in module._modules.items():
            if child is not None:
                self.places.append((prefix + name, child))
                if child._modules:
                    self._visit(f"{prefix}{name}.", child)

    @cached_property
    def modules(self) -> Mapping[str, nn.Module]:
        """Each module once, by its first path."""
        paths = {module: path for path, module in reversed(self.places)}
        if len(paths) == len(self.places):
            return dict(self.places)
        return {path: module for path, module in self.places if paths[module] == path}

    @cached_property
    def kinds(self) -> frozenset[type[nn.Module]]:
        """The classes of the modules."""
        return frozenset([type(module) for _, module in self.places])

    @cached_property
    def own_modules(self) -> Sequence[nn.Module]:
        """The modules that are not PyTorch's own layers."""
        own = {kind for kind in self.kinds if not kind.__module__.startswith("torch.nn.modules.")}
        return [module for module in self.modules.values() if type(module) in own]

    @cached_property
    def parameters(self) -> Sequence[nn.Parameter]:
        """Each parameter once."""
        return [parameter for parameter, _, _ in self._parameters.values()]

    @cached_property
    def buffers(self) -> Sequence[Tensor]:
        """Each buffer once."""
        owners = [module for _, module in self.places if module._buffers]
        return list({id(x): x for module in owners for x in module._buffers.values() if x is not None}.values())

    def name_of(self, parameter: Tensor | None) -> str:
        """The last path of a parameter; "" if the model has no such parameter."""
        _, path, name = self._parameters.get(id(parameter), (None, "", ""))
        return f"{path}.{name}" if path else name

    @cached_property
    def _parameters(self) -> Mapping[int, tuple[nn.Parameter, str, str]]:
        """Each parameter with the last module that has it, by id."""
        return {
            id(x): (x, path, name)
            for path, module in self.places
            if module._parameters
            for name, x in module._parameters.items()
            if x is not None
        }

    @cached_property
    def config(self) -> Any:
        """The configuration of the model or its first submodule that has one."""
        return next((module.config for module in self.modules.values() if hasattr(module, "config")), None)


def walk(model: nn.Module) -> Walk:
    """A walk through a model: the one of `fixed_modules`, or a new one."""
    known: Walk | None = getattr(_KNOWN, "walks", {}).get(model)
    return Walk(model) if known is None else known


def modules_of(model: nn.Module) -> Mapping[str, nn.Module]:
    """The modules of a model by their paths, the model itself first."""
    return walk(model).modules


@contextmanager
def fixed_modules(model: nn.Module) -> Iterator[None]:
    """Within the context and this thread, walk the modules of a model only once."""
    before: dict[nn.Module, Walk] = getattr(_KNOWN, "walks", {})
    _KNOWN.walks = {**before, model: walk(model)}
    try:
        yield
    finally:
        _KNOWN.walks = before


def once_per_walk(function: Callable[[nn.Module], _Result]) -> Callable[[nn.Module], _Result]:
    """Keep what a function returns for a model as long as its modules are fixed."""

    @wraps(function)
    def kept(model: nn.Module) -> _Result:
        known = walk(model).known
        if function not in known:
            known[function] = function(model)
        result: _Result = known[function]
        return result

    return kept


def class_names(model: nn.Module) -> frozenset[str]:
    """The names of the classes of a model's modules."""
    return frozenset(kind.__name__ for kind in walk(model).kinds)


def heads_of(model: nn.Module) -> int:
    """Number of heads of an attention map; 1 if it differs by layer, as in a pyramid."""
    heads = getattr(config_of(model), "num_attention_heads", 1)
    return heads if isinstance(heads, int) else 1


def config_of(model: nn.Module) -> Any:
    """The configuration of the model or its first submodule that has one; None for a plain module."""
    return model.config if hasattr(model, "config") else walk(model).config


def unwrapped(model: nn.Module) -> nn.Module:
    """The model inside a wrapper: torch.compile hides operations, PEFT hides the signature, others run it in parts.

    PEFT's prompt-learning wrapper is kept, since it prepends the learned prompt itself.
    """
    model = getattr(model, "_orig_mod", model)
    model = model.module if isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)) else model
    inside: Any = getattr(model, "get_base_model", None) if hasattr(model, "peft_config") else None
    learned_prompt = getattr(getattr(model, "active_peft_config", None), "is_prompt_learning", False)
    return model if inside is None or learned_prompt else cast(nn.Module, inside())


def device_of(model: nn.Module) -> torch.device:
    """The device of the model's inputs: that of its first parameter with data, or of a buffer.

    A model spread over several devices takes inputs where its embeddings run, not necessarily where they are stored.
    """
    if hasattr(model, "hf_device_map"):
        embeddings = (module for module in model.modules() if isinstance(module, (nn.Embedding, nn.Conv2d)))
        places = (getattr(getattr(module, "_hf_hook", None), "execution_device", None) for module in embeddings)
        place = next((place for place in places if place is not None), None)
        if place is not None:
            return torch.device(f"cuda:{place}" if isinstance(place, int) else place)
    tensors = chain(model.parameters(), model.buffers())
    return next((tensor.device for tensor in tensors if not tensor.is_meta), torch.device("cpu"))


def dtype_of(model: nn.Module) -> torch.dtype:
    """The dtype of the model's first floating-point parameter; float32 if it has none."""
    return next((parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()), torch.float32)


def base_model(model: nn.Module) -> nn.Module:
    """The encoder without its head."""
    return getattr(model, "base_model", model)


def vocabulary_size(model: nn.Module) -> int | None:
    """Number of token embeddings; None if unknown."""
    try:
        table = cast(Any, model).get_input_embeddings()
    except (AttributeError, NotImplementedError):
        return None
    return table.num_embeddings if isinstance(table, nn.Embedding) else None


def needs_padding_token(model: nn.Module) -> bool:
    """Whether it finds the last real token by a padding token that it lacks, so it takes one text at a time."""
    config = config_of(model)
    text_config = config.get_text_config() if hasattr(config, "get_text_config") else config
    is_decoder = type(unwrapped(model)).__name__.endswith("ForSequenceClassification") and hasattr(model, "score")
    return is_decoder and getattr(text_config, "pad_token_id", None) is None


def can_write(model: nn.Module) -> bool:
    """Whether it generates text."""
    return bool(getattr(model, "can_generate", bool)())


# Labels of heads whose configurations do not name them.
LABELS_OF_HEADS = {
    "ForNextSentencePrediction": ("is next", "is not next"),
    "ForImageTextRetrieval": ("no match", "match"),
}


def labels_of(model: nn.Module) -> dict[int, str]:
    """Label names by index; some heads have fixed ones."""
    head = type(unwrapped(model)).__name__
    own = next((names for ending, names in LABELS_OF_HEADS.items() if head.endswith(ending)), None)
    if own is not None:
        return dict(enumerate(own))
    names = getattr(getattr(model, "config", None), "id2label", None) or {}
    return {int(index): str(name) for index, name in names.items()}


def entailment_of(model: nn.Module) -> int | None:
    """Index of the entailment label; None for models other than NLI."""
    return next((index for index, name in labels_of(model).items() if name.lower().startswith("entail")), None)


def is_detector(model: nn.Module) -> bool:
    """Whether it is an object detector, with a class and a box per object query."""
    return type(unwrapped(model)).__name__.endswith("ForObjectDetection")


def layers_of(model: nn.Module) -> int | None:
    """Number of layers in the configuration, if stated."""
    layers = getattr(config_of(model), "num_hidden_layers", None)
    return layers if isinstance(layers, int) else None


def turns_by_position(model: nn.Module) -> bool:
    """Whether the model uses rotary position embeddings (RoPE)."""
    return any(word in name.lower() for name in class_names(model) for word in ("rotary", "rope"))


def main_input(inputs: Inputs) -> tuple[str, Tensor]:
    """The main input tensor: pixels, word pieces or embeddings."""
    for name in ("pixel_values", "input_ids", "inputs_embeds", "input_features", "input_values", "input", "x"):
        if isinstance(inputs.get(name), Tensor):
            return name, inputs[name]
    named = {name: value for name, value in inputs.items() if isinstance(value, Tensor)}
    if len(named) != 1:
        raise UnsupportedModel(
            f"Which of the inputs {', '.join(inputs) or '(none)'} is explained? Name it pixel_values or input_ids."
        )
    return next(iter(named.items()))


def patch_grid(model: nn.Module, image_size: tuple[int, int], tokens: int) -> tuple[int, int]:
    """Rows and columns of the patches, given the number of tokens and the image's (height, width)."""
    if getattr(config_of(model), "backbone_config", None) is not None:
        return max(feature_levels(model, image_size, tokens))
    for rows, columns in (first_grid(model, image_size, fills_up=fills_up) for fills_up in (False, True)):
        if rows * columns == tokens:
            return rows, columns
    size = getattr(config_of(model), "patch_size", None)
    if size is None:
        convolutions = (module for module in model.modules() if isinstance(module, nn.Conv2d))
        size = next((conv.stride for conv in convolutions if conv.stride == conv.kernel_size), None)
    if size is None:
        raise UnsupportedModel(f"{type(model).__name__} has no known patch size: set config.patch_size.")
    patch_height, patch_width = (size, size) if isinstance(size, int) else size
    rows, columns = image_size[0] // patch_height, image_size[1] // patch_width
    merged = 1
    while rows * columns // merged**2 > tokens:  # hierarchical models merge patches between stages
        merged *= 2
    return rows // merged, columns // merged


def first_grid(model: nn.Module, image_size: tuple[int, int], *, fills_up: bool = False) -> tuple[int, int]:
    """Rows and columns of the output of the model's first convolution; incomplete patches may be padded."""
    convolution = next((module for module in model.modules() if isinstance(module, nn.Conv2d)), None)
    if convolution is None:
        return 0, 0
    size, stride, padding = convolution.kernel_size, convolution.stride, convolution.padding
    padding = (0, 0) if isinstance(padding, str) else padding  # "valid", as SigLIP says
    sides = [side + (-side % step if fills_up else 0) for side, step in zip(image_size, stride, strict=True)]
    rows, columns = ((sides[n] + 2 * padding[n] - size[n]) // stride[n] + 1 for n in (0, 1))
    return rows, columns


COARSEST_FIRST = {"mask2former": 3}  # number of feature maps of models that order them coarsest first


def has_levels(model: nn.Module) -> bool:
    """Whether a model concatenates the tokens of feature maps of several sizes."""
    return _level_count(model) > 1


def _level_count(model: nn.Module) -> int:
    config = config_of(model)
    return COARSEST_FIRST.get(getattr(config, "model_type", ""), getattr(config, "num_feature_levels", 1))


def feature_levels(model: nn.Module, image_size: tuple[int, int], tokens: int) -> tuple[tuple[int, int], ...]:
    """Rows and columns of the feature maps with this total of tokens: one, or all levels, each half as fine."""
    for count in sorted({1, _level_count(model)}):
        for stride in (1, 2, 4, 8, 16, 32, 64, 128):
            height, width = image_size
            strides = [stride * 2**level for level in range(count)]
            grids = tuple((-(-height // step), -(-width // step)) for step in strides)
            if sum(rows * columns for rows, columns in grids) == tokens:
                return grids[::-1] if getattr(config_of(model), "model_type", "") in COARSEST_FIRST else grids
    raise UnsupportedModel(f"{tokens} tokens fit no feature map of an image of {image_size[0]}×{image_size[1]} pixels.")


def prefix_length(model: nn.Module, inputs: Inputs, tokens: int) -> int:
    """Number of tokens before the patches of an image (class, distillation, registers); 0 for text."""
    _, example = main_input(inputs)
    if example.dim() != 4:
        return 0
    rows, columns = patch_grid(model, (example.shape[-2], example.shape[-1]), tokens)
    return 0 if has_levels(model) else tokens - rows * columns

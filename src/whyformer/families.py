"""What the package must know of an architecture that its forward pass does not show: one row each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from whyformer.axes import Inputs
from whyformer.errors import UnsupportedModel


@dataclass(frozen=True)
class Family:
    """A row: the stream's name, where the answer is read, and what the path of the integrated gradient scales.

    `readout` None is found from the gradient; `scaled` is a module of the base model whose output is scaled, None
    the pixels themselves.
    """

    stream: str
    readout: str | Callable[[nn.Module], str] | None = None
    scaled: str | None = None


def _pooling(attribute: str, mean: Any) -> Callable[[nn.Module], str]:
    return lambda model: "mean" if getattr(model.config, attribute) == mean else "first"


def _class_tokens(model: nn.Module) -> str:
    return "both class tokens" if type(model).__name__.endswith("WithTeacher") else "first"


_CLASS_TOKEN_TEXT = Family("text", "first", "embeddings")
_CLASS_TOKEN_IMAGE = Family("image", "first")

FAMILIES: dict[str, Family] = {
    "albert": _CLASS_TOKEN_TEXT,
    "bert": _CLASS_TOKEN_TEXT,
    "camembert": _CLASS_TOKEN_TEXT,
    "deberta-v2": _CLASS_TOKEN_TEXT,
    "distilbert": _CLASS_TOKEN_TEXT,
    "electra": _CLASS_TOKEN_TEXT,
    "modernbert": Family("text", _pooling("classifier_pooling", "mean"), "embeddings"),
    "roberta": _CLASS_TOKEN_TEXT,
    "xlm-roberta": _CLASS_TOKEN_TEXT,
    "beit": Family("image", _pooling("use_mean_pooling", True)),
    "deit": Family("image", _class_tokens),
    "dinov2": Family("image", "first+mean"),
    "dinov2_with_registers": Family("image", "first+mean"),
    "vit": _CLASS_TOKEN_IMAGE,
    "vit_msn": _CLASS_TOKEN_IMAGE,
}


_STOCK = dict(FAMILIES)
_STOCK_HEADS = ("ForSequenceClassification", "ForImageClassification", "ForImageClassificationWithTeacher")

ROW_TO_WRITE = (
    "Write its row: whyformer.FAMILIES[model.config.model_type] = "
    'whyformer.Family(stream="text", readout="first", scaled="path.of.a.module").'
)


def config_of(model: nn.Module) -> Any:
    """The configuration of the model, or of the first part of it that has one; None for a plain module."""
    return next((module.config for module in model.modules() if hasattr(module, "config")), None)


def family_of(model: nn.Module, inputs: Inputs) -> Family:
    """The model's row. A model outside the table is taken by its structure: one stream, read-out from the gradient.

    The table's own rows are for the stock heads alone: another head on the same encoder may read elsewhere.
    """
    kind = getattr(getattr(model, "config", None), "model_type", "")
    row = FAMILIES.get(kind)
    is_stock = type(model).__module__.startswith("transformers.") and type(model).__name__.endswith(_STOCK_HEADS)
    if row is not None and (is_stock or row is not _STOCK.get(kind)):
        return row
    name, _ = main_input(inputs)
    if name == "input_ids":
        return Family("text", None, _embedding_path(base_model(model)))
    return Family("image")


def main_input(inputs: Inputs) -> tuple[str, Tensor]:
    """The tensor that holds the example itself: pixels, word pieces or embeddings."""
    for name in ("pixel_values", "input_ids", "inputs_embeds", "input", "x"):
        if isinstance(inputs.get(name), Tensor):
            return name, inputs[name]
    named = {name: value for name, value in inputs.items() if isinstance(value, Tensor)}
    if len(named) != 1:
        raise UnsupportedModel(
            f"Which of the inputs {', '.join(inputs) or '(none)'} is explained? Name it pixel_values or input_ids."
        )
    return next(iter(named.items()))


def base_model(model: nn.Module) -> nn.Module:
    """The encoder without its head."""
    return getattr(model, "base_model", model)


def scaled_module(model: nn.Module, family: Family) -> nn.Module | None:
    """The module whose output the path scales, or None where it scales the input itself."""
    if family.scaled is None:
        return None
    modules: dict[str, nn.Module] = dict(base_model(model).named_modules())
    inside = (module for name, module in modules.items() if name.endswith(f".{family.scaled}"))
    found = modules.get(family.scaled) or next(inside, None)  # a wrapper such as PEFT's puts it further in
    if found is None:
        raise UnsupportedModel(f"{type(model).__name__} has no module {family.scaled!r} to scale. {ROW_TO_WRITE}")
    return found


def _embedding_path(model: nn.Module) -> str:
    """The embedding module as a whole, or where there is none the table of word pieces."""
    modules = list(model.named_modules())
    whole: list[str] = [name for name, _ in modules if name.split(".")[-1] == "embeddings"]
    tables: list[str] = [name for name, module in modules if isinstance(module, nn.Embedding)]
    if not whole + tables:
        raise UnsupportedModel(f"{type(model).__name__} shows no embedding module to scale. {ROW_TO_WRITE}")
    return min(whole, key=len) if whole else tables[0]


def patch_grid(model: nn.Module, image_size: tuple[int, int], tokens: int) -> tuple[int, int]:
    """Rows and columns of the patches among so many tokens of an image of this (height, width)."""
    size = getattr(config_of(model), "patch_size", None)
    if size is None:
        convolutions = (module for module in model.modules() if isinstance(module, nn.Conv2d))
        size = next((conv.stride for conv in convolutions if conv.stride == conv.kernel_size), None)
    if size is None:
        raise UnsupportedModel(f"{type(model).__name__} shows no patch size: set config.patch_size.")
    patch_height, patch_width = (size, size) if isinstance(size, int) else size
    rows, columns = image_size[0] // patch_height, image_size[1] // patch_width
    merged = 1
    while rows * columns // merged**2 > tokens:  # hierarchical models merge patches on the way
        merged *= 2
    return rows // merged, columns // merged

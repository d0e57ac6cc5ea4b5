"""The row of a model, by its class or its architecture, and the modules that a row speaks of."""

from __future__ import annotations

from torch import nn

from whyformer.axes import Inputs
from whyformer.errors import UnsupportedModel
from whyformer.models.families import FAMILIES, ROW_TO_WRITE, STOCK, Family, image_encoder
from whyformer.models.modalities import SOUND_INPUTS
from whyformer.models.structure import base_model, main_input

_STOCK_HEADS = (
    *("ForSequenceClassification", "ForImageClassification", "ForImageClassificationWithTeacher"),
    "ForAudioClassification",
)


def family_of(model: nn.Module, inputs: Inputs) -> Family:
    """The model's row. A model outside the table is taken by its structure: one stream, read-out from the gradient.

    The table's own rows are for the stock heads alone: another head on the same encoder may read elsewhere. Those of
    several streams, or of streams cut up, leave that to the gradient, and are for every model that has all of them. A
    class with a row of its own goes before its architecture.
    """
    kind = getattr(getattr(model, "config", None), "model_type", "")
    kind = type(model).__name__ if type(model).__name__ in FAMILIES else kind
    row = FAMILIES.get(kind)
    is_stock = type(model).__module__.startswith("transformers.") and type(model).__name__.endswith(_STOCK_HEADS)
    is_one_stream = row is not None and row.is_one_stack and not row.others
    if row is not None and (row is not STOCK.get(kind) or (is_stock if is_one_stream else _has_all(model, row))):
        return row
    name, _ = main_input(inputs)
    if name == "input_ids":
        return Family("text", None, _embedding_path(base_model(model)))
    return Family("audio", mask=None) if name in SOUND_INPUTS else image_encoder(None)


def scaled_module(model: nn.Module, path: str) -> nn.Module:
    """The module of the base model whose output the path scales."""
    modules: dict[str, nn.Module] = dict(base_model(model).named_modules(remove_duplicate=False))
    inside = (module for name, module in modules.items() if name.endswith(f".{path}"))
    target = modules.get(path) or next(inside, None)  # a wrapper such as PEFT's puts it further in
    if target is None:
        raise UnsupportedModel(f"{type(model).__name__} has no module {path!r} to scale. {ROW_TO_WRITE}")
    return target


def _has_all(model: nn.Module, row: Family) -> bool:
    """Whether the model has every module that the row scales: the image tower alone has no text."""
    names = [name for name, _ in base_model(model).named_modules(remove_duplicate=False)]
    paths = [stream.scaled for stream in row.streams if stream.scaled]
    return all(any(f".{name}".endswith(f".{path}") for name in names) for path in paths)


def _embedding_path(model: nn.Module) -> str:
    """The embedding module as a whole, or where there is none the table of word pieces."""
    modules = list(model.named_modules())
    whole: list[str] = [name for name, _ in modules if name.split(".")[-1] == "embeddings"]
    tables: list[str] = [name for name, module in modules if isinstance(module, nn.Embedding)]
    if not whole + tables:
        raise UnsupportedModel(f"{type(model).__name__} shows no embedding module to scale. {ROW_TO_WRITE}")
    return min(whole, key=len) if whole else tables[0]

"""What the package must know of an architecture that its forward pass does not show: one row each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from whyformer.axes import Inputs
from whyformer.errors import UnsupportedModel
from whyformer.models.structure import base_model, main_input

NOTHING = ""  # scales nothing: the stream is no input, such as a detector's object queries

Readout = str | Callable[[nn.Module], str] | None


@dataclass(frozen=True)
class Stream:
    """A sequence of tokens inside a model: its name, where the answer is read in it, and what the path scales.

    `readout` None is found from the gradient. `scaled` is a module of the base model whose output the path of the
    integrated gradient scales, None the pixels themselves, NOTHING nothing.
    """

    name: str
    readout: Readout = None
    scaled: str | None = None
    is_read: bool = False


@dataclass(frozen=True)
class Family:
    """A row: the stream the answer is read from, as in `Stream`; the others; and which attention is whose.

    `attention` names, for a part of a record's path, the streams of its queries and of its keys; the first row that
    fits counts. Rows for the same part are taken in turn, and are one step: they read the same state.
    """

    stream: str
    readout: Readout = None
    scaled: str | None = None
    others: tuple[Stream, ...] = ()
    attention: tuple[tuple[str, str, str], ...] = ()

    @property
    def streams(self) -> tuple[Stream, ...]:
        return Stream(self.stream, self.readout, self.scaled, is_read=True), *self.others


def _pooling(attribute: str, mean: Any) -> Callable[[nn.Module], str]:
    return lambda model: "mean" if getattr(model.config, attribute) == mean else "first"


def _class_tokens(model: nn.Module) -> str:
    return "both class tokens" if type(model).__name__.endswith("WithTeacher") else "first"


def _encoder_decoder(source: str, cross: str, embeddings: str = "embed_tokens") -> Family:
    return Family(
        "target",
        scaled=f"decoder.{embeddings}",
        others=(Stream(source, scaled=f"encoder.{embeddings}" if source == "source" else None),),
        attention=((cross, "target", source), ("decoder", "target", "target"), ("encoder", source, source)),
    )


_CLASS_TOKEN_TEXT = Family("text", "first", "embeddings")
_CLASS_TOKEN_IMAGE = Family("image", "first")
_TEXT_TOWER = Stream("text", scaled="text_model.embeddings.token_embedding", is_read=True)
_TOWERS = (("vision_model", "image", "image"), ("text_model", "text", "text"))
_DETECTOR = Family(
    "queries",
    scaled=NOTHING,
    others=(Stream("image"),),
    attention=(
        ("encoder_attn", "queries", "image"),
        ("decoder", "queries", "queries"),
        ("encoder", "image", "image"),
    ),
)

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
    "clip": Family("image", others=(_TEXT_TOWER,), attention=_TOWERS),
    "siglip": Family(
        "pool", None, NOTHING, (Stream("image"), _TEXT_TOWER), (("vision_model.head", "pool", "image"), *_TOWERS)
    ),
    "lxmert": Family(
        "text",
        scaled="embeddings",
        others=(Stream("image", scaled="encoder.visn_fc"),),
        attention=(
            ("visual_attention", "text", "image"),
            ("visual_attention", "image", "text"),
            ("lang_self_att", "text", "text"),
            ("visn_self_att", "image", "image"),
            ("r_layers", "image", "image"),
            ("encoder.layer.", "text", "text"),
        ),
    ),
    "detr": _DETECTOR,
    "conditional_detr": _DETECTOR,
    "bart": _encoder_decoder("source", "encoder_attn"),
    "marian": _encoder_decoder("source", "encoder_attn"),
    "t5": _encoder_decoder("source", "EncDecAttention"),
    "whisper": _encoder_decoder("audio", "encoder_attn"),
}


_STOCK = dict(FAMILIES)
_STOCK_HEADS = ("ForSequenceClassification", "ForImageClassification", "ForImageClassificationWithTeacher")

ROW_TO_WRITE = (
    "Write its row: whyformer.FAMILIES[model.config.model_type] = "
    'whyformer.Family(stream="text", readout="first", scaled="path.of.a.module").'
)


def family_of(model: nn.Module, inputs: Inputs) -> Family:
    """The model's row. A model outside the table is taken by its structure: one stream, read-out from the gradient.

    The table's own rows are for the stock heads alone: another head on the same encoder may read elsewhere. Those of
    several streams leave that to the gradient, and are for every model that has all of them.
    """
    kind = getattr(getattr(model, "config", None), "model_type", "")
    row = FAMILIES.get(kind)
    is_stock = type(model).__module__.startswith("transformers.") and type(model).__name__.endswith(_STOCK_HEADS)
    if row is not None and (row is not _STOCK.get(kind) or (_has_all(model, row) if row.attention else is_stock)):
        return row
    name, _ = main_input(inputs)
    if name == "input_ids":
        return Family("text", None, _embedding_path(base_model(model)))
    return Family("image")


def scaled_module(model: nn.Module, path: str) -> nn.Module:
    """The module of the base model whose output the path scales."""
    modules: dict[str, nn.Module] = dict(base_model(model).named_modules(remove_duplicate=False))
    inside = (module for name, module in modules.items() if name.endswith(f".{path}"))
    found = modules.get(path) or next(inside, None)  # a wrapper such as PEFT's puts it further in
    if found is None:
        raise UnsupportedModel(f"{type(model).__name__} has no module {path!r} to scale. {ROW_TO_WRITE}")
    return found


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

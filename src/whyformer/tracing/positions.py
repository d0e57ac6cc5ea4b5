"""Position embeddings as inputs of their own: tables that are learned, and what turns queries and keys (RoPE)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from threading import get_ident
from typing import Any

from torch import Tensor, nn

from whyformer.errors import UnsupportedModel
from whyformer.models.structure import base_model
from whyformer.tracing.question import ModelCall

PositionLeaf = tuple[str, Tensor]  # its stream, and its value in the graph [example, token, channel]


@contextmanager
def position_leaves(call: ModelCall) -> Iterator[list[PositionLeaf]]:
    """While inside, what the model's position modules give is a leaf of the graph, listed with its stream.

    A rotation is its cosines and sines [example, token, channel], each a leaf: with them the product that turns a query
    or a key is one of two activations, of which rules give half to each.
    """
    leaves: list[PositionLeaf] = []
    thread = get_ident()

    def hook_for(stream: str) -> Any:
        def hook(module: nn.Module, args: Any, output: Any) -> Any:
            if get_ident() != thread:
                return None
            parts = output if isinstance(output, tuple) else (output,)
            if not all(_is_by_token(part, call.batch) for part in parts):
                raise _unknown(call)
            own = tuple(_expanded(part.detach(), call.batch).clone().requires_grad_() for part in parts)
            leaves.extend((stream, part) for part in own)
            return own if isinstance(output, tuple) else own[0]

        return hook

    modules = list(position_modules(call))
    if not modules:
        raise _unknown(call)
    with ExitStack() as hooks:
        for stream, module in modules:
            handle = module.register_forward_hook(hook_for(stream))
            hooks.callback(handle.remove)
        yield leaves


def position_modules(call: ModelCall) -> Iterator[tuple[str, nn.Module]]:
    """The modules that give positions, each with the stream of words that it is about."""
    if not _is_of_words(call):
        return
    words = call.family.streams
    for path, module in base_model(call.model).named_modules():
        name = path.rpartition(".")[2]
        is_table = isinstance(module, nn.Embedding) and ("position" in name or name == "wpe")
        if is_table or "RotaryEmbedding" in type(module).__name__:
            part = path.partition(".")[0]
            stream = next((one for one in words if (one.scaled or "").startswith(f"{part}.")), words[0])
            yield stream.name, module


def _is_by_token(part: Any, batch: int) -> bool:
    """Whether it is [token, channel] for all examples, or [example, token, channel], of real numbers."""
    if not isinstance(part, Tensor) or not part.is_floating_point():
        return False
    return part.dim() == 2 or (part.dim() == 3 and len(part) in (1, batch))


def _expanded(part: Tensor, batch: int) -> Tensor:
    return part.expand(batch, *part.shape[-2:])


def _unknown(call: ModelCall) -> UnsupportedModel:
    if not _is_of_words(call):
        return UnsupportedModel(
            "positions='keep' is for words: the scores of a picture are its pixels', and positions are its patches'. "
            "positions='drop' leaves them out."
        )
    return UnsupportedModel(
        f"positions='keep' is for words whose positions are a table of embeddings or turn queries and keys by cosines "
        f"and sines, and {type(call.model).__name__} shows none: positions='drop' leaves them out."
    )


def _is_of_words(call: ModelCall) -> bool:
    """Whether every stream is embedded: pixels have scores of their own, and no token to add to."""
    return all(stream.scaled for stream in call.family.streams)

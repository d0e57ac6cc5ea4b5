"""Position embeddings as separate inputs: learned tables, and rotary embeddings of queries and keys (RoPE)."""

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
    """Make the outputs of the model's position modules leaves of the graph, listed with their streams.

    A rotation has its cosines and sines [example, token, channel] as leaves. Its product with a query or key is then
    one of two activations, and rules give half to each.
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
    """The position modules of the model, with the stream of words of each."""
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
    """Whether it is a floating-point tensor [token, channel] for all examples, or [example, token, channel]."""
    if not isinstance(part, Tensor) or not part.is_floating_point():
        return False
    return part.dim() == 2 or (part.dim() == 3 and len(part) in (1, batch))


def _expanded(part: Tensor, batch: int) -> Tensor:
    return part.expand(batch, *part.shape[-2:])


def _unknown(call: ModelCall) -> UnsupportedModel:
    if not _is_of_words(call):
        return UnsupportedModel(
            "positions='keep' is for words: a picture is scored by pixel, but positions belong to patches. "
            "positions='drop' leaves them out."
        )
    return UnsupportedModel(
        "positions='keep' is for words with an embedding table of positions or rotary embeddings, and "
        f"{type(call.model).__name__} has neither: positions='drop' leaves them out."
    )


def _is_of_words(call: ModelCall) -> bool:
    """Whether every stream is embedded: pixels are scored themselves, without tokens."""
    return all(stream.scaled for stream in call.family.streams)

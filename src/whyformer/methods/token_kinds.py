"""Classify the tokens of a stream: words, or other content such as patches and regions."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import torch

from whyformer.axes import TokenMask
from whyformer.errors import UnsupportedModel
from whyformer.inputs.parts import part_places
from whyformer.tracing.question import WORD_PIECES
from whyformer.tracing.trace import Trace, real_tokens


@dataclass(frozen=True)
class TokenKinds:
    """Masks of the words of a stream, and of its other content; class tokens, registers and padding are in neither."""

    words: TokenMask
    others: TokenMask


def token_kinds(trace: Trace) -> dict[str, TokenKinds]:
    """The token kinds of every scored stream."""
    masks, question = real_tokens(trace), trace.question
    if question.bridge is not None:
        is_picture = {question.family.stream: question.bridge.is_placeholder}
        return {
            stream: _split(mask, is_picture.get(stream, stream not in WORD_PIECES)) for stream, mask in masks.items()
        }
    lengths = {stream: mask.shape[1] for stream, mask in masks.items()}
    nothing = {stream: torch.zeros_like(mask) for stream, mask in masks.items()}
    words, others = dict(nothing), dict(nothing)
    with suppress(UnsupportedModel):  # features at several scales have no grid: all of them count
        for place in part_places(question.model, question.inputs, lengths):
            part = words if place.kind in ("text", "written") else others
            part[place.stream] = part[place.stream].clone()
            part[place.stream][:, place.first : place.first + place.count] = True
    known = {stream for stream in masks if bool((words[stream] | others[stream]).any())}
    return {
        stream: TokenKinds(words[stream] & mask, others[stream] & mask)
        if stream in known
        else _split(mask, stream not in WORD_PIECES)
        for stream, mask in masks.items()
    }


def _split(mask: TokenMask, is_other: TokenMask | bool) -> TokenKinds:
    """Split the real tokens into words and others."""
    return TokenKinds(mask & (~is_other if isinstance(is_other, torch.Tensor) else not is_other), mask & is_other)

"""Targets of CTC models, which predict a character at every frame of a sound."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from whyformer.errors import WhyformerError
from whyformer.modalities.audio import wave_frames
from whyformer.models.structure import config_of, unwrapped
from whyformer.targets.scores import Contrast, Moment, label_index, one_each


def spells(model: nn.Module) -> bool:
    """Whether the model has a CTC head."""
    return type(unwrapped(model)).__name__.endswith("ForCTC")


def moment_of(target: Any, logits: Tensor, labels: Mapping[int, str], model: nn.Module) -> tuple[Any, Tensor]:
    """The explained label, and the frame of each example: the given one, or where the label is most likely.

    "predicted" is the most likely character of the whole sound, except the CTC blank.
    """
    batch, frames, count = logits.shape
    if isinstance(target, Moment):
        frame = frame_at(target.seconds, target.rate, model)
        if not 0 <= frame < frames:
            last = _end(frames, target.rate, model)
            raise WhyformerError(f"No moment {target.seconds:g} s: the frames of this sound cover 0 to {last:.3g} s.")
        return target.label, torch.full((batch,), frame, device=logits.device)
    shares = logits.softmax(dim=-1)
    blank = getattr(config_of(model), "pad_token_id", None)
    if blank is not None:
        shares = shares.index_fill(-1, torch.tensor([blank], device=shares.device), 0.0)
    label = target.label if isinstance(target, Contrast) else target
    indices = [
        int(rows.amax(dim=0).argmax()) if one == "predicted" else label_index(one, labels, count)
        for rows, one in zip(shares, one_each(label, batch), strict=True)
    ]
    place = logits.softmax(dim=-1)[torch.arange(batch), :, indices].argmax(dim=1)
    return target if isinstance(target, Contrast) else indices, place


def frame_at(seconds: float, rate: int, model: nn.Module) -> int:
    """The frame whose centre is nearest to a time."""
    window, stride = wave_frames(model)
    return round((seconds * rate - window / 2) / stride) if seconds * rate > window / 2 else 0 if seconds >= 0 else -1


def _end(frames: int, rate: int, model: nn.Module) -> float:
    window, stride = wave_frames(model)
    return (window / 2 + (frames - 0.5) * stride) / rate

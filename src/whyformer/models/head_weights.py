"""Learned weights of attention heads: one file per model, found by the digest of its weights."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from whyformer.errors import UnsupportedModel, WhyformerError
from whyformer.files import whole_file
from whyformer.models.digests import module_digest

HEADS_FOLDER = "WHYFORMER_HEADS"  # environment variable: where learned weights are
MOST_HEADS = 1 << 20
THETA = "theta"
_digests: WeakKeyDictionary[nn.Module, str] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class HeadWeights:
    """A weight for each head of a model, from the first attention operation to the last.

    Attributes:
        theta: The weights, not negative, of sum 1.
        digest: The SHA-256 of the model's tensors.
        facts: How they were learned: the model's name, the data, the correlation that was reached.
    """

    theta: Tensor
    digest: str
    facts: Mapping[str, Any] = field(default_factory=dict)


def heads_folder() -> Path:
    """The folder of learned weights."""
    return Path(os.environ.get(HEADS_FOLDER) or Path.home() / ".cache" / "whyformer" / "heads")


def tensor_digest(module: nn.Module) -> str:
    """The SHA-256 of a model's tensors, computed once."""
    if module not in _digests:
        _digests[module] = module_digest(module)
    return _digests[module]


def heads_file(module: nn.Module) -> Path:
    """Where the weights of this model's heads are found."""
    return heads_folder() / f"{tensor_digest(module)}.safetensors"


def save_heads(weights: HeadWeights, path: Path) -> None:
    """Save weights as safetensors, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    facts = {"digest": weights.digest, "facts": json.dumps(dict(weights.facts), allow_nan=False)}
    with whole_file(path) as unfinished:
        save_file({THETA: weights.theta.float().contiguous()}, unfinished, metadata=facts)


def read_heads(path: Path) -> HeadWeights:
    """Read weights that `whyformer learn` saved."""
    try:
        with safe_open(path, framework="pt") as file:
            shape = file.get_slice(THETA).get_shape()
            if len(shape) != 1 or not 0 < shape[0] <= MOST_HEADS:
                raise ValueError(f"its weights have the shape {shape}")
            theta, about = file.get_tensor(THETA), file.metadata() or {}
        if theta.dtype != torch.float32 or not bool(torch.isfinite(theta).all()) or bool((theta < 0).any()):
            raise ValueError("its weights are not numbers of 0 and more in float32")
        return HeadWeights(theta, str(about["digest"]), json.loads(about.get("facts", "{}")))
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise WhyformerError(
            f"{str(path)!r} has no weights of heads: {type(error).__name__} {error!s:.100}."
        ) from error


def head_weights(module: nn.Module, file: str | Path | None = None) -> HeadWeights:
    """The weights of this model's heads, from a file or from where `whyformer learn` puts them."""
    path = heads_file(module) if file is None else Path(file)
    if file is None and not path.is_file():
        raise UnsupportedModel(
            f"at2 needs weights of the heads of {type(module).__name__}, and none were learned for these "
            "weights in this precision: run `whyformer learn MODEL`."
        )
    weights = read_heads(path)
    if weights.digest != tensor_digest(module):
        raise WhyformerError(f"{str(path)!r} was learned for other weights, or in another precision: learn them again.")
    return weights

"""The golden cases: stock models with the reference's weights, their inputs, and what the reference returned."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.torch import load_file
from torch import Tensor, nn

from transformers4 import MAJOR, settings_of, weight_name

GOLDEN = Path(__file__).parent / "golden"


class MeanPooled(nn.Module):
    """The reference's masked-autoencoder classifier: mean over patches of the un-normalised last state, norm, head."""

    def __init__(self, encoder: nn.Module, head: dict[str, Tensor]):
        super().__init__()
        self.encoder = encoder
        encoder.layernorm = nn.Identity()
        self.fc_norm = nn.LayerNorm(encoder.config.hidden_size, eps=1e-6)
        self.head = nn.Linear(*reversed(head["head.weight"].shape))
        self.load_state_dict(head, strict=False)

    def forward(self, pixel_values: Tensor) -> Tensor:
        state = self.encoder(pixel_values=pixel_values).last_hidden_state
        return self.head(self.fc_norm(state[:, 1:].mean(dim=1)))


class Interleaved(nn.Module):
    """The reference's DINO classifier: class token and patch mean, interleaved feature by feature."""

    def __init__(self, encoder: nn.Module, head: dict[str, Tensor]):
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(*reversed(head["head.weight"].shape))
        self.load_state_dict(head, strict=False)

    def forward(self, pixel_values: Tensor) -> Tensor:
        state = self.encoder(pixel_values=pixel_values).last_hidden_state
        return self.head(torch.stack([state[:, 0], state[:, 1:].mean(dim=1)], dim=-1).flatten(1))


class FeatureMaps(nn.Module):
    """In the place of DETR's backbone: the reference was given feature maps."""

    def forward(self, pixel_values: Tensor, pixel_mask: Tensor) -> list[tuple[Tensor, Tensor]]:
        return [(pixel_values, torch.ones_like(pixel_values[:, 0], dtype=torch.bool))]


class StoredPositions(nn.Module):
    """In the place of DETR's sines: the positions that the reference was given."""

    def __init__(self, positions: Tensor):
        super().__init__()
        self.register_buffer("positions", positions, persistent=False)

    def forward(self, shape: torch.Size, device: object, dtype: torch.dtype, mask: Tensor | None = None) -> Tensor:
        return self.positions[:, :, : shape[-2], : shape[-1]].expand(shape[0], -1, -1, -1)


class MapsAndPositions(nn.Module):
    """Both at once, as the backbone of transformers 4 gives them."""

    def __init__(self, positions: Tensor):
        super().__init__()
        self.maps, self.positions = FeatureMaps(), StoredPositions(positions)

    def forward(self, pixel_values: Tensor, pixel_mask: Tensor) -> tuple[list[tuple[Tensor, Tensor]], list[Tensor]]:
        maps = self.maps(pixel_values, pixel_mask)
        return maps, [self.positions(pixel_values.shape, pixel_values.device, pixel_values.dtype)]


def on_feature_maps(model: nn.Module, inputs: dict[str, Tensor]) -> nn.Module:
    if MAJOR < 5:
        model.model.backbone = MapsAndPositions(inputs["pos"])
    else:
        model.model.backbone, model.model.position_embedding = FeatureMaps(), StoredPositions(inputs["pos"])
    return model


class PooledInside(nn.Module):
    """The reference's VisualBERT: an encoder on given embeddings, read at the token before the last of the text."""

    def __init__(self, model: nn.Module, inputs: dict[str, Tensor]):
        super().__init__()
        self.encoder, width = model.encoder, model.config.hidden_size
        transform = {"dense": nn.Linear(width, width), "LayerNorm": nn.LayerNorm(width, eps=1e-12)}
        self.head = nn.ModuleDict({"transform": nn.ModuleDict(transform), "linear": nn.Linear(width, 5)})

    def forward(self, inputs_embeds: Tensor, attention_mask: Tensor, input_mask: Tensor) -> Tensor:
        hidden = (1 - attention_mask)[:, None, None, :].to(inputs_embeds) * -10_000
        state = self.encoder(inputs_embeds, attention_mask=hidden).last_hidden_state
        pooled = state[torch.arange(len(state)), input_mask.sum(dim=1) - 2]
        transform = self.head["transform"]
        return self.head["linear"](transform["LayerNorm"](nn.functional.gelu(transform["dense"](pooled))))


HEADS = {"vit_mean_pool": MeanPooled, "vit_dino": Interleaved}
CHANGES = {"detr": on_feature_maps, "visualbert": PooledInside}
READOUTS = {"vit_mean_pool": "mean", "vit_dino": "first+mean"}


@dataclass(frozen=True)
class Case:
    """One golden case in one precision."""

    name: str
    model: nn.Module
    inputs: dict[str, Tensor]
    expected: Any
    dtype: torch.dtype

    @property
    def readout(self) -> str | None:
        return READOUTS.get(self.name)

    @property
    def tolerance(self) -> float:
        return 1e-5 if self.dtype == torch.float32 else 1e-9


@cache
def case(name: str, dtype: torch.dtype) -> Case:
    folder = GOLDEN / name
    config = json.loads((folder / "config.json").read_text())
    model_class = getattr(transformers, config["model_class"])
    if "backbone" in config:
        backbone = getattr(transformers, config["backbone"]["config_class"])(**config["backbone"]["config"])
        config["config"]["backbone_config"] = backbone
    model_config = getattr(transformers, config["config_class"])(**settings_of(config["config"]))
    model = model_class._from_config(model_config, **config.get("model_kwargs", {}))
    with np.load(folder / "inputs.npz") as stored:
        inputs = {key: torch.from_numpy(stored[key]) for key in stored if stored[key].dtype.kind in "if"}
    if name in CHANGES:
        model = CHANGES[name](model, inputs)
    weights = {weight_name(key): value for key, value in load_file(folder / "weights.safetensors").items()}
    own = model.state_dict().keys()
    model.load_state_dict({key: value for key, value in weights.items() if key in own}, strict=True)
    if name in HEADS:
        model = HEADS[name](model, {key: value for key, value in weights.items() if key not in own})
    file = "expected.npz" if dtype == torch.float32 else "expected_f64.npz"
    expected = dict(np.load(folder / file))
    inputs = {key: value.to(dtype) if value.is_floating_point() else value for key, value in inputs.items()}
    return Case(name, model.to(dtype).eval(), inputs, expected, dtype)


def assert_near(
    got: Tensor | np.ndarray, expected: np.ndarray, tolerance: float, absolute: float = 1e-9, slack: float = 0.0
) -> None:
    """max|a-b| <= tolerance * max|b| + slack; an array that is all zero must be matched absolutely."""
    got = got.detach().numpy() if isinstance(got, Tensor) else got
    assert got.shape == expected.shape
    largest = np.abs(expected).max()
    error = np.abs(got.astype(np.float64) - expected).max()
    assert error <= tolerance * largest + (absolute if largest == 0 else slack), f"off by {error:.2e} of {largest:.2e}"

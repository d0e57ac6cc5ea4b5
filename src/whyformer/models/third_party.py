"""Models of timm by name: `timm:vit_base_patch16_224`, with random weights `timm:vit_base_patch16_224?random`."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import transformers
from torch import Tensor, nn

from whyformer.errors import WhyformerError, nearest
from whyformer.extras import extra

TIMM, RANDOM = "timm:", "?random"
RESAMPLE = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3}


@dataclass(frozen=True)
class OwnConfig:
    """What the package asks of a configuration: whose model it is, and what its labels are called."""

    model_type: str
    id2label: dict[int, str] = field(default_factory=dict)


class TimmClassifier(nn.Module):
    """A model of timm that takes its pixels by name."""

    def __init__(self, model: nn.Module, labels: dict[int, str]):
        super().__init__()
        self.model, self.config = model, OwnConfig("timm", labels)

    def forward(self, pixel_values: Tensor) -> Tensor:
        logits: Tensor = self.model(pixel_values)
        return logits


def load_timm(name: str) -> tuple[nn.Module, Any]:
    """The classifier of that name in timm's list, and what makes pictures into its pixels."""
    timm = extra("timm", "timm")
    architecture = name.removeprefix(TIMM).removesuffix(RANDOM)
    if not timm.is_model(architecture):
        raise WhyformerError(f"timm has no model {architecture!r}. {nearest(architecture, timm.list_models())}")
    try:
        model = timm.create_model(architecture, pretrained=not name.endswith(RANDOM))
    except Exception as error:  # what a dead line or a missing checkpoint raises is timm's and the hub's own
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise WhyformerError(
            f"timm cannot load {architecture!r} ({reason}): {TIMM}{architecture}{RANDOM} has random weights."
        ) from error
    return TimmClassifier(model, _labels(timm, model)).eval(), _processor(timm.data.resolve_model_data_config(model))


def _labels(timm: Any, model: Any) -> dict[int, str]:
    """The names of the labels: the checkpoint's own, or those of the ImageNet it was trained on."""
    own = (getattr(model, "pretrained_cfg", None) or {}).get("label_names")
    if own:
        return dict(enumerate(map(str, own)))
    subset = timm.data.infer_imagenet_subset(model)
    if subset is None:
        return {}
    names = timm.data.ImageNetInfo(subset)
    return {index: names.index_to_description(index).split(",")[0] for index in range(names.num_classes())}


def _processor(settings: dict[str, Any]) -> Any:
    """timm's own steps before an evaluation: the shortest side, the middle, the colours."""
    _, height, width = settings["input_size"]
    share = settings.get("crop_pct") or 1.0
    edge = math.floor(min(height, width) / share)
    resize = {"shortest_edge": edge}
    if settings.get("crop_mode") == "squash" or height != width:
        resize = {"height": math.floor(height / share), "width": math.floor(width / share)}
    return transformers.CLIPImageProcessorPil(
        size=resize,
        crop_size={"height": height, "width": width},
        image_mean=list(settings["mean"]),
        image_std=list(settings["std"]),
        resample=RESAMPLE.get(settings.get("interpolation", "bicubic"), RESAMPLE["bicubic"]),
    )

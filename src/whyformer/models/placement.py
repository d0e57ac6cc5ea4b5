"""Validate the device, device map and dtype of a model to load."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch

from whyformer.errors import WhyformerError

Dtype = torch.dtype | Literal["auto", "float32", "bfloat16", "float16", "float64"]
DeviceMap = str | Mapping[str, int | str | torch.device]

DTYPE_NAMES = ("float32", "bfloat16", "float16", "float64")
SPREADS = ("auto", "balanced", "balanced_low_0", "sequential")  # accelerate's strategies


@dataclass(frozen=True)
class Placement:
    """A device or a device map, and a dtype, or "auto" for the checkpoint's own."""

    device: torch.device | None
    device_map: DeviceMap | None
    dtype: torch.dtype | Literal["auto"]

    @property
    def arguments(self) -> dict[str, Any]:
        """Keyword arguments for from_pretrained."""
        return {"dtype": self.dtype} | ({} if self.device_map is None else {"device_map": self.device_map})


def placement_of(
    device: str | torch.device | None, dtype: Dtype | None, device_map: DeviceMap | None = None
) -> Placement:
    """Validate a placement; the default dtype is float32 on a CPU, and the checkpoint's own elsewhere."""
    has_gpu = torch.cuda.is_available()
    if device_map is not None:
        if device is not None:
            raise WhyformerError(f"device={str(device)!r} and device_map={device_map!r}: give one of them.")
        _check_device_map(device_map)
        is_on_cpu = not has_gpu and "cuda" not in str(device_map)
        return Placement(None, device_map, _check_dtype(dtype, is_on_cpu=is_on_cpu))
    place = torch.device("cuda" if has_gpu else "cpu") if device is None else check_device(device)
    return Placement(place, None, _check_dtype(dtype, is_on_cpu=place.type == "cpu"))


def check_device(device: str | torch.device, option: str = "device=") -> torch.device:
    """Validate a device; raise if this machine does not have it."""
    try:
        place = torch.device(device)
        if torch.empty(0, device=place).is_meta:
            raise RuntimeError("it holds no values")
    except (RuntimeError, AssertionError, NotImplementedError, TypeError) as error:
        counts = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}
        known = [kind if count == 1 else f"{kind}:0 to {kind}:{count - 1}" for kind, count in counts.items() if count]
        name = device if isinstance(device, str) else str(device)
        raise WhyformerError(f"{option}{name!r}: this machine has {', '.join(known)}.") from error
    return place


def _check_dtype(dtype: Any, *, is_on_cpu: bool) -> torch.dtype | Literal["auto"]:
    if dtype is None:
        return torch.float32 if is_on_cpu else "auto"
    if dtype == "auto":
        return "auto"
    value = getattr(torch, dtype, None) if isinstance(dtype, str) and dtype in DTYPE_NAMES else dtype
    if not isinstance(value, torch.dtype) or not value.is_floating_point:
        raise WhyformerError(
            f"dtype={dtype!r:.60}. Choose from: auto, {', '.join(DTYPE_NAMES)}, or a torch dtype of these."
        )
    return value


def _check_device_map(device_map: Any) -> None:
    if importlib.util.find_spec("accelerate") is None:
        raise WhyformerError(f"device_map={device_map!r} needs accelerate: pip install accelerate.")
    if isinstance(device_map, str):
        if device_map not in SPREADS:
            check_device(device_map, "device_map=")
    elif not isinstance(device_map, Mapping) or not device_map:
        ways = ", ".join(repr(way) for way in SPREADS)
        raise WhyformerError(f"device_map={device_map!r}: one of {ways}, a device, or a device by module name.")
    else:
        for place in device_map.values():
            if place != "disk":
                check_device(f"cuda:{place}" if isinstance(place, int) else place, "device_map: ")

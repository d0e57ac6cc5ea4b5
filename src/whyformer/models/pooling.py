"""Pool the states of a text into its embedding: as stated in a sentence-transformers folder, or by their mean."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers.utils import cached_file

from whyformer.errors import WhyformerError
from whyformer.files import parse_json

POOLING_FILE, MODULES_FILE = "1_Pooling/config.json", "modules.json"
# Modules that sentence-transformers may add; a cosine does not depend on the norm.
_WITHOUT_WEIGHTS = ("Transformer", "Pooling", "Normalize")
_NAMES = {
    "cls_token": "cls",
    "mean_tokens": "mean",
    "max_tokens": "max",
    "mean_sqrt_len_tokens": "mean_sqrt_len",
    "weightedmean_tokens": "weightedmean",
    "lasttoken": "lasttoken",
}


@dataclass(frozen=True)
class Pooling:
    """A pooling of sentence-transformers by its name there, and whether the model's files state it."""

    kind: str
    is_stated: bool
    source: str = POOLING_FILE  # that says so

    @property
    def description(self) -> str:
        origin = f"as stated in its {self.source}" if self.is_stated else f"by default, without a {POOLING_FILE}"
        return f"Embeddings are pooled by {self.kind}, {origin}."

    def embedding(self, states: Tensor, mask: Tensor) -> Tensor:
        """Pool the states [token, feature] of a text, special tokens included, into its embedding [feature]."""
        real = states[mask.to(states.device).bool()]
        match self.kind:
            case "cls":
                return real[0]
            case "lasttoken":
                return real[-1]
            case "max":
                return real.amax(dim=0)
            case "mean_sqrt_len":
                return torch.div(real.sum(dim=0), len(real) ** 0.5)
            case "weightedmean":
                weights = torch.arange(1, len(real) + 1, dtype=real.dtype, device=real.device)[:, None]
                weighted: Tensor = (weights * real).sum(dim=0) / weights.sum()
                return weighted
            case _:
                return real.mean(dim=0)


def pooling_of(model: nn.Module) -> Pooling:
    """The pooling stated in the files next to a model's weights, or the mean."""
    place = str(getattr(model, "name_or_path", "") or "")
    check_modules(_modules(place), Path(place).name, MODULES_FILE)
    stated = _read(place, POOLING_FILE, dict)
    if not stated:
        return Pooling("mean", is_stated=False)
    return stated_pooling(stated, Path(place).name, POOLING_FILE)


def pools_states(place: str) -> bool:
    """Whether sentence-transformers saved a model there whose states are pooled: a model without a head."""
    return "Pooling" in _modules(place)


def _modules(place: str) -> list[str]:
    """The kinds of layers of a folder of sentence-transformers, in order."""
    modules = _read(place, MODULES_FILE, list)
    kinds = (module.get("type", "") if isinstance(module, dict) else module for module in modules)
    return [str(kind).split(".")[-1] for kind in kinds]


def check_modules(kinds: Iterable[str], name: str, source: str) -> None:
    """Check that no layer changes the pooled embedding."""
    for kind in kinds:
        if kind not in _WITHOUT_WEIGHTS:
            raise WhyformerError(
                f"{name} has a {kind} layer after its states ({source}), which is not applied here: compute the "
                "similarity yourself and pass it as a custom target."
            )


def stated_pooling(settings: Mapping[str, Any], name: str, source: str) -> Pooling:
    """The pooling that these settings of sentence-transformers name."""
    kinds = [kind for mode, kind in _NAMES.items() if settings.get(f"pooling_mode_{mode}")]
    kinds = kinds or [str(settings.get("pooling_mode"))]
    if len(kinds) != 1 or kinds[0] not in _NAMES.values():
        raise WhyformerError(
            f"{name} pools by {' and '.join(kinds)} ({source}), which is not supported. Known: "
            f"{', '.join(_NAMES.values())}."
        )
    return Pooling(kinds[0], is_stated=True, source=source)


def _read(place: str, file: str, kind: type) -> Any:
    """Read a JSON file next to the model's weights, in its folder or in the cache; empty if missing."""
    try:
        path = cached_file(place, file, local_files_only=Path(place).is_dir())
    except (OSError, ValueError):
        return kind()
    if path is None:
        return kind()
    try:
        content = parse_json(Path(path).read_bytes())
    except ValueError as error:
        raise WhyformerError(f"{file} of {Path(place).name} is not JSON: fix it ({error}).") from error
    if not isinstance(content, kind):
        raise WhyformerError(f"{file} of {Path(place).name} is {content!r:.40}: fix it.")
    return content

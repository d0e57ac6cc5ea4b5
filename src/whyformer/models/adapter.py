"""LoRA adapters as saved by PEFT: find the base model, and validate the configuration."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import regex
from safetensors.torch import load_file
from torch import nn

from whyformer.errors import WhyformerError
from whyformer.extras import extra
from whyformer.models.checkpoint import check_place, read_settings
from whyformer.models.zoo import bundled

ADAPTER_CONFIG, ADAPTER_WEIGHTS, BASE = "adapter_config.json", "adapter_model.safetensors", "?base="
LARGEST_RANK = 4096
REGEX_SECONDS = 1.0
# Settings that determine the position and the computation of an adapter; others must have PEFT's defaults.
USED = (
    "r lora_alpha lora_dropout target_modules exclude_modules bias use_rslora use_dora fan_in_fan_out modules_to_save "
    "layers_to_transform layers_pattern rank_pattern alpha_pattern lora_bias"
).split()
# Settings about its origin or its training only.
IGNORED = (
    "peft_type peft_version task_type auto_mapping base_model_name_or_path revision inference_mode runtime_config"
).split()
# Others change the base model's weights, too.
PLAIN_INITIALISATIONS = (True, False, None, "gaussian", "orthogonal", "eva")


@dataclass(frozen=True)
class Adapter:
    """The folder of an adapter, and the name of its base model."""

    folder: Path
    base: str


def adapter_of(place: str) -> Adapter | None:
    """The adapter of this name, a folder, optionally with `?base=` and its base model; None for anything else."""
    name, _, base = place.partition(BASE)
    folder = Path(os.path.expanduser(name))
    if not os.path.isfile(folder / ADAPTER_CONFIG) or os.path.isfile(folder / "config.json"):
        if base:
            raise WhyformerError(
                f"{name!r:.80} has no {ADAPTER_CONFIG}: {BASE}… names the base model of an adapter's folder."
            )
        return None
    return Adapter(folder, base or _stated_base(folder, name))


def _stated_base(folder: Path, name: str) -> str:
    """The base model named by the adapter, if it is on this machine: a file must not cause a download."""
    stated = str(read_settings(folder / ADAPTER_CONFIG, name).get("base_model_name_or_path") or "")
    if stated in bundled() or os.path.exists(os.path.expanduser(stated)):
        return stated
    raise WhyformerError(
        f"{name!r} is an adapter of {stated!r:.80}, which is not a local folder: load '{name}{BASE}FOLDER'."
    )


def adapter_files(adapter: Adapter) -> tuple[list[Path], list[Path]]:
    """The adapter's own files: weights, and settings."""
    return [adapter.folder / ADAPTER_WEIGHTS], [adapter.folder / ADAPTER_CONFIG]


def load_adapter(adapter: Adapter, base: nn.Module) -> tuple[nn.Module, str]:
    """Load the base model with the adapter, unmerged; also return a note that says so."""
    peft, name = extra("peft", "dev"), str(adapter.folder)
    if not (adapter.folder / ADAPTER_WEIGHTS).is_file():
        raise WhyformerError(
            f"{name!r} has no {ADAPTER_WEIGHTS}, the only weights of an adapter that are read: save it again."
        )
    for file in (ADAPTER_CONFIG, ADAPTER_WEIGHTS):
        check_place(adapter.folder, adapter.folder / file, name)
    settings = _checked(read_settings(adapter.folder / ADAPTER_CONFIG, name), peft, name)
    config = peft.LoraConfig(**settings | {"target_modules": _targets(settings.get("target_modules"), base, name)})
    model = peft.PeftModel(base, config)
    report = peft.set_peft_model_state_dict(model, load_file(adapter.folder / ADAPTER_WEIGHTS))
    missing = [key for key in report.missing_keys if "lora_" in key]
    if report.unexpected_keys or missing:
        key = min([*report.unexpected_keys, *missing])
        problem = "does not exist in its base model" if report.unexpected_keys else "is missing"
        raise WhyformerError(f"{key} of {name!r} {problem}: it was trained on another model than {adapter.base!r}.")
    note = f"The adapter {adapter.folder.resolve().name} (LoRA, r = {config.r}) is on {adapter.base}, unmerged."
    return model.get_base_model().eval(), note


def _checked(settings: Mapping[str, Any], peft: Any, name: str) -> dict[str, Any]:
    """Validate the settings; raise if they name other files, code or another kind of adapter."""
    if settings.get("peft_type") != "LORA":
        raise WhyformerError(
            f"{name!r} is an adapter of the kind {settings.get('peft_type')!r:.40}, and only LORA is read: merge it."
        )
    defaults = peft.LoraConfig().to_dict()
    for key, value in settings.items():
        is_known = key in USED or key in IGNORED or value in (None, {}, False, [])
        is_known = value in PLAIN_INITIALISATIONS if key == "init_lora_weights" else is_known
        if not is_known and (key not in defaults or defaults[key] != value):
            raise WhyformerError(
                f"{name!r} asks for {key} {value!r:.60} in its {ADAPTER_CONFIG}, which is not read: merge it."
            )
    used = {key: settings[key] for key in USED if settings.get(key) is not None}
    ranks = [used.get("r", 8), *dict(used.get("rank_pattern", {})).values()]
    if not all(type(rank) is int and 0 < rank <= LARGEST_RANK for rank in ranks):
        raise WhyformerError(
            f"{name!r} has ranks {ranks!r:.60} in its {ADAPTER_CONFIG}: whole numbers up to {LARGEST_RANK}."
        )
    patterns = [*used.get("rank_pattern", {}), *used.get("alpha_pattern", {}), *_listed(used, "layers_pattern")]
    names = [*patterns, *_listed(used, "exclude_modules"), *_listed(used, "modules_to_save")]
    odd = next((one for one in names if not isinstance(one, str) or not regex.fullmatch(r"[\w.]+", one)), None)
    if odd is not None:
        raise WhyformerError(f"{name!r} names modules by {odd!r:.60} in its {ADAPTER_CONFIG}: give their plain names.")
    return used


def _listed(settings: Mapping[str, Any], key: str) -> list[Any]:
    value = settings.get(key) or []
    return value if isinstance(value, list) else [value]


def _targets(targets: Any, base: nn.Module, name: str) -> Any:
    """The names of the modules with an adapter; a regular expression is matched here, in bounded time."""
    if isinstance(targets, list) or targets in (None, "all-linear"):
        return targets
    try:
        paths = [path for path, _ in base.named_modules() if regex.fullmatch(targets, path, timeout=REGEX_SECONDS)]
    except (regex.error, TimeoutError, TypeError) as error:
        raise WhyformerError(f"{name!r} has target_modules {targets!r:.60}: give their names ({error}).") from error
    return paths

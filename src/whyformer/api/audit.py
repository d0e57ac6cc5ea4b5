"""Audit files: the model, the input, the target, the computation and the result of an explanation."""

from __future__ import annotations

import json
import platform
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from typing import Any

import torch
from torch import Tensor, nn

from whyformer.api.doctor import checkup
from whyformer.api.tolerances import tolerance
from whyformer.errors import WhyformerError, reason_of
from whyformer.inputs.identity import identity_of
from whyformer.methods.registry import method_named
from whyformer.models.digests import file_stamps, revision_of, setting_digests, weight_digests
from whyformer.models.loading import LoadedModel
from whyformer.models.structure import config_of, device_of, dtype_of
from whyformer.results.explanation import Explanation
from whyformer.results.storage import AUDIT_FORMAT
from whyformer.targets.target_documents import target_document

AUDIT_VERSION = 1
RUN = ("suite", "data", "samples")  # fields of a run of controls
PACKAGES = ("whyformer", "torch", "transformers", "tokenizers", "safetensors", "numpy", "pillow")


@dataclass(frozen=True)
class Origin:
    """The arguments of an `explain` call. Call it with the resulting explanation to get the audit file's content.

    The model is held weakly: explanations that are kept must not keep it in memory.
    """

    module: weakref.ref[nn.Module]
    processor: Any
    name: str
    place: str | None
    stamps: Mapping[str, tuple[int, ...]]
    notes: tuple[str, ...]
    example: Any
    target: Any
    readout: str | int | Tensor | None
    truncate: bool
    seed: int

    def __call__(self, explanation: Explanation) -> dict[str, Any]:
        module = self.module()
        if module is None:
            raise WhyformerError(f"{self.name} is no longer in memory: keep the model until the audit file is saved.")
        model = LoadedModel(module, self.processor, self.name, self.place, self.stamps, self.notes)
        header = audit_header(model)
        return {
            **header,
            "input": identity_of(self.example),
            "question": {
                "target": target_document(self.target),
                "readout": self.readout.tolist() if isinstance(self.readout, Tensor) else self.readout,
                "truncate": self.truncate,
            },
            "computation": {**computation(module), "seed": self.seed},
            "tolerance": tolerance(explanation.method, dtype_name(module)),
            "doctor": doctor_findings(model, explanation.method),
            "controls": _controls(header["model"]["weights"], explanation),
            "explanation": _plain(explanation),
        }

    def __reduce__(self) -> tuple[type, tuple[()]]:
        """Drop the model from a copy or pickle, which cannot be audited."""
        return type(None), ()


def audit_header(model: LoadedModel) -> dict[str, Any]:
    """The fields that every audit file begins with: its format, and the model."""
    weights, settings = digests_of(model)
    return {
        "format": AUDIT_FORMAT,
        "version": AUDIT_VERSION,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "model": {
            "name": model.name,
            "place": model.place or getattr(config_of(model.model), "_name_or_path", "") or None,
            "revision": revision_of(model.model),
            "architecture": type(model.model).__name__,
            "weights": weights,
            "files": settings,
        },
    }


def origin_of(loaded_model: LoadedModel, example: Any, target: Any, readout: Any, truncate: bool) -> Origin:
    """Record the arguments of an explanation now."""
    module = weakref.ref(loaded_model.model)
    about = loaded_model.processor, loaded_model.name, loaded_model.place, loaded_model.stamps, loaded_model.notes
    return Origin(module, *about, example, target, readout, truncate, torch.initial_seed())


def computation(module: nn.Module) -> dict[str, Any]:
    """Device, dtype and library versions of the computation."""
    return {
        "device": str(device_of(module)),
        "dtype": dtype_name(module),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "versions": {name: _version(name) for name in PACKAGES} | {"torch": str(torch.__version__)},  # with its build
    }


def dtype_name(module: nn.Module) -> str:
    """Name of the model's dtype, without `torch.`."""
    return str(dtype_of(module)).removeprefix("torch.")


def digests_of(model: LoadedModel) -> tuple[dict[str, str], dict[str, str]]:
    """SHA-256 of the weights and of the other files that a model was loaded from, by name."""
    now = {} if model.place is None else file_stamps(model.place, revision_of(model.model))
    changed = [name for name, stamp in model.stamps.items() if now.get(name) != stamp]
    if changed:
        raise WhyformerError(f"{changed[0]} of {model.place!r} changed since it was loaded: load it again.")
    weights = weight_digests(model.model, model.place)
    return weights, setting_digests(model.model, model.place, model.tokenizer)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def doctor_findings(model: LoadedModel, method: str) -> dict[str, Any]:
    """Findings of the doctor on the model and on this method."""
    try:
        result = checkup(model, names=[method])
    except WhyformerError as error:
        return {"is_healthy": False, "problems": [reason_of(error)], "notes": [], "method": None}
    return {
        "is_healthy": result.is_healthy,
        "problems": list(result.problems),
        "notes": list(result.notes),
        "logit_difference": result.logit_difference,
        "largest_logit": result.largest_logit,
        "method": result.verdicts[method],
    }


def _controls(weights: Mapping[str, str], explanation: Explanation) -> dict[str, Any] | None:
    """Published control figures of this method on these weights; None if never measured."""
    run = _runs().get(" ".join(weights.values()))
    figures = None if run is None else run["methods"].get(_title(explanation))
    return None if run is None or figures is None else {name: run[name] for name in RUN} | {"figures": figures}


def _title(explanation: Explanation) -> str:
    """The method with options that differ from its defaults, as in tables of results."""
    own = {name: option.default for name, option in method_named(explanation.method).options.items()}
    other = {name: value for name, value in explanation.options.items() if name not in own or own[name] != value}
    return " ".join([explanation.method, *(f"{name}={value}" for name, value in other.items())])


@cache
def _runs() -> dict[str, Any]:
    """The bundled controls, by the SHA-256 of the weights; written by docs/tables.py."""
    runs: dict[str, Any] = json.loads((files("whyformer") / "api" / "controls.json").read_text(encoding="utf-8"))
    return runs


def _plain(explanation: Explanation) -> dict[str, Any]:
    try:
        json.dumps(dict(explanation.options), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise WhyformerError(f"An audit file can only store options with plain values: {error}.") from error
    return audited(explanation)


def audited(explanation: Explanation) -> dict[str, Any]:
    """The fields of an explanation that an audit file keeps: other answers were not explained."""
    return {name: value for name, value in explanation.to_dict().items() if name != "answers"}

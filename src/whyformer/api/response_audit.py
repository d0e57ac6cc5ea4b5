"""Audit files of responses: prompt, model, method, scores and verdicts."""

from __future__ import annotations

import hashlib
import json
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from whyformer.api.audit import audit_header, computation, doctor_findings, dtype_name
from whyformer.api.response_case import ResponseCase
from whyformer.api.tolerances import tolerance
from whyformer.errors import WhyformerError
from whyformer.inputs.identity import identity_of
from whyformer.inputs.read import text_of
from whyformer.models.loading import LoadedModel
from whyformer.results.response import Response


@dataclass(frozen=True)
class ResponseOrigin:
    """The arguments of an `explain_response` call. Call it with the response to get the audit file's content.

    The model is held weakly: responses must not keep it in memory.
    """

    module: weakref.ref[nn.Module]
    processor: Any
    name: str
    place: str | None
    stamps: Mapping[str, tuple[int, ...]]
    notes: tuple[str, ...]
    exchange: Mapping[str, Any]  # prompt, response, context, contrast
    call: Mapping[str, Any]  # every other argument, in plain values
    seed: int

    def __call__(self, response: Response) -> dict[str, Any]:
        module = self.module()
        if module is None:
            raise WhyformerError(f"{self.name} is no longer in memory: keep the model until the audit file is saved.")
        model = LoadedModel(module, self.processor, self.name, self.place, self.stamps, self.notes)
        try:
            json.dumps(dict(self.call), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise WhyformerError(f"An audit file can only store options with plain values: {error}.") from error
        return {
            **audit_header(model),
            "input": exchange_identity(self.exchange),
            "question": dict(self.call) | {"support": response.verdicts is not None},
            "computation": {**computation(module), "seed": self.seed},
            "tolerance": tolerance(response.method, dtype_name(module)),
            "doctor": doctor_findings(model, response.method) if response.token_scores is not None else None,
            "response": response.to_dict(),
        }

    def __reduce__(self) -> tuple[type, tuple[()]]:
        """Drop the model from a copy or pickle, which cannot be audited."""
        return type(None), ()


def response_origin(
    loaded_model: LoadedModel, case: ResponseCase, question: Mapping[str, Any], call: Mapping[str, Any]
) -> ResponseOrigin:
    """Record the arguments of a response now, one that the model wrote by its tokens."""
    prompt, given = question["prompt"], question["response"]
    exchange = {
        "prompt": str(text_of(prompt)) if isinstance(prompt, Path) and case.reply.prompt.text else prompt,
        "response": given if isinstance(given, str) else [token.id for token in case.reply.tokens],
        "context": question["context"],
        "contrast": question["contrast"],
    }
    focus = question["focus"] if isinstance(question["focus"], str) else [float(one) for one in question["focus"]]
    about = loaded_model.processor, loaded_model.name, loaded_model.place, loaded_model.stamps, loaded_model.notes
    module = weakref.ref(loaded_model.model)
    return ResponseOrigin(module, *about, exchange, dict(call) | {"focus": focus}, torch.initial_seed())


def exchange_identity(value: Any) -> dict[str, Any]:
    """The identity of a prompt or response, whose strings are texts even if they name files."""
    match value:
        case str():
            return {"kind": "text", "text": value, "sha256": hashlib.sha256(value.encode()).hexdigest()}
        case Mapping():
            return {"kind": "object", "items": {str(name): exchange_identity(one) for name, one in value.items()}}
        case tuple() | list():
            return {"kind": type(value).__name__, "items": [exchange_identity(one) for one in value]}
    return identity_of(value)

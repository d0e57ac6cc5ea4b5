"""Audit files of actions: the conversation, the model and its template, the call, and the figures; verified again."""

from __future__ import annotations

import copy
import json
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from whyformer.api.audit import audit_header, computation, doctor_findings, dtype_name
from whyformer.api.record_comparison import AUDIT_FIELDS, Check, compare_section
from whyformer.api.response_audit import exchange_identity
from whyformer.api.response_checks import VERDICT_SLACK, field_differences, score_check
from whyformer.api.tolerances import rounding, tolerance
from whyformer.errors import WhyformerError
from whyformer.inputs.conversation import Conversation, call_of, message_document, reply_message
from whyformer.models.loading import LoadedModel
from whyformer.results.action import Action
from whyformer.results.schema import read_field, read_integer, read_mapping

NOT_COMPARED = ("notes", "token_scores")  # the notes of another version may differ; scores have a check of their own
CALLS = ("call", "contrast")  # settings that are part of the input
KNOWN_FIELDS = (*(name for name in AUDIT_FIELDS if name not in ("explanation", "controls")), "action")


@dataclass(frozen=True)
class ActionOrigin:
    """The arguments of an `explain_action` call. Call it with the action to get the audit file's content.

    The model is held weakly: actions must not keep it in memory.
    """

    module: weakref.ref[nn.Module]
    model: LoadedModel  # without its module
    given: Mapping[str, Any]  # messages, tools, call, contrast
    settings: Mapping[str, Any]
    template: Any
    seed: int

    def __call__(self, action: Action) -> dict[str, Any]:
        module = self.module()
        if module is None:
            raise WhyformerError(
                f"{self.model.name} is no longer in memory: keep the model until the audit file is saved."
            )
        model = replace(self.model, model=module)
        return {
            **audit_header(model),
            "input": exchange_identity(self.given),
            "question": {**self.settings, "chat_template": self.template},
            "computation": {**computation(module), "seed": self.seed},
            "tolerance": tolerance(action.method, dtype_name(module)) if action.method else None,
            "doctor": doctor_findings(model, action.method) if action.method else None,
            "action": action.to_dict(),
        }

    def __reduce__(self) -> tuple[type, tuple[()]]:
        """Drop the model from a copy or pickle, which cannot be audited."""
        return type(None), ()


def action_origin(loaded_model: LoadedModel, conversation: Conversation, settings: Mapping[str, Any]) -> ActionOrigin:
    """Record the arguments of an explanation now."""
    given = {
        "messages": [message_document(one) for one in conversation.messages],
        "tools": [dict(one) for one in conversation.tools],
        **{name: _plain_call(settings[name]) for name in CALLS},
    }
    settings = {name: one for name, one in settings.items() if name not in CALLS}
    settings = {**settings, "trust": None if settings["trust"] is None else dict(settings["trust"])}
    template = getattr(loaded_model.tokenizer, "chat_template", None)
    module = weakref.ref(loaded_model.model)
    about = replace(loaded_model, model=None)  # type: ignore[arg-type]
    return ActionOrigin(module, about, given, settings, template, torch.initial_seed())


def _plain_call(call: Any) -> Any:
    """A call as plain data, or its number."""
    if call is None or isinstance(call, int):
        return call
    if isinstance(call, Mapping) and "role" in call:
        return message_document(reply_message(call))
    own = call_of(call)
    return {"name": own.name, "arguments": dict(own.arguments), "id": own.id}


def action_checks(
    document: Mapping[str, Any], given: Any, model: LoadedModel, allowed: float | None, *, is_moved: bool
) -> tuple[list[Check], list[str]]:
    """Explain the action again and compare; also list what was not compared."""
    from whyformer.api.explain_action import explain_action

    settings, kept = (dict(read_field(document, name, read_mapping)) for name in ("question", "action"))
    model = _with_template(model, settings.pop("chat_template"))
    seed = read_field(read_field(document, "computation", read_mapping), "seed", read_integer)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        now = explain_action(**dict(read_mapping(given)), **settings, model=model)
    here: dict[str, Any] = json.loads(json.dumps(now.to_dict()))
    dtype = dtype_name(model.model)
    own = (tolerance(now.method, dtype) if now.method else rounding(dtype)) if allowed is None else allowed
    slack = (rounding(dtype) if allowed is None else allowed) * VERDICT_SLACK
    left_out = {*NOT_COMPARED, *(("model",) if is_moved else ())}
    fields = [{name: value for name, value in one.items() if name not in left_out} for one in (kept, here)]
    differences = list(field_differences(fields[0], fields[1], slack))
    checks = [
        score_check(kept, here, own, ("token_scores",)),
        Check("action", not differences, differences[0] if differences else str(here["verdict"])),
        _model_check(document, model, is_moved=is_moved),
        compare_section("tolerance", document.get("tolerance"), tolerance(now.method, dtype) if now.method else None),
    ]
    skipped = [name for name in document if name not in KNOWN_FIELDS] + ["doctor", "action.notes"]
    return checks, skipped + (["model.name", "model.place", "action.model"] if is_moved else [])


def _model_check(document: Mapping[str, Any], model: LoadedModel, *, is_moved: bool) -> Check:
    names = ["architecture"] if is_moved else ["architecture", "name", "place"]
    stated = {"architecture": type(model.model).__name__, "name": model.name, "place": model.place}
    about = read_field(document, "model", read_mapping)
    kept, own = ({name: one.get(name) for name in names} for one in (about, stated))
    return compare_section("model", kept, own)


def _with_template(model: LoadedModel, template: Any) -> LoadedModel:
    """The model with the chat template of the file, on a copy of its tokenizer."""
    if template == getattr(model.tokenizer, "chat_template", None):
        return model
    copied = replace(model, processor=copy.deepcopy(model.processor))
    copied.tokenizer.chat_template = template
    return copied

"""Descriptions of pictures that a model keeps apart from its words, token by token."""

from __future__ import annotations

from typing import Any

from whyformer.api.explain import explain_encoded
from whyformer.api.generation import transcribe
from whyformer.inputs.chunks import decode_tokens
from whyformer.inputs.collate import model_inputs
from whyformer.inputs.encode import EncodedExample
from whyformer.modalities.written import written_of
from whyformer.models.loading import LoadedModel
from whyformer.results.continuation import Continuation


def description(
    loaded_model: LoadedModel, encoded: EncodedExample, tokens: int, method: str | None, **settings: Any
) -> Continuation:
    """Describe a picture, continuing the text so far."""
    assert encoded.written is not None
    token_ids = encoded.written.encoding["input_ids"]
    start = len(token_ids) - encoded.written.layout.size
    beginning, before = token_ids[:start], token_ids[start:]
    ids = transcribe(loaded_model, model_inputs(loaded_model, [encoded]), tokens)
    each = [
        EncodedExample(
            number, {**encoded.parts, "written": written_of([*before, *ids[:number]], loaded_model, beginning)}
        )
        for number in range(len(ids))
    ]
    explanations = explain_encoded(loaded_model, each, ids, method, **settings)
    return Continuation(decode_tokens(ids, loaded_model.tokenizer, before[-1:])[0], tuple(explanations))

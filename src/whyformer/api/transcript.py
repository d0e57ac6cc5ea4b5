"""What a model writes about a sound, token by token, and when in the sound each token lies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import torch

from whyformer.api.explain import explain_encoded
from whyformer.api.generation import end_ids
from whyformer.errors import WhyformerError
from whyformer.inputs.chunks import spell
from whyformer.inputs.collate import model_inputs
from whyformer.inputs.encode import EncodedExample, written_of
from whyformer.models.loading import LoadedModel
from whyformer.results.continuation import Continuation


def transcript(
    loaded_model: LoadedModel, encoded: EncodedExample, tokens: int, method: str | None, **settings: Any
) -> Continuation:
    """The continuation of what was written so far about a sound."""
    assert encoded.written is not None
    given = encoded.written.encoding["input_ids"]
    start = len(given) - encoded.written.layout.size
    beginning, before = given[:start], given[start:]
    ids = _likeliest(loaded_model, encoded, tokens)
    each = [
        replace(encoded, example=number, written=written_of([*before, *ids[:number]], loaded_model, beginning))
        for number in range(len(ids))
    ]
    explanations = explain_encoded(loaded_model, each, ids, method, **settings)
    return Continuation(spell(ids, loaded_model.tokenizer, before[-1:])[0], tuple(explanations))


@torch.no_grad()
def _likeliest(loaded_model: LoadedModel, encoded: EncodedExample, tokens: int) -> list[int]:
    """The likeliest tokens one after the other, without those that the model must not write, up to its end."""
    model = cast(Any, loaded_model.model)
    inputs = model_inputs(loaded_model, [encoded])
    ids = inputs.pop("decoder_input_ids")
    inputs.pop("decoder_attention_mask", None)
    first, ends, written = ids.shape[1], end_ids(loaded_model), list[int]()
    settings = getattr(model, "generation_config", None)
    banned: Sequence[int] = getattr(settings, "suppress_tokens", None) or ()
    never_first: Sequence[int] = getattr(settings, "begin_suppress_tokens", None) or ()
    limit = getattr(model.config, "max_target_positions", None)
    while len(written) < tokens and (limit is None or ids.shape[1] < limit):
        logits = model(**inputs, decoder_input_ids=ids, use_cache=False).logits[0, -1].float()
        logits[[*banned, *(never_first if ids.shape[1] == first else ())]] = -torch.inf
        token = int(logits.argmax())
        if token in ends:
            break
        written.append(token)
        ids = torch.cat([ids, ids.new_tensor([[token]])], dim=1)
    if not written:
        raise WhyformerError(f"{loaded_model.name} writes nothing after this: it ends at once.")
    return written

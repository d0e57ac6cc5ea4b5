"""Generate text: the most likely tokens, or a sample with a seed."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from typing import Any, cast

import torch
from transformers import MaxLengthCriteria, StoppingCriteriaList

from whyformer.axes import Inputs
from whyformer.errors import WhyformerError
from whyformer.models.answering import run_model
from whyformer.models.input_tensors import SOUND_INPUTS
from whyformer.models.loading import LoadedModel, quiet
from whyformer.models.structure import device_of


def generate(loaded_model: LoadedModel, inputs: Inputs, tokens: int, *, seed: int | None = None) -> list[int]:
    """Generate tokens up to the end-of-text token, which is left out.

    Without a seed, greedily; with one, tokens are sampled by the model's own generation settings.
    """
    before = inputs["decoder_input_ids" if loaded_model.task.has_decoder else "input_ids"].shape[1]
    # Stop one token before its maximum, where it would be forced to end (forced_eos_token_id).
    enough = StoppingCriteriaList([MaxLengthCriteria(before + tokens)])
    model = cast(Any, loaded_model.model)
    with torch.no_grad(), quiet(), _seeded(seed, device_of(model)):
        written = model.generate(
            **inputs, max_new_tokens=tokens + 1, stopping_criteria=enough, do_sample=seed is not None, num_beams=1
        )
    ids: list[int] = written[0, before:].tolist()
    ends = end_ids(loaded_model)
    ids = list(takewhile(lambda token: token not in ends, ids))
    if not ids:
        raise WhyformerError(f"{loaded_model.name} ends its text at once after this: there is nothing to explain.")
    return ids


@torch.no_grad()
def transcribe(loaded_model: LoadedModel, inputs: Inputs, tokens: int) -> list[int]:
    """Transcribe a sound or describe a picture greedily, over the tokens the model may write."""
    model = cast(Any, loaded_model.model)
    ids = inputs["decoder_input_ids"]
    inputs = {name: value for name, value in inputs.items() if not name.startswith("decoder_")}
    inputs |= _encoded_once(model, inputs)
    first, ends, written = ids.shape[1], end_ids(loaded_model), list[int]()
    settings = getattr(model, "generation_config", None)
    banned: Sequence[int] = getattr(settings, "suppress_tokens", None) or ()
    never_first: Sequence[int] = getattr(settings, "begin_suppress_tokens", None) or ()
    limit = getattr(model.config, "max_target_positions", None)
    while len(written) < tokens and (limit is None or ids.shape[1] < limit):
        logits = run_model(model, **inputs, decoder_input_ids=ids, use_cache=False).logits[0, -1].float()
        logits[[*banned, *(never_first if ids.shape[1] == first else ())]] = -torch.inf
        token = int(logits.argmax())
        if token in ends:
            break
        written.append(token)
        ids = torch.cat([ids, ids.new_tensor([[token]])], dim=1)
    if not written:
        raise WhyformerError(f"{loaded_model.name} ends its text at once after this: there is nothing to explain.")
    return written


def _encoded_once(model: Any, inputs: Inputs) -> Inputs:
    """The encoder's output of a sound, which does not change while the decoder writes; empty without such an input."""
    main = next((name for name in SOUND_INPUTS if name in inputs), None)
    if main is None or "encoder_outputs" not in inspect.signature(model.forward).parameters:
        return {}
    encoder = model.get_encoder()
    taken = inspect.signature(encoder.forward).parameters
    return {"encoder_outputs": encoder(**{name: value for name, value in inputs.items() if name in taken})}


def end_ids(loaded_model: LoadedModel) -> set[int]:
    """The tokens that end a generated text."""
    settings = getattr(loaded_model.model, "generation_config", None)
    end = getattr(settings, "eos_token_id", None)
    ends = end if isinstance(end, list) else [end]
    return {token for token in (*ends, loaded_model.tokenizer.eos_token_id) if token is not None}


def check_written(tokens: Any) -> None:
    """Validate the number of tokens."""
    if type(tokens) is not int or tokens < 1:
        raise WhyformerError(f"tokens={tokens!r}: a whole number, at least 1.")


@contextmanager
def _seeded(seed: int | None, device: torch.device) -> Iterator[None]:
    """Seed random numbers within the context, and restore their state afterwards."""
    if seed is None:
        yield
        return
    if type(seed) is not int or seed < 0:
        raise WhyformerError(f"seed={seed!r}: a whole number, 0 or more, or None for the most likely tokens.")
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield

"""The language prior of each written token: how likely it is without the pictures."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from whyformer.api.exchange_scores import exchange_statistics
from whyformer.errors import WhyformerError
from whyformer.inputs.encode import EncodedExample
from whyformer.inputs.fills import fill_colour
from whyformer.inputs.image_prompt import ImagePrompt
from whyformer.inputs.teacher_forcing import Exchange
from whyformer.models.loading import LoadedModel

PIXEL_INPUT = "pixel_values"


def check_has_prior(loaded_model: LoadedModel, encoded: EncodedExample) -> None:
    """Check that the model reads pictures and words as one prompt."""
    if "image_text" not in encoded.parts:
        raise WhyformerError(
            f"prior=True compares each written token with that after a blank picture, and {loaded_model.name} is given "
            "none in its prompt: leave it out, or use a model that reads pictures, such as mini-vlm."
        )


def token_priors(loaded_model: LoadedModel, exchange: Exchange) -> tuple[float, ...]:
    """The log-probability of each written token, after the same prompt with blank pictures."""
    assert exchange.image_prompt is not None
    blank = replace(exchange, image_prompt=with_blank_pictures(loaded_model, exchange.image_prompt))
    (statistics,) = exchange_statistics(loaded_model, [blank])
    return tuple(token.log_probability for token in statistics)


def with_blank_pictures(loaded_model: LoadedModel, prompt: ImagePrompt) -> ImagePrompt:
    """The same prompt, all of whose pictures have the mean colour of those that the model was trained on."""
    pixels = prompt.pixels[PIXEL_INPUT]
    return replace(prompt, pixels=dict(prompt.pixels) | {PIXEL_INPUT: _mean_colour(pixels, loaded_model)})


def _mean_colour(pixels: Tensor, loaded_model: LoadedModel) -> Tensor:
    if pixels.dim() < 4:  # patches one after the other, which their processors normalise
        return torch.zeros_like(pixels)
    return torch.zeros_like(pixels) + fill_colour("mean", loaded_model.image_processor).to(pixels)

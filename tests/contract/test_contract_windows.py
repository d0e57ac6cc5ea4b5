"""What every method must hold to on encoders whose tokens do not keep their places."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import Tensor, nn

from pairs import pairs
from tiny_models import OF_ONE_STREAM, built, image_inputs
from tiny_windows import PATCHES, REDUCED, WINDOWED
from whyformer import attribute
from whyformer.methods.registry import trace_methods
from whyformer.methods.states import OF_OTHERS
from whyformer.tracing.attribution import Attribution

OF_PIXELS = {"input_x_gradient", "integrated_gradients", "gradient_shap", "lrp"}
# What is for one stream of tokens, or for attention in no windows, refuses these models.
FOLLOWING = [name for name in trace_methods() if name not in OF_ONE_STREAM | {"grad_eclip"}]
# Relevance divides by sums near zero, and gradients of pixels cancel: float64 tells how they treat batches.
IN_FLOAT64 = {*OF_PIXELS, "partial_lrp", "transformer_attribution"}
# Every token of the last stage is reached from a pixel, by way of convolutions: what reads no gradient cannot tell two.
WITHOUT_GRADIENTS = {"grad_cam"} | {  # grad_cam clamps all of these maps to 0
    name for name, method in trace_methods().items() if not (method.reads.has_graph or method.reads.path)
}


@cache
def model_of(family: str, dtype: torch.dtype) -> nn.Module:
    return WINDOWED[family]().to(dtype)


def attribution_of(family: str, pixels: Tensor, method: str | None) -> Attribution:
    options = {"steps": 3} if method == "integrated_gradients" else {}
    return attribute(model_of(family, pixels.dtype), {"pixel_values": pixels}, 1, method, **options)


def logits_of(family: str, pixels: Tensor) -> Tensor:
    with torch.no_grad():
        return model_of(family, pixels.dtype)(pixels).logits


# Windows that are shifted, and keys that are fewer than the tokens.
ALL_OF = {"swin", "segformer", "generic_attention", "bi_token", None}


@pytest.mark.parametrize(("method", "family"), pairs([*FOLLOWING, None], [*WINDOWED], with_all=ALL_OF))
def test_a_batch_is_explained_like_its_pictures_and_the_model_is_left_as_it_was(method, family):
    pixels = image_inputs()["pixel_values"].to(torch.float64 if method in IN_FLOAT64 else torch.float32)
    before = logits_of(family, pixels)
    attribution = attribution_of(family, pixels, method)
    ((stream, scores),) = attribution.items()
    convolutions = "The blocks also mix neighbouring tokens by convolutions ("
    remarks = tuple(remark for remark in attribution.remarks if not remark.startswith(convolutions))
    assert remarks == ((OF_OTHERS,) if method in ("evidence", None) else ())
    assert stream == ("pixels" if method in OF_PIXELS else "image")
    assert scores.shape == (2, 1024 if method in OF_PIXELS else PATCHES[family])
    assert torch.isfinite(scores).all()
    assert torch.equal(scores, attribution_of(family, pixels, method)[stream])
    for example, row in enumerate(scores):
        (alone,) = attribution_of(family, pixels[example : example + 1], method)[stream]
        assert (row - alone).abs().max() <= 1e-5 * alone.abs().max() + 2e-9
    assert torch.equal(logits_of(family, pixels), before)
    parameters = list(model_of(family, pixels.dtype).parameters())
    assert all(parameter.requires_grad and parameter.grad is None for parameter in parameters)


@pytest.mark.parametrize("family", WINDOWED)
def test_several_targets_of_one_picture_share_a_pass(family):
    pixels = image_inputs(1)["pixel_values"]

    def both(output):
        return output.logits[0, :2]

    together = attribute(model_of(family, pixels.dtype), {"pixel_values": pixels}, both, "generic_attention")["image"]
    for label, row in enumerate(together):
        (alone,) = attribute(
            model_of(family, pixels.dtype), {"pixel_values": pixels}, label, "generic_attention"
        ).values()
        torch.testing.assert_close(row[None], alone, rtol=1e-4, atol=1e-9)


@pytest.mark.parametrize("method", [*FOLLOWING, None])
def test_a_pixel_of_a_segmentation_is_explained_by_a_function_of_the_output(method):
    sizes = REDUCED | {"decoder_hidden_size": 16}
    model = built("SegformerForSemanticSegmentation", "SegformerConfig", **sizes)
    options = {"steps": 3} if method == "integrated_gradients" else {}
    here, there = (
        attribute(model, image_inputs(), lambda output, n=n: output.logits[:, 1, n, n], method, **options)
        for n in (0, 3)
    )
    for stream, scores in here.items():
        assert scores.shape == (2, 1024 if stream == "pixels" else 16)
        assert torch.isfinite(scores).all()
        assert method in WITHOUT_GRADIENTS or not torch.equal(scores, there[stream])

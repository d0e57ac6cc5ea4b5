"""What every method must hold to on every family."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from torch import Tensor, nn

from pairs import pairs
from tiny_models import FAMILIES, IMAGE_FAMILIES, TEXT_FAMILIES, applies, image_inputs, inputs_of, text_inputs
from whyformer import attribute
from whyformer.axes import Inputs
from whyformer.methods.registry import trace_methods

# Those that read the input itself give a score to each pixel. Relevance divides by sums near zero, and what Grad-ECLIP
# adds up over heads and channels cancels out: how they treat batches and padding can only be told in float64.
OF_PIXELS = {"input_x_gradient", "integrated_gradients", "gradient_shap", "lrp"}
IN_FLOAT64 = {"lrp", "partial_lrp", "transformer_attribution", "grad_eclip"}
ABSOLUTE_POSITIONS = ["vit", "deit", "deit distilled", "dinov2", "dinov2 registers", "vit-msn", "ijepa (by structure)"]


@cache
def model_of(family: str) -> nn.Module:
    return FAMILIES[family]()


@cache
def double(family: str) -> nn.Module:
    return FAMILIES[family]().double()


@cache
def frozen_model(family: str) -> nn.Module:
    return FAMILIES[family]().requires_grad_(False)


def scores_of(model: nn.Module, inputs: Inputs, method: str | None, target: int = 1) -> Tensor:
    if next(model.parameters()).dtype == torch.float64:
        inputs = {name: value.double() if value.is_floating_point() else value for name, value in inputs.items()}
    options = {"steps": 3} if method == "integrated_gradients" else {}
    (scores,) = attribute(model, inputs, target, method, **options).values()
    return scores


def by_patch(scores: Tensor) -> Tensor:
    """Scores of 4×4 patches, special tokens left out; those of 32×32 pixels are summed."""
    if scores.shape[1] == 1024:
        return scores.reshape(-1, 4, 8, 4, 8).sum(dim=(2, 4)).flatten(1)
    return scores[:, -16:]


def logits_of(model: nn.Module, inputs: Inputs) -> Tensor:
    with torch.no_grad():
        output = model(**inputs)
    return getattr(output, "logits", output)


@cache
def logits_of_the_batch(family: str) -> Tensor:
    return logits_of(model_of(family), inputs_of(family))


def state_of(model: nn.Module) -> list[object]:
    """What an attribution could leave behind: flags, gradients and hooks."""
    hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) + len(m._backward_hooks) for m in model.modules()]
    return [(p.requires_grad, p.grad) for p in model.parameters()] + hooks


def without_padding(inputs: Inputs, example: int) -> Inputs:
    """One example of a batch alone, its padding cut off."""
    alone = {name: value[example : example + 1] for name, value in inputs.items()}
    if "attention_mask" not in alone:
        return alone
    real = alone["attention_mask"][0].bool()
    return {name: value[:, real] for name, value in alone.items()}


def assert_close(got: Tensor, expected: Tensor, tolerance: float = 1e-5) -> None:
    # GradCAM's sums cancel: a map of 1e-5 carries the rounding of terms near 1e-2.
    assert (got - expected).abs().max() <= tolerance * expected.abs().max() + 2e-9


# What a method does with a batch and its padding does not depend on the family, nor what is seen of a family on the
# method: three families have all methods, four methods all families.
ALL_OF = {"vit", "bert", "modernbert mean", "generic_attention", "bi_token", "transformer_attribution", None}
CASES = [pair for pair in pairs([*trace_methods(), None], [*FAMILIES], with_all=ALL_OF) if applies(*pair)]


@pytest.mark.parametrize(("method", "family"), CASES)
def test_every_method_explains_every_family_and_leaves_the_model_as_it_was(method, family):
    model, inputs = model_of(family), inputs_of(family)
    before = logits_of_the_batch(family)
    state = state_of(model)
    scores = scores_of(model, inputs, method)
    tokens = inputs["input_ids"].shape[1] if "input_ids" in inputs else 1024 if method in OF_PIXELS else 16
    assert len(scores) == len(next(iter(inputs.values())))
    assert tokens <= scores.shape[1] <= tokens + 5
    assert torch.isfinite(scores).all()

    assert torch.equal(logits_of(model, inputs), before)
    assert state_of(model) == state
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(module.training for module in model.modules())

    assert torch.equal(scores_of(frozen_model(family), inputs, method), scores), "the same every time, frozen or not"

    exact = double(family) if method in IN_FLOAT64 else model
    together = scores if exact is model else scores_of(exact, inputs, method)
    for example, row in enumerate(together):
        (expected,) = scores_of(exact, without_padding(inputs, example), method)
        assert_close(row[: len(expected)], expected)
        assert not row[len(expected) :].any(), "padding got a score"


@cache
def without_positions(family: str, dtype: torch.dtype) -> nn.Module:
    model = IMAGE_FAMILIES[family]().to(dtype)
    for name, parameter in model.named_parameters():
        if "position_embedding" in name:
            nn.init.zeros_(parameter)
    return model


@pytest.mark.parametrize(
    ("method", "family"),
    pairs(sorted(trace_methods().keys() - {"random"}), ABSOLUTE_POSITIONS, with_all={"vit", "bi_token"}),
)
def test_permuting_the_patches_permutes_the_scores(method, family):
    model = without_positions(family, torch.float64 if method in IN_FLOAT64 else torch.float32)
    inputs = image_inputs()
    order = torch.randperm(16, generator=torch.Generator().manual_seed(4))
    patches = inputs["pixel_values"].unfold(2, 8, 8).unfold(3, 8, 8).flatten(2, 3)[:, :, order]
    moved = patches.unflatten(2, (4, 4)).permute(0, 1, 2, 4, 3, 5).reshape(inputs["pixel_values"].shape)
    scores = by_patch(scores_of(model, inputs, method))
    assert_close(by_patch(scores_of(model, {"pixel_values": moved}, method)), scores[:, order])


@pytest.mark.parametrize("method", trace_methods())
def test_left_padding_changes_no_score(method):
    model, inputs = (double if method in IN_FLOAT64 else model_of)("modernbert mean"), text_inputs()
    lengths = inputs["attention_mask"].sum(dim=1).tolist()
    left = {
        name: torch.stack([row.roll(len(row) - n) for row, n in zip(value, lengths, strict=True)])
        for name, value in inputs.items()
    }
    right = scores_of(model, inputs, method)
    for row, expected, length in zip(scores_of(model, left, method), right, lengths, strict=True):
        assert_close(row[-length:], expected[:length])
        assert not row[:-length].any()


@pytest.mark.parametrize("family", ["bert", "albert", "electra"])
@pytest.mark.parametrize("method", ["generic_attention", "bi_token"])
def test_pairs_of_texts_in_a_batch_are_explained_like_single_ones(method, family):
    model, inputs = model_of(family), text_inputs()
    inputs["token_type_ids"] = (torch.arange(9) > 2).long().expand(3, 9) * inputs["attention_mask"]
    scores = scores_of(model, inputs, method)
    assert not torch.allclose(scores, scores_of(model, text_inputs(), method))
    for example, row in enumerate(scores):
        (expected,) = scores_of(model, without_padding(inputs, example), method)
        assert_close(row[: len(expected)], expected)


@pytest.mark.parametrize("method", sorted(trace_methods().keys() - OF_PIXELS))
def test_a_registers_score_is_reported_but_is_no_patch(method):
    scores = scores_of(model_of("dinov2 registers"), image_inputs(), method)
    assert scores.shape == (2, 1 + 4 + 16)


@pytest.mark.parametrize("family", TEXT_FAMILIES)
def test_two_labels_are_explained_differently(family):
    model, inputs = model_of(family), text_inputs()
    first, second = (scores_of(model, inputs, "generic_attention", label) for label in (0, 1))
    assert (first - second).abs().max() > 1e-4 * first.abs().max()


@pytest.mark.parametrize("method", ["generic_attention", "grad_cam", "bi_head", "bi_token", "lrp"])
@pytest.mark.parametrize("extra", [{"num_labels": 1}, {"problem_type": "multi_label_classification"}])
def test_regression_and_multi_label_heads_are_explained(method, extra):
    from tiny_models import IMAGE, built

    model = built("ViTForImageClassification", "ViTConfig", **IMAGE | extra)
    (scores,) = attribute(model, image_inputs(), "predicted", method).values()
    (by_index,) = attribute(model, image_inputs(), 0, method).values()
    assert torch.isfinite(scores).all()
    if extra == {"num_labels": 1}:
        assert torch.equal(scores, by_index)

"""Backward rules: how each kind of operation distributes relevance, or a modified gradient, over its inputs.

A rule takes the gradient or relevance at the output, and the operation; it returns one tensor per input, or None. A
rule set maps kinds of operations to rules. Equations are those of Transformer Attribution (TA, CVPR 2021).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from whyformer.backward.attention_rules import (
    attention_balanced,
    attention_epsilon,
    attention_shares,
    attention_values,
)
from whyformer.backward.operations import STABILISER, GradInputs, Operation, Quotient, away_from_zero, balance, ratio
from whyformer.errors import UnsupportedModel

Rule = Callable[[Tensor, Operation], GradInputs]
Backward = Literal["gradient", "libra", "attn_lrp"]
Rules = Literal["z_plus", "dtd", "lrp", "attn_lrp", "cp_lrp"]
MapRules = Literal["z_plus", "dtd", "lrp", "attn_lrp"]  # CP-LRP gives attention maps no relevance


def identity(grad_output: Tensor, operation: Operation) -> GradInputs:
    """All of it to the input that carries relevance."""
    return operation.to(operation.source, grad_output)


def zero(grad_output: Tensor, operation: Operation) -> GradInputs:
    """None of it: the operation only scales something else."""
    return [None] * len(operation.inputs)


def proportional(grad_output: Tensor, operation: Operation) -> GradInputs:
    """Each input's share of the output: x ⊙ ∂z/∂x · R/z, for operations linear in each input."""
    return _times_input(ratio(grad_output, operation.output), operation)


def half_each(grad_output: Tensor, operation: Operation) -> GradInputs:
    """Half to each factor of a product of two activations: each one's share (TA Eq. 6) is already the whole."""
    return _times_input(ratio(grad_output, operation.output).div_(2), operation)


def balanced_sum(grad_output: Tensor, operation: Operation) -> GradInputs:
    """TA Sec. 3.2: the shares of a sum, rescaled per example, so that large shares of opposite sign do not grow."""
    factor = ratio(grad_output, operation.output)
    shares = [factor * addend for addend in operation.addends]
    scales = balance(operation.per_example(grad_output), [operation.per_example(share) for share in shares])
    return operation.sum_to_inputs(share * scale for share, scale in zip(shares, scales, strict=True))


def z_plus(grad_output: Tensor, operation: Operation) -> GradInputs:
    """TA Eq. 4, the z⁺ rule: shares of x⁺W⁺ only."""
    x, weight = operation.x.clamp(min=0), operation.weight.clamp(min=0)
    return operation.to_x(x * operation.apply_transposed(ratio(grad_output, operation.apply(x, weight)), weight))


def alpha1_beta0(grad_output: Tensor, operation: Operation) -> GradInputs:
    """TA Eq. 5: shares of the positive terms x·w; x⁺W⁺ + x⁻W⁻ = (xW + |x||W|) / 2."""
    x, weight = operation.x, operation.weight
    size, weight_size = x.abs(), weight.abs()
    whole = operation.apply(size, weight_size)
    terms = operation.unbiased + whole  # twice the positive ones
    # Where no term is positive, the difference is only rounding error: distributed, it would be noise.
    rounding = whole.add_(operation.output.detach().abs()).mul_(64 * torch.finfo(x.dtype).eps)
    is_rounding = terms <= rounding
    factor = (grad_output / terms.add_(2 * STABILISER)).masked_fill_(is_rounding, 0.0)
    share = operation.apply_transposed(factor, weight).mul_(x)
    return operation.to_x(share.addcmul_(operation.apply_transposed(factor, weight_size), size))


def sign_by_sign(grad_output: Tensor, operation: Operation) -> GradInputs:
    """The reference code's "lrp": x⁺W⁺ and x⁻W⁻ each distribute all of the relevance, which doubles it."""
    parts = []
    for bound in ({"min": 0}, {"max": 0}):
        x, weight = operation.x.clamp(**bound), operation.weight.clamp(**bound)
        parts.append(x * operation.apply_transposed(ratio(grad_output, operation.apply(x, weight)), weight))
    return operation.to_x(parts[0] + parts[1])


def z_box(grad_output: Tensor, operation: Operation) -> GradInputs:
    """The z^B rule for pixels (Montavon et al. 2017), bounded by the minimum and maximum of the image."""
    x, weight = operation.x, operation.weight
    axes = tuple(range(1, x.dim()))
    low, high = (bound(dim=axes, keepdim=True).expand_as(x) for bound in (x.amin, x.amax))
    rising, falling = weight.clamp(min=0), weight.clamp(max=0)
    reach = operation.unbiased - operation.apply(low, rising) - operation.apply(high, falling)
    factor = grad_output / (reach + STABILISER)
    of_x, of_low, of_high = (operation.apply_transposed(factor, part) for part in (weight, rising, falling))
    return operation.to_x(x * of_x - low * of_low - high * of_high)


def epsilon(grad_output: Tensor, operation: Operation) -> GradInputs:
    """The ε-rule: proportional shares, including biases, with a denominator moved away from zero."""
    return _times_input(away_from_zero(grad_output, operation.output), operation)


def half_epsilon(grad_output: Tensor, operation: Operation) -> GradInputs:
    """AttnLRP Prop. 3.3: half to each factor of a product of two activations."""
    return _times_input(away_from_zero(grad_output, operation.output) / 2, operation)


def softmax_expansion(grad_output: Tensor, operation: Operation) -> GradInputs:
    """AttnLRP Prop. 3.1: the softmax s of x expanded at x, x ⊙ (R − s ΣR); masked entries get 0."""
    scores, weights = operation.inputs[operation.source], operation.output
    grad_inputs = scores * (grad_output - weights * grad_output.sum(dim=operation.axis, keepdim=True))
    return operation.to(operation.source, grad_inputs.masked_fill(scores == -math.inf, 0.0))


def values_only(grad_output: Tensor, operation: Operation) -> GradInputs:
    """CP-LRP: the attention map is a constant, and all relevance goes to the values."""
    grad_inputs = list(epsilon(grad_output, operation))
    grad_inputs[operation.map] = None
    return grad_inputs


def layer_norm_gradient(
    grad_output: Tensor,
    x: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:
    """(g − mean g) / σ with g = w ⊙ grad_output: the gradient of `F.layer_norm` without its last term, x̂ mean(g x̂).

    Computed by the fused kernels: with input and mean zero, x̂ and hence that term vanish.
    """
    _, mean, spread = torch.native_layer_norm(x, list(normalized_shape), weight, bias, eps)
    zeros, needs_grad = torch.zeros_like(x), [True, False, False]
    grad_input: Tensor = torch.ops.aten.native_layer_norm_backward(
        grad_output, zeros, list(normalized_shape), torch.zeros_like(mean), spread, weight, bias, needs_grad
    )[0]
    return grad_input


def rms_norm_gradient(
    grad_output: Tensor,
    x: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """The gradient of `F.rms_norm` with a constant root mean square."""
    axes = tuple(range(-len(normalized_shape), 0))
    size = x.to(torch.promote_types(x.dtype, torch.float32)).square().mean(dim=axes, keepdim=True)
    scale = (size + (torch.finfo(x.dtype).eps if eps is None else eps)).rsqrt()
    weighted = grad_output if weight is None else grad_output * weight
    return (weighted * scale).to(x.dtype)


def normalize_gradient(
    grad_output: Tensor, x: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: None = None
) -> Tensor:
    """The gradient of `F.normalize` with a constant norm."""
    length: Tensor = torch.linalg.vector_norm(x, p, dim, keepdim=True)
    return grad_output / length.clamp(min=eps)


# Batch norms are not listed: their denominator is constant already.
CONSTANT_DENOMINATOR: dict[Callable[..., Tensor], Callable[..., Tensor]] = {
    F.layer_norm: layer_norm_gradient,
    torch.layer_norm: layer_norm_gradient,
    F.rms_norm: rms_norm_gradient,
    F.normalize: normalize_gradient,
}


def norm_epsilon(grad_output: Tensor, operation: Operation) -> GradInputs:
    """A normalisation with a constant denominator is linear: division by it is the identity (AttnLRP Prop. 3.4)."""
    factor = away_from_zero(grad_output, operation.output)
    return operation.to(operation.source, operation.inputs[operation.source] * _over_constant(factor, operation))


def constant_spread(grad_output: Tensor, operation: Operation) -> GradInputs:
    """LibraGrad: the gradient of a normalisation with a constant denominator."""
    return operation.to(operation.source, _over_constant(grad_output, operation))


def _over_constant(grad_output: Tensor, operation: Operation) -> Tensor:
    """The gradient at the input of a normalisation with a constant denominator."""
    gradient = CONSTANT_DENOMINATOR.get(operation.function)
    if gradient is not None:
        args, kwargs = operation.arguments
        return gradient(grad_output, *args, **kwargs)
    own = operation.gradient(grad_output)[operation.source]
    assert own is not None
    return own


def constant_gate(grad_output: Tensor, operation: Operation) -> GradInputs:
    """LibraGrad: the gradient of x·g(x) with a constant gate g(x)."""
    x = operation.inputs[operation.source].detach()
    if len(operation.inputs) == 1:
        gate = (operation.output.detach() / x).masked_fill_(x == 0, operation.slope_at_zero())
        return operation.to(operation.source, gate * grad_output)
    plain = operation.gradient(grad_output)[operation.source]
    assert plain is not None  # at 0 the gradient is the gate
    gated = operation.output.detach() / x * grad_output
    return operation.to(operation.source, torch.where(x == 0, plain, gated))


def is_by_values(rule: Rule, function: Callable[..., Tensor], inputs: int) -> bool:
    """Whether a rule computes with the values of an operation only, not with its gradient."""
    is_norm = rule is constant_spread and function in CONSTANT_DENOMINATOR
    return is_norm or (rule is constant_gate and inputs == 1)


def constant_factor(grad_output: Tensor, operation: Operation) -> GradInputs:
    """LibraGrad: the gradient of a product with a constant denominator, gate or attention map."""
    grad_inputs = operation.gradient(grad_output)
    return [part if number == operation.source else None for number, part in enumerate(grad_inputs)]


def half_gradient(grad_output: Tensor, operation: Operation) -> GradInputs:
    """LibraGrad: half of the gradient to each factor of a product of two activations."""
    return [None if part is None else part.div_(2) for part in operation.gradient(grad_output)]


def half_of_each_product(grad_output: Tensor, operation: Operation) -> GradInputs:
    """AttnLRP through fused attention, two products in one: half to the values, a quarter each to queries and keys."""
    query, key, value, *others = operation.gradient(grad_output / 2)
    return [*(None if part is None else part / 2 for part in (query, key)), value, *others]


def with_half(x: Tensor) -> Tensor:
    """A view of an input, of whose gradient the input gets half."""
    shown = x.view_as(x)
    if x.requires_grad:
        shown.register_hook(lambda gradient: None if gradient is None else gradient / 2)
    return shown


def with_halves(result: Tensor) -> Tensor:
    """The result of an operation, of whose gradient each input gets half."""
    shown = result.view_as(result)  # whose own gradient is whole
    result.register_hook(lambda gradient: None if gradient is None else gradient / 2)
    return shown


def _times_input(factor: Tensor, operation: Operation) -> GradInputs:
    grad_inputs = operation.gradient(factor)
    return [None if part is None else x * part for x, part in zip(operation.inputs, grad_inputs, strict=True)]


_RELEVANCE: Mapping[str, Rule] = {
    "norm": identity,
    "activation": identity,
    "curve": identity,
    "softmax": identity,
    "scale": identity,
    "denominator": zero,
    "share": proportional,
    "add": proportional,
    "rotation": proportional,
    "product": half_each,
    "mixing": half_each,
    "gate": half_each,
    "pixels": z_box,
    "attention": attention_shares,
}
_EPSILON: Mapping[str, Rule] = {
    "norm": norm_epsilon,
    **dict.fromkeys(("linear", "pixels", "share", "add", "rotation"), epsilon),
    **dict.fromkeys(("product", "mixing", "gate"), half_epsilon),
}
RULES: dict[str, Mapping[str, Rule]] = {
    "z_plus": {**_RELEVANCE, "linear": z_plus},
    "dtd": {**_RELEVANCE, "linear": alpha1_beta0, "add": balanced_sum, "attention": attention_balanced},
    "lrp": {**_RELEVANCE, "linear": sign_by_sign},
    "attn_lrp": {**_RELEVANCE, **_EPSILON, "softmax": softmax_expansion, "attention": attention_epsilon},
    "cp_lrp": {**_RELEVANCE, **_EPSILON, "softmax": zero, "mixing": values_only, "attention": attention_values},
}
LIBRA: Mapping[str, Rule] = {
    "scale": constant_factor,
    "softmax": zero,
    "attention": constant_factor,
    "denominator": zero,
    "norm": constant_spread,
    "activation": constant_gate,
    "gate": half_gradient,
}
# AttnLRP's relevance is state × this gradient: where its rules propagate R = z·g, these propagate g. They need no
# division by small sums, and run in the model's own dtype through its fused kernels.
ATTN_LRP: Mapping[str, Rule] = {
    **{kind: rule for kind, rule in LIBRA.items() if kind != "softmax"},  # which keeps its gradient (Prop. 3.1)
    "curve": constant_gate,
    "attention": half_of_each_product,
    **dict.fromkeys(("product", "mixing"), half_gradient),
}
# The quotient of relevance and mixed values, by attention rule; half of it belongs to the map.
_MAP_QUOTIENTS: Mapping[Rule, Quotient] = {
    attention_shares: ratio,
    attention_balanced: ratio,
    attention_epsilon: away_from_zero,
}
# Rules that use the operation's gradient and never its output.
BY_GRADIENT: tuple[Rule, ...] = (constant_factor, half_gradient, half_of_each_product)
# The map's share of the gradient of the mixed values; the rest belongs to the values.
MAP_SHARES: dict[str, float] = {"gradient": 1.0, "libra": 1.0, "attn_lrp": 0.5}
BACKWARD_RULES: dict[str, Mapping[str, Rule]] = {"libra": LIBRA, "attn_lrp": ATTN_LRP}
# Rule sets whose relevance is state × a gradient by rules. CP-LRP treats constants like LibraGrad.
GRADIENT_FORMS: dict[str, Mapping[str, Rule]] = {"attn_lrp": ATTN_LRP, "cp_lrp": LIBRA}


def map_quotient(rules: Mapping[str, Rule]) -> Quotient:
    """The quotient R / z for the output of a map that is not kept, by the rule for attention as a whole."""
    rule = rules.get("attention")
    if rule is None or rule not in _MAP_QUOTIENTS:
        known, own = ", ".join(each.__name__ for each in _MAP_QUOTIENTS), "none" if rule is None else rule.__name__
        raise UnsupportedModel(
            f"Maps too large to keep need one of the attention rules {known}; this rule set has {own}."
        )
    return _MAP_QUOTIENTS[rule]

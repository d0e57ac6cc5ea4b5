"""Validate the names and values of a method's options."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any, Literal, get_args, get_origin, get_type_hints

from torch import Tensor

from whyformer.errors import WhyformerError, check_choice
from whyformer.methods.registry import NOISE_OPTIONS, NOISE_SAMPLES, Method


def check_options(method: Method, options: Mapping[str, Any]) -> None:
    """Raise on unknown options and invalid values."""
    if not options:
        return
    shared = method.shared_options
    _check_noise(method, options)
    for name in (name for name in shared.keys() & options.keys() if isinstance(options[name], str)):
        check_choice(f"{method.name}: {name}", options[name], shared[name])
    options = {name: value for name, value in options.items() if name not in shared}
    unknown = [name for name in options if name not in method.options]
    if unknown:
        names = ", ".join(f"{name}={parameter.default!r}" for name, parameter in method.options.items())
        raise WhyformerError(f"{method.name} has no option {unknown[0]!r}. It takes: {names or 'none'}.")
    hints = get_type_hints(method.formula)
    for name, value in options.items():
        if name in hints:  # an option without an annotation takes any value
            _check_value(method, name, value, _members(hints[name]))


def _check_noise(method: Method, options: Mapping[str, Any]) -> None:
    """Validate the noise options; noise needs a method that takes gradients."""
    own = {name: options[name] for name in NOISE_OPTIONS if options.get(name) is not None}
    if not own:
        return
    name, value = next(iter(own.items()))
    if not method.reads.takes_gradients:
        raise WhyformerError(f"{method.name} reads no gradient: {name}={value!r} has no effect.")
    noise, samples = own.get("noise"), own.get("noise_samples", NOISE_SAMPLES)
    if noise is None:
        raise WhyformerError(
            f"{method.name}: noise_samples={samples!r} has no effect without noise, such as noise=0.1."
        )
    if type(noise) not in (int, float) or not 0 < noise < inf:
        raise WhyformerError(
            f"{method.name}: noise={noise!r}. It must be a positive share of the input's range, such as 0.1."
        )
    if type(samples) is not int or samples < 1:
        raise WhyformerError(f"{method.name}: noise_samples={samples!r}. It must be a number of draws, 1 or more.")


def _check_value(method: Method, name: str, value: Any, kinds: tuple[Any, ...]) -> None:
    choices = [choice for kind in kinds if get_origin(kind) is Literal for choice in get_args(kind)]
    if isinstance(value, str) and choices and value not in choices:
        raise WhyformerError(f"{method.name}: {name}={value!r}. Choose from: {', '.join(map(str, choices))}.")
    is_default = value is method.options[name].default
    if Tensor in kinds and not isinstance(value, (str, Tensor)) and not is_default:
        raise WhyformerError(f"{method.name}: {name}={value!r:.40}. Choose from: {', '.join(choices)}, or a tensor.")
    plain = next((kind for kind in (bool, int, float) if kind in kinds), None)
    if plain is float and type(value) is int:
        return
    if plain and type(value) is not plain and not (value is None and type(None) in kinds):
        raise WhyformerError(f"{method.name}: {name}={value!r} is not of type {plain.__name__}.")


def _members(hint: Any) -> tuple[Any, ...]:
    return (hint,) if get_origin(hint) is Literal else get_args(hint) or (hint,)

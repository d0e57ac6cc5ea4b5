"""Tolerances for scores recomputed on another machine, by rounding."""

from __future__ import annotations

from whyformer.methods.registry import method_named

# As a share of the largest score, by the model's dtype.
BY_DTYPE = {"float64": 1e-6, "float32": 1e-3, "bfloat16": 0.1, "float16": 0.05}
# At least this much outside float64, by what a method reads or by its name.
BY_TRAIT = {"relevance": 0.2}  # its divisions magnify rounding: float32 differed by 0.09 from float64 on mini-vit
# Relevance of the last map is only divided once. Unstable relevance of the input is not compared at all.
BY_METHOD: dict[str, float] = {"partial_lrp": 0.01}


def rounding(dtype: str) -> float:
    """The tolerance independent of the method: the share of a probability that may be rounding."""
    return BY_DTYPE.get(dtype, BY_DTYPE["float32"])


def tolerance(method: str, dtype: str) -> float:
    """The tolerance of a method's scores, as a share of the largest."""
    if dtype == "float64":
        return rounding(dtype)
    trait = BY_TRAIT["relevance"] if method_named(method).reads.has_relevance else 0.0
    return max(rounding(dtype), BY_METHOD.get(method, trait))

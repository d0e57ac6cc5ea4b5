"""How far scores may be apart when they are computed again: rounding, on another machine."""

from __future__ import annotations

from whyformer.methods.registry import method_named

# As a share of the largest score, by what the model computes in.
BY_DTYPE = {"float64": 1e-6, "float32": 1e-3, "bfloat16": 0.1, "float16": 0.05}
# At least this much outside float64, by what a method reads or by its own name.
BY_TRAIT = {"relevance": 0.2}  # its divisions magnify rounding: float32 was 0.09 off float64 on mini-vit
# Relevance of the last map alone is divided once. Relevance of the input that is unstable is not compared at all.
BY_METHOD: dict[str, float] = {"partial_lrp": 0.01}


def rounding(dtype: str) -> float:
    """The tolerance of what does not depend on the method: the share of a probability that may be rounding."""
    return BY_DTYPE.get(dtype, BY_DTYPE["float32"])


def tolerance(method: str, dtype: str) -> float:
    """The tolerance of a method's scores, as a share of the largest."""
    if dtype == "float64":
        return rounding(dtype)
    trait = BY_TRAIT["relevance"] if method_named(method).reads.has_relevance else 0.0
    return max(rounding(dtype), BY_METHOD.get(method, trait))

"""Whyformer tells why a Transformer answered as it did."""

from whyformer.attribution import attribute, explain, explain_batch
from whyformer.doctor import doctor
from whyformer.errors import UnsupportedModel, WhyformerError
from whyformer.explanation import Explanation
from whyformer.families import FAMILIES, Family
from whyformer.loading import Loaded, load
from whyformer.methods import METHODS, method
from whyformer.score import contrast, logit

__all__ = [
    "FAMILIES",
    "METHODS",
    "Explanation",
    "Family",
    "Loaded",
    "UnsupportedModel",
    "WhyformerError",
    "attribute",
    "contrast",
    "doctor",
    "explain",
    "explain_batch",
    "load",
    "logit",
    "method",
]

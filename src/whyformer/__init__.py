"""Whyformer tells why a Transformer answered as it did."""

from whyformer.attribution import attribute, explain, explain_batch
from whyformer.doctor import doctor
from whyformer.errors import UnsupportedModel, WhyformerError
from whyformer.explanation import Explanation
from whyformer.families import FAMILIES, Family, Stream
from whyformer.loading import Loaded, load
from whyformer.methods import METHODS, method
from whyformer.score import box_side, contrast, detection, logit, similarity

__all__ = [
    "FAMILIES",
    "METHODS",
    "Explanation",
    "Family",
    "Loaded",
    "Stream",
    "UnsupportedModel",
    "WhyformerError",
    "attribute",
    "box_side",
    "contrast",
    "detection",
    "doctor",
    "explain",
    "explain_batch",
    "load",
    "logit",
    "method",
    "similarity",
]

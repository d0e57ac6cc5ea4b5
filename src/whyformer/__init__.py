"""Whyformer tells why a Transformer answered as it did."""

from whyformer.attribution import attribute, explain, explain_batch
from whyformer.continuation import Continuation
from whyformer.doctor import doctor
from whyformer.errors import UnsupportedModel, WhyformerError
from whyformer.examples import Regions
from whyformer.explanation import Explanation
from whyformer.families import FAMILIES, Family, Stream
from whyformer.loading import Loaded, load
from whyformer.methods import METHODS, method
from whyformer.score import box_side, contrast, detection, logit, similarity
from whyformer.writing import continuation

__all__ = [
    "FAMILIES",
    "METHODS",
    "Continuation",
    "Explanation",
    "Family",
    "Loaded",
    "Regions",
    "Stream",
    "UnsupportedModel",
    "WhyformerError",
    "attribute",
    "box_side",
    "continuation",
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

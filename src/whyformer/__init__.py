"""Whyformer tells why a Transformer answered as it did."""

from whyformer.api.attribution import attribute
from whyformer.api.continuation import continuation
from whyformer.api.doctor import doctor
from whyformer.api.explain import explain, explain_batch
from whyformer.axes import head_mean
from whyformer.errors import UnsupportedModel, WhyformerError
from whyformer.inputs.read import Regions
from whyformer.methods.registry import METHODS, method
from whyformer.models.families import FAMILIES, Family, Stream
from whyformer.models.loading import LoadedModel, load
from whyformer.results.continuation import Continuation
from whyformer.results.explanation import Explanation
from whyformer.targets.scores import box_side, contrast, detection, logit, similarity
from whyformer.tracing.attribution import Attribution
from whyformer.tracing.build import trace
from whyformer.tracing.reads import Reads
from whyformer.tracing.trace import Trace

__all__ = [
    "FAMILIES",
    "METHODS",
    "Attribution",
    "Continuation",
    "Reads",
    "Trace",
    "head_mean",
    "trace",
    "Explanation",
    "Family",
    "LoadedModel",
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

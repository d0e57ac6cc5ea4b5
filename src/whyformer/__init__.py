"""Whyformer tells why a Transformer answered as it did.

Its names are imported when they are first used: `import whyformer` itself loads neither torch nor transformers.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as type checkers read it; `typing` would take most of the time that this import takes
if TYPE_CHECKING:
    from typing import Any

    from whyformer.api.attribute import attribute
    from whyformer.api.checkup import Checkup
    from whyformer.api.doctor import doctor
    from whyformer.api.explain import explain, explain_batch
    from whyformer.api.explain_continuation import continuation
    from whyformer.api.explain_response import explain_response, explain_responses
    from whyformer.api.memory_estimate import estimate_memory
    from whyformer.api.multiple_targets import explain_targets
    from whyformer.api.signatures import make_keys, sign
    from whyformer.api.verify import Verification, verify
    from whyformer.axes import head_mean
    from whyformer.benchmark.advice.recommend import recommend
    from whyformer.benchmark.advice.recommendation import Recommendation
    from whyformer.benchmark.evaluation import Evaluation, evaluate
    from whyformer.data.readers import READERS, reader
    from whyformer.errors import UnsupportedModel, WhyformerError
    from whyformer.inputs.candidates import Candidates
    from whyformer.inputs.read import Regions
    from whyformer.inputs.sound import Sound
    from whyformer.methods.registry import METHODS, Method, method
    from whyformer.models.families import FAMILIES
    from whyformer.models.family import Family, Stream
    from whyformer.models.loading import LoadedModel, load
    from whyformer.plugins import load_plugins
    from whyformer.results.continuation import Continuation
    from whyformer.results.explanation import Explanation
    from whyformer.results.part import Part, TopItem, Word
    from whyformer.results.response import Response
    from whyformer.targets.scores import (
        Pixel,
        Region,
        Target,
        at,
        box_side,
        contrast,
        detection,
        logit,
        moment,
        similarity,
    )
    from whyformer.tracing.attribution import Attribution
    from whyformer.tracing.build import trace
    from whyformer.tracing.reads import Reads
    from whyformer.tracing.trace import Trace

# Where each public name is defined.
_HOMES = {
    "FAMILIES": "models.families",
    "METHODS": "methods.registry",
    "READERS": "data.readers",
    "Attribution": "tracing.attribution",
    "Candidates": "inputs.candidates",
    "Checkup": "api.checkup",
    "Continuation": "results.continuation",
    "Evaluation": "benchmark.evaluation",
    "Explanation": "results.explanation",
    "Family": "models.family",
    "LoadedModel": "models.loading",
    "Method": "methods.registry",
    "Part": "results.part",
    "Pixel": "targets.scores",
    "Reads": "tracing.reads",
    "Recommendation": "benchmark.advice.recommendation",
    "Region": "targets.scores",
    "Regions": "inputs.read",
    "Response": "results.response",
    "Sound": "inputs.sound",
    "Stream": "models.family",
    "Target": "targets.scores",
    "Trace": "tracing.trace",
    "UnsupportedModel": "errors",
    "WhyformerError": "errors",
    "TopItem": "results.part",
    "Verification": "api.verify",
    "Word": "results.part",
    "at": "targets.scores",
    "attribute": "api.attribute",
    "box_side": "targets.scores",
    "continuation": "api.explain_continuation",
    "contrast": "targets.scores",
    "detection": "targets.scores",
    "doctor": "api.doctor",
    "estimate_memory": "api.memory_estimate",
    "evaluate": "benchmark.evaluation",
    "explain": "api.explain",
    "explain_batch": "api.explain",
    "explain_response": "api.explain_response",
    "explain_responses": "api.explain_response",
    "explain_targets": "api.multiple_targets",
    "head_mean": "axes",
    "load": "models.loading",
    "load_plugins": "plugins",
    "logit": "targets.scores",
    "make_keys": "api.signatures",
    "method": "methods.registry",
    "moment": "targets.scores",
    "reader": "data.readers",
    "recommend": "benchmark.advice.recommend",
    "sign": "api.signatures",
    "similarity": "targets.scores",
    "trace": "tracing.build",
    "verify": "api.verify",
}

# Names of former versions: the function of the registry that gives what they meant, and what to use instead.
_FORMER = {
    "ABLATION_METHODS": ("removal_methods", "whyformer.METHODS, those whose kinds have 'function'"),
    "SOURCE_METHODS": ("source_methods", "whyformer.METHODS, those whose kinds are ('response',)"),
}

__all__ = [
    "FAMILIES",
    "METHODS",
    "READERS",
    "Attribution",
    "Candidates",
    "Checkup",
    "Continuation",
    "Evaluation",
    "Explanation",
    "Family",
    "LoadedModel",
    "Method",
    "Part",
    "Pixel",
    "Reads",
    "Recommendation",
    "Region",
    "Regions",
    "Response",
    "Sound",
    "Stream",
    "Target",
    "TopItem",
    "Trace",
    "UnsupportedModel",
    "Verification",
    "WhyformerError",
    "Word",
    "at",
    "attribute",
    "box_side",
    "continuation",
    "contrast",
    "detection",
    "doctor",
    "estimate_memory",
    "evaluate",
    "explain",
    "explain_batch",
    "explain_response",
    "explain_responses",
    "explain_targets",
    "head_mean",
    "load",
    "load_plugins",
    "logit",
    "make_keys",
    "method",
    "moment",
    "reader",
    "recommend",
    "sign",
    "similarity",
    "trace",
    "verify",
]


def __getattr__(name: str) -> Any:
    """A public name, imported from its home when it is first used (PEP 562)."""
    if name == "__version__":
        from importlib.metadata import version

        return version("whyformer")
    from importlib import import_module

    if name in ("scenes", "facts"):  # packages of their own, as public as the names below
        return import_module(f"whyformer.{name}")
    if name in _FORMER:
        return _former(name)
    if name not in _HOMES:
        raise AttributeError(f"module 'whyformer' has no attribute {name!r}")
    value = getattr(import_module(f"whyformer.{_HOMES[name]}"), name)
    globals()[name] = value  # so that the next access is direct
    return value


def _former(name: str) -> Any:
    """A name of former versions, with what it meant then."""
    import warnings

    from whyformer.methods import registry

    call, instead = _FORMER[name]
    warnings.warn(f"whyformer.{name} goes with version 0.4: use {instead}.", DeprecationWarning, stacklevel=3)
    return getattr(registry, call)()


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})

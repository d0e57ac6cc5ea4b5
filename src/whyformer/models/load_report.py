"""Check the report of a loaded checkpoint: every weight exists, in the right shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from whyformer.errors import WhyformerError
from whyformer.models.compat import misfit
from whyformer.models.task import answer_of_class


def check_report(report: Mapping[str, Any], model_class: Any, name: str) -> None:
    """Check that a checkpoint has all weights in their shapes: transformers would randomly initialise others."""
    unfit = misfit(report)
    if unfit is not None:
        raise WhyformerError(
            f"The weights of {name!r} do not fit its config.json: {unfit[0]} {unfit[1]}"
            f"{_and_more(report['mismatched_keys'])}."
        )
    is_headless = answer_of_class(model_class.__name__) == "embedding"  # whose pooler nobody reads
    missing = [key for key in report["missing_keys"] if not (is_headless and key.startswith("pooler."))]
    if missing:
        raise WhyformerError(
            f"Weights for {min(missing)}{_and_more(missing)} are missing in {name!r}: "
            "load a model that was trained for its task and saved whole."
        )


def _and_more(keys: Any) -> str:
    return f" (and {len(keys) - 1} more)" if len(keys) > 1 else ""

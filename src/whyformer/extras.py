"""Libraries that only a part of the package needs."""

from __future__ import annotations

import importlib
from typing import Any

from whyformer.errors import WhyformerError


def extra(module: str) -> Any:
    """A module of the `eval` extra, or how to get it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise WhyformerError(f"This needs {module.partition('.')[0]}: pip install 'whyformer[eval]'.") from error

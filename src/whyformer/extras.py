"""Libraries that only a part of the package needs."""

from __future__ import annotations

import importlib
from typing import Any

from whyformer.errors import WhyformerError


def extra(module: str, group: str = "eval") -> Any:
    """A module of an extra, or how to get it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise WhyformerError(f"This needs {module.partition('.')[0]}: pip install 'whyformer[{group}]'.") from error

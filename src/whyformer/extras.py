"""Optional dependencies."""

from __future__ import annotations

import importlib
from typing import Any

from whyformer.errors import WhyformerError


def extra(module: str, group: str = "eval") -> Any:
    """Import a module of an extra, or raise an error that says how to install it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        name = module.partition(".")[0]
        raise WhyformerError(f"This needs {name}: in the checkout, pip install -e '.[{group}]'.") from error

"""Plugins: Python files of a user's own that register methods, readers or protocols."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path

from whyformer.errors import WhyformerError

_FILES: set[Path] = set()  # those that were run: a second run would register everything twice


def load_plugins(paths: Iterable[Path] = ()) -> None:
    """Run each file as a module named by its stem; one that was run before is not run again."""
    for path in map(Path, paths):
        file = path.resolve()
        if file in _FILES:
            continue
        spec = importlib.util.spec_from_file_location(file.stem, file)
        if spec is None or spec.loader is None or not file.is_file():
            raise WhyformerError(f"The plugin {str(path)!r} is no Python file.")
        module = importlib.util.module_from_spec(spec)
        sys.modules[file.stem] = module
        spec.loader.exec_module(module)
        _FILES.add(file)

"""The page's folder for files, readable only by this user and deleted when the process ends."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from functools import cache
from pathlib import Path


@cache
def own_folder() -> Path:
    """The folder of this process."""
    folder = Path(tempfile.mkdtemp(prefix="whyformer-app-")).resolve()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder

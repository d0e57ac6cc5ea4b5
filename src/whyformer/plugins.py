"""Plugins: a user's own files and packages that register methods, readers, families or protocols."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
import traceback
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from whyformer.errors import WhyformerError, reason_of

GROUP = "whyformer.plugins"
# Files that have run, with the digest of their content: a second run would register everything twice.
_FILES: dict[Path, str] = {}


def load_plugins(paths: str | Path | Iterable[str | Path] = (), *, entry_points: bool = True) -> tuple[str, ...]:
    """Run plugins, to use the methods, readers and protocols that they register by name.

    A plugin is Python code that runs with all your rights: load only files that you would run yourself.

    Args:
        paths: Python files. A file that was loaded before and has not changed is not run again.
        entry_points: Whether to load installed packages with the entry point `whyformer.plugins` too.

    Returns:
        The names of all loaded plugins: paths of files, names of entry points.

    Raises:
        WhyformerError: If a file does not exist or is not a Python file, or a plugin fails; the message has file and
            line.

    Example:
        >>> import tempfile, pathlib, whyformer
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "my_methods.py"
        >>> _ = path.write_text("from whyformer.extend import method  # @method('my_method', …) …")
        >>> whyformer.extend.load_plugins(path, entry_points=False)[-1] == str(path.resolve())
        True
    """
    names = []
    for path in [paths] if isinstance(paths, (str, Path)) else paths:
        file = _plugin_file(Path(path))
        content = file.read_bytes()
        digest = sha256(content).hexdigest()
        if _FILES.get(file) != digest:
            _run_file(file, content, str(path))
            _FILES[file] = digest
    if entry_points:
        for point in importlib.metadata.entry_points(group=GROUP):
            _run_entry_point(point)
            names.append(point.name)
    return (*names, *map(str, _FILES))


def _plugin_file(path: Path) -> Path:
    if not path.is_file():
        raise WhyformerError(f"--plugin {str(path)!r}: no such file. Name a Python file.")
    if path.suffix != ".py":
        raise WhyformerError(f"--plugin {str(path)!r} is not a Python file: its name must end in .py.")
    return path.resolve()


def _run_file(file: Path, content: bytes, name: str) -> None:
    """Run the content itself: an import may use stale bytecode of a file with the same size and second."""
    module_name = f"whyformer_plugin_{file.stem}_{sha256(str(file).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(module_name, file)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # dataclasses and type hints look their module up there
    try:
        exec(compile(content, str(file), "exec"), vars(module))
    except (Exception, SystemExit) as error:
        del sys.modules[module_name]
        raise WhyformerError(f"Plugin {name!r}{_line(error, str(file))}: {_reason(error)}") from error


def _run_entry_point(point: importlib.metadata.EntryPoint) -> None:
    try:
        point.load()
    except (Exception, SystemExit) as error:
        package = point.dist.name if point.dist is not None else "an unknown package"
        raise WhyformerError(
            f"Plugin {point.name!r} ({point.value}) of the installed package {package}{_line(error)}: "
            f"{_reason(error)} Fix it, or uninstall {package}."
        ) from error


def _line(error: BaseException, file: str | None = None) -> str:
    """The line of the error in the plugin's file, or without a file in any file."""
    if isinstance(error, SyntaxError) and file in (None, error.filename):
        return f", line {error.lineno}" if file else f", {error.filename}, line {error.lineno}"
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if (frame.filename == file if file else "importlib" not in frame.filename)
    ]
    if not frames:
        return ""
    return f", line {frames[-1].lineno}" if file else f", {frames[-1].filename}, line {frames[-1].lineno}"


def _reason(error: BaseException) -> str:
    """The type and message of an error; only the message for our own errors."""
    if isinstance(error, WhyformerError):
        return str(error)
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    return f"{type(error).__name__}: {message.rstrip('.')}." if message else f"{reason_of(error)}."

"""What the package offers, as plain data: told from its source files where importing them would cost seconds."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whyformer.plugins import has_plugins, load_plugins
from whyformer.tracing.reads import OF_SOURCES, OF_SUBSETS, Reads

if TYPE_CHECKING:
    from whyformer.methods.registry import Method, SourceMethod

METHODS_FOLDER = Path(str(files("whyformer"))) / "methods"


def method_documents(plugins: Sequence[Path] = ()) -> list[dict[str, Any]]:
    """Name, summary, what is read, and options of every method.

    The methods of the package are read from their source: importing them would import torch. Those of plugins
    register themselves only when they are run, so with a plugin everything comes from the registry.
    """
    if not has_plugins(plugins):
        return [document for file in sorted(METHODS_FOLDER.glob("*.py")) for document in _methods_in(file)]
    from whyformer.methods.registry import ABLATION_METHODS, METHODS, PICTURE_METHODS, SOURCE_METHODS

    load_plugins(plugins)
    # Those of plugins are the last of METHODS.
    kinds = (SOURCE_METHODS, ABLATION_METHODS, PICTURE_METHODS, METHODS)
    return [method_document(method) for methods in kinds for method in methods.values()]


def method_document(method: Method | SourceMethod) -> dict[str, Any]:
    """A registered method as `whyformer methods` lists it."""
    options = {name: parameter.default for name, parameter in method.options.items()}
    return {"name": method.name, "summary": method.summary, "reads": str(method.reads), "options": options}


def _methods_in(file: Path) -> Iterator[dict[str, Any]]:
    """The functions that `@method("name", reads=…)` decorates, or one of its kind: `@picture_method` and others."""
    for function in ast.parse(file.read_text(encoding="utf-8")).body:
        if not isinstance(function, ast.FunctionDef):
            continue
        for decorator in function.decorator_list:
            match decorator:
                case ast.Call(func=ast.Name("method" | "picture_method"), args=[ast.Constant(name)], keywords=keywords):
                    reads = _reads(next(keyword.value for keyword in keywords if keyword.arg == "reads"))
                case ast.Call(func=ast.Name("source_method"), args=[ast.Constant(name)]):
                    reads = OF_SOURCES
                case ast.Call(func=ast.Name("ablation_method"), args=[ast.Constant(name)]):
                    reads = OF_SUBSETS
                case _:
                    continue
            summary = (ast.get_docstring(function) or "").partition("\n")[0]
            yield {"name": name, "summary": summary, "reads": reads, "options": _options(function.args)}


def _reads(expression: ast.expr) -> str:
    """What a method reads, in words: `Reads(maps="all")` is "maps"."""
    match expression:
        case ast.Call(func=ast.Name("Reads"), args=[], keywords=keywords):
            return str(Reads(**{str(keyword.arg): _value(keyword.value) for keyword in keywords}))
    return ast.unparse(expression)


def _options(arguments: ast.arguments) -> dict[str, Any]:
    """The keyword-only arguments with their defaults."""
    pairs = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return {argument.arg: None if default is None else _value(default) for argument, default in pairs}


def _value(expression: ast.expr) -> Any:
    """What an expression says: its value where it is a literal, else its source."""
    try:
        return ast.literal_eval(expression)
    except ValueError:
        return ast.unparse(expression)

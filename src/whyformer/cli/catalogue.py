"""List what the package offers as plain data, read from source files where importing them would take seconds."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from whyformer.plugins import has_plugins, load_plugins
from whyformer.tracing.reads import Reads

if TYPE_CHECKING:
    from whyformer.methods.registry import Method

METHODS_FOLDER = Path(str(files("whyformer"))) / "methods"


def method_documents(plugins: Sequence[Path] = ()) -> list[dict[str, Any]]:
    """Name, summary, reads, kinds and options of every method, those of plugins last.

    The package's methods are parsed from source: importing them would import torch. Plugins register methods only when
    they run, so with a plugin everything comes from the registry.
    """
    documents = [document for file in sorted(METHODS_FOLDER.glob("*.py")) for document in _methods_in(file)]
    if not has_plugins(plugins):
        return documents
    from whyformer.methods.registry import METHODS

    load_plugins(plugins)
    names = dict.fromkeys([*(document["name"] for document in documents), *METHODS])
    return [method_document(METHODS[name]) for name in names]


def method_document(method: Method) -> dict[str, Any]:
    """A registered method, as listed by `whyformer methods`."""
    options = {name: parameter.default for name, parameter in method.options.items()}
    return _document(method.name, method.summary, method.reads, method.kinds, options)


def _document(name: str, summary: str, reads: Reads, kinds: Sequence[str], options: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "summary": summary, "reads": str(reads), "kinds": list(kinds), "options": options}


def _methods_in(file: Path) -> Iterator[dict[str, Any]]:
    """The functions that `@method("name", reads=…)` decorates."""
    for function in ast.parse(file.read_text(encoding="utf-8")).body:
        for decorator in function.decorator_list if isinstance(function, ast.FunctionDef) else ():
            match decorator, function:
                case ast.Call(func=ast.Name("method"), args=[ast.Constant(name)], keywords=given), ast.FunctionDef():
                    keywords = {str(keyword.arg): keyword.value for keyword in given}
                    reads = _reads(keywords["reads"])
                    kinds = _value(keywords["kinds"]) if "kinds" in keywords else reads.kinds
                    summary = (ast.get_docstring(function) or "").partition("\n")[0]
                    yield _document(str(name), summary, reads, kinds, _options(function.args))


def _reads(expression: ast.expr) -> Reads:
    """The tensors a method reads, parsed from the source of `Reads(…)`."""
    match expression:
        case ast.Call(func=ast.Name("Reads"), args=[], keywords=keywords):
            return Reads(**{str(keyword.arg): _value(keyword.value) for keyword in keywords})
    raise ValueError(f"{ast.unparse(expression)} is not Reads(…)")


def _options(arguments: ast.arguments) -> dict[str, Any]:
    """The keyword-only arguments with their defaults."""
    pairs = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return {argument.arg: None if default is None else _value(default) for argument, default in pairs}


def _value(expression: ast.expr) -> Any:
    """Value of a literal expression, else its source."""
    try:
        return ast.literal_eval(expression)
    except ValueError:
        return ast.unparse(expression)

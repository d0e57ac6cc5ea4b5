"""Python and command lines that reproduce the results of the page."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from whyformer.app.bundled_examples import file_recipe


@dataclass(frozen=True)
class Code:
    """Complete Python and command line that reproduce a result."""

    python: str
    command: str


@dataclass(frozen=True)
class Expression:
    """Python code to insert verbatim in a call, not as a string."""

    text: str

    def __repr__(self) -> str:
        return self.text


def call(function: str, *arguments: Any, **keywords: Any) -> str:
    """Format a call, without keywords that are None."""
    named = [f"{name}={value!r}" for name, value in keywords.items() if value is not None]
    inside = [*map(repr, arguments), *named]
    line = f"{function}({', '.join(inside)})"
    if len(line) <= 88:
        return line
    return "\n".join([f"{function}(", *(f"    {text}," for text in inside), ")"])


def command(name: str, *arguments: str, **options: Any) -> str:
    """Format a command, without options that are None, and with a sequence as a repeated option."""
    typed = []
    for option, value in options.items():
        for one in [] if value is None else [value] if isinstance(value, (str, int)) else value:
            typed += [f"--{option.replace('_', '-')}", str(one)]
    if any(argument.startswith("-") for argument in arguments):  # it would be parsed as an option
        return shlex.join(["whyformer", name, *typed, "--", *arguments])
    return shlex.join(["whyformer", name, *arguments, *typed])


def complete_code(path: str | None, lines: Sequence[str], commands: Sequence[str]) -> Code:
    """Code that runs in an empty folder: a file of the page's own is written there first."""
    imports, first, typed = [], [], []
    if recipe := file_recipe(path):
        imports, first = [*recipe.imports], [recipe.statement]
        typed = [shlex.join(["python", "-c", "; ".join([*(imports or ["import whyformer"]), *first])])]
    python = [*imports, *[""] * bool(imports), "import whyformer", "", *first, *lines]
    return Code("\n".join(python), "\n".join([*typed, *commands]))


def explain_code(
    path: str | None,
    argument: str,
    example: Any,
    model: str,
    target: str | None,
    rather_than: str | None,
    methods: Sequence[str | None],
    *,
    extra: Mapping[str, Any] | None = None,
    query: int | None = None,
) -> Code:
    """Code that explains one example by each of the methods; `extra` are options of the command line only.

    `path` is the file that the page reads, None for a text.
    """
    target_code: Any = target
    if rather_than is not None:
        target_code = Expression(call("whyformer.contrast", target, rather_than))
    if query is not None:
        target_code = Expression(call("whyformer.detection", query, target))
    stem, several = "explanation", len(methods) > 1
    lines, commands = [], []
    for method in methods:
        name = f"{method or 'default'}_{stem}" if several else stem
        file = f"{method or 'default'}.html" if several else f"{stem}.html"
        lines.append(f"{name} = {call('whyformer.explain', example, model=model, target=target_code, method=method)}")
        lines.append(f"{name}.save({file!r})")
        options = {"model": model, **(extra or {}), "target": target, "rather_than": rather_than, "query": query}
        commands.append(command("explain", argument, **options, method=method, out=file))
    return complete_code(path, lines, commands)

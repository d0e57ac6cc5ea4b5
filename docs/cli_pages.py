"""The reference of the command line, from the commands themselves: docs/api/cli.md, written by docs/tables.py."""

from __future__ import annotations

import re
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import typer
from docstrings import linked_pages
from evaluations import lines as table

from whyformer.cli.program import app

INTRODUCTION = """# Command line

Every command of `whyformer`, with its arguments and options. `whyformer COMMAND --help` prints the same."""


def cli_page() -> str:
    """A section for each command, the most used first."""
    program: Any = typer.main.get_command(app)
    commands = program.commands
    rows = [[f"[`{name}`](#{name})", _sentence(command)] for name, command in commands.items()]
    parts = [INTRODUCTION, table(["command", "what it does"], rows)]
    parts += [section(name, command) for name, command in commands.items()]
    return "\n\n".join(parts) + "\n"


def section(name: str, command: Any) -> str:
    """A command: what it does, how it is called, its options by their panels, and examples."""
    parts = [f"## {name}", plain(command.help), f"```shell\n{usage(name, command)}\n```"]
    groups: dict[str, list[list[str]]] = {}
    for parameter in command.params:
        if not parameter.hidden:
            panel = "Arguments" if parameter.param_type_name == "argument" else parameter.rich_help_panel or "Options"
            groups.setdefault(panel, []).append(_row(parameter))
    for panel, rows in groups.items():
        parts.append(f"**{panel}**\n\n{table(['', 'default', 'meaning'], rows)}")
    if examples := [line for line in (command.epilog or "").split("\n\n") if line.startswith(("whyformer", "curl"))]:
        parts.append("**Examples**\n\n```shell\n" + "\n".join(examples) + "\n```")
    return "\n\n".join(parts)


def usage(name: str, command: Any) -> str:
    arguments = [_argument(each) for each in command.params if each.param_type_name == "argument"]
    return " ".join(["whyformer", name, "[OPTIONS]", *arguments])


def _argument(parameter: Any) -> str:
    name = (parameter.metavar or parameter.name.upper()) + ("..." if parameter.nargs != 1 else "")
    return name if parameter.required else f"[{name}]"


def _row(parameter: Any) -> list[str]:
    if parameter.param_type_name == "argument":
        shown = f"`{_argument(parameter)}`"
    else:
        names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
        value = _value(parameter)
        shown = f"{names} {value}".strip()
    return [shown, _default(parameter), linked_pages(plain(parameter.help or "")).replace("|", "\\|")]


def _value(parameter: Any) -> str:
    """What an option takes: its choices, its name for a value, or its type; nothing for a flag."""
    if choices := list(_choices(parameter.type_descriptor.annotation)):
        return " \\| ".join(f"`{choice}`" for choice in choices)
    if parameter.is_flag or parameter.metavar == "":
        return ""
    return f"`{parameter.metavar or _type_name(parameter.type_descriptor.annotation)}`"


def _choices(annotation: Any) -> Iterator[str]:
    if get_origin(annotation) is Literal:
        yield from (str(value) for value in get_args(annotation))
    elif get_origin(annotation) in (Union, types.UnionType, list):
        for part in get_args(annotation):
            yield from _choices(part)


def _type_name(annotation: Any) -> str:
    parts = [part for part in get_args(annotation) if part is not type(None)]
    if parts:
        return _type_name(parts[0])
    return {str: "TEXT", int: "NUMBER", float: "NUMBER", Path: "PATH"}.get(annotation, "VALUE")


def _default(parameter: Any) -> str:
    default = parameter.default
    if default is None or default is False or default == [] or callable(default) or parameter.required:
        return ""
    return f"`{default}`" if default is not True else "on"


def plain(text: str) -> str:
    """A help text on one line, without the marks of terminals; asterisks and brackets outside code stay themselves."""
    text = " ".join(text.replace("\b", "").split())
    return re.sub(r"`[^`]*`|[*<]", lambda match: match[0] if len(match[0]) > 1 else f"\\{match[0]}", text)


def _sentence(command: Any) -> str:
    return re.split(r"(?<=\.) ", plain(command.help))[0]

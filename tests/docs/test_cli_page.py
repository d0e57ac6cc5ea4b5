"""The reference of the command line has every command, option, choice and default of the program."""

from __future__ import annotations

import re

import typer
from cli_pages import cli_page, plain, section

from whyformer.cli.program import app

COMMANDS = typer.main.get_command(app).commands


def test_every_command_and_option_has_its_place():
    page = cli_page()
    assert re.findall(r"^## (\S+)$", page, re.MULTILINE) == list(COMMANDS)
    for name, command in COMMANDS.items():
        own = section(name, command)
        assert own in page
        assert not [
            option
            for each in command.params
            for option in each.opts
            if f"`{option}" not in own.lower() and f"`{each.metavar}" not in own and f"`[{each.metavar}" not in own
        ]


def test_choices_defaults_and_repeated_arguments_are_shown():
    explain = section("explain", COMMANDS["explain"])
    assert "whyformer explain [OPTIONS] INPUT..." in explain
    assert "| `--model` `TEXT` | `mini-vit` |" in explain
    assert "| `--format` `html` \\| `png` \\| `json` \\| `npz` \\| `audit.json` |" in explain
    assert "| `--each` |  |" in explain
    assert "whyformer explain photo.jpg --out photo.html\n" in explain
    assert "The suite to measure: [Evaluation](../guides/evaluation.md)." in section("evaluate", COMMANDS["evaluate"])


def test_a_help_text_cannot_change_the_table():
    assert plain("Files  like *.html\n<name>, `a*b`") == r"Files like \*.html \<name>, `a*b`"

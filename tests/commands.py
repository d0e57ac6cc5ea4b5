"""The command line run from inside and as a real process."""

import shlex
import subprocess
import sys

from typer.testing import CliRunner

from whyformer.cli import app

COMMAND = [sys.executable, "-m", "whyformer"]


def invoke(*arguments, input=None):
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=input)


def run(*arguments, input=None):
    """What a command that succeeds prints; it has nothing to say on stderr."""
    result = invoke(*arguments, input=input)
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    return result.stdout


def refusal(*arguments, input=None):
    """The one line that a command ends with."""
    result = invoke(*arguments, input=input)
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    assert result.stderr.startswith("whyformer: ")
    assert result.stderr.count("\n") == 1
    return result.stderr.removeprefix("whyformer: ").removesuffix("\n")


def process(*arguments, encoding="utf-8", **settings):
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, encoding=encoding, timeout=600, **settings)


def script_commands(script):
    """The commands of a shell script as they are typed, each on its lines, with their words."""
    lines = ""
    for line in script.strip().split("\n"):
        lines += line
        try:
            words = shlex.split(lines, comments=True)
        except ValueError:  # a quotation that the next line goes on with
            lines += "\n"
            continue
        yield lines, words
        lines = ""


def run_script(script, *options):
    """What the whyformer commands of a script print, run with these options more; what else is in it is done first."""
    printed = []
    for lines, (program, *arguments) in script_commands(script):
        if program == "whyformer":
            printed.append(run(arguments[0], *options, *arguments[1:]))
        elif program == "python":
            flag, code = arguments
            assert flag == "-c"
            exec(code, {})
        else:
            subprocess.run(["sh", "-c", lines], check=True)
    return printed

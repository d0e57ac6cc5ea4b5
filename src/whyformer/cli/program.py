"""The program `whyformer`: its commands and its error handling."""

from __future__ import annotations

import io
import os
import sys
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from whyformer.cli import INTERRUPTED
from whyformer.cli.action_command import action_command
from whyformer.cli.audit_commands import keygen, verify_command
from whyformer.cli.command_options import FLAG, help_examples
from whyformer.cli.compare_command import compare_command
from whyformer.cli.console import complain
from whyformer.cli.diff_command import diff_command
from whyformer.cli.evaluate_commands import demo, evaluate_command, report_command, schema
from whyformer.cli.explain_command import continue_, explain_command
from whyformer.cli.learn_command import learn_command
from whyformer.cli.listings import doctor_command, methods, models
from whyformer.cli.mcp_command import mcp_command
from whyformer.cli.recommend_command import recommend_command
from whyformer.cli.response_command import response_
from whyformer.cli.support_command import calibrate_command, support_command
from whyformer.cli.survey_command import survey_command
from whyformer.cli.web_page import web_page
from whyformer.errors import WhyformerError

UNUSABLE = 2


class OneLineErrors(TyperGroup):
    """Commands that report errors as one line on stderr and an exit code."""

    def main(self, *args: Any, **extra: Any) -> Any:
        try:
            code = super().main(*args, **extra | {"standalone_mode": False})
            sys.stdout.flush()
        except BrokenPipeError:
            # The reader has closed the pipe: keep Python's flush at exit from failing too.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)
        except (WhyformerError, OSError) as error:
            complain(str(error))
            sys.exit(UNUSABLE)
        except typer.TyperException as error:
            complain(error.format_message())
            sys.exit(UNUSABLE)
        if code == INTERRUPTED:
            typer.echo("whyformer: stopped.", err=True)
        sys.exit(code or 0)


app = typer.Typer(cls=OneLineErrors, add_completion=False, pretty_exceptions_enable=False)


def run() -> None:
    """Run the command of this process."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # terminals without block characters show question marks
    app(prog_name="whyformer")


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"whyformer {version('whyformer')}")
        raise typer.Exit


@app.callback(
    invoke_without_command=True,
    epilog=help_examples(
        "whyformer explain photo.jpg --target cat --out cat.html",
        'whyformer explain "A wonderful film." --model mini-bert',
        "whyformer compare photo.jpg --out comparison.html",
        "See `whyformer COMMAND --help` for each.",
    ),
)
def whyformer(
    context: typer.Context,
    _: Annotated[
        bool, typer.Option("--version", metavar=FLAG, help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Explain why a Transformer answered as it did."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


app.command(
    "explain",
    epilog=help_examples(
        "whyformer explain photo.jpg --out photo.html",
        'whyformer explain "A wonderful film." --model mini-bert --target positive --rather-than negative',
        'whyformer explain photo.jpg --model mini-clip --text "a photo of a cat" --text "a photo of a dog"',
        'whyformer explain "It landed in 1969." --model ./my-tagger --each --out tags.html',
        "whyformer explain photos/ --out pages --format png",
        "curl -s https://example.org/photo.jpg | whyformer explain - --json",
    ),
)(explain_command)
app.command(
    "continue",
    epilog=help_examples(
        'whyformer continue "The film was" --tokens 12 --out film.html',
        "whyformer continue question.txt --model mini-t5 --json",
    ),
)(continue_)
app.command(
    "response",
    epilog=help_examples(
        'whyformer response "The music was great. The film was" --response " great too." --out film.html',
        'whyformer response "Where is it?" --context a.txt --context b.txt --response answer.txt --sources document',
        "whyformer response --messages chat.json --model ./my-model --units sentence --json",
        "whyformer response --batch log.jsonl --out pages",
    ),
)(response_)
app.command(
    "action",
    epilog=help_examples(
        "whyformer action transcript.json --model ./my-agent --out call.html",
        "whyformer action transcript.json --model ./my-agent --trust read_file=trusted --json",
        "whyformer action transcripts.jsonl --model ./my-agent --batch --out report.html",
    ),
)(action_command)
app.command(
    "support",
    epilog=help_examples(
        "whyformer support log.jsonl --model ./my-model --out report.html",
        "whyformer support log.jsonl --model ./my-model --out report.html --fail-under 0.9",
    ),
)(support_command)
app.command(
    "calibrate",
    epilog=help_examples("whyformer calibrate ./my-model", "whyformer calibrate ./my-model --data labelled.jsonl"),
)(calibrate_command)
app.command(
    "learn",
    epilog=help_examples(
        "whyformer learn ./my-model",
        "whyformer response --messages chat.json --model ./my-model --method at2",
    ),
)(learn_command)
app.command(
    "survey",
    epilog=help_examples(
        "whyformer survey mini-bert reviews.csv --out report.html",
        "whyformer survey ./my-model reviews.csv --label pos=positive --label neg=negative --should-ignore names.txt",
        "whyformer survey mini-vit photos --should-ignore masks",
    ),
)(survey_command)
app.command(
    "diff",
    epilog=help_examples(
        "whyformer diff ./my-model ./my-quantised-model reviews.csv --out diff.html",
        "whyformer diff ./old ./new reviews.csv --fail-if-changed 0.05 --fail-if-reasons-changed 0.1",
    ),
)(diff_command)
app.command(
    "compare",
    epilog=help_examples(
        "whyformer compare photo.jpg",
        "whyformer compare photo.jpg --target cat --target dog --method default --method grad_cam --out cats.png",
        'whyformer compare "A dull film." --model mini-bert --backward libra --option steps=4 --json',
    ),
)(compare_command)
app.command(
    "verify",
    epilog=help_examples(
        "whyformer explain photo.jpg --out photo.audit.json",
        "whyformer verify photo.audit.json",
        "whyformer verify photo.audit.json --input elsewhere/photo.jpg",
        "whyformer verify photo.audit.json --key audit.key.pub",
    ),
)(verify_command)
app.command(
    epilog=help_examples(
        "whyformer keygen audit.key", "whyformer explain photo.jpg --out photo.audit.json --sign audit.key"
    )
)(keygen)
app.command(epilog=help_examples("whyformer methods", "whyformer methods --plugin my_methods.py --json"))(methods)
app.command(epilog=help_examples("whyformer models", "whyformer models --json"))(models)
app.command(
    "doctor",
    epilog=help_examples("whyformer doctor mini-detr", "whyformer doctor ./my-model --dtype bfloat16 --device cuda"),
)(doctor_command)
app.command(
    "evaluate",
    epilog=help_examples(
        "whyformer evaluate benchmarks/suites/quick.toml --out results",
        "whyformer evaluate my_suite.toml --out results --plugin my_methods.py --engine ray",
    ),
)(evaluate_command)
app.command(
    "recommend",
    epilog=help_examples(
        "whyformer recommend mini-vit --data photos --out advice.html",
        "whyformer recommend mini-bert --data reviews.csv --minutes 5",
        "whyformer recommend mini-visualbert --reader scenes --reader-option count=64 --minutes 2",
    ),
)(recommend_command)
app.command(epilog=help_examples("whyformer schema > suite.schema.json"))(schema)
app.command(
    "report", epilog=help_examples("whyformer report results", "whyformer report results --against other-results")
)(report_command)
app.command(epilog=help_examples("whyformer demo --out demo"))(demo)
app.command(
    "app",
    epilog=help_examples("whyformer app", "whyformer app --model ./my-model --port 8000", "whyformer app --any-model"),
)(web_page)
app.command("mcp", epilog=help_examples("whyformer mcp", "whyformer mcp --folder ./documents --model ./my-model"))(
    mcp_command
)

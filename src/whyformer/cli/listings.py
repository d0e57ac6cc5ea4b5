"""`whyformer methods`, `models` and `doctor`: list methods and models, and check a model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from whyformer.cli import command_options
from whyformer.cli.call_arguments import load_model
from whyformer.cli.console import safe
from whyformer.plugins import load_plugins

if TYPE_CHECKING:
    from whyformer.methods.registry import Method
    from whyformer.models.loading import LoadedModel


def methods(plugin: command_options.Plugins = None, as_json: command_options.AsJson = False) -> None:
    """List the methods: what each reads and explains, and its options."""
    from whyformer.methods.registry import METHODS

    load_plugins(plugin or ())
    documents = [_method_document(method) for method in METHODS.values()]
    if as_json:
        typer.echo(json.dumps(documents, indent=1, default=repr))
        return
    for document in documents:
        values = " ".join(f"{name}={value}" for name, value in document["options"].items())
        facts = {
            "": document["summary"],
            "reads": document["reads"],
            "for": ", ".join(document["kinds"]),
            "options": values or "none",
        }
        _print_entry(document["name"], "", facts)
    typer.echo("Methods that read gradients also have noise and noise_samples (SmoothGrad).")
    typer.echo("The default is evidence, chosen by a rule fixed before measuring.")
    typer.echo("For words about pictures it is generic_attention by libra.")


def _method_document(method: Method) -> dict[str, Any]:
    """The facts of a method: name, summary, what it reads and explains, options with their defaults."""
    return {
        "name": method.name,
        "summary": method.summary,
        "reads": str(method.reads),
        "kinds": list(method.kinds),
        "options": {name: parameter.default for name, parameter in method.options.items()},
    }


def models(as_json: command_options.AsJson = False) -> None:
    """List the bundled models."""
    from whyformer.models.zoo import bundled, bundled_folder, model_card

    cards = [model_card(bundled_folder(name)) for name in bundled()]
    if as_json:
        typer.echo(json.dumps(cards, indent=1))
        return
    if not cards:
        typer.echo("No model is bundled: give --model a folder or a Hugging Face id.")
        return
    for card in cards:
        facts = {"": card["about"], "labels": ", ".join(card["labels"])}
        shown = {fact: value for fact, value in facts.items() if value}
        _print_entry(card["name"], f"{card['task']} · {card['class']}, {card['megabytes']:.1f} MB", shown)
    typer.echo("`whyformer models --json` also lists training data, measurements and licences.")


def doctor_command(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A bundled model, a folder, or a Hugging Face id.")],
    plugin: command_options.Plugins = None,
    as_json: command_options.AsJson = False,
    device: command_options.DeviceName = None,
    dtype: command_options.DtypeOption = None,
    tokens: Annotated[
        int | None, typer.Option(help="Also estimate the memory of each method for a text of this many tokens.")
    ] = None,
    plan: Annotated[
        str | None,
        typer.Option(
            metavar="EXAMPLE", help="Instead print the plan for this input and the recorded blocks of the model."
        ),
    ] = None,
    text: command_options.Texts = None,
    method: command_options.MethodName = None,
) -> None:
    """Check a model before trusting its explanations; exit code 1 if something is wrong."""
    from whyformer.api.doctor import checkup

    load_plugins(plugin or ())
    if plan is not None:
        _print_plan(plan, text or [], method, load_model(model, device=device, dtype=dtype, quiet=as_json))
        return
    result = checkup(load_model(model, device=device, dtype=dtype, quiet=as_json), tokens=tokens)
    typer.echo(json.dumps({"is_healthy": result.is_healthy, **asdict(result)}, indent=1) if as_json else result)
    raise typer.Exit(0 if result.is_healthy else 1)


def _print_plan(argument: str, texts: Sequence[str], method: str | None, loaded_model: LoadedModel) -> None:
    from whyformer.api.plan_report import plan_report
    from whyformer.cli.inputs import example_of, read_inputs
    from whyformer.inputs.read import strings_are_texts

    example = example_of(read_inputs([argument])[0], None, texts, loaded_model)
    with strings_are_texts():
        typer.echo(plan_report(loaded_model, example, method))


def _print_entry(name: str, heading: str, facts: Mapping[str, str]) -> None:
    table = Table.grid(Column(no_wrap=True), Column(), padding=(0, 2))
    for fact, value in facts.items():
        table.add_row(f"  {fact}", escape(safe(value)))
    Console().print(f"[bold]{escape(safe(name))}[/bold] {escape(heading)}".rstrip(), table, "", sep="\n")

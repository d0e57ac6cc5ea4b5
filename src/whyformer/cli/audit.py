"""`whyformer verify`: an explanation computed again from its audit file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from whyformer.cli import options
from whyformer.plugins import load_plugins


def verify(
    audit: Annotated[Path, typer.Argument(metavar="AUDIT.json", help="What `explain --out NAME.audit.json` wrote.")],
    input: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="A picture, sound or file that was explained, where it is no longer in its place or was never in a "
            "file; of several each, in order.",
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="The model, where it is no longer in its place: a folder or a Hugging Face id.")
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            min=0, help="How far scores may be apart, as a share of the largest; what the file states if not given."
        ),
    ] = None,
    plugin: options.Plugins = None,
    as_json: options.AsJson = False,
) -> None:
    """Compute an explanation again from its audit file; exit code 1 if the model, the input or a score is another."""
    from whyformer.api.verify import verify

    load_plugins(plugin or ())
    result = verify(audit, inputs=input or (), model=model, tolerance=tolerance)
    typer.echo(json.dumps(result.to_dict()) if as_json else result)
    raise typer.Exit(0 if result.agrees else 1)

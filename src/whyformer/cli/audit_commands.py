"""`whyformer verify` and `whyformer keygen`: explanations computed again from audit files, and keys to sign them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from whyformer.cli import command_options
from whyformer.cli.console import safe
from whyformer.plugins import load_plugins


def verify_command(
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
            min=0,
            help="How far scores may be apart, as a share of the largest; if not given, what is usual for the method "
            "and the precision. The file has no say in it.",
        ),
    ] = None,
    key: Annotated[
        Path | None, typer.Option(metavar="PUBLIC", help="The public key that the file must be signed with.")
    ] = None,
    plugin: command_options.Plugins = None,
    as_json: command_options.AsJson = False,
) -> None:
    """Compute an explanation again from its audit file; exit code 1 if anything that can be compared is another."""
    from whyformer.api.verify import verify

    load_plugins(plugin or ())
    result = verify(audit, inputs=input or (), model=model, tolerance=tolerance, key=key)
    typer.echo(json.dumps(result.to_dict()) if as_json else result)
    raise typer.Exit(0 if result.agrees else 1)


def keygen(
    path: Annotated[
        Path, typer.Argument(metavar="KEY", help="The file of the private key; KEY.pub is the public one.")
    ],
) -> None:
    """Make a pair of keys (Ed25519): `explain --sign KEY` signs audit files, `verify --key KEY.pub` checks them."""
    from whyformer.api.signatures import make_keys

    public = make_keys(path)
    typer.echo(f"Written: {safe(path)} (keep it secret) and {safe(public)}")

"""`whyformer verify` and `whyformer keygen`: recompute explanations from audit files, and create keys to sign them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from whyformer.cli import command_options
from whyformer.cli.console import safe
from whyformer.plugins import load_plugins


def verify_command(
    audit: Annotated[
        Path, typer.Argument(metavar="AUDIT.json", help="A file written by `explain --out NAME.audit.json`.")
    ],
    input: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="A picture, sound or file that was explained, if it has moved or was never in a file; repeat it for "
            "several, in order.",
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="The model, if it has moved: a folder or a Hugging Face id.")
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="The tolerance of scores, as a share of the largest; by default fixed by method and precision, "
            "independent of the file.",
        ),
    ] = None,
    key: Annotated[
        Path | None, typer.Option(metavar="PUBLIC", help="The public key that the file must be signed with.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Also write a readable record on one page, for printing.")
    ] = None,
    plugin: command_options.Plugins = None,
    as_json: command_options.AsJson = False,
) -> None:
    """Recompute an explanation from its audit file; exit code 1 if anything that can be compared differs."""
    from whyformer.api.audit_reading import read_audit
    from whyformer.api.verify import verify
    from whyformer.files import write_whole
    from whyformer.render.audit_record import audit_record_page

    load_plugins(plugin or ())
    result = verify(audit, inputs=input or (), model=model, tolerance=tolerance, key=key)
    if html is not None:
        record = audit_record_page(read_audit(audit), result)
        write_whole(html, record.encode())
    typer.echo(json.dumps(result.to_dict()) if as_json else result)
    raise typer.Exit(0 if result.agrees else 1)


def keygen(
    path: Annotated[
        Path, typer.Argument(metavar="KEY", help="The file of the private key; KEY.pub is the public one.")
    ],
) -> None:
    """Create a key pair (Ed25519): `explain --sign KEY` signs audit files, `verify --key KEY.pub` checks them."""
    from whyformer.api.signatures import make_keys

    public = make_keys(path)
    typer.echo(f"Written: {safe(path)} (keep it secret) and {safe(public)}")

"""`whyformer app`: the web page."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from whyformer.cli.command_options import FLAG, MACHINE
from whyformer.cli.console import announce, complain
from whyformer.errors import WhyformerError
from whyformer.extras import extra

LOCALHOST = "127.0.0.1"
OfferedModelsOption = Annotated[
    list[str] | None,
    typer.Option(help="A folder or a Hugging Face id to offer in addition to the bundled models; can be repeated."),
]
AnyModel = Annotated[
    bool,
    typer.Option("--any-model", metavar=FLAG, help="Let visitors name any folder of this machine or Hugging Face id."),
]
Port = Annotated[int, typer.Option(help="The port to listen on.", min=1, max=65535, rich_help_panel=MACHINE)]
Host = Annotated[
    str, typer.Option(help="The address to listen on; 0.0.0.0 accepts every machine.", rich_help_panel=MACHINE)
]
AllowHost = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Another host name of the page, such as that of a proxy; can be repeated.",
        rich_help_panel=MACHINE,
    ),
]
Share = Annotated[
    bool,
    typer.Option(
        "--share", metavar=FLAG, help="Create a public link through Gradio's servers.", rich_help_panel=MACHINE
    ),
]
NoBrowser = Annotated[
    bool, typer.Option("--no-browser", metavar=FLAG, help="Do not open a browser.", rich_help_panel=MACHINE)
]


def web_page(
    model: OfferedModelsOption = None,
    any_model: AnyModel = False,
    port: Port = 7860,
    host: Host = LOCALHOST,
    allow_host: AllowHost = None,
    share: Share = False,
    no_browser: NoBrowser = False,
) -> None:
    """Open the web page, on this machine only: explain pictures, texts, responses and more by clicks."""
    extra("gradio", "app")
    from whyformer.app.models import model_choice
    from whyformer.app.server import launch
    from whyformer.app.setup import Setup

    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    is_open = share or host not in (LOCALHOST, "localhost", "::1")
    if is_open:
        who = "anyone with the link" if share else "anyone who can reach this machine"
        complain(f"warning: {who} can use this page and its models, without a password.")
    if is_open and any_model:
        complain("warning: with --any-model they can also load any model folder of this machine.")
    setup = Setup(model_choice(model or (), takes_any=any_model))
    try:
        page = launch(
            setup,
            host=host,
            port=port,
            share=share,
            allow_hosts=allow_host or (),
            opens_browser=not no_browser,
            blocks=False,
        )
    except OSError as error:
        taken = "the port is in use, or this machine does not have that address"
        raise WhyformerError(f"Cannot listen on {host}:{port}: {taken}. Choose another --port or --host.") from error
    announce(f"The page is at {page.share_url or page.local_url} — Ctrl-C ends it.", quiet=False)
    with _ended_from_outside_as_by_a_key():
        page.block_thread()


@contextmanager
def _ended_from_outside_as_by_a_key() -> Iterator[None]:
    """Let `kill` end the page like Ctrl-C: the server is closed, and uploads are deleted."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
